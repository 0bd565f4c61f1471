"""The column contract: names and DuckDB types, kept as written.

Types are DuckDB's, whatever it parses as one type: ``decimal(12,2)``, ``timestamptz``, ``struct(a int, b text[])``.
``timestamp`` is naive, ``timestamptz`` an instant. The one thing we change: a bare ``decimal`` (or an array of it) is
``decimal(38,9)``, because DuckDB's own default of 18 digits is narrower than what a source may hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping

from pz.errors import Code
from pz.project.fields import Fields
from pz.project.nearmiss import near_miss
from pz.project.yaml_source import Block, Scalar

__all__ = ["parse_columns", "refused_types", "with_default_scale"]

#: Accepted without asking DuckDB, so that most projects load without importing it.
COMMON_TYPES = (
    "int", "integer", "bigint", "smallint", "tinyint", "hugeint", "double", "float", "real", "decimal", "numeric",
    "varchar", "text", "string", "boolean", "bool", "date", "time", "timestamp", "timestamptz", "interval", "blob",
    "uuid", "json",
)  # fmt: skip

_SIMPLE_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", re.IGNORECASE)
_BARE_DECIMAL = re.compile(r"(decimal|numeric|dec)(\s*(?:\[\d*\]\s*)*)", re.IGNORECASE)
_TOKEN = re.compile(
    r"""\s+ | [A-Za-z_][A-Za-z0-9_]* | [0-9]+ | "(?:""|[^"])+" | '(?:''|[^'])*' | (?P<bracket>[()\[\]]) | [,.]""",
    re.VERBOSE,
)
_CLOSING = {")": "(", "]": "["}


def parse_columns(owner: Fields) -> Mapping[str, str] | None:
    """The ``columns`` block of a read; None when absent. Problems are PZ0101."""
    item = owner.get("columns")
    if item is None:
        return None
    what = owner.path("columns")
    if not isinstance(item, Block):
        owner.report("columns", f"'{what}' must be a mapping of names to types, not {item.kind}", code=Code.PZ0101)
        return None
    if not item.entries:
        hint = "name the columns and their types, or leave columns out"
        owner.report("columns", f"'{what}' lists no column", hint=hint, code=Code.PZ0101)
        return None
    kinds = {name: kind.text.strip() for name, kind in item.entries.items() if isinstance(kind, Scalar)}
    refused = refused_types(kinds.values())
    seen: dict[str, str] = {}
    for name in item.entries:
        problem, hint = _entry_problem(name, kinds.get(name, ""), seen, refused)
        if problem:
            line = item.line_of(name)
            owner.problems.error(Code.PZ0101, f"'{what}': {problem}", file=owner.file, line=line, hint=hint)
    return {name: with_default_scale(kind) for name, kind in kinds.items()}


def with_default_scale(kind: str) -> str:
    """Spell out the width and scale of a bare decimal; any other type comes back as it is."""
    match = _BARE_DECIMAL.fullmatch(kind.strip())
    return f"{match[1]}(38,9){match[2].strip()}" if match else kind


def refused_types(kinds: Iterable[str]) -> frozenset[str]:
    """Those of ``kinds`` that are no DuckDB type. DuckDB is asked only about what is not obvious, and once for all.

    Only text made of names, numbers, quoted text, commas, dots and balanced brackets reaches DuckDB, inside a CAST of a
    database in memory: no statement, expression or comment can hide in a type.
    """
    unsure = {kind for kind in kinds if not _is_obvious(kind)}
    unsafe = {kind for kind in unsure if not _shape_is_safe(kind)}
    return frozenset(unsafe | _refused_by_duckdb(unsure - unsafe))


def _is_obvious(kind: str) -> bool:
    match = _SIMPLE_DECIMAL.fullmatch(kind)
    if match:
        return 1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1])
    return kind.lower() in COMMON_TYPES


def _entry_problem(name: str, kind: str, seen: dict[str, str], refused: Container[str]) -> tuple[str | None, str]:
    if not name.strip():
        return "a column has an empty name", "name the column"
    first = seen.setdefault(name.lower(), name)
    if first != name:
        return f"columns '{first}' and '{name}' differ by case only", "keep one of them: DuckDB cannot tell them apart"
    if not kind:
        return f"column '{name}' needs the name of a type", "such as int, varchar or decimal(12,2)"
    if kind not in refused:
        return None, ""
    if kind.count("(") > kind.count(")"):
        return f"the type of column '{name}' is cut off", "put the type in quotes: inside braces a comma ends a value"
    close = near_miss(kind, COMMON_TYPES)
    hint = (
        f"did you mean '{close}'?" if close else "use a DuckDB type, such as int, varchar, timestamptz or decimal(12,2)"
    )
    return f"the type of column '{name}' is no DuckDB type", hint


def _shape_is_safe(text: str) -> bool:
    position, open_brackets = 0, []
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return False
        bracket = token["bracket"]
        if bracket in ("(", "["):
            open_brackets.append(bracket)
        elif bracket and (not open_brackets or open_brackets.pop() != _CLOSING[bracket]):
            return False
        position = token.end()
    return bool(text) and len(text) <= 10_000 and not open_brackets


def _refused_by_duckdb(kinds: Collection[str]) -> set[str]:
    if not kinds:
        return set()
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "enable_external_access": False,
    }
    refused: set[str] = set()
    with duckdb.connect(":memory:", config=settings) as connection:
        for kind in kinds:
            try:
                connection.execute(f"SELECT CAST(NULL AS {kind}) LIMIT 0")
            except duckdb.Error:
                refused.add(kind)
    return refused
