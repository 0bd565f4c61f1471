"""From a list of files to a relation that DuckDB reads: the schema found once, then one SELECT per set of files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from pz.connectors.contract import Column, PermanentError
from pz.connectors.files import delimited
from pz.connectors.files.delimited import Dialect
from pz.connectors.files.formats import Compression, Format, Layout, ReadOptions
from pz.connectors.files.paths import FileStamp
from pz.connectors.files.scratch import scratch
from pz.connectors.files.values import Care, DuckType, converted, read_type, reading
from pz.errors import Code
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import duckdb

__all__ = ["FileSchema", "discover", "relation"]

_PLACE = "__pz_file"
"""The reader's extra column with the file's path, where several files share one call."""


@frozen
class FileSchema:
    """The columns of a dataset of files, found once and the same for every file and every attempt."""

    columns: tuple[Column, ...]
    inferred: bool
    dialect: Dialect = field(default_factory=Dialect)
    types: tuple[DuckType, ...] = field(default=(), compare=False)

    def to_json(self) -> str:
        """The schema as text, for a pinned partition."""
        columns = [[column.name, column.type] for column in self.columns]
        formats = [self.dialect.date_format, self.dialect.timestamp_format]
        return json.dumps({"columns": columns, "inferred": self.inferred, "formats": formats})

    @classmethod
    def from_json(cls, text: str) -> FileSchema:
        """The schema that once gave this text."""
        told = json.loads(text)
        columns = tuple(Column(name, type_) for name, type_ in told["columns"])
        with scratch() as connection:
            return _typed(connection, columns, bool(told["inferred"]), Dialect(*told["formats"]))


def discover(files: Sequence[FileStamp], options: ReadOptions, contract: Mapping[str, str] | None) -> FileSchema:
    """The schema of the dataset: the contract, else what the files say. Raises PermanentError.

    ``files`` may be empty only with a contract.
    """
    with scratch() as connection:
        if contract is not None:
            declared = tuple(Column(name, type_) for name, type_ in contract.items())
            schema = _typed(connection, declared, False, Dialect())
            if options.format is Format.PARQUET and files:
                _check_parquet(connection, files, schema)
            elif options.format is Format.JSON:
                _check_json(connection, [file for file in files if file.size > 0], options, schema)
            return schema
        if not files:
            raise PermanentError(
                "no file matches, and without declared columns nothing tells what an empty dataset looks like",
                code=Code.PZ0720,
                hint="declare `columns`",
            )
        return _infer(connection, files, options)


def _typed(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[Column], inferred: bool, dialect: Dialect
) -> FileSchema:
    types = tuple(DuckType.parse(connection, column.type) for column in columns)
    spelled = tuple(Column(column.name, type_.sql) for column, type_ in zip(columns, types, strict=True))
    return FileSchema(spelled, inferred, dialect, types)


def _infer(connection: duckdb.DuckDBPyConnection, files: Sequence[FileStamp], options: ReadOptions) -> FileSchema:
    import duckdb

    try:
        if options.format.delimited:
            return _infer_delimited(connection, files, options)
        if options.format is Format.JSON:
            return _infer_json(connection, files, options)
        return _infer_parquet(connection, files)
    except duckdb.Error as error:
        from pz.connectors.files.faults import explain

        raise explain(error, {str(file.path): file.name for file in files}, inferring=True) from error


def _infer_delimited(
    connection: duckdb.DuckDBPyConnection, files: Sequence[FileStamp], options: ReadOptions
) -> FileSchema:
    headers = {file: header for file in files if (header := delimited.read_header(file, options)) is not None}
    if not headers:
        raise PermanentError(
            f"file '{files[0].name}' is empty: there is no header to tell its columns",
            code=Code.PZ0722,
            hint="declare `columns`",
        )
    first = next(iter(headers))
    for file, header in headers.items():
        _same_columns(first, headers[first], file, header)
    fullest = max(headers, key=lambda file: min(file.size, 1024 * 1024))
    columns, dialect = delimited.infer(connection, fullest, headers[fullest], options)
    by_name = {column.name: column for column in columns}
    return _typed(connection, [by_name[name] for name in headers[first]], True, dialect)


def _same_columns(first: FileStamp, expected: Sequence[str], file: FileStamp, header: Sequence[str]) -> None:
    odd = sorted(set(expected) ^ set(header))
    if odd:
        names = ", ".join(f"'{name}'" for name in odd)
        message = f"files '{first.name}' and '{file.name}' differ in their columns: {names}"
        raise PermanentError(message, code=Code.PZ0722, hint="declare `columns` with those that all files have")


def _infer_json(connection: duckdb.DuckDBPyConnection, files: Sequence[FileStamp], options: ReadOptions) -> FileSchema:
    filled = [file for file in files if file.size > 0]
    if not filled:
        message = f"file '{files[0].name}' is empty: nothing tells its columns"
        raise PermanentError(message, code=Code.PZ0722, hint="declare `columns`")
    whole = f"sample_size = -1, maximum_sample_files = {len(filled)}, union_by_name = true"
    found = connection.execute(f"DESCRIBE SELECT * FROM {_json_call(filled, options, whole)}").fetchall()
    columns = [Column(str(row[0]), str(row[1])) for row in found]
    _refuse_renamed(connection, filled, options, {column.name for column in columns})
    return _typed(connection, columns, True, Dialect())


def _refuse_renamed(
    connection: duckdb.DuckDBPyConnection, files: Sequence[FileStamp], options: ReadOptions, names: set[str]
) -> None:
    """DuckDB renames a key that SQL cannot tell from another one, or that is empty, and then finds no value for it."""
    if not any(_RENAMED.fullmatch(name) for name in names):
        return
    objects = f"read_json_objects([{_listed(files)}], {_json_shape(options)})"
    keys = connection.execute(f"SELECT DISTINCT unnest(json_keys(json)) FROM {objects} ORDER BY ALL").fetchall()
    lost = ", ".join(f"'{key}'" for (key,) in keys if key not in names)
    if lost:
        message = f"file '{files[0].name}'" if len(files) == 1 else "one of the files"
        message = f"{message} has keys that are empty or differ from others in case alone: {lost}"
        raise PermanentError(message, code=Code.PZ0722, hint=_KEYS_HINT)


_RENAMED = re.compile(r".*_\d+|C\d+")
_KEYS_HINT = "rename them at the source: SQL does not tell them apart"


def _infer_parquet(connection: duckdb.DuckDBPyConnection, files: Sequence[FileStamp]) -> FileSchema:
    columns = _parquet_columns(connection, files)
    alone = {column.name for column in _parquet_columns(connection, files[:1])}
    odd = sorted({column.name for column in columns} - alone)
    if odd:
        names = ", ".join(f"'{name}'" for name in odd)
        message = f"file '{files[0].name}' lacks columns that other files have: {names}"
        raise PermanentError(message, code=Code.PZ0722, hint="declare `columns` with those that all files have")
    return _typed(connection, columns, False, Dialect())


def _parquet_columns(connection: duckdb.DuckDBPyConnection, files: Sequence[FileStamp]) -> list[Column]:
    found = connection.execute(f"DESCRIBE SELECT * FROM {_parquet_call(files, 'union_by_name = true')}").fetchall()
    return [Column(str(row[0]), str(row[1])) for row in found]


def _check_parquet(connection: duckdb.DuckDBPyConnection, files: Sequence[FileStamp], schema: FileSchema) -> None:
    import duckdb

    try:
        held = {column.name.lower() for column in _parquet_columns(connection, files)}
    except duckdb.Error as error:
        from pz.connectors.files.faults import explain

        raise explain(error, {str(file.path): file.name for file in files}) from error
    _refuse_missing(files[0], schema, held)


def _check_json(
    connection: duckdb.DuckDBPyConnection, files: Sequence[FileStamp], options: ReadOptions, schema: FileSchema
) -> None:
    """A record may lack a key, but the first ones of the first file must have some, spelled as declared: keys tell case
    apart, and every value of a misspelled one would be NULL.
    """
    import duckdb

    if not files:
        return
    objects = f"read_json_objects([{_listed(files[:1])}], {_json_shape(options)})"
    sample = f"SELECT json FROM {objects} WHERE json_type(json) = 'OBJECT' LIMIT {_SAMPLE}"
    try:
        rows = connection.execute(f"SELECT DISTINCT unnest(json_keys(json)) FROM ({sample})").fetchall()
    except duckdb.Error:
        return  # reading the file says better what is wrong with it
    keys = {str(row[0]) for row in rows}
    folded = {key.lower(): key for key in keys}
    lacking = [column.name for column in schema.columns if column.name not in keys]
    other = next((name for name in lacking if name.lower() in folded), None)
    if other is not None:
        message = f"file '{files[0].name}' has the key '{folded[other.lower()]}' where `columns` declares '{other}'"
        raise PermanentError(
            message, code=Code.PZ0353, hint="spell the column as the file does, and rename it in the pipeline"
        )
    if keys and len(lacking) == len(schema.columns):
        message = f"the first records of file '{files[0].name}' have none of the keys that `columns` declares"
        raise PermanentError(message, code=Code.PZ0353, hint="correct the names in `columns`")


_SAMPLE = 1000


def _refuse_missing(file: FileStamp, schema: FileSchema, held: set[str]) -> None:
    missing = [column.name for column in schema.columns if column.name.lower() not in held]
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        raise PermanentError(
            f"file '{file.name}' has no column {names}, which `columns` declares",
            code=Code.PZ0353,
            hint="correct the names in `columns`; the order does not matter",
        )


def relation(files: Sequence[FileStamp], options: ReadOptions, schema: FileSchema, care: Care = Care.FAST) -> str:
    """SQL that can stand behind FROM: exactly the schema's columns, from exactly these files."""
    if options.format.delimited:
        parts = _delimited_parts(files, options, schema, care)
    elif options.format is Format.JSON:
        filled = [file for file in files if file.size > 0]
        parts = [_json_part(filled, options, schema)] if filled else []
    else:
        parts = [_select(Format.PARQUET, schema, _parquet_call(files), "''")] if files else []
    if not parts:
        return f"({_nothing(schema)})"
    return f"({' UNION ALL '.join(parts)})"


def _nothing(schema: FileSchema) -> str:
    typed = ", ".join(f"NULL::{column.type} AS {quote(column.name)}" for column in schema.columns)
    return f"SELECT {typed} WHERE false"


def _select(
    format_: Format,
    schema: FileSchema,
    source: str,
    place: str,
    names: Mapping[str, str] | None = None,
    care: Care = Care.FAST,
) -> str:
    """``names`` gives the reader's spelling of a column where it differs in case."""
    spelled = names or {}
    cells = [
        (spelled.get(column.name, column.name), column.name, type_)
        for column, type_ in zip(schema.columns, schema.types, strict=True)
    ]
    parts = [f"{reading(format_, found, type_, place, care)} AS {quote(name)}" for found, name, type_ in cells]
    numbers = [item for found, _, type_ in cells if (item := converted(format_, found, type_, care)) is not None]
    below = f"(SELECT *, {', '.join(numbers)} FROM {source})" if numbers else source
    return f"SELECT {', '.join(parts)} FROM {below}"


def _place(files: Sequence[FileStamp]) -> str:
    return literal(files[0].name) if len(files) == 1 else f"parse_filename({quote(_PLACE)})"


def _delimited_parts(files: Sequence[FileStamp], options: ReadOptions, schema: FileSchema, care: Care) -> list[str]:
    by_header: dict[tuple[str, ...], list[FileStamp]] = {}
    for file in files:
        header = delimited.read_header(file, options)
        if header is not None:
            by_header.setdefault(header, []).append(file)
    return [_delimited_part(header, group, options, schema, care) for header, group in by_header.items()]


def _delimited_part(
    header: Sequence[str], files: Sequence[FileStamp], options: ReadOptions, schema: FileSchema, care: Care
) -> str:
    _refuse_missing(files[0], schema, {name.lower() for name in header})
    typed = {
        column.name.lower(): (column.name, read_type(options.format, type_, care))
        for column, type_ in zip(schema.columns, schema.types, strict=True)
    }
    types = [(name, typed[name.lower()][1] if name.lower() in typed else "VARCHAR") for name in header]
    names = {typed[name.lower()][0]: name for name in header if name.lower() in typed}
    source = delimited.reader_sql(files, types, options, schema.dialect, _PLACE)
    return _select(options.format, schema, source, _place(files), names, care)


def _json_part(files: Sequence[FileStamp], options: ReadOptions, schema: FileSchema) -> str:
    columns = ", ".join(
        f"{literal(column.name)}: {literal(read_type(Format.JSON, type_))}"
        for column, type_ in zip(schema.columns, schema.types, strict=True)
    )
    extra = f"columns = {{{columns}}}" + (f", filename = {literal(_PLACE)}" if len(files) > 1 else "")
    return _select(Format.JSON, schema, _json_call(files, options, extra), _place(files))


def _json_call(files: Sequence[FileStamp], options: ReadOptions, extra: str) -> str:
    return (
        f"read_json([{_listed(files)}], {_json_shape(options)}, records = 'true', hive_partitioning = false, {extra})"
    )


def _json_shape(options: ReadOptions) -> str:
    shape = "array" if options.layout is Layout.ARRAY else "newline_delimited"
    # DuckDB's json reader has a name of its own for files that are not compressed.
    named = "uncompressed" if options.compression is Compression.NONE else options.compression
    return f"format = '{shape}'" + ("" if named is None else f", compression = {literal(str(named))}")


def _listed(files: Sequence[FileStamp]) -> str:
    return ", ".join(literal(str(file.path)) for file in files)


def _parquet_call(files: Sequence[FileStamp], extra: str = "") -> str:
    return f"read_parquet([{_listed(files)}], hive_partitioning = false{f', {extra}' if extra else ''})"
