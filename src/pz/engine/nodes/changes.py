"""Change capture: raw change rows landed, then collapsed to one row per key.

A change row starts with ``_pz_op`` (insert, update, delete), ``_pz_lsn`` (sortable text) and ``_pz_changed_at``. The raw
rows stay in ``<relation>__changes``; the last event of each key decides: a row goes to ``<relation>`` without the three
header columns, a net delete to ``<relation>__deletes``, from where its keys reach the sink beside the pipeline's SQL.

A source may leave values out that had not changed (``_pz_unchanged`` names them). They are taken from an earlier event of
the same key; what no event of the window carries is NULL in ``<relation>`` and named in ``<relation>__unchanged``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pz.connectors.contract import BatchOptions, ChangeCapturePartition, PiecewiseSnapshot, SnapshotPartition, Source
from pz.durable import Step, step
from pz.engine.nodes import snapshot_pieces
from pz.engine.nodes.batches import BatchStream, reader
from pz.engine.nodes.landing import Landing
from pz.engine.outcome import Outcome
from pz.errors import Code, NodeError, Problem
from pz.sqltext import literal, quote
from pz.staging.completion import complete_node
from pz.staging.meta import NodeDone

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext
    from pz.staging.transaction import Transaction

__all__ = ["CHANGES", "DELETES", "HEADER", "UNCHANGED", "load"]

HEADER = ("_pz_op", "_pz_lsn", "_pz_changed_at")
NOT_SENT = "_pz_unchanged"
CHANGES, DELETES, UNCHANGED = "__changes", "__deletes", "__unchanged"
BATCHES = "__pz_batches"

# The last event of every key. Events of one position keep the order in which they came.
LAST_EVENTS = """
CREATE OR REPLACE TEMP TABLE {last} AS
SELECT * FROM {changes}
QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY _pz_lsn DESC, rowid DESC) = 1
"""

# One column of the last events, from the latest event of the key that carries it. A key that came back after a delete came
# with all of its columns, so nothing older is ever the latest. (arg_max passes over NULLs; a struct is none.)
FILL = """
UPDATE {last} AS l SET {column} = f.found.v, _pz_unchanged = list_filter(_pz_unchanged, lambda name: name <> {name})
FROM (
    SELECT {keys}, arg_max({{'v': {column}}}, _pz_lsn) AS found FROM {changes}
    WHERE _pz_op <> 'delete' AND NOT coalesce(list_contains(_pz_unchanged, {name}), false) GROUP BY {keys}
) AS f
WHERE {same} AND l._pz_op <> 'delete' AND list_contains(l._pz_unchanged, {name})
"""


def load(context: NodeContext, landing: Landing, source: Source) -> tuple[Outcome, NodeDone]:
    """Land and collapse one window of changes; ledger row and token commit with the collapsed rows."""
    partition = _only_partition(landing, source)
    schema = source.schema(landing.dataset)
    partial = _require_header(landing, schema.names)
    if isinstance(partition, PiecewiseSnapshot) and partition.is_snapshot():
        return _load_snapshot(context, landing, partition, schema, partial=partial)
    options = BatchOptions(target_bytes=context.run.project.engine.batch_bytes)
    with (
        BatchStream((partition,), options, context.cancel, 1) as stream,
        context.cursor() as cursor,
        context.run.staging.transaction(cursor, Step.COMPLETE_LOAD) as tx,
    ):
        cursor.register(BATCHES, reader(context, stream, schema, landing.node.key))
        tx.execute(f"CREATE OR REPLACE TABLE {_changes(landing)} AS SELECT * FROM {BATCHES}")
        cursor.unregister(BATCHES)
        cdc, done = _conclude(cursor, tx, landing, partition, partial=partial)
    return landing.outcome(done, cdc=cdc, timings=stream.timings), done


def _load_snapshot(
    context: NodeContext, landing: Landing, partition: PiecewiseSnapshot, schema: pa.Schema, *, partial: bool
) -> tuple[Outcome, NodeDone]:
    """Land a snapshot piece by piece; an attempt that follows another goes on with its pieces while they live."""
    held = snapshot_pieces.hold(context, landing, partition, _changes(landing), schema)
    kept = len(held.landed)
    snapshot_pieces.land(context, landing, held, _changes(landing), schema)
    with context.cursor() as cursor, context.run.staging.transaction(cursor, Step.COMPLETE_LOAD) as tx:
        cdc, done = _conclude(cursor, tx, landing, held.partition, partial=partial)
    total = len(held.pieces)
    counts = {"total": total, "completed": total - kept, "reused": 0, "resumed": kept}
    return landing.outcome(done, cdc=cdc, **({"partitions": counts} if total > 1 else {})), done


def _changes(landing: Landing) -> str:
    return f"staging.{quote(landing.node.relation + CHANGES)}"


def _conclude(
    cursor: DuckDBPyConnection, tx: Transaction, landing: Landing, partition: ChangeCapturePartition, *, partial: bool
) -> tuple[dict[str, Any], NodeDone]:
    """Collapse what has landed and record it: counts and position for the result, and the ledger's row."""
    node, changes = landing.node, _changes(landing)
    counts = _operation_counts(cursor, changes)
    keys = partition.key_columns()
    _collapse(cursor, landing, changes, keys, total=sum(counts.values()), partial=partial)
    token = partition.try_get_sync_state()
    snapshot = isinstance(partition, SnapshotPartition) and partition.is_snapshot()
    details = {"keys": list(keys or ()), "operations": counts, "snapshot": snapshot}
    tables = (node.relation, *(node.relation + suffix for suffix in _suffixes(partial)))
    done = complete_node(tx, node.id, tables, landing.facts(cursor, token=token, details=details))
    position = partition.position() if isinstance(partition, SnapshotPartition) else token
    return {**counts, "position": position}, done


def _suffixes(partial: bool) -> tuple[str, ...]:
    return (CHANGES, DELETES, UNCHANGED) if partial else (CHANGES, DELETES)


def _only_partition(landing: Landing, source: Source) -> ChangeCapturePartition:
    parts = tuple(source.plan_read(landing.dataset, landing.hints))
    if len(parts) != 1:
        raise NodeError(
            Problem(Code.PZ0316, f"'{landing.node.key}': a cdc read was planned in {len(parts)} partitions")
        )
    if not isinstance(parts[0], ChangeCapturePartition):
        raise NodeError(Problem(Code.PZ0338, f"'{landing.node.key}': the connector's partition carries no changes"))
    return parts[0]


def _require_header(landing: Landing, names: list[str]) -> bool:
    """Whether rows may come in part. Raises NodeError PZ0338 when the header is not there."""
    if tuple(names[: len(HEADER)]) != HEADER:
        raise NodeError(Problem(Code.PZ0338, f"'{landing.node.key}': change rows must start with {', '.join(HEADER)}"))
    return names[len(HEADER) :][:1] == [NOT_SENT]


def _operation_counts(cursor: DuckDBPyConnection, changes: str) -> dict[str, int]:
    found: dict[str, Any] = dict(cursor.execute(f"SELECT _pz_op, count(*) FROM {changes} GROUP BY 1").fetchall())
    names = {"insert": "inserts", "update": "updates", "delete": "deletes"}
    foreign = sorted(str(op) for op in found if op not in names)
    if foreign:
        raise NodeError(Problem(Code.PZ0338, f"change rows with unknown operation: {', '.join(foreign)}"))
    return {plural: int(found.get(op, 0)) for op, plural in names.items()}


def _collapse(
    cursor: DuckDBPyConnection,
    landing: Landing,
    changes: str,
    keys: tuple[str, ...] | None,
    *,
    total: int,
    partial: bool,
) -> None:
    """Create the main table and those beside it from the last event of each key."""
    node = landing.node
    deletes = f"staging.{quote(node.relation + DELETES)}"
    bare = f"* EXCLUDE ({', '.join((*HEADER, NOT_SENT) if partial else HEADER)})"
    if not keys and total:
        raise NodeError(
            Problem(Code.PZ0338, f"'{node.key}': the connector reported no key columns for {total} change(s)")
        )
    last = f"temp.main.{quote(f'__pz_last_{node.id}')}"
    # Without keys there are no rows either: any column list gives the empty tables their shape.
    listed = ", ".join(quote(key) for key in keys or ()) or "_pz_lsn"
    with step(Step.STAGE_ROWS):
        cursor.execute(LAST_EVENTS.format(last=last, changes=changes, keys=listed))
        if partial:
            _fill(cursor, changes, last, keys or ())
            unchanged = f"staging.{quote(node.relation + UNCHANGED)}"
            cursor.execute(
                f"CREATE OR REPLACE TABLE {unchanged} AS SELECT {listed}, _pz_unchanged FROM {last} "
                "WHERE _pz_op <> 'delete' AND len(_pz_unchanged) > 0"
            )
        cursor.execute(f"CREATE OR REPLACE TABLE {landing.table} AS SELECT {bare} FROM {last} WHERE _pz_op <> 'delete'")
        cursor.execute(f"CREATE OR REPLACE TABLE {deletes} AS SELECT {bare} FROM {last} WHERE _pz_op = 'delete'")
        cursor.execute(f"DROP TABLE {last}")


def _fill(cursor: DuckDBPyConnection, changes: str, last: str, keys: tuple[str, ...]) -> None:
    """Fill what the last events left out from earlier ones, column by column: few columns are ever left out."""
    found = cursor.execute(f"SELECT DISTINCT unnest(_pz_unchanged) FROM {last} ORDER BY 1").fetchall()
    for (name,) in found:
        cursor.execute(
            FILL.format(
                last=last,
                changes=changes,
                column=quote(name),
                name=literal(name),
                keys=", ".join(quote(key) for key in keys),
                same=" AND ".join(f"l.{quote(key)} = f.{quote(key)}" for key in keys),
            )
        )
