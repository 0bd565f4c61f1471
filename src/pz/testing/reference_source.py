"""The read side of the reference connectors: anonymous, stable, native, feed and change partitions over a `Server`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pz.connectors.contract import (
    BatchOptions,
    Bound,
    CancelToken,
    Capability,
    Column,
    DatasetSpec,
    NativeScan,
    OperationGate,
    Partition,
    PermanentError,
    ReadHints,
    ReadShape,
    SourceProbe,
)
from pz.frozen import frozen
from pz.sqltext import literal, quote
from pz.testing.server import Change, Server, StoredRow, cells_to_table
from pz.testing.values import canonical, duck_types, order_key, parse_canonical

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DATASET_SCHEMA", "DatabaseSource", "FeedSource", "ReferenceSource"]

DATASET_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "partitions": {
            "type": "integer",
            "minimum": 1,
            "description": "Rows go round robin over this many partitions.",
        },
        "partition_rows": {"type": "integer", "minimum": 1, "description": "Or: each partition has this many rows."},
        "batch_rows": {"type": "integer", "minimum": 1, "description": "Rows per batch."},
        "lazy": {"type": "boolean", "description": "Enumerate partitions while they are read."},
        "ids": {"enum": ["stable", "missing", "empty", "duplicate"], "description": "Break the promise of stable ids."},
        "checkpoints": {"type": "boolean", "description": "Offer a token after every batch."},
        "resume": {"enum": ["accept", "decline"], "description": "What a token does when it comes back."},
        "native": {"enum": ["none", "whole", "partition"], "description": "What DuckDB may read itself."},
        "bounds": {"enum": ["honour", "ignore", "partial"], "description": "What becomes of pushed bounds."},
        "pruning": {"enum": ["honour", "ignore"], "description": "What becomes of pushed columns and predicates."},
        "null_rows": {"type": "boolean", "description": "Whether rows without a cursor pass a lower bound."},
        "probe": {"enum": ["answer", "silent", "refuse"], "description": "What the probe says."},
        "feed": {"type": "boolean", "description": "The natural read is a feed (reference_api)."},
        "capture": {"enum": ["keys", "no_keys"], "description": "Whether change capture knows the keys."},
    },
}

T = TypeVar("T")


class ReferenceSource:
    """The read side of an open connection. Which kind of partitions it plans follows the connector's capabilities."""

    def __init__(self, server: Server, capabilities: Capability) -> None:
        self._server = server
        self._capabilities = capabilities
        self._gate: OperationGate | None = None

    def schema(self, dataset: DatasetSpec) -> pa.Schema:
        """See `Source`. A pruned read carries fewer columns; change rows start with their three own."""
        with self._server.script.call("schema", dataset.entity):
            schema = self._server.dataset(dataset.entity).schema
            return change_schema(schema) if dataset.change_capture else schema

    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
        """See `Source`."""
        if dataset.options.get("native") != "whole" or not self._capabilities & Capability.NATIVE_SCAN:
            return None
        with self._server.script.call("native_scan", dataset.entity):
            files = [str(file) for file in self._server.native_files(dataset.entity)]
            return fragment(files, dataset, hints, self._server.dataset(dataset.entity).schema)

    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        """See `Source`."""
        script = self._server.script
        with script.call("plan_read", dataset.entity):
            if dataset.change_capture:
                return [ChangePartition(self._server, dataset)]
            return self._plan(dataset, hints)

    def probe(self, dataset: DatasetSpec) -> SourceProbe:
        """See `ProbingSource`."""
        with self._server.script.call("probe", dataset.entity):
            mode = dataset.options.get("probe", "answer")
            if mode == "refuse":
                raise PermanentError(f"dataset {dataset.entity!r} holds a type that cannot be read")
            return SourceProbe() if mode == "silent" else self._answer(dataset)

    def close(self) -> None:
        """See `Source`."""
        with self._server.script.call("close_source", "*"):
            pass

    def _plan(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        reader = Reader(self._server, dataset, hints, self._gate)
        if not self._capabilities & Capability.PARTITIONED_READ:
            return [AnonymousPartition(reader, Share(0))]
        shares = _shares(self._server, dataset)
        enumerated = (self._enumerate(reader, share) for share in shares)
        return enumerated if dataset.options.get("lazy") else list(enumerated)

    def _enumerate(self, reader: Reader, share: Share) -> Partition:
        with self._server.script.call("plan_partition", reader.dataset.entity, partition=share.name):
            if not self._capabilities & Capability.STABLE_PARTITION_IDS:
                return AnonymousPartition(reader, share)
            return StablePartition(reader, share)

    def _answer(self, dataset: DatasetSpec) -> SourceProbe:
        stored = self._server.dataset(dataset.entity)
        rows = self._server.rows(dataset.entity)
        upper = nulls = None
        if dataset.cursor is not None:
            kind = stored.schema.field(dataset.cursor).type
            cells = [row.cells.get(dataset.cursor) for row in rows]
            nulls = cells.count(None)
            present = [cell for cell in cells if cell is not None]
            upper = canonical(max(present, key=lambda cell: order_key(cell, kind)), kind) if present else None
        columns = tuple(Column(name, kind) for name, kind in duck_types(stored.schema))
        return SourceProbe(columns, len(rows), None, upper, nulls, None)


class DatabaseSource(ReferenceSource):
    """The read side of the database: partitions of an earlier plan can be rebuilt."""

    def restore_partition(self, dataset: DatasetSpec, hints: ReadHints, spec: str) -> Partition:
        """See `RestoringSource`."""
        with self._server.script.call("restore_partition", dataset.entity):
            share = Share(**json.loads(spec))
            return StablePartition(Reader(self._server, dataset, hints), share)


class FeedSource(ReferenceSource):
    """The read side of the API: a feed where the dataset says so, and every call through the gate."""

    def use_gate(self, gate: OperationGate) -> None:
        """See `Gated`."""
        self._gate = gate

    def natural_read_shape(self, dataset: DatasetSpec) -> ReadShape:
        """See `NaturalReadShape`."""
        return ReadShape.FEED if dataset.options.get("feed") else ReadShape.FULL

    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        """See `Source`."""
        if not dataset.options.get("feed"):
            return super().plan_read(dataset, hints)
        with self._server.script.call("plan_read", dataset.entity):
            return [FeedPartition(Reader(self._server, dataset, hints, self._gate))]


@frozen
class Share:
    """Which rows a partition has: ``seq % of = number``, or ``seq`` in a block of ``block`` rows, or all."""

    number: int
    of: int = 1
    block: int | None = None

    @property
    def name(self) -> str:
        """The partition in the call log and in faults."""
        return str(self.number)

    @property
    def where(self) -> tuple[str, tuple[int, ...]]:
        """The condition over ``seq`` and its values."""
        if self.block is not None:
            return "seq >= ? AND seq < ?", (self.number * self.block, (self.number + 1) * self.block)
        return "seq % ? = ?", (self.of, self.number)


def _shares(server: Server, dataset: DatasetSpec) -> Iterator[Share]:
    block = dataset.options.get("partition_rows")
    if block is not None:
        _, end = server.count(dataset.entity)
        yield from (Share(number, block=block) for number in range(max(1, -(-end // block))))
    else:
        count = dataset.options.get("partitions", 1)
        yield from (Share(number, count) for number in range(count))


class Reader:
    """One read of a dataset: fetches rows, cuts them as the options say, and yields them in logged batches."""

    def __init__(
        self, server: Server, dataset: DatasetSpec, hints: ReadHints, gate: OperationGate | None = None
    ) -> None:
        self.server = server
        self.dataset = dataset
        self.hints = hints
        self._gate = gate

    def fetch(self, label: str, operation: Callable[[], T]) -> T:
        """A remote call, through the gate where there is one."""
        return operation() if self._gate is None else self._gate.execute(label, True, operation)

    def batches(
        self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema, name: str, size: int, cancel: CancelToken
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (rows so far, batch); faults of ``batch`` fire before each."""
        script, entity = self.server.script, self.dataset.entity
        for start in range(0, len(rows), size):
            cancel.raise_if_set()
            part = rows[start : start + size]
            with script.call("batch", entity, partition=name, rows=len(part), cancel=cancel):
                table = self._narrow(cells_to_table(part, schema))
            for batch in table.combine_chunks().to_batches():
                yield start + len(part), batch
        with script.call("read_end", entity, partition=name, cancel=cancel):
            pass

    def size(self, options: BatchOptions) -> int:
        """Rows per batch."""
        return min(int(self.dataset.options.get("batch_rows", 1_000)), options.max_rows)

    def cut(self, rows: Sequence[StoredRow], schema: pa.Schema) -> list[StoredRow]:
        """Apply the bounds as the dataset's options say."""
        mode = self.dataset.options.get("bounds", "honour")
        cursor = self.dataset.cursor
        if cursor is None or mode == "ignore":
            return list(rows)
        kind = schema.field(cursor).type
        lower = None if mode == "partial" else self.dataset.lower
        keep_null = self.dataset.options.get("null_rows", True) or lower is None
        return [row for row in rows if _within(row.cells.get(cursor), kind, lower, self.dataset.upper, keep_null)]

    def _narrow(self, table: pa.Table) -> pa.Table:
        """Honour the hints; a read with a predicate may yield empty batches."""
        if self.dataset.options.get("pruning", "honour") == "ignore":
            return table
        if self.hints.predicate is not None:
            table = _filter(table, self.hints.predicate)
        return table if self.hints.columns is None else table.select(list(self.hints.columns))


def _within(cell: Any, kind: pa.DataType, lower: Bound | None, upper: Bound | None, keep_null: bool) -> bool:
    if cell is None:
        return keep_null
    value = order_key(cell, kind)
    if lower is not None:
        floor = order_key(parse_canonical(lower.value, kind), kind)
        if value < floor or (value == floor and not lower.inclusive):
            return False
    if upper is not None:
        ceiling = order_key(parse_canonical(upper.value, kind), kind)
        return bool(value < ceiling or (value == ceiling and upper.inclusive))
    return True


def _filter(table: pa.Table, predicate: str) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("rows_of_batch", table)
        return connection.sql(f"SELECT * FROM rows_of_batch WHERE {predicate}").to_arrow_table().cast(table.schema)


class AnonymousPartition:
    """A partition without an identity."""

    def __init__(self, reader: Reader, share: Share) -> None:
        self._reader = reader
        self._share = share
        self._after: int | None = None
        self._sent: int | None = None

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        reader = self._reader
        entity = reader.dataset.entity
        with reader.server.script.call("read", entity, partition=self._share.name, cancel=cancel):
            schema = reader.server.dataset(entity).schema
            rows = reader.fetch("read a partition", lambda: self._rows(schema))
        cells = [row.cells for row in rows]
        for count, batch in reader.batches(cells, schema, self._share.name, reader.size(options), cancel):
            # Set before the batch is handed out: code behind a yield runs only at the next pull.
            self._sent = rows[count - 1].seq
            yield batch

    def _rows(self, schema: pa.Schema) -> list[StoredRow]:
        where, values = self._share.where
        if self._after is not None:
            where, values = f"{where} AND seq > ?", (*values, self._after)
        reader = self._reader
        return reader.cut(reader.server.rows(reader.dataset.entity, where, values), schema)


class StablePartition(AnonymousPartition):
    """A partition with an id, a spec to be rebuilt from, checkpoints, and perhaps a fragment of its own."""

    @property
    def partition_id(self) -> str:
        """See `IdentifiedPartition`; the option ``ids`` breaks the promise on purpose."""
        broken = self._reader.dataset.options.get("ids", "stable")
        if broken in {"missing", "empty"} and self._share.number == 0:
            return None if broken == "missing" else ""  # type: ignore[return-value]  # the defect to be caught
        number = 0 if broken == "duplicate" else self._share.number
        unit = f"block{self._share.block}" if self._share.block is not None else f"of{self._share.of}"
        return f"pzpart~{self._reader.dataset.entity}~{number}~{unit}"

    @property
    def spec(self) -> str:
        """See `PinnedPartition`."""
        return json.dumps({"number": self._share.number, "of": self._share.of, "block": self._share.block})

    def native_scan(self) -> NativeScan | None:
        """See `NativePartition`."""
        reader = self._reader
        dataset = reader.dataset
        if dataset.options.get("native") != "partition":
            return None
        with reader.server.script.call("native_partition", dataset.entity, partition=self._share.name):
            files = reader.server.native_files(dataset.entity)
            if self._share.block is not None or self._share.of != len(files):
                raise PermanentError(f"dataset {dataset.entity!r} is not kept in {self._share.of} native files")
            schema = reader.server.dataset(dataset.entity).schema
            return fragment([str(files[self._share.number])], dataset, reader.hints, schema)

    def try_get_checkpoint(self) -> str | None:
        """See `CheckpointingPartition`."""
        reader = self._reader
        if not reader.dataset.options.get("checkpoints") or self._sent is None:
            return None
        with reader.server.script.call("checkpoint", reader.dataset.entity, partition=self._share.name):
            return f"pzckpt~{reader.dataset.entity}~{self._share.number}~{self._sent}"

    def try_resume(self, token: str) -> bool:
        """See `CheckpointingPartition`; never raises, so a scripted fault only declines."""
        reader = self._reader
        mode = reader.dataset.options.get("resume", "accept")
        with reader.server.script.call("resume", reader.dataset.entity, partition=self._share.name):
            head, _, tail = token.rpartition("~")
            if mode == "decline" or head != f"pzckpt~{reader.dataset.entity}~{self._share.number}":
                return False
            self._after = self._sent = int(tail)
            return True


class FeedPartition:
    """The single partition of a feed: rows changed since the token, as they are now."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._token: str | None = None

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        reader = self._reader
        entity = reader.dataset.entity
        with reader.server.script.call("read", entity, partition="0", cancel=cancel):
            stored = reader.server.dataset(entity)
            after = parse_token(reader.dataset, stored.floor)
            head = reader.server.head()
            rows = reader.fetch(
                "read the feed", lambda: reader.server.rows(entity, "position > ? AND position <= ?", (after, head))
            )
        cells = [row.cells for row in rows]
        for _, batch in reader.batches(cells, stored.schema, "0", reader.size(options), cancel):
            yield batch
        self._token = None if head == after else make_token(reader.dataset, head)

    def try_get_sync_state(self) -> str | None:
        """See `SyncStatePartition`; None when nothing has happened since."""
        with self._reader.server.script.call("sync_state", self._reader.dataset.entity):
            return self._token


class ChangePartition:
    """The single partition of change capture: a snapshot without a token, else the log behind it."""

    def __init__(self, server: Server, dataset: DatasetSpec) -> None:
        self._reader = Reader(server, dataset, ReadHints())
        self._keys: tuple[str, ...] | None = None
        self._token: str | None = None
        self._head: int | None = None

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        reader = self._reader
        dataset = reader.dataset
        with reader.server.script.call("read", dataset.entity, partition="0", cancel=cancel):
            stored = reader.server.dataset(dataset.entity)
            after = parse_token(dataset, stored.floor)
            head = reader.server.head()
            rows = self._snapshot(head) if self.is_snapshot() else self._log(after, head)
        schema = change_schema(stored.schema)
        for _, batch in reader.batches(rows, schema, "0", reader.size(options), cancel):
            yield batch
        known = dataset.options.get("capture", "keys") == "keys" and stored.keys
        self._keys = stored.keys if known else None
        self._token = make_token(dataset, head) if self.is_snapshot() or head > after else None
        self._head = head

    def try_get_sync_state(self) -> str | None:
        """See `SyncStatePartition`."""
        with self._reader.server.script.call("sync_state", self._reader.dataset.entity):
            return self._token

    def key_columns(self) -> tuple[str, ...] | None:
        """See `ChangeCapturePartition`."""
        return self._keys

    def is_snapshot(self) -> bool:
        """See `SnapshotPartition`."""
        return self._reader.dataset.prior_sync_state is None

    def position(self) -> str | None:
        """See `SnapshotPartition`: the number of the source's last transaction."""
        return None if self._head is None else str(self._head)

    def _snapshot(self, head: int) -> list[dict[str, Any]]:
        rows = self._reader.server.rows(self._reader.dataset.entity, "position <= ?", (head,))
        return [change_cells("insert", head, index, None, row.cells) for index, row in enumerate(rows)]

    def _log(self, after: int, head: int) -> list[dict[str, Any]]:
        return [_change(change) for change in self._reader.server.changes(self._reader.dataset.entity, after, head)]


def _change(change: Change) -> dict[str, Any]:
    # A made-up commit time that follows the log: one second per transaction.
    return change_cells(change.op, change.position, change.ordinal, change.position * 1_000_000, change.cells)


def change_cells(op: str, position: int, ordinal: int, at: int | None, cells: Mapping[str, Any]) -> dict[str, Any]:
    """A change row as encoded cells."""
    return {"_pz_op": op, "_pz_lsn": f"{position:016X}-{ordinal:09d}", "_pz_changed_at": at, **cells}


def change_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of change rows over a table's."""
    import pyarrow as pa

    own = [
        pa.field("_pz_op", pa.string()),
        pa.field("_pz_lsn", pa.string()),
        pa.field("_pz_changed_at", pa.timestamp("us", "UTC")),
    ]
    return pa.schema([*own, *schema])


def make_token(dataset: DatasetSpec, position: int) -> str:
    """An opaque token; its prefix lets tests look for leaks."""
    return f"pztok~{dataset.entity}~{position}"


def parse_token(dataset: DatasetSpec, floor: int) -> int:
    """The position of the dataset's prior token (0: none); PermanentError when it has expired or is not ours."""
    token = dataset.prior_sync_state
    if token is None:
        return 0
    head, _, tail = token.rpartition("~")
    if head != f"pztok~{dataset.entity}" or not tail.isdigit():
        raise PermanentError(f"the stored token of {dataset.entity!r} is not one of this server")
    if int(tail) < floor:
        raise PermanentError(
            f"the stored token of {dataset.entity!r} has expired; start over with --full-refresh",
            hint="run again with --full-refresh",
        )
    return int(tail)


def fragment(files: Sequence[str], dataset: DatasetSpec, hints: ReadHints, schema: pa.Schema) -> NativeScan:
    """Parquet files as a fragment, with the bounds that the options let through."""
    listed = ", ".join(literal(file) for file in files)
    relation = f"read_parquet([{listed}])"
    conditions = _conditions(dataset, schema)
    if hints.predicate is not None and dataset.options.get("pruning", "honour") == "honour":
        conditions.append(f"({hints.predicate})")
    if conditions:
        relation = f"(SELECT * FROM {relation} WHERE {' AND '.join(conditions)})"
    return NativeScan(relation, "parquet files of the server")


def _conditions(dataset: DatasetSpec, schema: pa.Schema) -> list[str]:
    mode = dataset.options.get("bounds", "honour")
    if dataset.cursor is None or mode == "ignore":
        return []
    cursor = quote(dataset.cursor)
    # Canonical values are UTC; without the zone DuckDB would read them in the session's.
    zone = "+00" if getattr(schema.field(dataset.cursor).type, "tz", None) else ""
    found = []
    if dataset.lower is not None and mode == "honour":
        sign = ">=" if dataset.lower.inclusive else ">"
        found.append(f"({cursor} {sign} {literal(dataset.lower.value + zone)})")
    if dataset.upper is not None:
        sign = "<=" if dataset.upper.inclusive else "<"
        found.append(f"({cursor} {sign} {literal(dataset.upper.value + zone)})")
    keep_null = dataset.options.get("null_rows", True) or dataset.lower is None
    return [f"({part} OR {cursor} IS NULL)" for part in found] if keep_null else found
