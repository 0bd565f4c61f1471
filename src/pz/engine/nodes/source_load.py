"""Loading a dataset into staging.

In order of preference: copy what an earlier run of the chain has staged; let DuckDB read the partitions one by one (or
the whole, when the connector has no stable ids); stream record batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pz.connectors.contract import BatchOptions, Capability, NativeScan, ReadShape, Source, SyncStatePartition
from pz.durable import Step
from pz.engine.nodes import changes, lints, partitions
from pz.engine.nodes.batches import BatchStream, reader
from pz.engine.nodes.drift import look_for_drift
from pz.engine.nodes.explain import explained
from pz.engine.nodes.known_columns import columns_known
from pz.engine.nodes.landing import Landing
from pz.engine.outcome import Outcome
from pz.errors import Code, NodeError, PermanentError, Problem
from pz.graph.model import SourceNode
from pz.plan.model import Way
from pz.staging.completion import complete_node
from pz.staging.meta import NodeDone

if TYPE_CHECKING:
    from pz.engine.context import NodeContext

__all__ = ["load"]

BATCHES = "__pz_batches"


def load(context: NodeContext, node: SourceNode) -> Outcome:
    """Land the dataset; the ledger row commits with its last rows."""
    if context.run.prior is not None and context.ordinal == 1:
        reused = context.run.prior.reuse_load(context, node)
        if reused is not None:
            return reused
    landing = Landing.of(context, node)
    with columns_known(context, node, landing.hints):
        outcome, done = _read(context, landing)
    if done.candidate is None and landing.waits_at_its_end:
        context.run.note(f"dataset '{node.key}' {_STANDS}", code=Code.PZ0713)
    return replace(outcome, blocks={**outcome.blocks, **look_for_drift(context, landing, done)})


# A source that is read up to its end is in the same place as one that has a gap there: neither is worth more than a note.
_STANDS = (
    "has no row above its stored value within max_window, and its source does not tell whether there are rows higher up, so "
    "the stored value stays and the next run reads the same window. If numbers are left out there, raise max_window, "
    "set until, or pass over the gap with `pz state set`"
)


def _read(context: NodeContext, landing: Landing) -> tuple[Outcome, NodeDone]:
    node = landing.node
    with context.source(node.connection) as source:
        shape = context.planned.read_shape
        if shape is ReadShape.CDC:
            return changes.load(context, landing, source)
        stable = Capability.STABLE_PARTITION_IDS in context.capabilities(node.connection)
        if stable and shape is not ReadShape.FEED:  # a token-resumed partition is always read again, never skipped
            return partitions.load(context, landing, source)
        if context.planned.way is Way.NATIVE_SCAN:
            scan = source.native_scan(landing.dataset, landing.hints)
            if scan is None:
                raise PermanentError(f"'{node.key}' offers no native read any more")
            with explained(source):
                return _load_native(context, landing, scan)
        return _load_stream(context, landing, source)


def _load_native(context: NodeContext, landing: Landing, scan: NativeScan) -> tuple[Outcome, NodeDone]:
    context.run.staging.run_setup(scan.setup)
    with context.cursor() as cursor, context.run.staging.transaction(cursor, Step.COMPLETE_LOAD) as tx:
        tx.execute(f"CREATE OR REPLACE TABLE {landing.table} AS SELECT * FROM {scan.relation}{landing.filtered}")
        if scan.verify is not None:
            scan.verify()
        done = complete_node(tx, landing.node.id, (landing.node.relation,), landing.facts(cursor))
    if scan.schema_inferred:
        lints.warn_about_inference(context, landing.node, scan)
    return landing.outcome(done), done


def _load_stream(context: NodeContext, landing: Landing, source: Source) -> tuple[Outcome, NodeDone]:
    """All partitions through one bounded stream into one statement; a retry starts from a clean table."""
    node = landing.node
    parts = tuple(source.plan_read(landing.dataset, landing.hints))
    if len(parts) > 1 and landing.dataset.prior_sync_state is not None:
        raise NodeError(
            Problem(Code.PZ0316, f"'{node.key}': a token-resumed read was planned in {len(parts)} partitions")
        )
    schema = source.schema(landing.dataset)
    options = BatchOptions(target_bytes=context.run.project.engine.batch_bytes)
    with (
        BatchStream(parts, options, context.cancel, context.run.project.engine.threads) as stream,
        context.cursor() as cursor,
        context.run.staging.transaction(cursor, Step.COMPLETE_LOAD) as tx,
    ):
        cursor.register(BATCHES, reader(context, stream, schema, node.key))
        tx.execute(f"CREATE OR REPLACE TABLE {landing.table} AS SELECT * FROM {BATCHES}{landing.filtered}")
        cursor.unregister(BATCHES)
        token = parts[0].try_get_sync_state() if parts and isinstance(parts[0], SyncStatePartition) else None
        done = complete_node(tx, node.id, (node.relation,), landing.facts(cursor, token=token))
    return landing.outcome(done, timings=stream.timings), done
