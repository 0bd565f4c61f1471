"""`pz_meta`: what a run has durably done, in records; the only writer of that schema.

Records are written by `record`, changed by `move_attempt` and `advance_delivery`, removed by `erase` and
`forget_accepted`; all need an open `Transaction`, so that the ledger commits together with the data it accounts for.
Reading is typed, through `Ledger`, from this run's catalogue or from an attached earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pz.codes import Code
from pz.connectors.contract import Bound, Column
from pz.errors import EngineError, Problem, StateError
from pz.frozen import frozen
from pz.sqltext import filled, qualified
from pz.staging.results import first_row
from pz.staging.transaction import Transaction

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "SCHEMA_VERSION",
    "AcceptedRow",
    "AttemptState",
    "Checkpoint",
    "Delivery",
    "Entry",
    "Ledger",
    "NodeDone",
    "NodeRead",
    "NodeWindow",
    "PartitionDone",
    "PlanClosed",
    "PlannedPartition",
    "SinkAttempt",
    "advance_delivery",
    "forget_accepted",
    "check_owner",
    "copy_records",
    "create",
    "erase",
    "mark_attempt",
    "move_attempt",
    "record",
    "record_columns",
]

SCHEMA_VERSION = 1
_NEXT = "nextval('pz_meta.seq')"
_MANY = 64
_RECORDS = "__pz_records"


class AttemptState(StrEnum):
    """``begun`` is written before the session begins; a process that dies leaves it so, which means in doubt."""

    BEGUN = "begun"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@frozen
class Entry:
    """Base of all records. ``table`` is where they live, ``types`` their columns, ``on_conflict`` what repeating does."""

    table: ClassVar[str]
    types: ClassVar[dict[str, str]]
    on_conflict: ClassVar[str] = ""
    numbered: ClassVar[bool] = False

    node_id: str


@frozen
class PlannedPartition(Entry):
    """A pinned partition. Recorded once; a repetition is an error."""

    table: ClassVar[str] = "partition_plan"
    types: ClassVar[dict[str, str]] = {
        "node_id": "VARCHAR",
        "partition_id": "VARCHAR",
        "ordinal": "BIGINT",
        "spec": "VARCHAR",
    }

    partition_id: str
    ordinal: int
    spec: str | None = None


@frozen
class PlanClosed(Entry):
    """The enumeration of a load ended cleanly after ``total`` partitions."""

    table: ClassVar[str] = "plan_closed"
    types: ClassVar[dict[str, str]] = {"node_id": "VARCHAR", "total": "BIGINT"}

    total: int


@frozen
class PartitionDone(Entry):
    """All rows of a partition are in the main table. Recorded once; a repetition is an error."""

    table: ClassVar[str] = "partitions_done"
    types: ClassVar[dict[str, str]] = {"node_id": "VARCHAR", "partition_id": "VARCHAR", "row_count": "BIGINT"}
    numbered: ClassVar[bool] = True

    partition_id: str
    row_count: int


@frozen
class Checkpoint(Entry):
    """A partition's durable prefix of ``row_count`` rows, and the token that continues behind it."""

    table: ClassVar[str] = "partition_checkpoints"
    types: ClassVar[dict[str, str]] = {
        "node_id": "VARCHAR",
        "partition_id": "VARCHAR",
        "token": "VARCHAR",
        "row_count": "BIGINT",
    }
    on_conflict: ClassVar[str] = (
        "ON CONFLICT (node_id, partition_id) DO UPDATE SET token = excluded.token, row_count = excluded.row_count"
    )

    partition_id: str
    token: str
    row_count: int

    def __repr__(self) -> str:
        return f"Checkpoint(node_id={self.node_id!r}, row_count={self.row_count})"


@frozen
class NodeWindow(Entry):
    """The slice of an incremental load. Pinned once; another slice for the same load is an error."""

    table: ClassVar[str] = "node_window"
    types: ClassVar[dict[str, str]] = {
        "node_id": "VARCHAR",
        "lower": "VARCHAR",
        "lower_inclusive": "BOOLEAN",
        "upper": "VARCHAR",
        "upper_inclusive": "BOOLEAN",
        "cursor": "VARCHAR",
        "cursor_type": "VARCHAR",
    }

    lower: str | None
    lower_inclusive: bool
    upper: str | None
    upper_inclusive: bool
    cursor: str
    cursor_type: str | None = None

    @classmethod
    def of(
        cls, node_id: str, lower: Bound | None, upper: Bound | None, cursor: str, cursor_type: str | None
    ) -> NodeWindow:
        """The window between two bounds; None is an open end."""
        return cls(
            node_id,
            lower.value if lower else None,
            bool(lower and lower.inclusive),
            upper.value if upper else None,
            bool(upper and upper.inclusive),
            cursor,
            cursor_type,
        )

    @property
    def lower_bound(self) -> Bound | None:
        """The lower end, None when open."""
        return None if self.lower is None else Bound(self.lower, self.lower_inclusive)

    @property
    def upper_bound(self) -> Bound | None:
        """The upper end, None when open."""
        return None if self.upper is None else Bound(self.upper, self.upper_inclusive)


@frozen
class NodeRead(Entry):
    """How a load is read: narrowed to columns and rows (None: not), and ``shape``, opaque text that pins a sniffed schema.

    Pinned once; parts that were read in another way don't belong together.
    """

    table: ClassVar[str] = "node_read"
    types: ClassVar[dict[str, str]] = {
        "node_id": "VARCHAR",
        "pushed_columns": "VARCHAR[]",
        "predicate": "VARCHAR",
        "shape": "VARCHAR",
    }

    pushed_columns: tuple[str, ...] | None = None
    predicate: str | None = None
    shape: str | None = None


@frozen
class NodeDone(Entry):
    """A finished node with every table it owns in schema ``staging``, main table first.

    ``pushed_columns`` and ``predicate`` say what the read was narrowed by (None: not at all). ``details`` is JSON of the
    engine's making.
    """

    table: ClassVar[str] = "node_done"
    types: ClassVar[dict[str, str]] = {
        "node_id": "VARCHAR",
        "tables": "VARCHAR[]",
        "row_counts": "BIGINT[]",
        "columns": 'STRUCT("name" VARCHAR, "type" VARCHAR)[]',
        "pushed_columns": "VARCHAR[]",
        "predicate": "VARCHAR",
        "candidate": "VARCHAR",
        "candidate_type": "VARCHAR",
        "token": "VARCHAR",
        "details": "VARCHAR",
    }
    on_conflict: ClassVar[str] = "ON CONFLICT (node_id) DO UPDATE SET " + ", ".join(
        f'"{name}" = excluded."{name}"' for name in (*list(types)[1:], "seq")
    )
    numbered: ClassVar[bool] = True

    tables: tuple[str, ...]
    row_counts: tuple[int, ...]
    columns: tuple[Column, ...]
    pushed_columns: tuple[str, ...] | None = None
    predicate: str | None = None
    candidate: str | None = None
    candidate_type: str | None = None
    token: str | None = None
    details: str | None = None

    @property
    def rows(self) -> int:
        """Rows of the main table."""
        return self.row_counts[0]

    def __repr__(self) -> str:
        return f"NodeDone(node_id={self.node_id!r}, tables={self.tables!r}, row_counts={self.row_counts!r})"


@frozen
class SinkAttempt(Entry):
    """An attempt at an output. States change only through `move_attempt`."""

    table: ClassVar[str] = "sink_attempts"
    types: ClassVar[dict[str, str]] = {
        "node_id": "VARCHAR",
        "run_id": "VARCHAR",
        "ordinal": "INTEGER",
        "state": "VARCHAR",
        "marker": "VARCHAR",
    }
    numbered: ClassVar[bool] = True

    run_id: str
    ordinal: int
    state: AttemptState
    marker: str | None = None


@frozen
class Delivery(Entry):
    """How many rows of the drained relation the destination has confirmed, and which relation that is."""

    table: ClassVar[str] = "sink_deliveries"
    types: ClassVar[dict[str, str]] = {
        "node_id": "VARCHAR",
        "acknowledged_rows": "BIGINT",
        "fingerprint_rows": "BIGINT",
        "fingerprint_hash": "VARCHAR",
    }
    on_conflict: ClassVar[str] = (
        "ON CONFLICT (node_id) DO UPDATE SET acknowledged_rows = excluded.acknowledged_rows, "
        "fingerprint_rows = excluded.fingerprint_rows, fingerprint_hash = excluded.fingerprint_hash, "
        "seq = excluded.seq"
    )
    numbered: ClassVar[bool] = True

    acknowledged_rows: int
    fingerprint_rows: int
    fingerprint_hash: str


@frozen
class AcceptedRow(Entry):
    """A row behind the first refused one that the destination has confirmed."""

    table: ClassVar[str] = "sink_accepted"
    types: ClassVar[dict[str, str]] = {"node_id": "VARCHAR", "row_offset": "BIGINT"}
    on_conflict: ClassVar[str] = "ON CONFLICT DO NOTHING"

    row_offset: int


def create(connection: DuckDBPyConnection, run_id: str) -> None:
    """Create the schemas and tables in the current catalogue, owned by ``run_id``.

    In one transaction: DuckDB flushes the log at each commit, and there are sixty statements.
    """
    connection.begin()
    connection.execute(Path(__file__).with_name("pz_meta.sql").read_text("utf-8"))
    connection.execute(filled("INSERT INTO pz_meta.meta (version, run_id) VALUES (?, ?)", [SCHEMA_VERSION, run_id]))
    connection.commit()  # durable: ok - inside the step of the caller, who makes the file


def check_owner(connection: DuckDBPyConnection, catalog: str, run_id: str) -> None:
    """Raise StateError (PZ0708) unless the catalogue is of our schema version and belongs to ``run_id``."""
    import duckdb

    try:
        rows = connection.execute(f"SELECT version, run_id FROM {qualified(catalog, 'pz_meta', 'meta')}").fetchall()
    except duckdb.CatalogException as failure:
        raise StateError(Problem(Code.PZ0708, f"the staging file of run {run_id} was not written by pz")) from failure
    if [version for version, _ in rows] != [SCHEMA_VERSION]:
        message = f"the staging file of run {run_id} has another version than this pz ({SCHEMA_VERSION})"
        raise StateError(Problem(Code.PZ0708, message))
    if rows[0][1] != run_id:
        raise StateError(Problem(Code.PZ0708, f"the staging file of run {run_id} belongs to another run"))


def record(tx: Transaction, *entries: Entry) -> None:
    """Write records, many of a kind in one statement. Raises duckdb.ConstraintException where a repetition is an error."""
    for kind in dict.fromkeys(type(entry) for entry in entries):  # no entries, no statement
        alike = [_values(entry) for entry in entries if type(entry) is kind]
        record_columns(tx, kind, [list(column) for column in zip(*alike, strict=True)])


def record_columns(tx: Transaction, kind: type[Entry], columns: Sequence[Sequence[object]]) -> None:
    """Write records of a kind given by their columns: for thousands, which are not worth an object each."""
    (_insert_many if len(columns[0]) > _MANY and kind is not NodeDone else _insert)(tx, kind, columns)


def _insert(tx: Transaction, kind: type[Entry], columns: Sequence[Sequence[object]]) -> None:
    names = [f'"{name}"' for name in kind.types]
    values = [f"unnest(?::{declared}[])" for declared in kind.types.values()]
    selected = ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
    listed = ", ".join(names)
    numbered = (", seq", f", {_NEXT}") if kind.numbered else ("", "")
    tx.execute(
        f"INSERT INTO pz_meta.{kind.table} ({listed}{numbered[0]}) "
        f"SELECT {listed}{numbered[1]} FROM (SELECT {selected}) {kind.on_conflict}",
        columns,
    )


def _insert_many(tx: Transaction, kind: type[Entry], columns: Sequence[Sequence[object]]) -> None:
    """Thousands of records as an Arrow table: spelling and parsing them as literals takes many times as long."""
    import pyarrow as pa

    listed = ", ".join(f'"{name}"' for name in kind.types)
    cast = ", ".join(f'"{name}"::{declared}' for name, declared in kind.types.items())
    numbered = (", seq", f", {_NEXT}") if kind.numbered else ("", "")
    tx.cursor.register(_RECORDS, pa.table([pa.array(column) for column in columns], list(kind.types)))
    try:
        tx.execute(
            f"INSERT INTO pz_meta.{kind.table} ({listed}{numbered[0]}) "
            f"SELECT {cast}{numbered[1]} FROM {_RECORDS} {kind.on_conflict}"
        )
    finally:
        tx.cursor.unregister(_RECORDS)


def copy_records(tx: Transaction, kind: type[Entry], catalog: str, node_id: str) -> None:
    """Copy a node's records of a kind from an attached ledger, in their order."""
    listed = ", ".join(f'"{name}"' for name in kind.types)
    numbered = (", seq", f", {_NEXT}", " ORDER BY seq") if kind.numbered else ("", "", "")
    found = f"(SELECT * FROM {qualified(catalog, 'pz_meta', kind.table)} WHERE node_id = ?{numbered[2]})"
    tx.execute(
        f"INSERT INTO pz_meta.{kind.table} ({listed}{numbered[0]}) SELECT {listed}{numbered[1]} FROM {found}", [node_id]
    )


def _values(entry: Entry) -> tuple[Any, ...]:
    return tuple(_plain(getattr(entry, name)) for name in entry.types)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [{"name": item.name, "type": item.type} if isinstance(item, Column) else item for item in value]
    return str(value) if isinstance(value, StrEnum) else value


def erase(tx: Transaction, kind: type[Entry], node_id: str, *, partition_ids: Sequence[str] | None = None) -> int:
    """Remove a node's records of a kind (of these partitions only, where given); return how many there were."""
    sql = f"DELETE FROM pz_meta.{kind.table} WHERE node_id = ?"
    parameters: list[object] = [node_id]
    if partition_ids is not None:
        sql += " AND list_contains(?::VARCHAR[], partition_id)"
        parameters.append(list(partition_ids))
    return _changed(tx.execute(sql, parameters))


def move_attempt(
    tx: Transaction, node_id: str, run_id: str, ordinal: int, to: AttemptState, *, allowed: Iterable[AttemptState]
) -> None:
    """Move an attempt to a state if it is in one of the ``allowed``; raise EngineError when no row matched."""
    changed = _changed(
        tx.execute(
            "UPDATE pz_meta.sink_attempts SET state = ? "
            "WHERE node_id = ? AND run_id = ? AND ordinal = ? AND list_contains(?::VARCHAR[], state)",
            [str(to), node_id, run_id, ordinal, [str(state) for state in allowed]],
        )
    )
    if changed != 1:
        message = (
            f"attempt {ordinal} of run {run_id} on node {node_id} cannot become {to}: it is not in a state for that"
        )
        raise EngineError(Problem(Code.PZ0500, message))


def mark_attempt(tx: Transaction, node_id: str, run_id: str, ordinal: int, marker: str) -> None:
    """Give an attempt that has begun its mark; raise EngineError when there is no such attempt."""
    changed = _changed(
        tx.execute(
            "UPDATE pz_meta.sink_attempts SET marker = ? WHERE node_id = ? AND run_id = ? AND ordinal = ? AND state = 'begun'",
            [marker, node_id, run_id, ordinal],
        )
    )
    if changed != 1:
        raise EngineError(Problem(Code.PZ0500, f"attempt {ordinal} of run {run_id} on node {node_id} is not open"))


def advance_delivery(tx: Transaction, node_id: str, rows: int) -> None:
    """Raise a delivery's acknowledged rows; raise EngineError when none was begun or the count would fall."""
    changed = _changed(
        tx.execute(
            f"UPDATE pz_meta.sink_deliveries SET acknowledged_rows = ?, seq = {_NEXT} "
            "WHERE node_id = ? AND acknowledged_rows <= ?",
            [rows, node_id, rows],
        )
    )
    if changed != 1:
        message = f"the delivery of node {node_id} cannot move to {rows} rows: it was not begun, or is further already"
        raise EngineError(Problem(Code.PZ0500, message))


def forget_accepted(tx: Transaction, node_id: str, rows: int) -> None:
    """Remove the single rows that a delivery's first ``rows`` rows have come to include."""
    tx.execute("DELETE FROM pz_meta.sink_accepted WHERE node_id = ? AND row_offset < ?", [node_id, rows])


def _changed(result: DuckDBPyConnection) -> int:
    row = first_row(result)
    return int(row[0]) if row else 0


class Ledger:
    """Typed reading of a `pz_meta`: this run's (the default) or an attached earlier one's."""

    def __init__(self, cursor: DuckDBPyConnection, catalog: str = "run") -> None:
        self._cursor = cursor
        self._catalog = catalog

    def nodes_done(self) -> tuple[NodeDone, ...]:
        """All finished nodes, in order of completion."""
        return tuple(_node_done(row) for row in self._rows(NodeDone, order="seq"))

    def node_done(self, node_id: str) -> NodeDone | None:
        """A finished node, or None."""
        return next((_node_done(row) for row in self._rows(NodeDone, node_id)), None)

    def window(self, node_id: str) -> NodeWindow | None:
        """The pinned window of a load."""
        return next((NodeWindow(*row) for row in self._rows(NodeWindow, node_id)), None)

    def node_read(self, node_id: str) -> NodeRead | None:
        """How a load is read, None when that was not pinned."""
        for node, pushed, predicate, shape in self._rows(NodeRead, node_id):
            return NodeRead(node, None if pushed is None else tuple(pushed), predicate, shape)
        return None

    def plan(self, node_id: str) -> tuple[PlannedPartition, ...]:
        """The pinned partitions of a load, in order."""
        return tuple(PlannedPartition(*row) for row in self._rows(PlannedPartition, node_id, order="ordinal"))

    def plan_total(self, node_id: str) -> int | None:
        """How many partitions the load has, None while its enumeration has not ended."""
        return next((PlanClosed(*row).total for row in self._rows(PlanClosed, node_id)), None)

    def partitions_done(self, node_id: str) -> tuple[PartitionDone, ...]:
        """The finished partitions of a load, in order of completion."""
        return tuple(PartitionDone(*row) for row in self._rows(PartitionDone, node_id, order="seq"))

    def finished(self, node_id: str) -> frozenset[str]:
        """The ids of the finished partitions: many times as quick as `partitions_done` where there are thousands."""
        table = qualified(self._catalog, "pz_meta", "partitions_done")
        found = self._cursor.execute(filled(f"SELECT partition_id FROM {table} WHERE node_id = ?", [node_id]))
        return frozenset(partition_id for (partition_id,) in found.fetchall())

    def accounted(self, node_id: str) -> tuple[int, int]:
        """How many partitions of a load are finished, and their rows."""
        table = qualified(self._catalog, "pz_meta", "partitions_done")
        sql = f"SELECT count(*), coalesce(sum(row_count), 0)::BIGINT FROM {table} WHERE node_id = ?"
        row = first_row(self._cursor.execute(filled(sql, [node_id])))
        assert row is not None  # an aggregate without GROUP BY gives one row
        return int(row[0]), int(row[1])

    def checkpoints(self, node_id: str, partition_id: str | None = None) -> tuple[Checkpoint, ...]:
        """The partitions of a load that can be continued (or the one that is named)."""
        rows = self._rows(Checkpoint, node_id, partition_id, order="partition_id")
        return tuple(Checkpoint(*row) for row in rows)

    def attempts(self, node_id: str | None = None) -> tuple[SinkAttempt, ...]:
        """The attempts at an output (all outputs without a node), oldest first."""
        return tuple(
            SinkAttempt(node, run, ordinal, AttemptState(state), marker)
            for node, run, ordinal, state, marker in self._rows(SinkAttempt, node_id, order="seq")
        )

    def delivery(self, node_id: str) -> Delivery | None:
        """How far a resumable delivery has come, None when none was begun."""
        return next((Delivery(*row) for row in self._rows(Delivery, node_id)), None)

    def accepted_rows(self, node_id: str) -> frozenset[int]:
        """Offsets confirmed behind the first refused row."""
        return frozenset(AcceptedRow(*row).row_offset for row in self._rows(AcceptedRow, node_id))

    def _rows(
        self,
        kind: type[Entry],
        node_id: str | None = None,
        partition_id: str | None = None,
        *,
        order: str | None = None,
    ) -> list[Any]:
        columns = ", ".join(f'"{name}"' for name in kind.types)
        wanted = {"node_id": node_id, "partition_id": partition_id}
        conditions = [f"{name} = ?" for name, value in wanted.items() if value is not None]
        sql = f"SELECT {columns} FROM {qualified(self._catalog, 'pz_meta', kind.table)}"
        sql += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sql += f" ORDER BY {order}" if order else ""
        return self._cursor.execute(filled(sql, [value for value in wanted.values() if value is not None])).fetchall()


def _node_done(row: Sequence[Any]) -> NodeDone:
    node_id, tables, counts, columns, pushed, *rest = row
    return NodeDone(
        node_id,
        tuple(tables),
        tuple(counts),
        tuple(Column(column["name"], column["type"]) for column in columns),
        None if pushed is None else tuple(pushed),
        *rest,
    )
