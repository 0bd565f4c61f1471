"""A fused chain: source, pipeline and sink as one statement, nothing staged.

A source that must ask its live system for a fragment may find that there is none: then its batches become a table for as
long as the statement runs.

The row counts come from DuckDB's profile of the statement: what the scan produced, and what was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import BatchOptions, LiveScanningSource, NativeScan, Source
from pz.durable import Step, step
from pz.engine.nodes import lints
from pz.engine.nodes.batches import BatchStream, reader
from pz.engine.nodes.explain import explained
from pz.engine.nodes.known_columns import columns_known
from pz.engine.nodes.native_copy import NativeWrite
from pz.engine.nodes.pipeline import bound_sql, computing, computing_rows
from pz.engine.nodes.scans import ended_by, whole_scan
from pz.engine.nodes.sink_write import deliver_native
from pz.errors import PermanentError
from pz.graph.model import Node, PipelineNode, SinkNode, SourceNode
from pz.plan.specs import dataset_spec, output_spec, read_hints
from pz.sqltext import quote
from pz.staging.fingerprint import describe

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

__all__ = ["run_chain"]

BATCHES = "__pz_batches"

PROFILE = "SET enable_profiling = 'no_output'"
# Only the operators' row counts are collected; timing every operator would cost more than it tells. DuckDB 2 decides itself.
COUNTS_ALONE = """
SET custom_profiling_settings = '{"OPERATOR_CARDINALITY": "true", "OPERATOR_TYPE": "true", "OPERATOR_NAME": "true"}'
"""


def run_chain(context: NodeContext, nodes: Sequence[Node]) -> tuple[int, int, int]:
    """Run the chain; returns the rows of its source, its pipeline and its sink.

    The dataset's relation is created as a view of the source's fragment, so that the pipeline's SQL stays as it is.
    """
    source_node, pipeline, sink_node = nodes
    if not (
        isinstance(source_node, SourceNode) and isinstance(pipeline, PipelineNode) and isinstance(sink_node, SinkNode)
    ):
        raise TypeError("a fused chain is a source, a pipeline and a sink")
    with (
        context.source(source_node.connection) as source,
        context.sink(sink_node.connection) as sink,
        explained(source),
        context.cursor() as cursor,
        _provided(context, cursor, source_node, source) as scan,
    ):
        relation = f"(\n{bound_sql(context, pipeline)}\n)"
        with computing(context, pipeline):
            columns = describe(cursor, relation)
        output = replace(
            output_spec(sink_node),
            columns=columns,
            origin=context.run.record.origin,
            node=sink_node.id,
        )
        _profile(cursor)
        seen: list[int] = []

        def moved(used: DuckDBPyConnection) -> None:
            seen.extend(_scanned(used))
            if scan.verify is not None:
                scan.verify()

        write = NativeWrite(scan.before, moved)
        with computing_rows(context, pipeline, sink_node.name):
            written = deliver_native(context, sink_node, sink, cursor, output, relation, write)
        if scan.schema_inferred:
            lints.warn_about_dates(context, source_node, scan)
    return (seen[0] if seen else written, written, written)


@contextmanager
def _provided(
    context: NodeContext, cursor: DuckDBPyConnection, node: SourceNode, source: Source
) -> Iterator[NativeScan]:
    """The dataset under its name in staging: a view of the fragment, or a table of the batches until the block ends."""
    dataset, hints = dataset_spec(node), read_hints(node)
    relation = f"staging.{quote(node.relation)}"
    scan = whole_scan(source, dataset, hints)
    if scan is not None:
        context.run.staging.run_setup(scan.setup)
        with step(Step.MATERIALIZE), columns_known(context, node, hints):
            cursor.execute(f"CREATE OR REPLACE VIEW {relation} AS SELECT * FROM {scan.relation}")
        with ended_by(context.cancel, scan):
            yield scan
        return
    if not isinstance(source, LiveScanningSource):
        raise PermanentError(f"'{node.key}' offers no native read any more")
    engine = context.run.project.engine
    parts = tuple(source.plan_read(dataset, hints))
    options = BatchOptions(target_bytes=engine.batch_bytes)
    with BatchStream(parts, options, context.cancel, engine.threads) as stream:
        cursor.register(BATCHES, reader(None, stream, source.schema(dataset), node.key))
        try:
            with step(Step.MATERIALIZE):
                cursor.execute(f"CREATE OR REPLACE TABLE {relation} AS SELECT * FROM {BATCHES}")
        finally:
            cursor.unregister(BATCHES)
    try:
        yield NativeScan(relation, "batches")
    finally:
        cursor.execute(f"DROP TABLE {relation}")  # durable: ok - of use to this statement alone


def _profile(cursor: DuckDBPyConnection) -> None:
    import duckdb

    cursor.execute(PROFILE)
    with suppress(duckdb.CatalogException):
        cursor.execute(COUNTS_ALONE)


def _scanned(cursor: DuckDBPyConnection) -> tuple[int, ...]:
    """Rows that the scans of the last statement produced; empty when the profile does not say."""
    try:
        profile = json.loads(cursor.get_profiling_information())
    except (AttributeError, ValueError):
        return ()
    if not isinstance(profile, dict):
        return ()
    return (sum(_sum_scans(operator) for operator in profile.get("operator", [profile])),)


def _sum_scans(operator: dict[str, Any]) -> int:
    """The rows of the scans at and below an operator; its fields are spelled as by DuckDB 1 or as by DuckDB 2."""
    below = sum(_sum_scans(child) for child in operator.get("children", ()))
    is_scan = "SCAN" in str(operator.get("operator_type", operator.get("type", "")))
    rows = operator.get("operator_cardinality", operator.get("intermediate_rows", 0))
    return below + (int(rows) if is_scan else 0)
