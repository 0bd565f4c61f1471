"""From json records to record batches: under a contract (``columns``), or raw with the record's own text.

Contract: only the declared keys; missing and null are NULL; a number must be a json number that the column holds exactly,
except that a decimal may be text; dates and times are ISO 8601 text; varchar takes anything, what is no text as json. A
value that does not fit is an error that names column and record, never the value.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pz.connectors.files.values import DuckType
from pz.connectors.http.selection import array_of, parts_of
from pz.errors import Code, PermanentError
from pz.frozen import frozen
from pz.sqltext import quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Columns", "ContractRecords", "RawRecords", "Rows", "conforming", "file_partition"]

Rows = Sequence[Any]
"""Decoded records, in order, as the shape that decoded them wants them."""

_PYTHON: Mapping[str, Any] = {
    "boolean": bool,
    **dict.fromkeys(
        ("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint"),
        int,
    ),
    "float": float,
    "double": float,
    "decimal": Decimal,
    "varchar": str,
    "date": str,
    "timestamp": str,
    "timestamp with time zone": str,
}
"""Kinds that are built directly; all others take the way through DuckDB's json reader, as in files."""

_HINT = "correct the type in columns; varchar takes any json value"
_STRIDE = 2_000
"""Rows whose columns are built in turn: few enough to stay in the processor's cache meanwhile."""

_ZONE = r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$"
_UTC = r"([Zz]|[+-]00(:?00)?)$"
_TIMED = r"[T ][0-9]"


@frozen(slots=False)
class Columns:
    """Declared columns as DuckDB resolves them, and the schema that carries them into DuckDB without loss."""

    types: Mapping[str, DuckType]
    schema: pa.Schema

    @classmethod
    def of(cls, declared: Mapping[str, str]) -> Columns:
        """Raises PermanentError for an unknown type."""
        return _resolved(tuple(declared.items()))


@functools.lru_cache(maxsize=64)
def _resolved(declared: tuple[tuple[str, str], ...]) -> Columns:
    """Remembered, because a database only to look up names costs tens of milliseconds."""
    from pz.connectors.files.scratch import scratch

    with scratch() as connection:
        types = {name: DuckType.parse(connection, text) for name, text in declared}
        listed = ", ".join(f"NULL::{type_.sql} AS {quote(name)}" for name, type_ in types.items())
        schema = connection.sql(f"SELECT {listed} LIMIT 0").to_arrow_table().schema
    return Columns(types, _plain_booleans(schema, types))


def _plain_booleans(schema: pa.Schema, types: Mapping[str, DuckType]) -> pa.Schema:
    """DuckDB sends booleans as bytes; Arrow's own are half the work, and DuckDB reads them as well."""
    import pyarrow as pa

    for position, (name, type_) in enumerate(types.items()):
        if type_.kind == "boolean":
            schema = schema.set(position, pa.field(name, pa.bool_()))
    return schema


def conforming(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of DuckDB's in our schema."""
    import pyarrow as pa

    arrays = [
        column if column.type == field.type else column.storage.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class ContractRecords:
    """Records under a contract."""

    def __init__(self, columns: Columns, subject: str) -> None:
        self.types = columns.types
        self.schema = columns.schema
        self._subject = subject
        self._fast = _struct(columns.types, lenient=False)
        self._lenient = _struct(columns.types, lenient=True)
        self._arrays = {shape: _array_decoder(shape) for shape in (self._fast, self._lenient)}
        self._lines = {shape: _line_decoder(shape) for shape in (self._fast, self._lenient)}
        self._texts = [position for position, type_ in enumerate(columns.types.values()) if type_.kind == "varchar"]
        self._cells = [attrgetter(f"c{position}") for position in range(len(columns.types))]

    def of_array(self, text: Any) -> Rows:
        """The records of a json array."""
        return self._decode(lambda shape: self._arrays[shape].decode(text))

    def of_lines(self, text: bytes) -> Rows:
        """The records of whole lines."""
        return self._decode(lambda shape: self._lines[shape].decode_lines(text))

    def batch(self, rows: Rows, folder: Path) -> pa.RecordBatch:
        """Rows as a batch; ``folder`` is a place for files that live no longer than the call."""
        import pyarrow as pa

        through = {name: type_ for name, type_ in self.types.items() if type_.kind not in _PYTHON}
        slow = _through_duckdb(rows, self.types, through, folder, self._subject) if through else {}
        pieces = [(rows[start : start + _STRIDE], start) for start in range(0, len(rows) or 1, _STRIDE)]
        made = [self._arrays_of(piece, start, through) for piece, start in pieces]
        arrays = [
            slow[name] if name in slow else pa.concat_arrays([piece[name] for piece in made]) for name in self.types
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _arrays_of(self, rows: Rows, start: int, but: Collection[str]) -> dict[str, pa.Array]:
        """The columns of some rows; column by column, because a tuple for each row costs several times as much."""
        return {
            name: typed_array(
                list(map(cell, rows)), type_, self.schema.field(name).type, f"{self._subject}: column '{name}'", start
            )
            for (name, type_), cell in zip(self.types.items(), self._cells, strict=True)
            if name not in but
        }

    def _decode(self, decode: Callable[[Any], Rows]) -> Rows:
        """Texts come as texts nearly always; where one does not, everything is decoded anew with room for that."""
        import msgspec

        try:
            return decode(self._fast)
        except msgspec.ValidationError:
            pass
        except msgspec.DecodeError as error:
            raise malformed(self._subject, error) from error
        try:
            return self._with_texts(decode(self._lenient))
        except UnicodeDecodeError as error:
            raise malformed(self._subject, error) from error
        except msgspec.ValidationError as error:
            raise PermanentError(
                f"{self._subject}: {_where(str(error))}",
                code=Code.PZ0766,
                hint=_HINT,
            ) from error
        except msgspec.DecodeError as error:
            raise malformed(self._subject, error) from error

    def _with_texts(self, rows: Rows) -> Rows:
        for position in self._texts:
            name = f"c{position}"
            for row in rows:
                setattr(row, name, _text(getattr(row, name)))
        return rows


def malformed(subject: str, error: Exception) -> PermanentError:
    """The error of a body that is no json; what the parser says holds no value, only a place."""
    return PermanentError(f"{subject}: the response is not valid json", code=Code.PZ0765)


def _where(said: str) -> str:
    """msgspec names types and a path (``$[3].id``), no value; the rest is turned into our words."""
    at = re.search(r"`\$(?:\[(\d+|\.\.\.)\])?(?:\.(.+?))?`$", said)
    what = said.partition(" - at ")[0].replace("`", "")
    if at is None or at.group(2) is None:
        return "a record is not a json object" if "object" in what else f"a record does not fit: {what}"
    number = f", record {int(at.group(1)) + 1} of the page" if (at.group(1) or "").isdigit() else ""
    return f"column '{at.group(2)}'{number}: {what[:1].lower()}{what[1:]}"


def _struct(types: Mapping[str, DuckType], *, lenient: bool) -> Any:
    import msgspec

    nothing = msgspec.Raw(b"null")
    fields: list[tuple[str, Any, Any]] = []
    for position, (name, type_) in enumerate(types.items()):
        python = _PYTHON.get(type_.kind)
        if python is None or (lenient and type_.kind == "varchar"):
            fields.append((f"c{position}", msgspec.Raw, msgspec.field(name=name, default=nothing)))
        else:
            fields.append((f"c{position}", python | None, msgspec.field(name=name, default=None)))
    return msgspec.defstruct("Record", fields, gc=False)


def _array_decoder(shape: Any) -> Any:
    import msgspec

    return msgspec.json.Decoder(list[shape])


def _line_decoder(shape: Any) -> Any:
    import msgspec

    return msgspec.json.Decoder(shape)


def _text(value: Any) -> str | None:
    """The text of a json value: a string as it is, null as None, all else as json."""
    import msgspec

    if value is None or isinstance(value, str):
        return value
    raw = bytes(value)
    if raw == b"null":
        return None
    return msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else raw.decode()


def typed_array(values: Sequence[Any], type_: DuckType, arrow: pa.DataType, subject: str, start: int = 0) -> pa.Array:
    """Values of the Python type of a kind, as an array; ``start`` is how many came before them in their batch.

    Raises PermanentError PZ0766.
    """
    import pyarrow as pa

    try:
        if type_.kind in {"date", "timestamp", "timestamp with time zone"}:
            return _moments(pa.array(values, pa.string()), type_, arrow, subject)
        return _finite(pa.array(values, arrow))
    except (pa.ArrowException, OverflowError, ValueError, TypeError, UnicodeError, ArithmeticError) as error:
        number = next((n for n, value in enumerate(values, start + 1) if not _fits(value, type_, arrow)), None)
        place = "" if number is None else f", record {number} of its batch"
        raise PermanentError(
            f"{subject}{place}: a value does not fit the type {type_.sql}",
            code=Code.PZ0766,
            hint=_HINT,
        ) from error


def _fits(value: Any, type_: DuckType, arrow: pa.DataType) -> bool:
    import pyarrow as pa

    try:
        if isinstance(value, str) and type_.kind != "varchar":
            _moments(pa.array([value]), type_, arrow, "")
        else:
            _finite(pa.array([value], arrow))
    except (pa.ArrowException, OverflowError, ValueError, TypeError, ArithmeticError, PermanentError):
        return False
    return True


def _finite(numbers: pa.Array) -> pa.Array:
    """The same array. Raises ValueError where a number is beyond the range of FLOAT: json knows no infinity."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_float32(numbers.type) and pc.any(pc.is_inf(numbers)).as_py():
        raise ValueError("beyond the range")
    return numbers


def _moments(texts: pa.Array, type_: DuckType, arrow: pa.DataType, subject: str) -> pa.Array:
    """ISO 8601 texts as dates or moments. Fractions beyond microseconds are cut: rounding up could pass a bound."""
    if type_.kind == "date":
        return texts.cast(arrow)
    return _usual_moments(texts, type_, arrow) or _any_moments(texts, type_, arrow, subject)


def _usual_moments(texts: pa.Array, type_: DuckType, arrow: pa.DataType) -> pa.Array | None:
    """Moments all spelled with a zone, or (naive) all without one or all with ``Z``: nearly always, and cheap."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if type_.kind != "timestamp" or pc.all(pc.ends_with(texts, "Z")).as_py():
            return texts.cast(pa.timestamp("us", "UTC")).cast(arrow)
        return texts.cast(arrow)
    except pa.ArrowInvalid:
        return None


def _any_moments(texts: pa.Array, type_: DuckType, arrow: pa.DataType, subject: str) -> pa.Array:
    import pyarrow.compute as pc

    texts = pc.utf8_upper(texts)  # RFC 3339, 5.6: t and z may be small
    timed = pc.match_substring_regex(texts, _TIMED)
    zoned = pc.and_(timed, pc.match_substring_regex(texts, _ZONE))
    if type_.kind == "timestamp":
        foreign = pc.and_(zoned, pc.invert(pc.match_substring_regex(texts, _UTC)))
        if pc.any(foreign).as_py():
            raise PermanentError(
                f"{subject}: a moment has an offset from UTC, which the type TIMESTAMP would lose",
                code=Code.PZ0766,
                hint="declare the column as timestamptz",
            )
        texts = pc.if_else(zoned, pc.replace_substring_regex(texts, _UTC, ""), texts)
    else:
        texts = pc.if_else(timed, texts, pc.binary_join_element_wise(texts, "T00:00:00Z", ""))
        texts = pc.if_else(pc.or_(zoned, pc.invert(timed)), texts, pc.binary_join_element_wise(texts, "Z", ""))
    return pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1").cast(arrow)


def _through_duckdb(
    rows: Rows,
    types: Mapping[str, DuckType],
    through: Mapping[str, DuckType],
    folder: Path,
    subject: str,
) -> dict[str, pa.Array]:
    """Columns of the types that DuckDB's json reader builds, read as a json file would be."""
    import msgspec

    positions = {name: position for position, name in enumerate(types)}
    file = folder / "nested.ndjson"
    with file.open("wb") as out:  # durable: ok - lives no longer than this call
        for row in rows:
            cells = (msgspec.json.encode(name) + b":" + bytes(getattr(row, f"c{positions[name]}")) for name in through)
            out.write(msgspec.json.format(b"{" + b",".join(cells) + b"}", indent=-1) + b"\n")
    try:
        table = read_file(file, "json", {name: type_.sql for name, type_ in through.items()}, subject, {})
    except PermanentError as error:
        raise _blamed(file, through, subject, error) from error
    finally:
        file.unlink()  # durable: ok - lives no longer than this call
    return {name: table.column(name).combine_chunks() for name in through}


def _blamed(file: Path, through: Mapping[str, DuckType], subject: str, error: PermanentError) -> PermanentError:
    """The error with the column whose value does not fit: DuckDB may name a line only."""
    for name, type_ in through.items():
        try:
            read_file(file, "json", {name: type_.sql}, subject, {})
        except PermanentError:
            return PermanentError(
                f"{subject}: column '{name}': a value does not fit the type {type_.sql}", code=Code.PZ0766, hint=_HINT
            )
    return error


def read_file(
    file: Path, format_: str, columns: Mapping[str, str], subject: str, options: Mapping[str, Any]
) -> pa.Table:
    """A small file, read by the rules of the file connectors."""
    import pyarrow as pa

    from pz.connectors.contract import BatchOptions, CancelToken

    partition = file_partition(file, format_, columns, subject, options)
    batches = list(partition.read(BatchOptions(), CancelToken()))
    return pa.Table.from_batches(batches) if batches else Columns.of(columns).schema.empty_table()


def file_partition(
    file: Path, format_: str, columns: Mapping[str, str], subject: str, options: Mapping[str, Any]
) -> Any:
    """A page on disk as a partition of a file connector."""
    from pz.connectors.contract import DatasetSpec, ReadHints
    from pz.connectors.files.formats import ReadOptions
    from pz.connectors.files.paths import FileStamp
    from pz.connectors.files.reading import FilePartition
    from pz.connectors.files.scan import discover

    parsed = replace(ReadOptions.parse("page", {"format": format_, **options}), frugal=True)
    stamp = FileStamp.take(file, f"response of {subject}")
    schema = discover([stamp], parsed, dict(columns))
    return FilePartition((stamp,), parsed, schema, DatasetSpec("http", "page", {}), ReadHints())


@frozen(slots=False)
class RawCursor:
    """The cursor that raw landing takes out of each record."""

    name: str
    type: DuckType
    way: tuple[str, ...]


class RawRecords:
    """Records as they came: ``payload``, the page's number, when it was fetched, and the cursor if there is one."""

    def __init__(self, cursor: tuple[str, str, str] | None, subject: str) -> None:
        declared = {"payload": "VARCHAR", "pz_page": "INTEGER", "pz_fetched_at": "TIMESTAMPTZ"}
        if cursor is not None:
            declared[cursor[0]] = cursor[1]
        columns = Columns.of(declared)
        self.types, self.schema = columns.types, columns.schema
        self._subject = subject
        self._cursor = None
        if cursor is not None:
            self._cursor = RawCursor(cursor[0], self.types[cursor[0]], parts_of(cursor[2]))

    def of_array(self, text: Any) -> Rows:
        """The records of a json array, as text."""
        import msgspec

        try:
            return array_of(text)
        except msgspec.DecodeError as error:
            raise malformed(self._subject, error) from error

    def of_lines(self, text: bytes) -> Rows:
        """The records of whole lines, as text."""
        import msgspec

        try:
            return msgspec.json.Decoder(msgspec.Raw).decode_lines(text)
        except msgspec.DecodeError as error:
            raise malformed(self._subject, error) from error

    def batch(self, rows: Rows, places: Sequence[tuple[int, int, datetime]]) -> pa.RecordBatch:
        """Rows as a batch; ``places`` are pages in order: how many of the rows, the page's number, when it was fetched.

        Raises PermanentError for a record that is no object, or text that is not UTF-8.
        """
        import pyarrow as pa

        texts = [bytes(row) for row in rows]
        if any(text[:1] != b"{" for text in texts):
            raise PermanentError(f"{self._subject}: a record is not a json object", code=Code.PZ0766)
        try:
            payload = pa.array(texts, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise PermanentError(f"{self._subject}: the response is not UTF-8 text", code=Code.PZ0765) from error
        arrays = [
            payload,
            _repeated([(count, page) for count, page, _ in places], pa.int32()),
            _repeated([(count, moment) for count, _, moment in places], pa.timestamp("us", "UTC")),
        ]
        if self._cursor is not None:
            arrays.append(self._cursor_array(texts, self._cursor))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _cursor_array(self, texts: list[bytes], cursor: RawCursor) -> pa.Array:
        import msgspec

        kind = _PYTHON[cursor.type.kind] | None
        decoder = msgspec.json.Decoder(kind)
        subject = f"{self._subject}: cursor '{cursor.name}'"
        try:
            values = [
                decoder.decode(found) if (found := _reach(text, cursor.way)) is not None else None for text in texts
            ]
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at ")[0].replace("`", "")
            raise PermanentError(f"{subject}: {what[:1].lower()}{what[1:]}", code=Code.PZ0766) from error
        return typed_array(values, cursor.type, self.schema.field(cursor.name).type, subject)


def _repeated(values: Sequence[tuple[int, Any]], arrow: pa.DataType) -> pa.Array:
    """Each value as often as told."""
    import pyarrow as pa

    return pa.concat_arrays(
        [pa.array([], arrow), *(pa.repeat(pa.scalar(value, arrow), count) for count, value in values)]
    )


def _reach(text: bytes, way: tuple[str, ...]) -> Any:
    from pz.connectors.http.selection import Document

    return Document(text, "").raw(way)
