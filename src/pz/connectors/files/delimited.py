"""csv and tsv: headers, inference, and the strict relation that reads files by column name.

The header binds columns to the contract by name, whatever their order; columns that the contract does not name are
read past. What DuckDB would read on a guess (another delimiter, skipped lines, padded rows) is switched off: a file
that does not fit fails.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, cast

from pz.connectors.contract import Column, PermanentError
from pz.connectors.files.formats import Compression, ReadOptions
from pz.connectors.files.paths import FileStamp
from pz.errors import Code
from pz.frozen import frozen
from pz.sqltext import literal

if TYPE_CHECKING:
    import duckdb

__all__ = ["Dialect", "check_bytes", "infer", "open_bytes", "read_header", "reader_sql"]

_HEADER_LIMIT = 1024 * 1024
_CHUNK = 4 * 1024 * 1024
_SMALL_BUFFER = 4 * 1024 * 1024


@frozen
class Dialect:
    """What inference found besides the columns: how dates and timestamps are spelled, None for ISO."""

    date_format: str | None = None
    timestamp_format: str | None = None


@contextmanager
def open_bytes(file: FileStamp, compression: Compression) -> Iterator[IO[bytes]]:
    """The content of a file, decompressed; reads every frame, and fails when the last one is cut off."""
    try:
        if compression is Compression.NONE:
            with file.path.open("rb") as plain:
                yield plain
        else:
            import pyarrow as pa

            with pa.input_stream(str(file.path), compression=str(compression)) as unpacked:
                yield cast("IO[bytes]", unpacked)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise PermanentError(f"file '{file.name}' may not be read", code=Code.PZ0531) from error
        if isinstance(error, FileNotFoundError):
            raise PermanentError(f"file '{file.name}' is gone", code=Code.PZ0721) from error
        message = f"file '{file.name}' is not a complete {compression} file"
        raise PermanentError(message, code=Code.PZ0722, hint="the file may be truncated; deliver it again") from error


def check_bytes(file: FileStamp, options: ReadOptions) -> None:
    """Refuse what DuckDB would accept in silence: a NUL in the text, a compressed file that is cut off."""
    compression = options.compression_of(file.name)
    if file.size == 0:
        return
    with open_bytes(file, compression) as content:
        while chunk := content.read(_CHUNK):
            if options.format.delimited and b"\0" in chunk:
                raise PermanentError(f"file '{file.name}' holds a NUL character", code=Code.PZ0722)


def read_header(file: FileStamp, options: ReadOptions) -> tuple[str, ...] | None:
    """The column names of a file; None when it holds nothing but line ends. Raises PermanentError PZ0722."""
    if file.size == 0:
        return None
    with open_bytes(file, options.compression_of(file.name)) as content:
        start = content.read(_HEADER_LIMIT)
    if not start.strip(b"\r\n"):
        return None
    if start[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        raise _bad(file, "is not UTF-8 text", "save it as UTF-8")
    names = _first_record(file, start, options.delimiter)
    _refuse_duplicates(file, names)
    return names


def _first_record(file: FileStamp, start: bytes, delimiter: str) -> tuple[str, ...]:
    text = start.decode("utf-8-sig", errors="replace")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = tuple(next(reader))
    except csv.Error as error:
        raise _bad(file, "has a header line that is not csv") from error
    if not names:
        raise _bad(file, "starts with an empty line instead of a header")
    if any("\0" in name for name in names):
        raise _bad(file, "holds a NUL character in its header")
    if any("�" in name for name in names):
        raise _bad(file, "has a header that is not UTF-8 text", "save it as UTF-8")
    return tuple(name if name else f"column{position}" for position, name in enumerate(names))


def _refuse_duplicates(file: FileStamp, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise _bad(file, f"has two columns named '{name}' (case does not tell columns apart)")
        seen.add(name.lower())


def _bad(file: FileStamp, what: str, hint: str | None = None) -> PermanentError:
    return PermanentError(f"file '{file.name}' {what}", code=Code.PZ0722, hint=hint)


def infer(
    connection: duckdb.DuckDBPyConnection, file: FileStamp, header: Sequence[str], options: ReadOptions
) -> tuple[tuple[Column, ...], Dialect]:
    """The types of a file's columns from a sample of its rows. A later row that does not fit fails the read."""
    arguments = [*_common(options), "sample_size = 20480"]
    sql = (
        f"SELECT Columns, DateFormat, TimestampFormat FROM sniff_csv({literal(str(file.path))}, {', '.join(arguments)})"
    )
    import duckdb

    try:
        row = connection.execute(sql).fetchone()
    except duckdb.InvalidInputException:
        _find_row(connection, file, header, options)
        raise
    assert row is not None
    found, dates, timestamps = row
    if len(found) != len(header):
        raise _bad(file, "has rows that do not fit its header")
    columns = tuple(Column(name, str(entry["type"])) for name, entry in zip(header, found, strict=True))
    return columns, Dialect(dates or None, timestamps or None)


def _find_row(
    connection: duckdb.DuckDBPyConnection, file: FileStamp, header: Sequence[str], options: ReadOptions
) -> None:
    """Let the reader fail at the row that the sniffer could make nothing of: its error has a line, the sniffer's has not."""
    text = reader_sql([file], [(name, "VARCHAR") for name in header], options, Dialect(), "")
    connection.execute(f"SELECT max(hash(COLUMNS(*))) FROM {text}").fetchall()


def reader_sql(
    files: Sequence[FileStamp], types: Sequence[tuple[str, str]], options: ReadOptions, dialect: Dialect, place: str
) -> str:
    """A ``read_csv`` call over files that share one header; ``types`` are in the header's order."""
    listed = ", ".join(literal(str(file.path)) for file in files)
    columns = ", ".join(f"{literal(name)}: {literal(type_)}" for name, type_ in types)
    arguments = [f"columns = {{{columns}}}", "auto_detect = false", *_common(options), "hive_partitioning = false"]
    if len(files) > 1:
        arguments.append(f"filename = {literal(place)}")
    if dialect.date_format is not None:
        arguments.append(f"dateformat = {literal(dialect.date_format)}")
    if dialect.timestamp_format is not None:
        arguments.append(f"timestampformat = {literal(dialect.timestamp_format)}")
    return f"read_csv([{listed}], {', '.join(arguments)})"


def _common(options: ReadOptions) -> list[str]:
    arguments = [
        "header = true",
        f"delim = {literal(options.delimiter)}",
        "quote = '\"'",
        "escape = '\"'",
        "comment = ''",
        "skip = 0",
        "strict_mode = true",
        f"allow_quoted_nulls = {'true' if options.quoted_empty_is_null else 'false'}",
        f"nullstr = [{', '.join(literal(text) for text in ('', *options.null_text))}]",
    ]
    if options.compression is not None:
        arguments.append(f"compression = {literal(str(options.compression))}")
    if options.frugal:
        arguments.append(f"buffer_size = {_SMALL_BUFFER}")
    return arguments
