"""What the SQL of the pipelines says: parse trees with ephemeral pipelines inlined, and bounds on what is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from pz.errors import Code, Problems
from pz.frozen import frozen
from pz.graph.bindings import Bindings, BoundPipeline, Dataset
from pz.graph.lineage import tables
from pz.graph.model import SqlBound
from pz.graph.rules import CURSOR_TYPES, contract_cursor_type
from pz.graph.sql import RUN_ID, RUN_STARTED_AT, inline
from pz.graph.sqltree import (
    BARE_CLOCKS,
    CLOCKS_AND_DICE,
    Parser,
    SqlFault,
    SqlNode,
    column_ref,
    function_name,
    walk,
)
from pz.graph.watermarks import Comparison, find_comparisons
from pz.project.model import Location, Project, ReadDecl, SyncMode
from pz.project.templates import Rendered

__all__ = ["Understood", "UnderstoodPipeline", "understand"]


@frozen(slots=False, eq=False)
class UnderstoodPipeline:
    """A pipeline with its full SQL (ephemeral pipelines inlined) and the tree of that."""

    bound: BoundPipeline
    sql: str
    statement: SqlNode
    unsteady: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[int, ...]:
        """The file's line of every line of ``sql``; what was inlined stands in front and has none."""
        own = self.bound.rendered.lines
        return (0,) * (self.sql.count("\n") + 1 - len(own)) + own


@frozen(slots=False)
class Understood:
    """Everything that nodes are built from. ``bounds`` and changed ``datasets`` come from watermark()."""

    bindings: Bindings
    pipelines: Mapping[str, UnderstoodPipeline]
    datasets: Mapping[str, Dataset]
    bounds: Mapping[str, tuple[SqlBound, ...]] = field(default_factory=dict)


def understand(parser: Parser, project: Project, bindings: Bindings, problems: Problems) -> Understood:
    """Parse and interpret all pipelines. Reports PZ0401 for what is no single SELECT, PZ0201 for tables that no call
    names, and everything about watermark()."""
    for name, rendered in bindings.ephemeral.items():
        _parse(parser, rendered, project.pipelines[name].location.file, problems)
    pipelines = {}
    comparisons: list[Comparison] = []
    for name, bound in bindings.pipelines.items():
        understood = _understand_one(parser, bindings, bound, problems)
        if understood is not None:
            pipelines[name] = understood
            comparisons += _comparisons(parser, understood, problems)
    datasets, bounds = dict(bindings.datasets), {}
    for key, dataset in bindings.datasets.items():
        own = [comparison for comparison in comparisons if comparison.key == key]
        if own:
            datasets[key] = _bounded(dataset, own, problems)
            bounds[key] = tuple(comparison.bound for comparison in own)
    return Understood(bindings, pipelines, datasets, bounds)


def _parse(parser: Parser, rendered: Rendered, file: str, problems: Problems) -> SqlNode | None:
    try:
        return parser.parse(rendered.sql)
    except SqlFault as fault:
        line = None if fault.line is None else rendered.template_line(fault.line)
        problems.error(Code.PZ0401, f"the SQL cannot be parsed: {fault.message}", file=file, line=line)
        return None


def _understand_one(
    parser: Parser, bindings: Bindings, bound: BoundPipeline, problems: Problems
) -> UnderstoodPipeline | None:
    own = _parse(parser, bound.rendered, bound.decl.location.file, problems)
    if own is None:
        return None
    try:
        sql = inline(parser, bound.rendered.sql, {name: bindings.ephemeral[name].sql for name in bound.inlined})
        statement = parser.parse(sql)
    except SqlFault:
        # The ephemeral pipeline is at fault; its own error says where.
        return None
    _check_tables(bindings, bound, own, problems)
    return UnderstoodPipeline(bound, sql, statement, _unsteady(sql, statement))


def _check_tables(bindings: Bindings, bound: BoundPipeline, statement: SqlNode, problems: Problems) -> None:
    """Every table in schema staging must come from a call: an unnamed dependency has no order and no identity."""
    known = {f"staging.{relation.lower()}" for relation in bound.reads.values()}
    known |= {f"staging.{ref.pipeline.lower()}" for ref in bound.refs} | {f"staging.{bound.decl.name.lower()}"}
    for table in sorted(set(tables(statement)) - known):
        if table.startswith("staging."):
            message = f"pipeline '{bound.decl.name}' reads {table} without a call that names it"
            problems.error(Code.PZ0201, message, file=bound.decl.location.file, hint=_call_for(bindings, table))


def _call_for(bindings: Bindings, table: str) -> str:
    name = table.removeprefix("staging.")
    pipeline = next((known for known in bindings.pipelines if known.lower() == name), None)
    if pipeline is not None:
        return f"write {{{{ ref('{pipeline}') }}}} in its place"
    return "write {{ source('connection', 'entity') }} or {{ ref('pipeline') }} in its place"


def _unsteady(sql: str, statement: SqlNode) -> tuple[str, ...]:
    """What in the SQL gives another value each time or each run, by name."""
    found = {name for name in (RUN_ID, RUN_STARTED_AT) if name in sql}
    named = {name.removeprefix("__pz_").removesuffix("__") for name in found}
    for node in walk(statement):
        function, names = function_name(node), column_ref(node)
        if function in CLOCKS_AND_DICE:
            named.add(f"{function}()")
        if names is not None and len(names) == 1 and names[0].lower() in BARE_CLOCKS:
            named.add(names[0].lower())
    return tuple(sorted(named))


def _comparisons(parser: Parser, understood: UnderstoodPipeline, problems: Problems) -> Iterator[Comparison]:
    """The bounds that a pipeline declares, each with the place of its call; reports PZ0224."""
    bound = understood.bound
    found, failed = find_comparisons(parser, understood.statement, bound.reads)
    for use in failed:
        where = _first_call(bound, use.key)
        message = f"watermark() of '{use.key}' bounds nothing: {use.why}"
        hint = "write WHERE <cursor column> > {{ watermark(...) }}, with >, >=, < or <="
        problems.error(Code.PZ0224, message, file=where.file, line=where.line, hint=hint)
    for comparison in found:
        where = _first_call(bound, comparison.key)
        yield replace(comparison, bound=replace(comparison.bound, location=where))


def _first_call(bound: BoundPipeline, key: str) -> Location:
    calls = [call for call in bound.watermarks if f"{call.connection}.{call.entity}" == key]
    return calls[0].location if calls else bound.decl.location


def _bounded(dataset: Dataset, comparisons: Iterable[Comparison], problems: Problems) -> Dataset:
    """The dataset read incrementally by the cursor that its comparisons name. Reports what contradicts that."""
    own = list(comparisons)
    where = own[0].bound.location or dataset.where

    def error(code: Code, message: str, hint: str) -> None:
        problems.error(code, f"dataset '{dataset.key}': {message}", file=where.file, line=where.line, hint=hint)

    sync = dataset.read.sync
    if sync.mode is SyncMode.INCREMENTAL:
        error(Code.PZ0225, "it is incremental both under sync: and by watermark()", "keep one; windows need sync:")
    elif sync.explicit:
        error(Code.PZ0315, f"watermark() and sync mode '{sync.mode}' are two ways to resume", "keep one of the two")
    cursors = sorted({comparison.cursor.lower() for comparison in own})
    if len(cursors) > 1:
        error(Code.PZ0231, f"its watermark() comparisons use several cursors: {', '.join(cursors)}", "use one column")
    if not any(comparison.bound.floor for comparison in own):
        error(Code.PZ0351, "watermark() bounds it above but not below", "add WHERE <cursor> > {{ watermark(...) }}")
    cursor = _contract_spelling(dataset.read, own[0].cursor)
    if dataset.read.columns is not None and contract_cursor_type(dataset.read.columns, cursor) is None:
        error(Code.PZ0227, f"cursor '{cursor}' is not in columns: with the type of a cursor", f"use {CURSOR_TYPES}")
    read = replace(dataset.read, sync=replace(sync, mode=SyncMode.INCREMENTAL, cursor=cursor, explicit=True))
    return replace(dataset, read=read)


def _contract_spelling(read: ReadDecl, cursor: str) -> str:
    return next((name for name in read.columns or {} if name.lower() == cursor.lower()), cursor)
