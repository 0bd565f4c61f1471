"""Binary COPY from one server into another: which columns can pass as they are, and the stream of them.

The wire form of a value depends on its type alone, so a column passes when the target has the same type, or when a cast on
the source's side gives that type without loss. Then nothing is parsed on the way, and what only DuckDB cannot hold passes
too. Where one column cannot, none does: `NotCopied` says which, and the rows come as batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import CancelToken, CopyBlock, NotCopied
from pz.connectors.postgres.catalog import Attribute, PgType
from pz.connectors.postgres.connect import Server, ended_by
from pz.connectors.postgres.copied import messages
from pz.connectors.postgres.faults import translated
from pz.connectors.postgres.relation import Relation
from pz.connectors.postgres.types import READ_AS, ReadColumn, numeric_shape, read_columns
from pz.errors import PermanentError
from pz.frozen import frozen
from pz.sqltext import quote

if TYPE_CHECKING:
    import psycopg

__all__ = ["FORMAT", "Passage", "passed_expression", "stream", "wire_type"]

FORMAT = "PostgreSQL's binary COPY"
BLOCK_BYTES = 256 * 1024

_TEXTS = frozenset({"text", "varchar", "bpchar", "name"})
_INTEGERS = ("int2", "int4", "int8")
_GEOMETRIC = frozenset({"point", "line", "lseg", "box", "path", "polygon", "circle"})
# money is left out: what its number means depends on the server's locale.
_SAME_EVERYWHERE = (
    frozenset(READ_AS)
    | frozenset({"numeric", "name", "inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "timetz"})
    | _GEOMETRIC
)
_TYPE_OF_DUCKDB = {
    "SMALLINT": "int2",
    "INTEGER": "int4",
    "BIGINT": "int8",
    "DOUBLE": "float8",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "JSON": "json",
    "UUID": "uuid",
}


def wire_type(type_: PgType) -> str:
    """A type in the words of `FORMAT`: the name of what it is stored as, and digits before and behind a numeric's point.

    Empty for a type that only its own server knows.
    """
    storage = type_.storage
    inner = storage.element.storage if storage.element is not None else storage
    if inner.schema != "pg_catalog" or inner.name not in _SAME_EVERYWHERE:
        return ""
    name = inner.name + ("[]" if storage.element is not None else "")
    shape = numeric_shape(_with_modifier(inner, storage)) if inner.name == "numeric" else None
    return f"{name}({shape[0]},{shape[1]})" if shape else name


def _with_modifier(inner: PgType, storage: PgType) -> PgType:
    """The element of an array carries the modifier of the array."""
    return PgType(inner.oid, inner.name, inner.schema, inner.kind, inner.shown, storage.modifier)


def passed_expression(attribute: Attribute, column: ReadColumn, wanted: str) -> str | None:
    """What to select so that a column comes as ``wanted``, with the value that it would have through DuckDB; else None."""
    bare, plain = quote(attribute.name), wanted.partition("(")[0]
    as_text = plain in _TEXTS and column.duckdb == "VARCHAR"
    if column.duckdb != _natural(attribute):  # declared otherwise: the cast is the declaration's
        declared = _TYPE_OF_DUCKDB.get(column.duckdb)
        return column.expression if as_text or (declared is not None and declared == plain) else None
    have = wire_type(attribute.type)
    name = have.partition("(")[0]
    if name and name == plain:
        return bare if _digits_kept(have, wanted) else None
    if name in _TEXTS and plain in _TEXTS:
        return bare
    if as_text:
        return column.expression
    if name in _INTEGERS and plain in _INTEGERS[_INTEGERS.index(name) :]:
        return f"{bare}::{plain}"
    if (name, plain) in {("json", "jsonb"), ("jsonb", "json"), ("oid", "int8")}:
        return f"{bare}::{plain}"
    return None


def _natural(attribute: Attribute) -> str | None:
    """The DuckDB type in which the column is read unless declared; None where it can be read as declared only."""
    try:
        (column,) = read_columns((attribute,), None, subject="")
    except PermanentError:
        return None
    return column.duckdb


def _digits_kept(have: str, wanted: str) -> bool:
    """Whether no digit behind the point is rounded away: the server would do it without a word."""
    if "(" not in wanted:
        return True
    if "(" not in have:
        return False
    return _scale(have) <= _scale(wanted)


def _scale(type_: str) -> int:
    return int(type_.rpartition(",")[2].rstrip(")"))


@frozen
class Passage:
    """The statement of a read whose columns all pass."""

    statement: str

    @classmethod
    def of(cls, relation: Relation, columns: Sequence[str], types: Sequence[str]) -> Passage:
        """Raises NotCopied for the first column that does not pass."""
        selected = []
        for name, wanted in zip(columns, types, strict=True):
            attribute, column = relation.attribute(name), relation.read_column(name)
            if attribute is None or column is None:
                raise NotCopied(f"column {quote(name)} is not certain")
            expression = passed_expression(attribute, column, wanted)
            if expression is None:
                raise NotCopied(f"column {quote(name)} has another type at the target")
            selected.append(expression)
        return cls(f"COPY (SELECT {', '.join(selected)} FROM {relation.source}) TO STDOUT (FORMAT binary)")


def stream(server: Server, passage: Passage, cancel: CancelToken, *, subject: str) -> Iterator[CopyBlock]:
    """The rows in blocks, in one transaction of its own that ends with the last of them."""
    with ExitStack() as closing:
        closing.enter_context(translated(subject))
        connection = server.control(patient=True)
        closing.callback(connection.close)
        closing.enter_context(ended_by(cancel, connection))
        connection.execute("SET TRANSACTION READ ONLY")
        yield from _blocks(connection, passage.statement, cancel)


def _blocks(connection: psycopg.Connection[Any], statement: str, cancel: CancelToken) -> Iterator[CopyBlock]:
    data, rows = bytearray(), 0
    for message in messages(connection, statement):
        data += message
        rows += 1
        if len(data) >= BLOCK_BYTES:
            cancel.raise_if_set()
            yield CopyBlock(data, rows)
            data, rows = bytearray(), 0
    connection.rollback()  # what it read from is let go before anybody waits for a lock on it
    yield CopyBlock(data, rows - 1)  # the last message holds no row, only the end
