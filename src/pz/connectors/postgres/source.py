"""The read side: probe, plan, read, and rebuild the partitions of an earlier plan."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import (
    CancelToken,
    CaptureStatus,
    Column,
    ConnectionSpec,
    CopyBlock,
    DatasetSpec,
    NativeScan,
    OutputSpec,
    Partition,
    ReadHints,
    SourceProbe,
)
from pz.connectors.postgres.catalog import Name
from pz.connectors.postgres.connect import NO_LIMIT, Server, ended_by
from pz.connectors.postgres.faults import translated
from pz.connectors.postgres.few import few_rows
from pz.connectors.postgres.partitions import (
    MAX_PARTITIONS,
    KeyRange,
    PostgresPartition,
    Read,
    WholePartition,
    plan_ranges,
    proposed_count,
)
from pz.connectors.postgres.passing import FORMAT, Passage, stream
from pz.connectors.postgres.prerequisites import require
from pz.connectors.postgres.relation import Relation, resolve
from pz.connectors.postgres.scan_faults import explained
from pz.connectors.postgres.scanner import MECHANISM, scannable
from pz.connectors.postgres.slots import slot_name
from pz.connectors.postgres.snapshot import SharedSnapshot
from pz.connectors.postgres.types import UNBOUNDED_NUMERIC
from pz.cursors import CursorError, CursorType, canonical
from pz.errors import Code, ConnectorError, PermanentError
from pz.sqltext import quote

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

__all__ = ["DATASET_SCHEMA", "PostgresSource"]

DATASET_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "query": {"type": "string", "minLength": 1, "description": "A SELECT to read instead of the table."},
        "partition_column": {
            "type": "string",
            "minLength": 1,
            "description": "A number, date or timestamp by whose ranges the read is cut and resumed.",
        },
        "partitions": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_PARTITIONS,
            "description": "How many ranges (default: by the size of the table). Needs partition_column.",
        },
        "publication": {
            "type": "string",
            "minLength": 1,
            "description": "The publication to capture through (default pz_<connection>).",
        },
        "poll_idle_timeout": {
            "type": ["string", "integer"],
            "description": "Accepted and not needed: a poll ends where the log ended when it began.",
        },
        "consistent": {
            "type": "boolean",
            "description": "Never resume under a new snapshot: a retry reads everything again (default false).",
        },
    },
}

VALUES_THAT_DO_NOT_FIT = """
SELECT {columns} FROM {source}
"""
DOES_NOT_FIT = (
    "coalesce(bool_or({c} IN ('NaN', 'Infinity', '-Infinity') OR min_scale({c}) > {scale} OR abs({c}) >= 1e{whole}), "
    "false)"
)


class PostgresSource:
    """See `Source` and its further protocols. All partitions of one open source share one snapshot."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._snapshot = SharedSnapshot(server)
        self._relations: dict[str, Relation] = {}
        self._lock = threading.Lock()
        self._cancel = CancelToken()

    def use_cancel(self, cancel: CancelToken) -> None:
        """See `Cancellable`: ends the statements of a probe and of planning."""
        self._cancel = cancel

    def schema(self, dataset: DatasetSpec) -> pa.Schema:
        """See `Source`. A pruned read carries fewer columns."""
        relation = self._relation(dataset)
        if not dataset.change_capture:
            return relation.schema(relation.columns)
        from pz.connectors.postgres.window import change_schema

        return change_schema(relation)

    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
        """See `Source`: that takes the live server."""
        return None

    def scan_mechanism(self, dataset: DatasetSpec, hints: ReadHints) -> str | None:
        """See `LiveScanningSource`. A partition column asks for a read that can be resumed, which one statement cannot be."""
        whole = not dataset.change_capture and "partition_column" not in dataset.options
        return MECHANISM if whole and scannable() is not None else None

    def live_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
        """See `LiveScanningSource`."""
        return None if dataset.change_capture else self._shared(dataset, hints).scan()

    def explain(self, error: Exception) -> ConnectorError | None:
        """See `ExplainingErrors`."""
        return explained(error, self._server.place, self._relations.values())

    def copy_format(self, dataset: DatasetSpec) -> str | None:
        """See `CopyingSource`. A declared partition column asks for a read that can be resumed, which a stream cannot be."""
        return None if "partition_column" in dataset.options else FORMAT

    def copy_out(
        self, dataset: DatasetSpec, columns: Sequence[str], types: Sequence[str], cancel: CancelToken
    ) -> Iterator[CopyBlock]:
        """See `CopyingSource`."""
        relation = self._relation(dataset)
        return stream(self._server, Passage.of(relation, columns, types), cancel, subject=relation.subject)

    def check_dataset(self, dataset: DatasetSpec) -> None:
        """See `ChecksDatasets`: what change capture cannot do."""
        if dataset.change_capture:
            from pz.connectors.postgres.capture import refuse_options

            refuse_options(dataset)

    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        """See `Source`. One partition, or the ranges of the partition column."""
        if dataset.change_capture:
            from pz.connectors.postgres.capture import Capture, CapturePartition

            return [CapturePartition(Capture(self._server, self._relation(dataset), dataset))]
        column = dataset.options.get("partition_column")
        if column is None:
            return [self._whole(dataset, hints)]
        shared = self._shared(dataset, hints)
        count = int(dataset.options.get("partitions") or proposed_count(shared.relation))
        generation = "" if self._outlives(dataset, shared.relation, str(column)) else self._snapshot.name
        with translated(shared.relation.subject), ended_by(self._cancel, self._snapshot.connection):
            ranges = plan_ranges(shared, str(column), count, generation)
        return [PostgresPartition(shared, found) for found in ranges]

    def _whole(self, dataset: DatasetSpec, hints: ReadHints) -> Partition:
        with (
            translated(f"'{dataset.entity}'"),
            self._server.control() as connection,
            ended_by(self._cancel, connection),
        ):
            shared = Read(self._server, self._relation(dataset, connection), dataset, hints, self._snapshot)
            with translated(shared.relation.subject):
                return few_rows(connection, shared) or WholePartition(shared)

    def restore_partition(self, dataset: DatasetSpec, hints: ReadHints, spec: str) -> Partition:
        """See `RestoringSource`.

        Only ranges of a primary key, without ``consistent: true``, may be read on under a new snapshot.
        """
        shared = self._shared(dataset, hints)
        if spec == "all":
            return WholePartition(shared)
        found = KeyRange.from_json(spec)
        if found.generation or not self._outlives(dataset, shared.relation, found.column):
            raise PermanentError("its ranges were read under one snapshot, which is gone; everything is read again")
        return PostgresPartition(shared, found)

    def probe(self, dataset: DatasetSpec) -> SourceProbe:
        """See `ProbingSource`: types, size, highest cursor, rows without one."""
        if dataset.options.get("partitions") is not None and dataset.options.get("partition_column") is None:
            raise PermanentError(f"'{dataset.entity}': partitions needs partition_column", code=Code.PZ0334)
        with (
            translated(f"'{dataset.entity}'"),
            self._server.control() as connection,
            ended_by(self._cancel, connection),
        ):
            relation = self._relation(dataset, connection)
            connection.execute(NO_LIMIT)
            with translated(relation.subject):
                upper, nulls = _live_facts(connection, dataset, relation)
        table = relation.table
        by_column = dataset.options.get("partition_column") is not None
        return SourceProbe(
            columns=tuple(Column(column.name, column.duckdb) for column in relation.columns),
            rows=table.rows if table else None,
            bytes=table.bytes if table else None,
            upper=upper,
            null_cursors=nulls,
            partitions=int(dataset.options.get("partitions") or proposed_count(relation)) if by_column else 1,
        )

    def reads_output(self, dataset: DatasetSpec, connection: ConnectionSpec, output: OutputSpec) -> bool:
        """See `SeesOutputs`: of a query nobody knows offline what it reads."""
        if "query" in dataset.options:
            return False
        read, written = str(Name.of(dataset.entity)), str(Name.of(output.entity))
        return self._server.place_of(read) == Server.of(connection).place_of(written)

    # --- change capture

    def capture_name(self, dataset: DatasetSpec) -> str:
        """See `NamesCaptures`. A name is taken for all databases of a server."""
        return f"replication slot {quote(slot_name(dataset))} of {self._server.host}:{self._server.port}"

    def acknowledge(self, datasets: Sequence[DatasetSpec]) -> None:
        """See `CapturingSource`: each slot moves to the least of its datasets' positions; without one for all, not at all."""
        from pz.connectors.postgres.slot_care import move_slots

        with translated(self._server.place), self._server.control(patient=True) as connection:
            move_slots(connection, datasets)

    def capture_status(self, dataset: DatasetSpec) -> CaptureStatus:
        """See `CapturingSource`."""
        from pz.connectors.postgres.slot_care import status_of

        with translated(self._server.place), self._server.control() as connection:
            return status_of(connection, dataset)

    def drop_capture(self, dataset: DatasetSpec) -> str:
        """See `CapturingSource`. Raises PermanentError PZ0743 for a slot that is not ours."""
        from pz.connectors.postgres.slot_care import let_go

        with translated(self._server.place), self._server.control() as connection:
            return let_go(connection, dataset)

    def close(self) -> None:
        """See `Source`. Partitions cannot be read any more."""
        self._snapshot.close()

    def _shared(self, dataset: DatasetSpec, hints: ReadHints) -> Read:
        return Read(self._server, self._relation(dataset), dataset, hints, self._snapshot)

    def _relation(self, dataset: DatasetSpec, connection: psycopg.Connection[Any] | None = None) -> Relation:
        """What is remembered of the dataset, looked up at first, by a connection of its own unless there is one."""
        key = json.dumps(
            [
                *(dataset.entity, dataset.options.get("query"), dataset.change_capture),
                *(list((dataset.columns or {}).items()), dataset.cursor),
            ]
        )
        with self._lock:
            if key not in self._relations:
                with (
                    translated(f"'{dataset.entity}'"),
                    nullcontext(connection) if connection else self._server.control() as one,
                    nullcontext() if connection else ended_by(self._cancel, one),
                ):
                    found = resolve(one, dataset)
                    if dataset.change_capture:
                        from pz.connectors.postgres.capture import capturable

                        found = capturable(found)
                    self._relations[key] = found
            return self._relations[key]

    @staticmethod
    def _outlives(dataset: DatasetSpec, relation: Relation, column: str) -> bool:
        """Whether ranges of the column still mean the same rows in a later snapshot: only for a primary key."""
        return (
            not dataset.options.get("consistent", False)
            and relation.table is not None
            and relation.table.primary_key == (column,)
        )


def _live_facts(
    connection: psycopg.Connection[Any], dataset: DatasetSpec, relation: Relation
) -> tuple[str | None, int | None]:
    """The highest cursor and the rows without one, where there is a cursor; refuses what could not be read."""
    if dataset.change_capture:
        assert relation.table is not None
        require(connection, dataset, relation.table)
    elif dataset.cursor is not None:
        return _cursor_facts(connection, relation, dataset.cursor)
    else:
        _refuse_unfit_values(connection, relation)
    return None, None


def _cursor_facts(
    connection: psycopg.Connection[Any], relation: Relation, cursor: str
) -> tuple[str | None, int | None]:
    """The highest cursor as canonical text, and the rows without one.

    Raises:
        PermanentError: PZ0505 for a column that is no cursor, or whose highest value is none that state could hold (infinity,
            NaN, before Christ).
    """
    attribute, read = relation.attribute(cursor), relation.read_column(cursor)
    assert attribute is not None
    assert read is not None
    bare, kind = quote(attribute.name), CursorType.from_duckdb(read.duckdb)
    if kind is None or attribute.type.storage.name == "money":  # an amount is printed in the words of a locale
        raise PermanentError(
            f"{relation.subject}: {bare} is {attribute.shown}; a cursor is a whole or decimal number, a date or a timestamp",
            hint="follow another column, or compute one in `query:`",
            code=Code.PZ0505,
        )
    row = connection.execute(f"SELECT max({bare})::text FROM {relation.source}").fetchone()
    upper = _canonical(row[0], kind, relation, cursor) if row and row[0] is not None else None
    if attribute.not_null:
        return upper, 0
    row = connection.execute(f"SELECT count(*) FROM {relation.source} WHERE {bare} IS NULL").fetchone()
    return upper, int(row[0]) if row else None


def _canonical(text: str, kind: CursorType, relation: Relation, cursor: str) -> str:
    try:
        plain = text.removesuffix("+00").replace(" ", "T", 1) if kind.temporal else text
        if kind in {CursorType.TIMESTAMP, CursorType.TIMESTAMPTZ} and "T" not in plain:
            plain += "T00:00:00"
        return canonical(plain, kind)
    except CursorError as failure:
        raise PermanentError(
            f"{relation.subject}: the highest value of the cursor {quote(cursor)} cannot be stored: it is {_odd(text)}",
            hint="correct the row, or leave such rows out in `query:`",
            code=Code.PZ0505,
        ) from failure


def _odd(text: str) -> str:
    return next((word for word in ("infinity", "NaN", "BC") if word.lower() in text.lower()), "out of range")


def _refuse_unfit_values(connection: psycopg.Connection[Any], relation: Relation) -> None:
    """Refuse a full read whose numerics of no declared precision hold what a decimal cannot; one look at the table."""
    loose = [column for column in relation.columns if column.unbounded]
    if not loose:
        return
    precision, scale = UNBOUNDED_NUMERIC
    conditions = [DOES_NOT_FIT.format(c=quote(column.name), scale=scale, whole=precision - scale) for column in loose]
    query = VALUES_THAT_DO_NOT_FIT.format(columns=", ".join(conditions), source=relation.source)
    row = connection.execute(query).fetchone() or ()
    unfit = [column.name for column, found in zip(loose, row, strict=False) if found]
    if unfit:
        raise PermanentError(
            f"{relation.subject}: numeric without declared precision is read as decimal({precision},{scale}), which cannot "
            f"hold all values of column {', '.join(map(quote, unfit))}",
            hint=f"declare it under `columns:`, for example `{unfit[0]}: varchar`, double or decimal(38,18)",
            code=Code.PZ0740,
        )
