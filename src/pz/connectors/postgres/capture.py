"""Change capture by polling: a first read of the whole table, then one bounded window of the log per run.

    snapshot   slot created, its snapshot exported; the table is read under it; position: where the slot begins
    poll       everything that committed from the stored position up to where the log ended when the poll began

The slot itself only moves when the new position is durable (`acknowledge`), so a run that dies polls its window again. A slot
that the project names is made once and never dropped by a run: other datasets may read from it too. The snapshot of such a
one is taken with a slot of its own that goes with the connection; it lies behind the beginning of the lasting slot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import BatchOptions, CancelToken, DatasetSpec
from pz.connectors.postgres.connect import Server, ended_by
from pz.connectors.postgres.copied import messages
from pz.connectors.postgres.faults import lost_slot, translated
from pz.connectors.postgres.logged import logged_column
from pz.connectors.postgres.parallel import Reader, merged
from pz.connectors.postgres.partitions import PAGE_READERS, page_ranges
from pz.connectors.postgres.position import Shape, Token, lsn_number, lsn_text
from pz.connectors.postgres.prerequisites import capture_shape, publication_name, require
from pz.connectors.postgres.reading import read_statement
from pz.connectors.postgres.relation import Relation
from pz.connectors.postgres.shape import alterations
from pz.connectors.postgres.slots import (
    Exported,
    Slot,
    can_adopt,
    create_shared,
    drop,
    exported,
    find_slot,
    slot_name,
    take_turn,
)
from pz.connectors.postgres.storage import filled_at_rest, moved_rows
from pz.connectors.postgres.window import ChangeWindow, change_schema
from pz.errors import Code, PermanentError, TransientError
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

__all__ = ["Capture", "CapturePartition", "SnapshotPiece", "capturable", "refuse_options"]

SNAPSHOT_LSN = "0" * 16 + "-" + "0" * 9
LOST = "run with --full-refresh, which makes the slot anew"
RESTART = "run once with --full-refresh"
DROP = "run `pz cdc drop` for one of the datasets of this slot, then all of them with --full-refresh"

# COPY hands over one message at a time, so the client holds one, however long the window is.
PEEK = """
COPY (SELECT data FROM pg_catalog.pg_logical_slot_peek_binary_changes({slot}, {upto}, NULL,
      'proto_version', '1', 'publication_names', {publication})) TO STDOUT (FORMAT binary)
"""


def refuse_options(dataset: DatasetSpec) -> None:
    """Raises PermanentError PZ0334 for options that have no meaning with change capture."""
    given = [name for name in ("query", "partition_column", "partitions", "consistent") if name in dataset.options]
    if given:
        raise PermanentError(
            f"'{dataset.entity}': {', '.join(given)} cannot be used with sync mode cdc",
            hint="remove the option; a captured table is read as it is",
            code=Code.PZ0334,
        )


def capturable(relation: Relation) -> Relation:
    """The relation as the log shows it: without generated columns, which are not in it.

    Raises:
        PermanentError: PZ0740 when one of them is declared, and for columns whose changes would not look like their rows.
    """
    generated = {column.name for column in relation.attributes if column.generated}
    kept = tuple(column for column in relation.columns if column.name not in generated)
    declared = len(relation.columns) < len(relation.attributes)
    if declared and len(kept) < len(relation.columns):
        raise PermanentError(
            f"{relation.subject}: generated column(s) {', '.join(sorted(map(quote, generated)))} are not in the log",
            hint="compute them in the pipeline",
            code=Code.PZ0740,
        )
    attributes = {column.name: column for column in relation.attributes}
    unlike = [c for c in kept if logged_column(attributes[c.name], c, relation.money_scale) is None]
    if unlike:
        named = ", ".join(f"{quote(c.name)} ({attributes[c.name].shown} as {c.duckdb})" for c in unlike)
        raise PermanentError(
            f"{relation.subject}: changes of column(s) {named} would not look like its rows: the log has what the server "
            "prints, which is less than what a read selects",
            hint="list the columns to capture without it under `columns:`; json, uuid and arrays can be declared as varchar",
            code=Code.PZ0740,
        )
    return replace(relation, columns=kept)


@frozen(slots=False)
class Capture:
    """A captured dataset on its server."""

    server: Server
    relation: Relation
    dataset: DatasetSpec

    @property
    def slot(self) -> str:
        """Name of its slot."""
        return slot_name(self.dataset)

    @property
    def shared(self) -> bool:
        """Whether other datasets may read from the slot: then it is the project's that named it, and stays."""
        return self.dataset.slot is not None

    @property
    def subject(self) -> str:
        """What messages call it."""
        return self.relation.subject


@frozen(slots=False)
class SnapshotPiece:
    """Some pages of a captured table, or all of it (None), as they were at a moment that is held."""

    capture: Capture
    moment: Exported
    pages: str | None

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        relation = self.capture.relation
        rows = read_statement(
            self.capture.server,
            relation.select(relation.columns, [] if self.pages is None else [self.pages]),
            relation.columns,
            options,
            cancel,
            subject=relation.subject,
            snapshot=self.moment.snapshot,
        )
        schema = change_schema(relation)
        for batch in rows:
            yield _with_header(batch, schema)

    def reader(self, options: BatchOptions) -> Reader:
        """The same, for `merged`."""
        return lambda stop: self.read(options, stop)


@dataclass
class CapturePartition:
    """The one partition: snapshot or poll. ``token`` and ``keys`` are there once `read` has ended, or `pieces` returned."""

    capture: Capture
    _token: Token | None = field(default=None, init=False)
    _keys: tuple[str, ...] | None = field(default=None, init=False)
    _held: ExitStack | None = field(default=None, init=False)
    _moment: Exported | None = field(default=None, init=False)

    def key_columns(self) -> tuple[str, ...] | None:
        """See `ChangeCapturePartition`."""
        return self._keys

    def try_get_sync_state(self) -> str | None:
        """See `SyncStatePartition`."""
        return None if self._token is None else self._token.to_json()

    def is_snapshot(self) -> bool:
        """See `SnapshotPartition`."""
        return self.capture.dataset.prior_sync_state is None

    def position(self) -> str | None:
        """See `SnapshotPartition`."""
        return None if self._token is None else lsn_text(self._token.lsn)

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        prior = self.capture.dataset.prior_sync_state
        with translated(self.capture.subject):
            if prior is None:
                yield from self._snapshot(options, cancel)
            else:
                yield from self._poll(Token.from_json(prior), options, cancel)

    # --- the first read

    def _snapshot(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """All pieces as one stream."""
        try:
            readers = [piece.reader(options) for piece in self.pieces(cancel)]
            yield from merged(readers, PAGE_READERS, cancel)
        finally:
            self.close()

    def pieces(self, cancel: CancelToken) -> Sequence[SnapshotPiece]:
        """See `PiecewiseSnapshot`: a large table by ranges of pages, else all of it."""
        with translated(self.capture.subject), ExitStack() as closing:
            moment = self._take(closing, cancel)
            self._held, self._moment = closing.pop_all(), moment
        pages = page_ranges(self._table)
        return [SnapshotPiece(self.capture, moment, part) for part in pages or (None,)]

    def _take(self, closing: ExitStack, cancel: CancelToken) -> Exported:
        capture = self.capture
        with capture.server.control(patient=True) as control:
            found = self._prepare(control)
            before = self._shape(control)
            if capture.shared:
                if found is None:
                    create_shared(capture.server, capture.slot, cancel)
                own = f"pz_{os.getpid()}_{os.urandom(6).hex()}"
                moment = closing.enter_context(exported(capture.server, own, cancel, temporary=True))
            else:
                if found is not None:
                    drop(control, found.name)
                moment = closing.enter_context(exported(capture.server, capture.slot, cancel))
            shape = self._shape(control)
        if shape != before:
            raise TransientError(f"{capture.subject} was altered while its snapshot was being taken")
        _require_current(capture, shape)
        self._keys, self._token = shape.keys, Token(moment.lsn, shape)
        return moment

    def is_alive(self) -> bool:
        """See `PiecewiseSnapshot`: whether a new transaction could adopt it."""
        return self._moment is not None and can_adopt(self.capture.server, self._moment.snapshot)

    def close(self) -> None:
        """See `PiecewiseSnapshot`."""
        if self._held is not None:
            self._held.close()
        self._held = self._moment = None

    def _prepare(self, control: psycopg.Connection[Any]) -> Slot | None:
        """The slot that is there. Raises PermanentError for one of something else, and for a shared one that is lost."""
        require(control, self.capture.dataset, self._table)
        found = find_slot(control, self.capture.slot)
        control.rollback()
        if found is not None:
            found.require_ours()
            if self.capture.shared and found.lost:
                raise _lost(self.capture, f"replication slot {quote(found.name)} was invalidated", DROP)
        return found

    @property
    def _table(self) -> Any:
        assert self.capture.relation.table is not None
        return self.capture.relation.table

    def _shape(self, control: psycopg.Connection[Any]) -> Shape:
        shape = capture_shape(control, self.capture.dataset, self._table)
        control.rollback()
        return shape

    # --- every later read

    def _poll(self, prior: Token, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        capture = self.capture
        with ExitStack() as closing:
            control = closing.enter_context(capture.server.control(patient=True))
            require(control, capture.dataset, self._table)
            shape = capture_shape(control, capture.dataset, self._table)
            _require_current(capture, shape)
            _require_same(control, capture, prior.shape, shape)
            target = _end_of_log(control)
            control.commit()  # durable: ok - nothing was written
            closing.enter_context(ended_by(cancel, control))
            take_turn(control, capture.slot, patient=True)
            # Only now that nobody else has the slot is what it says of itself worth anything.
            _require_slot(capture, find_slot(control, capture.slot), prior)
            if target < prior.lsn:
                raise _lost(capture, "the server's log ends before the stored position: it was restored or replaced")
            window = ChangeWindow(capture.relation, shape, prior.lsn, target)
            closing.callback(window.close)
            with lost_slot(capture.subject, _way_out(capture)):
                yield from self._stream(control, window, target, options, cancel)
            self._keys, self._token = shape.keys, Token(target, shape)

    def _stream(
        self,
        control: psycopg.Connection[Any],
        window: ChangeWindow,
        target: int,
        options: BatchOptions,
        cancel: CancelToken,
    ) -> Iterator[pa.RecordBatch]:
        capture = self.capture
        statement = PEEK.format(
            slot=literal(capture.slot),
            upto=literal(lsn_text(target)),
            publication=literal(quote(publication_name(capture.dataset))),
        )
        for message in _column(messages(control, statement)):
            window.take(message)
            if window.is_full(options):
                cancel.raise_if_set()
                yield window.batch()
        if len(window):
            yield window.batch()


def _column(rows: Iterator[memoryview]) -> Iterator[bytes]:
    """The one column of a binary COPY, row by row. The first row comes with the header, the last one is a mark."""
    header = 19
    for row in rows:
        if len(row) >= header + 6:
            yield bytes(row[header + 6 :])
        header = 0


def _end_of_log(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT pg_catalog.pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return lsn_number(row[0])


def _with_header(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    count = batch.num_rows
    header = [
        pa.repeat(pa.scalar("insert"), count),
        pa.repeat(pa.scalar(SNAPSHOT_LSN), count),
        pa.nulls(count, schema.field(2).type),
        pa.nulls(count, schema.field(3).type),
    ]
    return pa.RecordBatch.from_arrays([*header, *batch.columns], schema=schema)


def _way_out(capture: Capture) -> str:
    """A full refresh makes a slot of its own anew, but drops none that other datasets read from."""
    return DROP if capture.shared else LOST


def _lost(capture: Capture, why: str, hint: str = LOST) -> PermanentError:
    return PermanentError(f"{capture.subject}: changes are lost: {why}", hint=hint, code=Code.PZ0744)


def _require_slot(capture: Capture, found: Slot | None, prior: Token) -> None:
    """The server keeps quiet about a gap: it begins where the slot stands. So everything is compared here."""
    name = quote(capture.slot)
    if found is None:
        raise _lost(capture, f"replication slot {name} does not exist any more")
    found.require_ours()
    if found.lost:
        why = f"replication slot {name} was invalidated, the server has removed log that it needed"
        raise _lost(capture, why, _way_out(capture))
    if found.confirmed is None or found.confirmed > prior.lsn:
        raise _lost(capture, f"replication slot {name} has moved past the stored position; somebody else reads from it")


def _require_current(capture: Capture, now: Shape) -> None:
    """The columns were looked up when the run began; what came since would be missing in its rows, and not noticed later."""
    known = {c.name: (c.type.oid, c.type.modifier) for c in capture.relation.attributes if not c.generated}
    if known != {name: found[1:] for name, found in now.columns.items()}:
        raise PermanentError(f"{capture.subject} was altered while the run began", hint="run again", code=Code.PZ0748)


def _require_same(control: psycopg.Connection[Any], capture: Capture, before: Shape, now: Shape) -> None:
    """What makes the window incomplete, or impossible to follow."""
    if before.system != now.system:
        raise _lost(capture, "this is another server than the stored position comes from")
    if before.relation != now.relation:
        raise _changed(capture, "the table was dropped and created again")
    if before.publication != now.publication:
        raise _lost(
            capture, "the publication was changed since the last run, so changes may not have been published", RESTART
        )
    if before.keys != now.keys:
        raise _changed(capture, "its keys are not what they were")
    assert capture.relation.table is not None
    with_default = {column.name for column in capture.relation.attributes if column.has_default}
    read = {column.name for column in capture.relation.columns} | set(now.keys)
    columns = {
        name: found for name, found in now.columns.items() if name in read
    }  # what is done to others is all the same
    retyped = any(name in columns and columns[name] != kind for name, kind in before.columns.items())
    problems = [
        *alterations(before.columns, columns, with_default | filled_at_rest(control, capture.relation.table)),
        *moved_rows(control, capture.relation.table, before.storage, now.storage.of(columns), retyped=retyped),
    ]
    if problems:
        raise _changed(capture, "; ".join(problems))


def _changed(capture: Capture, why: str) -> PermanentError:
    return PermanentError(f"{capture.subject}: {why} since the last run", hint=RESTART, code=Code.PZ0748)
