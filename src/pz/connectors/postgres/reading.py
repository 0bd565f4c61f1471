"""Rows out of the server as Arrow batches, over ADBC, each value as it was or not at all.

The driver moves raw numbers and does not know infinity: what it made of infinite dates and moments is put right here, and
a moment beyond what 64 bits can hold is an error, never another moment. An array that is no plain list is an error too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import BatchOptions, CancelToken
from pz.connectors.postgres.connect import AGAIN, Server
from pz.connectors.postgres.faults import sqlstate_of, translated
from pz.connectors.postgres.types import Fix, ReadColumn
from pz.errors import Cancelled, Code, PermanentError, TransientError
from pz.interrupter import Interrupter

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["exact_decimal", "read_statement", "unfit"]

NOT_A_WHOLE_NUMBER = "0A000"
"""What the server says where it is to make a bigint of NaN."""

# 4714-11-24 BC, before which PostgreSQL has no dates, in days and microseconds since 1970.
FIRST_DATE = -2_440_588
FIRST_MOMENT = FIRST_DATE * 86_400_000_000

# What the driver makes of the two infinities (their raw value moved by 30 years, cut to its width), and what they are.
DAYS = {-2_147_472_692: 2_147_483_647, -2_147_472_691: -2_147_483_647}
MICROS = {-9_222_425_352_054_775_809: 2**63 - 1, -9_222_425_352_054_775_808: -(2**63 - 1)}


def read_statement(
    server: Server,
    statement: str,
    columns: Sequence[ReadColumn],
    options: BatchOptions,
    cancel: CancelToken,
    *,
    subject: str,
    snapshot: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run a statement on a connection of its own, under an exported snapshot if one is given, and yield its rows."""
    with ExitStack() as closing:
        closing.enter_context(translated(subject))
        connection = server.stream()
        closing.callback(connection.close)
        cursor = connection.cursor()
        closing.callback(cursor.close)
        # Exclusive: the driver must not be asked while it closes.
        interrupter = Interrupter(cursor.adbc_cancel, AGAIN, exclusive=True)
        closing.callback(interrupter.end)
        closing.callback(cancel.on_cancel(interrupter.start))
        cursor.executescript("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            _adopt(cursor, snapshot, subject)
        # The driver cuts batches by bytes only.
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(options.target_bytes)})
        try:
            cursor.execute(statement)
            for batch in _batches(cursor):
                cancel.raise_if_set()
                whole = _finished(batch, columns, subject)
                for start in range(0, whole.num_rows, options.max_rows):
                    yield whole.slice(start, options.max_rows)
        except Cancelled:
            raise
        except Exception as failure:  # whatever the driver raises: a cancelled statement fails in its words
            cancel.raise_if_set()
            units = [column for column in columns if column.fix is Fix.UNITS]
            if units and sqlstate_of(failure) == NOT_A_WHOLE_NUMBER:
                raise unfit(units, subject) from failure
            raise


def _batches(cursor: Any) -> Iterator[pa.RecordBatch]:
    """The result, through the driver's own reader: the plain one turns the server's errors into an OSError of words."""
    results = getattr(cursor, "_results", None)
    yield from cursor.fetch_record_batch() if results is None else results.reader


def _adopt(cursor: Any, snapshot: str, subject: str) -> None:
    from adbc_driver_manager import Error as AdbcError

    try:
        cursor.executescript(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    except AdbcError as failure:
        raise TransientError(f"{subject}: the snapshot that all partitions share is gone") from failure


def _finished(batch: pa.RecordBatch, columns: Sequence[ReadColumn], subject: str) -> pa.RecordBatch:
    """The batch with guards checked and taken off, and every column of its announced type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    guards = [column for column in columns if column.guard]
    for place, column in enumerate(guards, start=len(columns)):
        if pc.any(batch.column(place)).as_py():
            raise PermanentError(f"{subject}: {column.refused}", code=Code.PZ0740)
    arrays = [_fixed(batch.column(place), column, subject) for place, column in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([pa.field(c.name, c.arrow) for c in columns]))


def _fixed(array: pa.Array, column: ReadColumn, subject: str) -> pa.Array:
    import pyarrow as pa

    try:
        if column.fix is Fix.UNITS:
            return _from_units(array, column.arrow)
        if column.fix is Fix.DECIMAL:
            return _elementwise(array, column.arrow, exact_decimal)
        if column.fix is Fix.MOMENT:
            return _elementwise(array, column.arrow, _moment)
        return array if array.type == column.arrow else array.cast(column.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as failure:
        raise unfit([column], subject) from failure


def unfit(columns: Sequence[ReadColumn], subject: str) -> PermanentError:
    """The refusal of a value that one of these columns held."""
    named = " or ".join(repr(column.name) for column in columns)
    kinds = " or ".join(dict.fromkeys(column.duckdb for column in columns))
    return PermanentError(
        f"{subject}: column {named} holds a value that {kinds} cannot hold exactly",
        hint="declare the column under `columns:` as varchar, double or a wider decimal, or cast it in `query:`",
        code=Code.PZ0740,
    )


def _elementwise(array: pa.Array, wanted: pa.DataType, fix: Any) -> pa.Array:
    import pyarrow as pa

    if not pa.types.is_list(array.type):
        return fix(array, wanted)
    values = fix(array.values, wanted.value_type)
    offsets = array.offsets
    if array.null_count:
        return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=array.is_null())
    return pa.ListArray.from_arrays(offsets, values, type=wanted)


def exact_decimal(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Exact, or ArrowInvalid: NaN, infinity, too many digits on either side of the point."""
    return (array.storage if hasattr(array, "storage") else array).cast(wanted)


def _from_units(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Whole numbers, of which the last digits stand behind the point: a decimal keeps the same integers."""
    import pyarrow as pa

    whole = array.cast(pa.decimal128(19, 0))
    return pa.Array.from_buffers(wanted, len(whole), whole.buffers(), whole.null_count, whole.offset)


def _moment(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    days = pa.types.is_date32(array.type)
    width, first, infinities = (pa.int32(), FIRST_DATE, DAYS) if days else (pa.int64(), FIRST_MOMENT, MICROS)
    raw = array.view(width)
    lowest = pc.min(raw).as_py()
    if lowest is None or lowest >= first:
        return array if array.type == wanted else array.cast(wanted)
    for given, meant in infinities.items():
        raw = pc.if_else(pc.equal(raw, pa.scalar(given, width)), pa.scalar(meant, width), raw)
    odd = pc.min(pc.if_else(pc.is_in(raw, pa.array(list(infinities.values()), width)), None, raw)).as_py()
    if odd is not None and odd < first:
        raise OverflowError("beyond what 64 bits of microseconds since 1970 hold")
    return raw.view(wanted)
