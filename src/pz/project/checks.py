"""The checks of a sidecar: six types, each a mapping with the type as its only key. All problems are PZ0113."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from pz.errors import Code, Problems
from pz.project.fields import Fields
from pz.project.keys import CHECKS
from pz.project.model import CheckDecl, CheckKind
from pz.project.nearmiss import near_miss
from pz.project.sqlscan import without_end
from pz.project.yaml_source import Block, Item, Listing, Scalar

__all__ = ["parse_checks"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TYPES = ", ".join(CHECKS)


def parse_checks(owner: Fields) -> tuple[CheckDecl, ...]:
    """The ``checks`` list of a sidecar; faulty ones are reported and left out."""
    item = owner.get("checks")
    if item is None:
        return ()
    if not isinstance(item, Listing):
        owner.report("checks", f"'checks' must be a list, not {item.kind}", code=Code.PZ0113)
        return ()
    found = [_check(entry, owner.file, owner.problems) for entry in item.items]
    checks = [check for check in found if check is not None]
    _refuse_repeats(checks, owner.file, owner.problems)
    return tuple(checks)


def _check(item: Item, file: str, problems: Problems) -> CheckDecl | None:
    if not isinstance(item, Block) or len(item.entries) != 1:
        hint = f"write '- <type>: <options>' with one of {_TYPES}"
        problems.error(
            Code.PZ0113, "a check must be a mapping with one key, its type", file=file, line=item.line, hint=hint
        )
        return None
    ((kind, body),) = item.entries.items()
    if kind not in CHECKS:
        close = near_miss(kind, CHECKS)
        hint = f"did you mean '{close}'?" if close else f"the types are {_TYPES}"
        problems.error(Code.PZ0113, f"unknown check type '{kind}'", file=file, line=item.line_of(kind), hint=hint)
        return None
    block = _as_block(kind, body, item.line_of(kind))
    before = len(problems.errors)
    if block is None:
        message = f"check '{kind}' needs its options as a mapping"
        problems.error(Code.PZ0113, message, file=file, line=item.line_of(kind), hint=f"it takes {_keys_of(kind)}")
        return None
    fields = Fields(block, CHECKS[kind], Code.PZ0113, f"check {kind}", file, problems)
    fields.refuse_unknown()
    check = _PARSERS[CheckKind(kind)](fields)
    return check if len(problems.errors) == before else None


def _as_block(kind: str, body: Item, line: int | None) -> Block | None:
    """The dict form of a check; not_null and unique also take a plain list of columns."""
    if isinstance(body, Block):
        return body.at(line)
    short = isinstance(body, Listing) or (isinstance(body, Scalar) and not body.empty)
    if kind in (CheckKind.NOT_NULL, CheckKind.UNIQUE) and short:
        return Block({"columns": body}, line, {"columns": body.line})
    return None


def _keys_of(kind: str) -> str:
    return ", ".join(key.name for key in CHECKS[kind])


def _columns(fields: Fields, *, single: bool = False) -> tuple[str, ...]:
    if fields.get("column") is not None and fields.get("columns") is not None:
        fields.report("columns", f"'{fields.what}' has both column and columns", hint="keep one of the two")
        return ()
    if fields.get("column") is None and fields.get("columns") is None:
        fields.report("columns", f"'{fields.what}' names no column", hint="add column: <name>")
        return ()
    column = fields.text("column")
    columns = fields.words("columns") if column is None else (column,)
    if single and columns and len(columns) != 1:
        fields.report("columns", f"'{fields.what}' takes exactly one column", hint="write one check per column")
    return columns or ()


def _plain_columns(kind: CheckKind) -> Callable[[Fields], CheckDecl]:
    def parse(fields: Fields) -> CheckDecl:
        return CheckDecl(kind, _columns(fields), sample_values=fields.flag("sample_values"), location=fields.location)

    return parse


def _row_count(fields: Fields) -> CheckDecl:
    low, high = fields.whole("min", 0), fields.whole("max", 0)
    if "min" not in fields.block.entries and "max" not in fields.block.entries:
        fields.report("min", "'check row_count' has neither min nor max", hint="give at least one of them")
    elif fields.get("min") is None and fields.get("max") is None:
        fields.report("min", "'check row_count' has neither min nor max", hint="give at least one of them a number")
    if low is not None and high is not None and low > high:
        fields.report("max", "'check row_count' has a max below its min")
    sample = fields.flag("sample_values")
    return CheckDecl(CheckKind.ROW_COUNT, minimum=low, maximum=high, sample_values=sample, location=fields.location)


def _freshness(fields: Fields) -> CheckDecl:
    fields.require()
    return CheckDecl(
        CheckKind.FRESHNESS,
        _columns(fields, single=True),
        max_age=fields.duration("max_age", positive=True),
        sample_values=fields.flag("sample_values"),
        location=fields.location,
    )


def _accepted_values(fields: Fields) -> CheckDecl:
    fields.require()
    item = fields.get("values")
    scalars = [entry for entry in item.items if isinstance(entry, Scalar)] if isinstance(item, Listing) else []
    if item is not None and (not isinstance(item, Listing) or len(scalars) != len(item.items) or not scalars):
        fields.report("values", "'check accepted_values.values' must be a list of one or more single values")
    return CheckDecl(
        CheckKind.ACCEPTED_VALUES,
        _columns(fields, single=True),
        values=tuple(entry.value for entry in scalars),
        sample_values=fields.flag("sample_values"),
        location=fields.location,
    )


def _custom_sql(fields: Fields) -> CheckDecl:
    fields.require()
    name, sql = fields.text("name"), fields.text("sql")
    if name is not None and not _NAME.fullmatch(name):
        fields.report(
            "name", "'check custom_sql.name' must match [a-z][a-z0-9_]*", hint="use lower-case letters, digits and _"
        )
    query = without_end(sql) if sql is not None else None
    if query is not None and not query.strip():
        fields.report("sql", "'check custom_sql.sql' holds no query")
    sample = fields.flag("sample_values")
    return CheckDecl(CheckKind.CUSTOM_SQL, name=name, sql=query, sample_values=sample, location=fields.location)


_PARSERS: Mapping[CheckKind, Callable[[Fields], CheckDecl]] = {
    CheckKind.NOT_NULL: _plain_columns(CheckKind.NOT_NULL),
    CheckKind.UNIQUE: _plain_columns(CheckKind.UNIQUE),
    CheckKind.ROW_COUNT: _row_count,
    CheckKind.FRESHNESS: _freshness,
    CheckKind.ACCEPTED_VALUES: _accepted_values,
    CheckKind.CUSTOM_SQL: _custom_sql,
}


def _identity(check: CheckDecl) -> tuple[object, ...]:
    """What makes two checks the same check; a number and a word that print alike differ."""
    values = tuple((type(value).__name__, value) for value in check.values)
    return (check.kind, check.columns, check.name, check.sql, values, check.minimum, check.maximum, check.max_age)


def _refuse_repeats(checks: Iterable[CheckDecl], file: str, problems: Problems) -> None:
    seen: set[tuple[object, ...]] = set()
    named: set[str] = set()
    for check in checks:
        line = check.location.line if check.location else None
        if _identity(check) in seen:
            message = f"the same '{check.kind}' check is listed twice"
            problems.error(Code.PZ0113, message, file=file, line=line, hint="drop the duplicate")
        elif check.name is not None and check.name in named:
            message = f"two custom_sql checks are called '{check.name}'"
            problems.error(Code.PZ0113, message, file=file, line=line, hint="rename one of them")
        seen.add(_identity(check))
        named.update({check.name} if check.name else ())
