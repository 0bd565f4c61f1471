"""From the text that PostgreSQL prints of what a plain read selects to the types in which a table is read.

Rows and changes of the log must look alike, whichever way they come. DuckDB converts, a batch at a time; decimals go through
Arrow, which refuses what DuckDB would round. `tests` compare every type with what a plain read of the same row gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from pz.connectors.postgres.reading import exact_decimal
from pz.connectors.postgres.types import ReadColumn
from pz.errors import Code, PermanentError
from pz.frozen import frozen

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

__all__ = ["TextColumn", "TextReader", "array_elements"]

FEW = 1000

# PostgreSQL ends with BC what DuckDB has behind the date.
_ERA = r"CASE WHEN ends_with({v}, ' BC') THEN regexp_replace({v}, '^(\S+)(.*) BC$', '\1 (BC)\2') ELSE {v} END"


@frozen
class TextColumn:
    """A column, and what comes of it: the text of ``read.expression``, or a text of which ``before`` makes that one.

    ``before`` is an expression of DuckDB over ``{v}``, which is one element where the column is a list; ``delimiter`` stands
    between those.
    """

    read: ReadColumn
    before: str = "{v}"
    delimiter: str = ","

    @property
    def is_list(self) -> bool:
        """Whether it arrives as a list, hence has to be taken apart first."""
        return self.read.duckdb.endswith("[]")

    def expression(self, value: str) -> str:
        """DuckDB's expression that turns the text (or the list of texts) into the value."""
        wanted = self.read.duckdb.removesuffix("[]")
        inner = _scalar(self.before.format(v="x" if self.is_list else value), wanted)
        return f"list_transform({value}, lambda x: {inner})" if self.is_list else inner


class TextReader:
    """Converts batches of the columns of one table. Holds a private DuckDB; close it."""

    def __init__(self, columns: Sequence[TextColumn], subject: str) -> None:
        import duckdb

        self._columns = tuple(columns)
        self._subject = subject
        self._duckdb: DuckDBPyConnection = duckdb.connect(
            ":memory:", config={"autoinstall_known_extensions": "false", "threads": "1"}
        )
        self._duckdb.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        """Release the private DuckDB."""
        self._duckdb.close()

    def arrays(self, values: Sequence[Sequence[bytes | None]]) -> list[pa.Array]:
        """One array per column, of its announced type. ``values`` are columns, not rows.

        Raises:
            PermanentError: PZ0740, naming the column whose value cannot be held; never the value.
        """
        texts = [self._texts(column, given) for column, given in zip(self._columns, values, strict=True)]
        try:
            return self._convert(self._columns, texts)
        except PermanentError:
            raise
        except Exception:
            for column, text in zip(self._columns, texts, strict=True):
                self._one(column, text)
            raise

    def _one(self, column: TextColumn, text: pa.Array) -> None:
        import duckdb
        import pyarrow as pa

        try:
            self._convert([column], [text])
        except (duckdb.Error, pa.ArrowException, OverflowError, ValueError) as failure:
            raise self._refusal(column) from failure

    def _refusal(self, column: TextColumn) -> PermanentError:
        return PermanentError(
            f"{self._subject}: column {column.read.name!r} holds a value that {column.read.duckdb} cannot hold exactly",
            hint="declare the column under `columns:` as varchar, double or a wider decimal",
            code=Code.PZ0740,
        )

    def _texts(self, column: TextColumn, values: Sequence[bytes | None]) -> pa.Array:
        import pyarrow as pa

        try:
            if not column.is_list:
                return pa.array(values, pa.string())
            taken = [None if value is None else array_elements(value.decode(), column.delimiter) for value in values]
            return pa.array(taken, pa.list_(pa.string()))
        except (ValueError, pa.ArrowException) as failure:
            if column.is_list:
                raise PermanentError(f"{self._subject}: {column.read.refused}", code=Code.PZ0740) from failure
            raise self._refusal(column) from failure

    def _convert(self, columns: Sequence[TextColumn], texts: Sequence[pa.Array]) -> list[pa.Array]:
        import pyarrow as pa

        names = [f"c{place}" for place in range(len(columns))]
        table = pa.table(dict(zip(names, texts, strict=True)))
        selected = ", ".join(
            f"{column.expression(name)} AS {name}" for column, name in zip(columns, names, strict=True)
        )
        # The stream of the table: for a table itself DuckDB imports pyarrow.dataset, a tenth of a second.
        self._duckdb.register("texts", table.__arrow_c_stream__())
        try:
            found = self._duckdb.sql(f"SELECT {selected} FROM texts").to_arrow_table()
        finally:
            self._duckdb.unregister("texts")
        return [_as_announced(found.column(name), column.read) for name, column in zip(names, columns, strict=True)]


def _as_announced(found: pa.ChunkedArray, read: ReadColumn) -> pa.Array:
    import pyarrow as pa

    array = found.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no rows
        array = pa.array([], array.type)
    if read.duckdb.startswith("DECIMAL("):
        return _decimals(array, read.arrow)
    return array if array.type == read.arrow else array.cast(read.arrow)


def _decimals(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A few by Python, to the same: Arrow's own way takes an import that is longer than most reads."""
    import pyarrow as pa

    if len(texts) > FEW or not pa.types.is_decimal(wanted):
        return exact_decimal(texts, wanted)
    return pa.array([None if text is None else Decimal(text) for text in texts.to_pylist()], wanted)


def _scalar(value: str, wanted: str) -> str:
    if wanted.startswith("DECIMAL(") or wanted in {"VARCHAR", "JSON"}:
        return value  # Arrow makes the decimal; what is json the server has seen to, by its own rules
    if wanted == "BOOLEAN":
        return f"({value} = 't')"
    if wanted == "BLOB":
        return f"unhex(substr({value}, 3))"
    if wanted == "UUID":  # Arrow takes the sixteen bytes
        return f"unhex(replace({value}, '-', ''))"
    if wanted == "INTERVAL":
        return f"CAST(replace({value}, '+', '') AS INTERVAL)"
    if wanted in {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}:
        return f"CAST({_ERA.format(v=value)} AS {wanted})"
    return f"CAST({value} AS {wanted})"


_TOKEN = r'"((?:[^"\\]|\\.)*)"|([^{sign}{{}}"]+)|([{sign}{{}}])'


def array_elements(text: str, delimiter: str = ",") -> list[str | None]:
    """The elements of an array literal of one dimension, counted from 1.

    Raises:
        ValueError: more dimensions, or other bounds.
    """
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError("an array that does not count from 1")
    return list(_elements(text[1:-1], delimiter))


def _elements(inner: str, delimiter: str) -> Iterator[str | None]:
    for found in re.finditer(_TOKEN.format(sign=re.escape(delimiter)), inner, re.DOTALL):
        quoted, plain, mark = found.groups()
        if quoted is not None:
            yield re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        elif plain is not None:
            yield None if plain == "NULL" else plain
        elif mark != delimiter:
            raise ValueError("an array of more than one dimension")
