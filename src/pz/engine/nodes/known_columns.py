"""What the read of a dataset finds out about the SQL of the pipeline that reads it.

A column that the dataset does not have, where no contract said so before; a filter, applied by the read, that fails on a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pz.connectors.contract import ReadHints
from pz.errors import Code, NodeError, Problem
from pz.graph.model import Graph, PipelineNode, SourceNode
from pz.sqlfaults import unknown_column
from pz.staging.redaction import redact

if TYPE_CHECKING:
    from pz.engine.context import NodeContext

__all__ = ["columns_known"]


@contextmanager
def columns_known(context: NodeContext, node: SourceNode, hints: ReadHints) -> Iterator[None]:
    """Raise NodeError PZ0401, naming who reads the column, when DuckDB misses one that was asked for; PZ0501, naming
    whose filter was applied, when a row cannot be read."""
    import duckdb

    try:
        yield
    except duckdb.BinderException as failure:
        column = unknown_column(failure)
        if column is None or column not in (hints.columns or ()):
            raise
        message = f"dataset '{node.key}' has no column '{column}'{_readers(context.run.graph, node, column)}"
        raise NodeError(Problem(Code.PZ0401, message, hint="correct the column's name in the SQL")) from failure
    except (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException) as failure:
        if hints.predicate is None:
            raise
        children = (context.run.graph.by_id[child] for child in context.run.graph.children[node.id])
        owners = [
            f"pipeline '{child.name}'{child.place(None)}" for child in children if isinstance(child, PipelineNode)
        ]
        message = f"a row of dataset '{node.key}' cannot be read, or fails in the filter of {', '.join(owners)}"
        raise NodeError(Problem(Code.PZ0501, f"{message}: {redact(failure)}", hint=_FILTER_HINT)) from failure


_FILTER_HINT = "use TRY_CAST(...) or try(...) in WHERE, which gives NULL where a row has no value"


def _readers(graph: Graph, node: SourceNode, column: str) -> str:
    """The pipelines that name the column, each with the first line that does."""
    word = re.compile(rf"(?<!\w){re.escape(column)}(?!\w)", re.IGNORECASE)
    told = []
    for child in graph.children[node.id]:
        reader = graph.by_id[child]
        if not isinstance(reader, PipelineNode):
            continue
        lines = [number for number, line in enumerate(reader.sql.splitlines(), 1) if word.search(line)]
        if lines:
            told.append(f"pipeline '{reader.name}'{reader.place(lines[0])}")
    return f", which is read by {', '.join(told)}" if told else ""
