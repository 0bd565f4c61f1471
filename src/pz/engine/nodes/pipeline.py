"""Pipelines: a SELECT materialised in staging, as a table or a view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pz.connectors.contract import find_column
from pz.cursors import CursorType
from pz.durable import Step
from pz.engine.outcome import Outcome
from pz.errors import Code, NodeError, Problem
from pz.graph import sql as graph_sql
from pz.graph.model import Graph, PipelineNode
from pz.graph.watermarks import value_sql
from pz.sqlfaults import cast_line, line_of, shortened
from pz.sqltext import quote
from pz.staging.completion import complete_node, count_rows
from pz.staging.fingerprint import describe
from pz.staging.redaction import redact

if TYPE_CHECKING:
    from pz.engine.context import NodeContext

__all__ = ["bound_sql", "computing", "computing_rows", "materialize"]


def bound_sql(context: NodeContext, node: PipelineNode) -> str:
    """The pipeline's SQL with watermarks and run constants in place of their sentinels."""
    record = context.run.record
    watermarks = {**_typed_nulls(context, node), **context.run.watermarks}
    return graph_sql.bind(node.sql, watermarks, record.origin, record.origin_started_at)


@contextmanager
def computing(context: NodeContext, node: PipelineNode) -> Iterator[None]:
    """Raise NodeError with the place in the pipeline's file: PZ0401 when its SQL does not fit what it reads, PZ0501 when
    it fails on a row.

    The statement that runs in the block has the SQL from its second line on.
    """
    import duckdb

    try:
        with computing_rows(context, node):
            yield
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as failure:
        message = f"the SQL of pipeline '{node.name}' does not compile: {shortened(failure)}"
        line = line_of(failure)
        place = node.place(None if line is None else line - 1)
        raise NodeError(Problem(Code.PZ0401, message + place)) from failure


@contextmanager
def computing_rows(context: NodeContext, node: PipelineNode, output: str | None = None) -> Iterator[None]:
    """The PZ0501 of `computing` alone; ``output`` is where the same statement writes the rows."""
    import duckdb

    try:
        yield
    except (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException) as failure:
        raise NodeError(_fails_on_a_row(context.run.graph, node, failure, output)) from failure


_ROW_HINT = "look for the row with TRY_CAST(...) IS NULL, or with try(...) around the expression; either also gives NULL instead"


def _fails_on_a_row(graph: Graph, node: PipelineNode, failure: BaseException, output: str | None) -> Problem:
    views = _views_behind(graph, node)
    line = None if views or node.is_view else _line_of_cast(node, failure)
    message = f"the SQL of pipeline '{node.name}'{node.place(line)}"
    for view in views:
        message += f", or of view '{view.name}'{view.place(None)} behind it"
    if output is not None and line is None:
        message += f", or the write of its rows to '{output}'"
    return Problem(Code.PZ0501, f"{message} fails on a row: {redact(failure)}", hint=_ROW_HINT)


def _line_of_cast(node: PipelineNode, failure: BaseException) -> int | None:
    """The line of the pipeline's SQL that has the cast; a line of another text in the statement is none."""
    found = cast_line(failure)
    lines = node.sql.splitlines()
    if found is None or not 1 < found[0] <= len(lines) + 1:
        return None
    number, shown = found[0] - 1, found[1].strip(".")
    return number if shown.strip() in lines[number - 1] else None


def _views_behind(graph: Graph, node: PipelineNode) -> tuple[PipelineNode, ...]:
    """The views that are computed whenever the pipeline is, nearest first."""
    found: list[PipelineNode] = []
    for parent in (graph.by_id[key] for key in node.parents):
        if isinstance(parent, PipelineNode) and parent.is_view:
            own = () if parent.passes_through else (parent,)
            found += (view for view in (*own, *_views_behind(graph, parent)) if view not in found)
    return tuple(found)


def _typed_nulls(context: NodeContext, node: PipelineNode) -> dict[str, str]:
    """A NULL of the landed cursor's type for each dataset that has no stored value: an untyped one may not compare."""
    found: dict[str, str] = {}
    for source in context.run.graph.sources():
        if source.bounds and source.id in node.parents and source.key not in context.run.watermarks:
            with context.run.staging.cursor() as cursor:
                columns = describe(cursor, f"staging.{quote(source.relation)}")
            landed = find_column(columns, source.read.sync.cursor or "")
            found[source.key] = value_sql(None, CursorType.from_duckdb(landed.type) if landed else None)
    return found


def materialize(context: NodeContext, node: PipelineNode) -> Outcome:
    """Create ``staging.<name>``; its rows, 0 for a view (which is only computed when it is read).

    A pipeline that only hands on a staged table is a view upon it, with that table's rows: a copy would cost time and
    disk, and say nothing new.

    A table that feeds an output whose delivery is open or in doubt is copied from the earlier run instead of computed
    anew: a float aggregate alone gives another result each time, and the delivery could not be continued.
    """
    if context.run.prior is not None and not node.is_view:
        reused = context.run.prior.reuse_input(context, node)
        if reused is not None:
            return reused
    kind = "VIEW" if node.is_view else "TABLE"
    create = f"CREATE OR REPLACE {kind} staging.{quote(node.name)} AS (\n{bound_sql(context, node)}\n)"
    with context.cursor() as cursor, context.run.staging.transaction(cursor, Step.MATERIALIZE) as tx:
        with computing(context, node):
            tx.execute(create)
        if node.passes_through:
            return Outcome(count_rows(cursor, f"staging.{quote(node.name)}"))
        if node.is_view:
            return Outcome(0, {"materialization": "view"})
        return Outcome(complete_node(tx, node.id, (node.name,)).rows)
