"""One write as the far side receives it, and how it is carried out there: mark, columns, rows, updates, deletes."""

from __future__ import annotations

import base64
import json
import sqlite3
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pz.connectors.deletes import DELETED_AT, refuse_beyond_limit
from pz.errors import PermanentError
from pz.frozen import frozen
from pz.testing.values import order_key

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Mark", "Write", "apply_write", "pack_schema", "target_schema", "unpack_schema"]

Cells = Mapping[str, Any]


@frozen
class Mark:
    """What `_pz_slices` keeps of a write."""

    project: str
    output: str
    slice: str
    run: str
    ordinal: int


@frozen(slots=False)
class Write:
    """Everything a session wants done at once. ``schema`` is packed; rows, keys and partial rows are encoded cells.

    ``retained`` are the keys of all rows that may stay; None where all may.
    """

    entity: str
    strategy: str
    schema: str
    rows: Sequence[Cells] = ()
    keys: tuple[str, ...] = ()
    dedupe_by: str | None = None
    policy: str = "fail_on_change"
    on_delete: str | None = None
    deletes: Sequence[Cells] = ()
    partials: Sequence[tuple[Cells, Sequence[str]]] = ()
    retained: Sequence[Cells] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    mark: Mark | None = None

    def to_json(self) -> str:
        """As text, for a write that arrives late."""
        named = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "mark"}
        mark = None
        if self.mark is not None:
            mark = {name: getattr(self.mark, name) for name in ("project", "output", "slice", "run", "ordinal")}
        return json.dumps(named | {"mark": mark})

    @classmethod
    def from_json(cls, text: str) -> Write:
        """The inverse."""
        named = json.loads(text)
        mark = named.pop("mark")
        return cls(**(named | {"keys": tuple(named["keys"])}), mark=None if mark is None else Mark(**mark))


def apply_write(connection: sqlite3.Connection, write: Write) -> int:
    """Carry out a write inside the caller's transaction. A slice that has landed is left alone, its count returned."""
    if write.mark is not None:
        landed = _place_mark(connection, write.mark, len(write.rows))
        if landed is not None:
            return landed
    prepare_target(connection, write)
    before = len(_living(connection, write)) if write.retained is not None else 0
    if write.strategy == "replace":
        connection.execute("DELETE FROM target_rows WHERE entity = ?", (write.entity,))
    if write.strategy == "merge":
        _merge(connection, write)
    else:
        _insert(connection, write.entity, [(None, row) for row in write.rows])
    for row, unchanged in write.partials:
        _update_partially(connection, write, row, unchanged)
    for keys in write.deletes:
        _delete(connection, write, keys)
    if write.retained is not None:
        _retain(connection, write, {key_of(write, keys) for keys in write.retained}, before)
    return len(write.rows)


def _place_mark(connection: sqlite3.Connection, mark: Mark, rows: int) -> int | None:
    identity = (mark.project, mark.output, mark.slice)
    found = connection.execute(
        "SELECT rows FROM _pz_slices WHERE project = ? AND output = ? AND slice = ?", identity
    ).fetchone()
    if found is not None:
        return int(found[0])
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    connection.execute(
        "INSERT INTO _pz_slices VALUES (?, ?, ?, ?, ?, ?, ?)", (*identity, mark.run, mark.ordinal, rows, stamp)
    )
    return None


def prepare_target(connection: sqlite3.Connection, write: Write) -> None:
    """Create the target or reconcile its columns under the schema policy; PermanentError where the policy forbids."""
    import pyarrow as pa

    incoming = unpack_schema(write.schema)
    missing = [key for key in write.keys if key not in incoming.names]
    if missing:
        raise PermanentError(f"target {write.entity!r}: no key column {', '.join(missing)} in what is written")
    present = target_schema(connection, write.entity)
    merged = incoming if present is None else _reconcile(present, incoming, write)
    if write.on_delete == "soft" and DELETED_AT not in merged.names:
        merged = merged.append(pa.field(DELETED_AT, pa.timestamp("us", "UTC")))
    connection.execute(
        "INSERT OR REPLACE INTO targets VALUES (?, ?, ?)",
        (write.entity, pack_schema(merged), json.dumps(dict(write.options), default=str)),
    )


def _reconcile(present: pa.Schema, incoming: pa.Schema, write: Write) -> pa.Schema:
    retyped = [f.name for f in incoming if f.name in present.names and present.field(f.name).type != f.type]
    if retyped:
        raise PermanentError(f"target {write.entity!r}: other types in column {', '.join(retyped)}")
    added = [f for f in incoming if f.name not in present.names]
    if added and write.policy == "fail_on_change":
        raise PermanentError(f"target {write.entity!r} has no column {', '.join(f.name for f in added)}")
    for new in added:
        present = present.append(new)
    return present


def _merge(connection: sqlite3.Connection, write: Write) -> None:
    survivors = _survivors(write)
    _index_keys(connection, write)
    for key, row in survivors.items():
        found = connection.execute(
            "SELECT id, row FROM target_rows WHERE entity = ? AND key = ?", (write.entity, key)
        ).fetchone()
        if found is None:
            _insert(connection, write.entity, [(key, row)])
        else:
            kept = json.loads(found[1]) | dict(row) | ({DELETED_AT: None} if write.on_delete == "soft" else {})
            connection.execute("UPDATE target_rows SET row = ? WHERE id = ?", (json.dumps(kept), found[0]))


def _index_keys(connection: sqlite3.Connection, write: Write) -> None:
    """Rows that came by another strategy have no key text yet."""
    query = "SELECT id, row FROM target_rows WHERE entity = ? AND key IS NULL"
    for identity, text in connection.execute(query, (write.entity,)).fetchall():
        connection.execute("UPDATE target_rows SET key = ? WHERE id = ?", (key_of(write, json.loads(text)), identity))


def _survivors(write: Write) -> dict[str, Cells]:
    """One row per key: the highest by ``dedupe_by``, else the last in the order of all columns."""
    schema = unpack_schema(write.schema)

    def rank(row: Cells) -> Any:
        names = ([write.dedupe_by] if write.dedupe_by else []) + schema.names
        return [_sortable(row.get(name), schema.field(name).type) for name in names]

    best: dict[str, Cells] = {}
    for row in write.rows:
        key = key_of(write, row)
        if key not in best or rank(row) >= rank(best[key]):
            best[key] = row
    return best


def _sortable(cell: Any, kind: pa.DataType) -> tuple[bool, Any]:
    """NULLs last, as DuckDB's ``order by all`` has them."""
    return (cell is None, 0 if cell is None else order_key(cell, kind))


def key_of(write: Write, row: Cells) -> str:
    """The merge key of a row as text; PermanentError when a part of it is NULL."""
    cells = [row.get(name) for name in write.keys]
    if any(cell is None for cell in cells):
        raise PermanentError(f"target {write.entity!r}: NULL in a merge key")
    return json.dumps(cells)


def _update_partially(connection: sqlite3.Connection, write: Write, row: Cells, unchanged: Sequence[str]) -> None:
    found = connection.execute(
        "SELECT id, row FROM target_rows WHERE entity = ? AND key = ?", (write.entity, key_of(write, row))
    ).fetchone()
    if found is None:
        raise PermanentError(f"target {write.entity!r}: a partial update found no row to update")
    named = {name: cell for name, cell in row.items() if name not in set(unchanged)}
    cleared = {DELETED_AT: None} if write.on_delete == "soft" else {}
    connection.execute(
        "UPDATE target_rows SET row = ? WHERE id = ?", (json.dumps(json.loads(found[1]) | named | cleared), found[0])
    )


def _retain(connection: sqlite3.Connection, write: Write, kept: Set[str], before: int) -> None:
    gone = [row for row in _living(connection, write) if key_of(write, row) not in kept]
    refuse_beyond_limit(write.options, f"target {write.entity!r}", len(gone), before)
    for row in gone:
        _delete(connection, write, row)


def _living(connection: sqlite3.Connection, write: Write) -> list[Cells]:
    """The rows of the target that are not marked as deleted."""
    found = connection.execute("SELECT row FROM target_rows WHERE entity = ?", (write.entity,)).fetchall()
    rows: list[Cells] = [json.loads(text) for (text,) in found]
    return [row for row in rows if write.on_delete != "soft" or row.get(DELETED_AT) is None]


def _delete(connection: sqlite3.Connection, write: Write, keys: Cells) -> None:
    where = (write.entity, key_of(write, keys))
    if write.on_delete != "soft":
        connection.execute("DELETE FROM target_rows WHERE entity = ? AND key = ?", where)
        return
    found = connection.execute("SELECT id, row FROM target_rows WHERE entity = ? AND key = ?", where).fetchone()
    if found is not None:
        row = json.loads(found[1])
        if row.get(DELETED_AT) is None:
            row[DELETED_AT] = time.time_ns() // 1_000
            connection.execute("UPDATE target_rows SET row = ? WHERE id = ?", (json.dumps(row), found[0]))


def _insert(connection: sqlite3.Connection, entity: str, rows: Sequence[tuple[str | None, Cells]]) -> None:
    connection.executemany(
        "INSERT INTO target_rows (entity, key, row) VALUES (?, ?, ?)",
        [(entity, key, json.dumps(dict(row))) for key, row in rows],
    )


def target_schema(connection: sqlite3.Connection, entity: str) -> pa.Schema | None:
    """The columns of a target, None when it does not exist."""
    found = connection.execute("SELECT schema FROM targets WHERE entity = ?", (entity,)).fetchone()
    return None if found is None else unpack_schema(found[0])


def pack_schema(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def unpack_schema(text: str) -> pa.Schema:
    """The inverse of `pack_schema`."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
