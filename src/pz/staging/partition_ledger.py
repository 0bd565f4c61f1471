"""Partitions of a load: pinned, landed, moved into the main table and recorded as done in the same transaction.

    PlanPinning.add ...      partition_plan rows, as the source enumerates           (pin_partitions)
    PlanPinning.close        the plan is complete: its total                         (close_plan)
    PartitionLedger.start    what an attempt finds: done ids, leftovers dropped
    PartWriter               one partition's batches, with checkpoints               (part_writer.py)
    PartitionLedger.complete rows -> main table, part table dropped, done row        (complete_partition)
    PartitionLedger.finish   node_done, once the done rows are the closed plan       (complete_load)

Bounds apply while rows move, so that the done rows' sum is the main table's count. Raw partition ids appear in the ledger
and nowhere else; tables carry a hash of them.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pz.codes import Code
from pz.connectors.contract import Column, PermanentError, TransientError
from pz.durable import Step
from pz.errors import EngineError, NodeError, Problem
from pz.frozen import frozen
from pz.sqltext import filled, qualified, quote
from pz.staging import meta
from pz.staging.completion import SCHEMA, NodeFacts, complete_node, count_rows, table_exists
from pz.staging.fingerprint import describe
from pz.staging.meta import (
    Checkpoint,
    Ledger,
    NodeDone,
    NodeRead,
    NodeWindow,
    PartitionDone,
    PlanClosed,
    PlannedPartition,
)
from pz.staging.results import first_row
from pz.staging.transaction import Transaction, transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

__all__ = [
    "Arrival",
    "Completed",
    "PartitionLedger",
    "PlanChanged",
    "PlanPinning",
    "Start",
    "node_key",
    "part_table",
    "pin_window",
]

_CONFLICT_TRIES = 8
_LANDED = "__pz_arrival"
_STREAM = "__pz_arriving"
_ORDINAL = "__pz_ordinal"

T = TypeVar("T")


def node_key(node_id: str) -> str:
    """A node id as part of a table's or an alias's name."""
    return node_id if re.fullmatch(r"[0-9A-Za-z]{1,32}", node_id) else _hash16(node_id)


def _hash16(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def part_table(node_id: str, partition_id: str) -> str:
    """Name, in schema ``staging``, of the table that holds a partition's rows until it is complete."""
    return f"__pz_part__{node_key(node_id)}__{_hash16(partition_id)}"


class PlanChanged(TransientError):
    """The source enumerated other partitions than in an earlier attempt of this run, some of which are already done.

    The load must be started over: `PartitionLedger.reset`, once none of its partitions is in flight.
    """


@frozen
class Arrival:
    """The rows of one partition, ready to move into the main table.

    They lie in ``tables`` of schema ``staging``, which the move drops (default: the partition's part table; an empty tuple:
    there are no rows), or come from a FROM-able ``source`` (a native fragment) or an Arrow ``batch`` in memory.
    ``from_text``, ``full_texts`` and ``before``: as `NativeScan` has them.
    """

    partition_id: str
    tables: tuple[str, ...] | None = None
    source: str | None = None
    batch: pa.Table | None = None
    from_text: bool = False
    full_texts: str | None = None
    before: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Arrival(...)"  # holds a partition id


@frozen
class Completed:
    """What became of an arrival: rows added to the main table, and rows cut off by the bounds (None: not counted)."""

    partition_id: str
    rows: int
    trimmed: int | None = None

    def __repr__(self) -> str:
        return f"Completed(rows={self.rows})"


@frozen
class Start:
    """What an attempt finds durable: the partitions that need no reading, and their rows."""

    done: frozenset[str]
    rows: int


class PartitionLedger:
    """The partitions of one load. Methods take the caller's cursor; `complete` may be called from several threads.

    ``read`` says how the load is narrowed; it is pinned by `start`, and what was read in another way is not kept.
    """

    def __init__(self, node_id: str, table: str, read: NodeRead | None = None) -> None:
        self.node_id = node_id
        self.table = table
        self.read = read or NodeRead(node_id)
        self.main = qualified(SCHEMA, table)
        self._columns: tuple[Column, ...] | None = None
        self._lock = threading.Lock()

    @property
    def columns(self) -> tuple[Column, ...] | None:
        """Columns of the main table, None until this object has seen it."""
        return self._columns

    def start(self, cursor: DuckDBPyConnection, *, discard_done: bool = False) -> Start:
        """Begin an attempt: drop what is left of the last one, say what is done.

        Dropped are this node's part tables, unless a checkpoint claims them. With ``discard_done`` (a feed's only partition
        must be read again for a fresh token) nothing counts as done, nor when the main table does not hold what the ledger
        accounts for, or was read in another way.
        """
        ledger = Ledger(cursor)
        if discard_done or ledger.node_read(self.node_id) != self.read or not self._is_sound(cursor):
            self.reset(cursor, keep_plan=True)
        claimed = {part_table(self.node_id, point.partition_id) for point in ledger.checkpoints(self.node_id)}
        self._drop(cursor, [name for name in self._leftovers(cursor) if name not in claimed])
        return Start(ledger.finished(self.node_id), ledger.accounted(self.node_id)[1])

    def reset(self, cursor: DuckDBPyConnection, *, keep_plan: bool = False) -> None:
        """Forget everything of this load in one transaction: tables, done rows, checkpoints (and the pinned plan)."""
        with self._lock, transaction(cursor, Step.STAGE_ROWS) as tx:
            for name in (*self._leftovers(cursor), self.table):
                tx.execute(f"DROP TABLE IF EXISTS {qualified(SCHEMA, name)}")
            plan = () if keep_plan else (PlannedPartition, PlanClosed)
            for kind in (PartitionDone, Checkpoint, NodeDone, NodeRead, *plan):
                meta.erase(tx, kind, self.node_id)
            meta.record(tx, self.read)
            self._columns = None

    def forget_columns(self) -> None:
        """The main table was replaced: look at it again."""
        self._columns = None

    def pinning(self, cursor: DuckDBPyConnection) -> PlanPinning:
        """Pin the partitions of one enumeration."""
        return PlanPinning(cursor, self.node_id)

    def create_main(self, cursor: DuckDBPyConnection, source: str) -> None:
        """Create the empty main table with the columns of a FROM-able relation, unless it exists.

        `complete` does it with the first rows; a load whose partitions are all empty needs this call.
        """
        with self._lock:
            self._create_main(cursor, source)

    def complete(
        self,
        cursor: DuckDBPyConnection,
        arrivals: Sequence[Arrival],
        *,
        where: str | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> tuple[Completed, ...]:
        """Move the rows of one or several partitions into the main table, those only that fulfil ``where``.

        One transaction with their done rows, so either all of them are done or none. Raises NodeError when an arrival has
        other columns than the main table (an engine-side fault: no reason to read the partition again).

        ``before_commit`` runs when the rows have moved; what it raises rolls everything back (a file that changed while
        it was read).
        """
        return _retrying_conflicts(lambda: self._complete(cursor, arrivals, where, before_commit))

    def _complete(
        self,
        cursor: DuckDBPyConnection,
        arrivals: Sequence[Arrival],
        where: str | None,
        before_commit: Callable[[], None] | None,
    ) -> tuple[Completed, ...]:
        if self._columns is None:
            with self._lock:
                if self._columns is None and self._adopts(cursor, arrivals, where):
                    return (self._adopt(cursor, arrivals[0], before_commit),)
                self._create_main_for(cursor, arrivals)
        with transaction(cursor, Step.COMPLETE_PARTITION) as tx:
            for statement in itertools.chain.from_iterable(arrival.before for arrival in arrivals):
                tx.execute(statement)
            together, singly = _split_batches(arrivals)
            moved = (*self._move_batches(tx, together, where), *(self._move(tx, arrival, where) for arrival in singly))
            if before_commit is not None:
                before_commit()
            self._record(tx, moved)
        place = {arrival.partition_id: at for at, arrival in enumerate(arrivals)}
        return tuple(sorted(moved, key=lambda done: place[done.partition_id]))

    def _record(self, tx: Transaction, moved: Sequence[Completed]) -> None:
        meta.record(tx, *(PartitionDone(self.node_id, done.partition_id, done.rows) for done in moved))
        meta.erase(tx, Checkpoint, self.node_id, partition_ids=[done.partition_id for done in moved])

    def _move(self, tx: Transaction, arrival: Arrival, where: str | None) -> Completed:
        tables = self._tables_of(arrival)
        if tables == ():
            return Completed(arrival.partition_id, 0, 0)
        with _source(tx.cursor, arrival, tables) as source:
            self._same_columns(tx.cursor, source)
            listed = ", ".join(quote(column.name) for column in self._columns or ())
            condition = "" if where is None else f" WHERE {where}"
            result = first_row(
                tx.execute(f"INSERT INTO {self.main} ({listed}) SELECT {listed} FROM {source}{condition}")
            )
            rows = int(result[0]) if result else 0
            arrived = rows if where is None else None if arrival.source is not None else count_rows(tx.cursor, source)
        for name in tables or ():
            tx.execute(f"DROP TABLE {qualified(SCHEMA, name)}")
        return Completed(arrival.partition_id, rows, None if arrived is None else arrived - rows)

    def _move_batches(self, tx: Transaction, arrivals: Sequence[Arrival], where: str | None) -> tuple[Completed, ...]:
        """Move many batches in memory by one statement: a statement each would cost more than their rows."""
        if not arrivals:
            return ()
        landed = f"(SELECT * EXCLUDE ({_ORDINAL}) FROM {_LANDED})"
        with _landed(tx.cursor, _numbered([arrival.batch for arrival in arrivals])):
            self._same_columns(tx.cursor, landed)
            listed = ", ".join(quote(column.name) for column in self._columns or ())
            condition = "" if where is None else f" WHERE {where}"
            tx.execute(f"INSERT INTO {self.main} ({listed}) SELECT {listed} FROM {landed}{condition}")
            kept = tx.execute(f"SELECT {_ORDINAL}, count(*) FROM {_LANDED}{condition} GROUP BY ALL").fetchall()
        counts = dict(kept)
        return tuple(
            Completed(arrival.partition_id, counts.get(at, 0), arrival.batch.num_rows - counts.get(at, 0))
            for at, arrival in enumerate(arrivals)
            if arrival.batch is not None
        )

    def _tables_of(self, arrival: Arrival) -> tuple[str, ...] | None:
        if arrival.source is not None or arrival.batch is not None:
            return None
        return (part_table(self.node_id, arrival.partition_id),) if arrival.tables is None else arrival.tables

    def _adopts(self, cursor: DuckDBPyConnection, arrivals: Sequence[Arrival], where: str | None) -> bool:
        """Whether the first rows lie whole in one table, which can then become the main table without a copy."""
        tables = self._tables_of(arrivals[0])
        return (
            where is None
            and len(arrivals) == 1
            and tables is not None
            and len(tables) == 1
            and not table_exists(cursor, self.table)
        )

    def _adopt(
        self, cursor: DuckDBPyConnection, arrival: Arrival, before_commit: Callable[[], None] | None
    ) -> Completed:
        (name,) = self._tables_of(arrival) or ()
        with transaction(cursor, Step.COMPLETE_PARTITION) as tx:
            tx.execute(f"ALTER TABLE {qualified(SCHEMA, name)} RENAME TO {quote(self.table)}")
            moved = Completed(arrival.partition_id, count_rows(cursor, self.main), 0)
            if before_commit is not None:
                before_commit()
            self._record(tx, [moved])
        self._columns = describe(cursor, self.main)
        return moved

    def _create_main_for(self, cursor: DuckDBPyConnection, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            tables = self._tables_of(arrival)
            if tables != ():
                with _source(cursor, arrival, tables) as source:
                    self._create_main(cursor, source, _full_texts(cursor, source, arrival))
                return

    def _create_main(self, cursor: DuckDBPyConnection, source: str, plain: Collection[str] = ()) -> None:
        if self._columns is None:
            with transaction(cursor, Step.STAGE_ROWS) as tx:
                tx.execute(f"CREATE TABLE IF NOT EXISTS {self.main} {_shape(cursor, source, plain)}")
            self._columns = describe(cursor, self.main)

    def _same_columns(self, cursor: DuckDBPyConnection, source: str) -> None:
        """An implicit cast between partitions would change values silently."""
        found = {(column.name, column.type) for column in describe(cursor, source)}
        expected = {(column.name, column.type) for column in self._columns or ()}
        differing = sorted({name for name, _ in found ^ expected})
        if differing:
            message = f"the columns of a partition differ from those of {self.table}: {', '.join(differing)}"
            raise NodeError(Problem(Code.PZ0501, message))

    def is_complete(self, cursor: DuckDBPyConnection) -> bool:
        """Whether the plan is closed and every partition of it is done: then `finish` may be called (again)."""
        ledger = Ledger(cursor)
        total = ledger.plan_total(self.node_id)
        return total is not None and total == ledger.accounted(self.node_id)[0]

    def finish(
        self, cursor: DuckDBPyConnection, facts: NodeFacts | None = None, *, side_tables: Sequence[str] = ()
    ) -> NodeDone:
        """Record the load as done. Also after a crash: all that it needs is the closed plan and the done rows.

        Raises EngineError unless the plan is closed, every partition of it is done and the done rows' sum is the main
        table's count; else something has written to staging behind the ledger's back.
        """
        facts = replace(facts or NodeFacts(), pushed_columns=self.read.pushed_columns, predicate=self.read.predicate)
        with transaction(cursor, Step.COMPLETE_LOAD) as tx:
            if not self.is_complete(cursor):
                raise EngineError(
                    Problem(Code.PZ0500, f"{self.table} is not done: its plan is open or has open partitions")
                )
            done = complete_node(tx, self.node_id, (self.table, *side_tables), facts)
            if done.rows != self._accounted(cursor):
                raise EngineError(
                    Problem(Code.PZ0500, f"{self.table} does not hold the rows that its ledger accounts for")
                )
        return done

    def _accounted(self, cursor: DuckDBPyConnection) -> int:
        return Ledger(cursor).accounted(self.node_id)[1]

    def _is_sound(self, cursor: DuckDBPyConnection) -> bool:
        """Whether the main table holds what the done rows account for; absent, it must account for nothing."""
        held = count_rows(cursor, self.main) if table_exists(cursor, self.table) else 0
        return held == self._accounted(cursor)

    def _leftovers(self, cursor: DuckDBPyConnection) -> list[str]:
        key = node_key(self.node_id)
        sql = (
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_catalog() AND schema_name = ? "
            "AND starts_with(table_name, ?) ORDER BY table_name"
        )
        rows = cursor.execute(filled(sql, [SCHEMA, f"__pz_part__{key}__"])).fetchall()
        return [str(row[0]) for row in rows]

    def _drop(self, cursor: DuckDBPyConnection, names: Sequence[str]) -> None:
        if names:
            with transaction(cursor, Step.STAGE_ROWS) as tx:
                for name in names:
                    tx.execute(f"DROP TABLE IF EXISTS {qualified(SCHEMA, name)}")


def _full_texts(cursor: DuckDBPyConnection, source: str, arrival: Arrival) -> Collection[str]:
    """The columns that are staged as they come."""
    if arrival.full_texts is not None:
        return {str(name) for (name,) in cursor.execute(arrival.full_texts).fetchall()}
    return [column.name for column in describe(cursor, source)] if arrival.from_text else ()


def _shape(cursor: DuckDBPyConnection, source: str, plain: Collection[str]) -> str:
    """The columns of a new table for rows of ``source``, none of them in it yet; texts of ``plain`` ones uncompressed."""
    if not plain:
        return f"AS SELECT * FROM {source} LIMIT 0"
    columns = [
        f"{quote(c.name)} {c.type}{' USING COMPRESSION uncompressed' if c.type == 'VARCHAR' and c.name in plain else ''}"
        for c in describe(cursor, source)
    ]
    return f"({', '.join(columns)})"


class PlanPinning:
    """Pins the partitions of one enumeration, in chunks while they come, and closes the plan by its total.

    Ids that an earlier attempt pinned keep their place. Not thread-safe: one coordinator enumerates.
    """

    def __init__(self, cursor: DuckDBPyConnection, node_id: str) -> None:
        self._cursor = cursor
        self._node_id = node_id
        self._seen: set[str] = set()
        self._pinned = {entry.partition_id for entry in Ledger(cursor).plan(node_id)}
        self._next = len(self._pinned)

    def add(self, partitions: Iterable[tuple[str, str | None]]) -> None:
        """Pin partitions, given as ``(id, spec)``. Raises PermanentError (PZ0319) for an empty or repeated id."""
        ids: list[str] = []
        specs: list[str | None] = []
        for partition_id, spec in partitions:
            if not isinstance(partition_id, str) or not partition_id or partition_id in self._seen:
                fault = "repeated" if partition_id and partition_id in self._seen else "missing or empty"
                raise PermanentError(
                    f"a partition id is {fault}, though the connector promises stable ids", code=Code.PZ0319
                )
            self._seen.add(partition_id)
            if partition_id not in self._pinned:
                ids.append(partition_id)
                specs.append(spec)
        if ids:
            ordinals = list(range(self._next, self._next + len(ids)))
            with transaction(self._cursor, Step.PIN_PARTITIONS) as tx:
                meta.record_columns(tx, PlannedPartition, [[self._node_id] * len(ids), ids, ordinals, specs])
            self._pinned.update(ids)
            self._next += len(ids)

    def close(self) -> int:
        """Record that the enumeration ended cleanly; return the total.

        Partitions of an earlier, unfinished enumeration that did not come again leave the plan, if none of their rows is
        in the main table; else raises `PlanChanged`.
        """
        stale = self._pinned - self._seen
        if stale and stale & Ledger(self._cursor).finished(self._node_id):
            raise PlanChanged("the source enumerates other partitions than in the attempt before")
        with transaction(self._cursor, Step.CLOSE_PLAN) as tx:
            if stale:
                for kind in (PlannedPartition, Checkpoint):
                    meta.erase(tx, kind, self._node_id, partition_ids=sorted(stale))
            if Ledger(self._cursor).plan_total(self._node_id) != len(self._seen):
                meta.erase(tx, PlanClosed, self._node_id)
                meta.record(tx, PlanClosed(self._node_id, len(self._seen)))
        return len(self._seen)


def pin_window(cursor: DuckDBPyConnection, window: NodeWindow) -> NodeWindow:
    """Pin a load's slice before its first row; return the slice that holds, which is an earlier pinned one if there is."""
    pinned = Ledger(cursor).window(window.node_id)
    if pinned is not None:
        return pinned
    with transaction(cursor, Step.PIN_WINDOW) as tx:
        meta.record(tx, window)
    return window


@contextmanager
def _source(cursor: DuckDBPyConnection, arrival: Arrival, tables: Sequence[str] | None) -> Iterator[str]:
    """The FROM-able text of an arrival; batches in memory are a table of the cursor's own for the block."""
    if arrival.batch is not None:
        with _landed(cursor, arrival.batch):
            yield _LANDED
    elif arrival.source is not None:
        yield arrival.source
    else:
        yield f"({' UNION ALL '.join(f'SELECT * FROM {qualified(SCHEMA, table)}' for table in tables or ())})"


@contextmanager
def _landed(cursor: DuckDBPyConnection, batches: pa.Table) -> Iterator[None]:
    """A temporary table of the rows: they are read more than once, and a stream can be read only once.

    Registering the Arrow table itself would make DuckDB import ``pyarrow.dataset``, a tenth of a second.
    """
    cursor.register(_STREAM, batches.__arrow_c_stream__())
    try:
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE {_LANDED} AS FROM {_STREAM}")  # durable: ok - the cursor's own
    finally:
        cursor.unregister(_STREAM)
    yield  # after a failure the transaction is over, and the next `OR REPLACE` takes away what is left
    cursor.execute(f"DROP TABLE temp.{_LANDED}")  # durable: ok - the cursor's own


def _split_batches(arrivals: Sequence[Arrival]) -> tuple[list[Arrival], list[Arrival]]:
    """The batches in memory that have the schema of the first of them, and everything else."""
    first = next((arrival.batch for arrival in arrivals if arrival.batch is not None), None)
    together: list[Arrival] = []
    singly: list[Arrival] = []
    for arrival in arrivals:
        alike = first is not None and arrival.batch is not None and arrival.batch.schema.equals(first.schema)
        (together if alike else singly).append(arrival)
    return together, singly


def _numbered(batches: Sequence[pa.Table | None]) -> pa.Table:
    """All batches as one table, with a column that says which batch a row came in."""
    import pyarrow as pa

    return pa.concat_tables(
        batch.append_column(_ORDINAL, pa.repeat(pa.scalar(at, pa.int64()), batch.num_rows))
        for at, batch in enumerate(batches)
        if batch is not None
    )


def _retrying_conflicts(work: Callable[[], T]) -> T:
    """Repeat a transaction that lost against a concurrent one; it was rolled back whole, so repeating is safe."""
    import duckdb

    for _ in range(_CONFLICT_TRIES - 1):
        try:
            return work()
        except duckdb.TransactionException as failure:
            if "conflict" not in str(failure).lower():
                raise
    return work()
