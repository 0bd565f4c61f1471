"""The messages of PostgreSQL's ``pgoutput`` plugin, protocol version 1 in text mode, as values.

Source: the PostgreSQL manual, "Logical Replication Message Formats". Pure functions over bytes: nothing here talks to a
server or knows a table. Values stay the bytes that the server printed, in the client's encoding.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeVar

from pz.frozen import frozen

__all__ = [
    "Begin",
    "Change",
    "Commit",
    "Malformed",
    "Message",
    "Relation",
    "RelationColumn",
    "Truncate",
    "Unchanged",
    "Values",
    "decode",
]


class Unchanged(Enum):
    """Stands for a value that was stored out of line and did not change: the server does not send it."""

    VALUE = "unchanged"


Values = list[bytes | Unchanged | None]
"""The columns of a row in the order of its relation; None is NULL."""

_UNCHANGED: Final = Unchanged.VALUE


class Malformed(ValueError):
    """Bytes that are no message of the protocol."""


class Begin(NamedTuple):
    """A transaction begins. ``commit_lsn`` is where its commit record starts; ``at`` microseconds since 2000-01-01 UTC."""

    commit_lsn: int
    at: int


class Commit(NamedTuple):
    """A transaction is complete. ``end_lsn`` is where its commit record ends."""

    commit_lsn: int
    end_lsn: int


class RelationColumn(NamedTuple):
    """A column as a relation message describes it; ``key`` says that it belongs to the replica identity."""

    name: str
    type_oid: int
    modifier: int
    key: bool


@frozen
class Relation:
    """The shape of the rows that follow. Sent again whenever it has changed."""

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Change(NamedTuple):
    """One row changed. ``old`` is the whole old row where ``whole`` is set, else only the columns of the identity."""

    operation: str
    relation: int
    old: Values | None
    whole: bool
    new: Values | None


class Truncate(NamedTuple):
    """Tables were emptied."""

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Change | Truncate
T = TypeVar("T", bound=Message)

_BEGIN, _COMMIT, _OID, _COUNT, _COLUMN = Struct("!QqI"), Struct("!BQQq"), Struct("!I"), Struct("!H"), Struct("!Ii")
_SIZE = Struct("!I").unpack_from
_PART = Struct("!BI").unpack_from
_PADDING = b"\0\0\0\0"
"""Behind a row, so that the mark of a last column without a text can be read together with a length, too."""
_NULL, _KEPT, _TEXT = b"nut"
_NEW, _KEY, _OLD = b"NKO"


def decode(data: bytes) -> Message | None:
    """One message; None for a kind that says nothing about rows (origin, type, logical message).

    Raises:
        Malformed: the bytes are cut off, have something behind their end, or are of an unknown kind.
    """
    try:
        return _decode(data)
    except (IndexError, StructError, UnicodeDecodeError) as failure:
        raise Malformed(f"a message of kind {data[:1]!r} is cut off") from failure


def _decode(data: bytes) -> Message | None:
    kind = data[0]
    if kind == 73:  # I
        relation, at = _OID.unpack_from(data, 1)[0], 5
        new, at = _values(data + _PADDING, at + 1) if data[at] == _NEW else _wrong(data)
        return _whole(data, at, Change("insert", relation, None, False, new))
    if kind == 85:  # U
        return _update(data)
    if kind == 68:  # D
        relation, mark = _OID.unpack_from(data, 1)[0], data[5]
        old, at = _values(data + _PADDING, 6) if mark in (_KEY, _OLD) else _wrong(data)
        return _whole(data, at, Change("delete", relation, old, mark == _OLD, None))
    if kind == 66:  # B
        lsn, moment, _ = _BEGIN.unpack_from(data, 1)
        return _whole(data, 1 + _BEGIN.size, Begin(lsn, moment))
    if kind == 67:  # C
        _, lsn, end, _ = _COMMIT.unpack_from(data, 1)
        return _whole(data, 1 + _COMMIT.size, Commit(lsn, end))
    if kind == 82:  # R
        return _relation(data)
    if kind == 84:  # T
        count = _SIZE(data, 1)[0]
        oids = Struct(f"!{count}I")
        return _whole(data, 6 + oids.size, Truncate(oids.unpack_from(data, 6)))
    if kind in b"OYM":
        return None
    raise Malformed(f"unknown kind of message {data[:1]!r}")


def _update(data: bytes) -> Change:
    relation, mark, at = _OID.unpack_from(data, 1)[0], data[5], 6
    padded = data + _PADDING
    old: Values | None = None
    if mark in (_KEY, _OLD):
        old, at = _values(padded, at)
        if data[at] != _NEW:
            _wrong(data)
        at += 1
    elif mark != _NEW:
        _wrong(data)
    new, at = _values(padded, at)
    return _whole(data, at, Change("update", relation, old, mark == _OLD, new))


def _values(padded: bytes, at: int) -> tuple[Values, int]:
    """A row: a count, then per column a mark and, for text, a length and the bytes. Whoever asks compares the end."""
    count = _COUNT.unpack_from(padded, at)[0]
    at += 2
    found: Values = []
    add = found.append
    for _ in range(count):
        mark, size = _PART(padded, at)  # one call for both: this is the innermost loop of a poll
        if mark == _TEXT:
            start = at + 5
            at = start + size
            add(padded[start:at])
            continue
        at += 1
        if mark == _NULL:
            add(None)
        elif mark == _KEPT:
            add(_UNCHANGED)
        else:
            raise Malformed(f"unknown mark of a column {mark}")
    return found, at


def _relation(data: bytes) -> Relation:
    oid = _OID.unpack_from(data, 1)[0]
    schema, at = _name(data, 5)
    table, at = _name(data, at)
    identity = chr(data[at])
    count = _COUNT.unpack_from(data, at + 1)[0]
    at += 3
    columns = []
    for _ in range(count):
        key = data[at] & 1
        name, at = _name(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(name, type_oid, modifier, bool(key)))
    # An empty schema stands for pg_catalog.
    return _whole(data, at, Relation(oid, schema or "pg_catalog", table, identity, tuple(columns)))


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise IndexError
    return data[at:end].decode(), end + 1


def _whole(data: bytes, end: int, message: T) -> T:
    if end != len(data):
        raise Malformed(f"a message of kind {data[:1]!r} has {len(data)} bytes instead of {end}")
    return message


def _wrong(data: bytes) -> tuple[Values, int]:
    raise Malformed(f"a message of kind {data[:1]!r} has an unknown part")
