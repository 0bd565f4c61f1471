"""One window of the log as change rows: transactions filtered by position, columns matched, batches cut.

A row is a header (operation, position, time, columns that were not sent) and the columns of the table. What the server did
not send because it had not changed is taken from the old row where there is one; else its name stands in the header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import BatchOptions
from pz.connectors.postgres import pgoutput
from pz.connectors.postgres.logged import logged_column
from pz.connectors.postgres.pgoutput import Begin, Change, Truncate, Unchanged, Values
from pz.connectors.postgres.position import Shape
from pz.connectors.postgres.relation import Relation
from pz.connectors.postgres.shape import widens
from pz.connectors.postgres.texts import TextReader
from pz.errors import Code, PermanentError, TransientError
from pz.sqltext import quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ChangeWindow", "change_schema"]

MOST_ROWS = 8192
"""Rows of a batch at most: what Python holds of them takes several times the bytes of the log."""

SINCE_2000 = 946_684_800_000_000
FULL = "set REPLICA IDENTITY FULL on the table, then run once with --full-refresh"
EMPTY = (
    "run with --full-refresh, which removes what is gone where on_delete is delete or soft; where that is more than "
    "snapshot_delete_limit, or with on_delete ignore, empty the destination first"
)
RESTART = "run once with --full-refresh"


def change_schema(relation: Relation) -> pa.Schema:
    """The header of a change row, then the columns of the table."""
    import pyarrow as pa

    header = [
        pa.field("_pz_op", pa.string()),
        pa.field("_pz_lsn", pa.string()),
        pa.field("_pz_changed_at", pa.timestamp("us", "UTC")),
        pa.field("_pz_unchanged", pa.list_(pa.string())),
    ]
    return pa.schema([*header, *relation.schema(relation.columns)])


class ChangeWindow:
    """Takes messages, gives batches. ``lower`` and ``upper`` are positions; a transaction belongs to it by where its
    commit record starts, so neighbouring windows tile.
    """

    def __init__(self, relation: Relation, shape: Shape, lower: int, upper: int) -> None:
        attributes = {column.name: column for column in relation.attributes}
        self._relation = relation
        self._shape = shape
        self._lower, self._upper = lower, upper
        self._names = [column.name for column in relation.columns]
        found = [logged_column(attributes[column.name], column, relation.money_scale) for column in relation.columns]
        columns = [column for column in found if column is not None]
        assert len(columns) == len(found), "a relation that is not capturable"
        self._reader = TextReader(columns, relation.subject)
        self._schema: pa.Schema = change_schema(relation)
        self._announced: pgoutput.Relation | None = None
        self._places: list[int | None] | None = None
        self._straight = False
        self._keys: list[int] = []
        self._sequence = 0
        self._inside = False
        self._prefix = ""
        self._moment = 0
        self._forget()

    def __len__(self) -> int:
        return len(self._operations)

    def close(self) -> None:
        """Release what converts."""
        self._reader.close()

    def is_full(self, options: BatchOptions) -> bool:
        """Whether a batch should be taken."""
        rows = len(self._operations)
        return rows >= MOST_ROWS or rows >= options.max_rows or self._bytes >= options.target_bytes

    def batch(self) -> pa.RecordBatch:
        """The rows so far, which are then forgotten."""
        import pyarrow as pa

        header = [
            pa.array(self._operations, pa.string()),
            pa.array(self._positions, pa.string()),
            pa.array(self._moments, self._schema.field(2).type),
            pa.array(self._unsent, self._schema.field(3).type),
        ]
        width = len(self._names)
        arrays = self._reader.arrays([self._cells[place::width] for place in range(width)])
        self._forget()
        return pa.RecordBatch.from_arrays([*header, *arrays], schema=self._schema)

    def _forget(self) -> None:
        """No rows. A row is no object of its own: Python would go through all of them again and again."""
        self._operations: list[str] = []
        self._positions: list[str] = []
        self._moments: list[int] = []
        self._unsent: list[list[str] | None] = []
        self._cells: list[bytes | None] = []
        self._bytes = 0

    def take(self, data: bytes) -> None:
        """One message of the plugin.

        Raises:
            PermanentError: the table was truncated (PZ0746) or changed (PZ0748), or a value is nowhere to be found (PZ0745).
        """
        try:
            message = pgoutput.decode(data)
        except pgoutput.Malformed as failure:
            raise TransientError(f"{self._subject}: {failure}") from failure
        self._bytes += len(data)
        if isinstance(message, Change):
            if self._inside and message.relation == self._shape.relation:
                self._change(message)
        elif isinstance(message, Begin):
            self._begin(message)
        elif isinstance(message, pgoutput.Relation):
            if message.oid == self._shape.relation:
                self._announced, self._places = message, None
        elif isinstance(message, Truncate) and self._inside and self._shape.relation in message.relations:
            raise PermanentError(
                f"{self._subject} was truncated, which a merge cannot follow", hint=EMPTY, code=Code.PZ0746
            )

    @property
    def _subject(self) -> str:
        return self._relation.subject

    def _begin(self, message: Begin) -> None:
        self._inside = self._lower <= message.commit_lsn < self._upper
        self._prefix = f"{message.commit_lsn:016X}-"
        self._moment = message.at + SINCE_2000
        self._sequence = 0

    # --- the shape of rows

    def _match(self, message: pgoutput.Relation) -> None:
        """Where in a row of the log each column is; None for one that did not exist yet."""
        there = {column.name: place for place, column in enumerate(message.columns)}
        self._require_types(message)
        places = [there.get(name) for name in self._names]
        lost = [key for key in self._shape.keys if key not in there]
        if lost:
            raise self._changed(f"key column(s) {', '.join(map(quote, lost))} are new")
        self._keys = [there[key] for key in self._shape.keys]
        self._straight = places == list(range(len(message.columns)))
        self._places = places

    def _require_types(self, message: pgoutput.Relation) -> None:
        known: Mapping[str, tuple[int, int, int]] = self._shape.columns
        read = {*self._names, *self._shape.keys}
        for column in message.columns:
            now = known.get(column.name) if column.name in read else None
            if now is not None and not widens((column.type_oid, column.modifier), now[1:]):
                raise self._changed(f"column {quote(column.name)} has another type now")

    def _changed(self, why: str) -> PermanentError:
        return PermanentError(f"{self._subject} was altered: {why}", hint=RESTART, code=Code.PZ0748)

    # --- rows

    def _change(self, change: Change) -> None:
        if self._places is None:
            if self._announced is None:
                raise TransientError(f"{self._subject}: a change came before the shape of its row")
            self._match(self._announced)
        if change.new is None:
            assert change.old is not None
            self._add("delete", change.old, None)
            return
        new, old = change.new, change.old
        if old is not None:
            moved = any(new[k] is not Unchanged.VALUE and new[k] != old[k] for k in self._keys)
            self._fill(new, old, whole=change.whole)
            if moved:
                self._add("delete", old, None)
                if Unchanged.VALUE in new:
                    raise self._nowhere("a row got another key")
        unchanged = self._unchanged(new) if Unchanged.VALUE in new else None
        self._add(change.operation, new, unchanged)

    def _fill(self, new: Values, old: Values, *, whole: bool) -> None:
        """Take what was not sent from the old row: all of it where that is whole, else its key."""
        for place in range(len(new)) if whole else self._keys:
            if new[place] is Unchanged.VALUE:
                new[place] = old[place]

    def _unchanged(self, new: Values) -> list[str]:
        assert self._places is not None
        named = [
            name
            for name, place in zip(self._names, self._places, strict=True)
            if place is not None and new[place] is Unchanged.VALUE
        ]
        if any(new[place] is Unchanged.VALUE for place in self._keys):
            raise self._nowhere("a key was not sent")
        return named

    def _nowhere(self, what: str) -> PermanentError:
        return PermanentError(
            f"{self._subject}: {what}, and large values that were not sent with it are nowhere to be found",
            hint=FULL,
            code=Code.PZ0745,
        )

    def _add(self, operation: str, values: Values, unchanged: list[str] | None) -> None:
        assert self._places is not None
        assert self._announced is not None
        if len(values) != len(self._announced.columns):  # its cells would shift all that follow
            raise TransientError(f"{self._subject}: a change has another number of columns than was announced")
        row: Any
        if self._straight and unchanged is None:
            row = values
        else:
            row = [None if place is None else values[place] for place in self._places]
            if unchanged is not None:
                row = [None if value is Unchanged.VALUE else value for value in row]
        self._sequence += 1
        self._operations.append(operation)
        self._positions.append(f"{self._prefix}{self._sequence:09d}")
        self._moments.append(self._moment)
        self._unsent.append(unchanged)
        self._cells.extend(row)
