"""A far side in a directory: datasets to read, targets to write, and a change log, shared by all processes.

`Server` is what a database server is to a real connector: it outlives the process that talks to it. It is an SQLite file
with a rollback journal and full synchronisation, so a killed client leaves either all of a transaction or nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pz.errors import PermanentError
from pz.frozen import frozen
from pz.testing.script import CONVERSING, Script
from pz.testing.values import arrow_schema, decode_array, encode_array
from pz.testing.writes import Write, apply_write, pack_schema, target_schema, unpack_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Change", "Dataset", "Server", "StoredRow"]

Row = Mapping[str, Any]

# `position` of a row is the transaction that last touched it; `changes` is the log that change capture reads;
# `pending` holds writes that were sent and will arrive late.
_CREATE = """
CREATE TABLE IF NOT EXISTS datasets (
    name TEXT PRIMARY KEY, schema TEXT NOT NULL, keys TEXT NOT NULL, native INTEGER NOT NULL, floor INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS source_rows (
    dataset TEXT NOT NULL, seq INTEGER NOT NULL, position INTEGER NOT NULL, row TEXT NOT NULL, PRIMARY KEY (dataset, seq)
);
CREATE TABLE IF NOT EXISTS changes (
    position INTEGER NOT NULL, ordinal INTEGER NOT NULL, dataset TEXT NOT NULL, op TEXT NOT NULL, row TEXT NOT NULL,
    PRIMARY KEY (position, ordinal)
);
CREATE TABLE IF NOT EXISTS clock (one INTEGER PRIMARY KEY CHECK (one = 1), position INTEGER NOT NULL);
INSERT OR IGNORE INTO clock VALUES (1, 0);
CREATE TABLE IF NOT EXISTS targets (entity TEXT PRIMARY KEY, schema TEXT NOT NULL, options TEXT NOT NULL DEFAULT '{}');
CREATE TABLE IF NOT EXISTS target_rows (
    id INTEGER PRIMARY KEY AUTOINCREMENT, entity TEXT NOT NULL, key TEXT, row TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS target_keys ON target_rows (entity, key);
CREATE TABLE IF NOT EXISTS _pz_slices (
    project TEXT NOT NULL, output TEXT NOT NULL, slice TEXT NOT NULL, run TEXT NOT NULL, ordinal INTEGER NOT NULL,
    rows INTEGER NOT NULL, at TEXT NOT NULL, PRIMARY KEY (project, output, slice)
);
CREATE TABLE IF NOT EXISTS refusals (entity TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pending (id INTEGER PRIMARY KEY AUTOINCREMENT, payload TEXT NOT NULL);
"""


@frozen(slots=False)
class Dataset:
    """A table of the far side. ``native`` is the number of Parquet files in which it is also kept (0: none)."""

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    native: int
    floor: int


@frozen
class StoredRow:
    """A current row, its cells encoded; ``seq`` never changes, ``position`` rises with each change."""

    seq: int
    position: int
    cells: Mapping[str, Any]


@frozen
class Change:
    """One event of the change log; a delete carries the key cells alone."""

    position: int
    ordinal: int
    op: str
    cells: Mapping[str, Any]


class Server:
    """The far side. Every method is one transaction; any number of processes may call at once."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.script = Script(self.path)
        self._file = self.path / "data.sqlite"
        with self.session() as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'pending'").fetchone() is None:
                connection.executescript(f"BEGIN IMMEDIATE; {_CREATE} COMMIT;")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed when the body ends, rolled back when it raises."""
        with self.session() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")  # durable: ok - the far side's own store

    @contextmanager
    def session(self) -> Iterator[sqlite3.Connection]:
        """A connection in autocommit; an open transaction dies with it."""
        with CONVERSING, closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection

    # Source side: what a test says about the world.

    def create(self, name: str, columns: Mapping[str, str], *, keys: Sequence[str] = (), native: int = 0) -> None:
        """Create an empty dataset with these columns (name -> DuckDB type)."""
        schema = pack_schema(arrow_schema(dict(columns)))
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?, 0)", (name, schema, json.dumps(list(keys)), native)
            )
        self._export(name)

    def mutate(
        self, name: str, *, insert: Iterable[Row] = (), update: Iterable[Row] = (), delete: Iterable[Row] = ()
    ) -> int:
        """Change a dataset in one source transaction and return its position in the log.

        ``update`` rows carry the keys and the columns to change; ``delete`` rows the keys. Both need a keyed dataset.
        """
        dataset = self.dataset(name)
        with self.transaction() as connection:
            writer = _SourceWriter(connection, dataset)
            for row in insert:
                writer.insert(row)
            for row in update:
                writer.update(row)
            for row in delete:
                writer.delete(row)
        self._export(name)
        return writer.position

    def insert(self, name: str, rows: Iterable[Row]) -> int:
        """Insert rows in one source transaction."""
        return self.mutate(name, insert=rows)

    def update(self, name: str, rows: Iterable[Row]) -> int:
        """Update rows by key in one source transaction."""
        return self.mutate(name, update=rows)

    def delete(self, name: str, rows: Iterable[Row]) -> int:
        """Delete rows by key in one source transaction."""
        return self.mutate(name, delete=rows)

    def alter(self, name: str, columns: Mapping[str, str]) -> None:
        """Give a dataset other columns: new ones are NULL in old rows, kept ones are cast to their new type."""
        old, new = self.dataset(name), arrow_schema(dict(columns))
        with self.transaction() as connection:
            rows = connection.execute("SELECT seq, row FROM source_rows WHERE dataset = ?", (name,)).fetchall()
            for seq, text in rows:
                cells = _recast(json.loads(text), old.schema, new)
                connection.execute(
                    "UPDATE source_rows SET row = ? WHERE dataset = ? AND seq = ?", (json.dumps(cells), name, seq)
                )
            connection.execute("UPDATE datasets SET schema = ? WHERE name = ?", (pack_schema(new), name))
        self._export(name)

    def expire_tokens(self, name: str) -> None:
        """Forget the change history of a dataset: every token given out so far has expired."""
        with self.transaction() as connection:
            connection.execute("UPDATE datasets SET floor = (SELECT position FROM clock) + 1 WHERE name = ?", (name,))

    def refuse(self, entity: str, column: str, value: Any) -> None:
        """Make the target refuse, item by item, every row whose ``column`` has this value."""
        with self.transaction() as connection:
            connection.execute("INSERT INTO refusals VALUES (?, ?, ?)", (entity, column, json.dumps(value)))

    def accept_all(self, entity: str) -> None:
        """Lift every refusal of an entity."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM refusals WHERE entity = ?", (entity,))

    # Source side: what a connector asks.

    def dataset(self, name: str) -> Dataset:
        """The dataset of this name; PermanentError when there is none."""
        with self.session() as connection:
            found = connection.execute(
                "SELECT schema, keys, native, floor FROM datasets WHERE name = ?", (name,)
            ).fetchone()
        if found is None:
            raise PermanentError(f"the server has no dataset {name!r}")
        return Dataset(name, unpack_schema(found[0]), tuple(json.loads(found[1])), found[2], found[3])

    def head(self) -> int:
        """The position of the last source transaction."""
        with self.session() as connection:
            return int(connection.execute("SELECT position FROM clock").fetchone()[0])

    def rows(self, name: str, where: str = "TRUE", values: Sequence[Any] = ()) -> list[StoredRow]:
        """Current rows in order of ``seq``. ``where`` is SQL over ``seq`` and ``position``."""
        query = f"SELECT seq, position, row FROM source_rows WHERE dataset = ? AND ({where}) ORDER BY seq"
        with self.session() as connection:
            found = connection.execute(query, (name, *values)).fetchall()
        return [StoredRow(seq, position, json.loads(text)) for seq, position, text in found]

    def count(self, name: str) -> tuple[int, int]:
        """Number of rows of a dataset and the number behind its last row (an upper end for ranges of ``seq``)."""
        with self.session() as connection:
            found = connection.execute(
                "SELECT count(*), coalesce(max(seq) + 1, 0) FROM source_rows WHERE dataset = ?", (name,)
            ).fetchone()
        return int(found[0]), int(found[1])

    def changes(self, name: str, after: int, upto: int) -> list[Change]:
        """The log of a dataset in (after, upto], oldest first."""
        query = """
            SELECT position, ordinal, op, row FROM changes
            WHERE dataset = ? AND position > ? AND position <= ? ORDER BY position, ordinal
        """
        with self.session() as connection:
            found = connection.execute(query, (name, after, upto)).fetchall()
        return [Change(position, ordinal, op, json.loads(text)) for position, ordinal, op, text in found]

    def table(self, name: str) -> pa.Table:
        """A dataset as it is now: the oracle of every read."""
        schema = self.dataset(name).schema
        return cells_to_table([row.cells for row in self.rows(name)], schema)

    def native_files(self, name: str) -> list[Path]:
        """The Parquet files of a natively kept dataset, in order."""
        count = self.dataset(name).native
        return [self.path / "native" / name / f"{index}-of-{count}.parquet" for index in range(count)]

    # Target side.

    def apply(self, write: Write) -> int:
        """Carry out a write in one transaction; its mark first, so that a slice lands once. Returns the rows landed."""
        with self.transaction() as connection:
            return apply_write(connection, write)

    def delay(self, write: Write) -> None:
        """Keep a write that was sent and not received yet."""
        with self.transaction() as connection:
            connection.execute("INSERT INTO pending (payload) VALUES (?)", (write.to_json(),))

    def deliver_late(self) -> int:
        """Let everything delayed arrive now; returns how many writes arrived."""
        with self.session() as connection:
            waiting = connection.execute("SELECT id, payload FROM pending ORDER BY id").fetchall()
        for identity, payload in waiting:
            with self.transaction() as connection:
                apply_write(connection, Write.from_json(payload))
                connection.execute("DELETE FROM pending WHERE id = ?", (identity,))
        return len(waiting)

    def target_schema(self, entity: str) -> pa.Schema | None:
        """The columns of a target, None when it does not exist."""
        with self.session() as connection:
            return target_schema(connection, entity)

    def target(self, entity: str) -> pa.Table:
        """A target as it is now, native files included; an absent one is an empty table without columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        files = sorted((self.path / "native_out" / entity).glob("*.parquet"))
        if files:
            return pa.concat_tables([pq.read_table(file) for file in files])
        with self.session() as connection:
            schema = target_schema(connection, entity)
            query = "SELECT row FROM target_rows WHERE entity = ? ORDER BY id"
            rows = [json.loads(text) for (text,) in connection.execute(query, (entity,))]
        return pa.table({}) if schema is None else cells_to_table(rows, schema)

    def take_back(self, entity: str, rows: int, *, keep: int) -> None:
        """Remove the last ``rows`` rows of a target but for its last ``keep``: a clean-up that did not reach all."""
        query = """
            DELETE FROM target_rows WHERE id IN
            (SELECT id FROM target_rows WHERE entity = ? ORDER BY id DESC LIMIT ? OFFSET ?)
        """
        with self.transaction() as connection:
            connection.execute(query, (entity, rows - keep, keep))

    def drop_target(self, entity: str) -> None:
        """Remove a target, as an operator would."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM target_rows WHERE entity = ?", (entity,))
            connection.execute("DELETE FROM targets WHERE entity = ?", (entity,))

    def slices(self) -> list[dict[str, Any]]:
        """The marks left by committed writes, in order of arrival."""
        names = ("project", "output", "slice", "run", "ordinal", "rows")
        with self.session() as connection:
            found = connection.execute(f"SELECT {', '.join(names)} FROM _pz_slices ORDER BY rowid").fetchall()
        return [dict(zip(names, row, strict=True)) for row in found]

    def refused(self, entity: str) -> list[tuple[str, Any]]:
        """The refusals scripted for an entity, as (column, value)."""
        with self.session() as connection:
            found = connection.execute("SELECT name, value FROM refusals WHERE entity = ?", (entity,)).fetchall()
        return [(name, json.loads(value)) for name, value in found]

    def _export(self, name: str) -> None:
        """Rewrite the Parquet files of a natively kept dataset: row ``seq`` lies in file ``seq % native``."""
        import pyarrow.parquet as pq

        dataset = self.dataset(name)
        for index, file in enumerate(self.native_files(name)):
            file.parent.mkdir(parents=True, exist_ok=True)
            rows = self.rows(name, "seq % ? = ?", (dataset.native, index))
            aside = file.with_suffix(".tmp")
            pq.write_table(cells_to_table([row.cells for row in rows], dataset.schema), aside)
            aside.replace(file)  # durable: ok - the far side's own store


class _SourceWriter:
    """One source transaction: every change gets the same position and an ordinal of its own."""

    def __init__(self, connection: sqlite3.Connection, dataset: Dataset) -> None:
        self._connection = connection
        self._dataset = dataset
        self._ordinal = 0
        self.position = int(
            connection.execute("UPDATE clock SET position = position + 1 RETURNING position").fetchone()[0]
        )
        (self._seq,) = connection.execute(
            "SELECT coalesce(max(seq), -1) FROM source_rows WHERE dataset = ?", (dataset.name,)
        ).fetchone()

    def insert(self, row: Row) -> None:
        self._seq += 1
        cells = _encode_row(row, self._dataset.schema)
        self._store(self._seq, cells)
        self._log("insert", cells)

    def update(self, row: Row) -> None:
        seq, cells = self._find(row)
        named = _encode_row(row, self._dataset.schema)
        changed = cells | {name: named[name] for name in row}
        self._store(seq, changed)
        self._log("update", changed)

    def delete(self, row: Row) -> None:
        seq, cells = self._find(row)
        self._connection.execute("DELETE FROM source_rows WHERE dataset = ? AND seq = ?", (self._dataset.name, seq))
        self._log("delete", {name: cells[name] for name in self._dataset.keys})

    def _find(self, row: Row) -> tuple[int, dict[str, Any]]:
        encoded = _encode_row(row, self._dataset.schema)
        conditions = " AND ".join("json_extract(row, ?) IS ?" for _ in self._dataset.keys)
        values = [value for name in self._dataset.keys for value in (f'$."{name}"', encoded[name])]
        found = self._connection.execute(
            f"SELECT seq, row FROM source_rows WHERE dataset = ? AND {conditions}", (self._dataset.name, *values)
        ).fetchone()
        if found is None or not self._dataset.keys:
            raise KeyError(f"no such row in {self._dataset.name}")
        return found[0], json.loads(found[1])

    def _store(self, seq: int, cells: Mapping[str, Any]) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO source_rows VALUES (?, ?, ?, ?)",
            (self._dataset.name, seq, self.position, json.dumps(cells)),
        )

    def _log(self, op: str, cells: Mapping[str, Any]) -> None:
        self._ordinal += 1
        self._connection.execute(
            "INSERT INTO changes VALUES (?, ?, ?, ?, ?)",
            (self.position, self._ordinal, self._dataset.name, op, json.dumps(cells)),
        )


def cells_to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Encoded rows as a table; a missing cell is NULL."""
    import pyarrow as pa

    columns = [decode_array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def table_to_cells(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The inverse: rows of encoded cells."""
    names = table.schema.names
    columns = [encode_array(_one_chunk(table.column(index))) for index in range(len(names))]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _one_chunk(column: Any) -> Any:
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _encode_row(row: Row, schema: pa.Schema) -> dict[str, Any]:
    import pyarrow as pa

    unknown = set(row) - set(schema.names)
    if unknown:
        raise KeyError(f"no column {', '.join(sorted(unknown))}")
    return {f.name: encode_array(pa.array([_plain(row.get(f.name), f.type)], f.type))[0] for f in schema}


def _plain(value: Any, kind: Any) -> Any:
    """Let tests write times as text: ``2024-01-31`` or ``2024-01-31T10:00:00``."""
    import pyarrow as pa

    readers: list[tuple[Callable[[Any], bool], Callable[[str], Any]]] = [
        (pa.types.is_timestamp, lambda text: pa.scalar(text).cast(kind).as_py()),
        (pa.types.is_date, lambda text: pa.scalar(text).cast(kind).as_py()),
    ]
    if isinstance(value, str):
        for applies, read in readers:
            if applies(kind):
                return read(value)
    return value


def _recast(cells: Mapping[str, Any], old: pa.Schema, new: pa.Schema) -> dict[str, Any]:
    recast: dict[str, Any] = {}
    for column in new:
        index = old.get_field_index(column.name)
        if index < 0:
            recast[column.name] = None
        else:
            array = decode_array([cells.get(column.name)], old.field(index).type)
            recast[column.name] = encode_array(array.cast(column.type))[0]
    return recast
