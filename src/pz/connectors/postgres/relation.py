"""What is read: a table or a query, the columns of it, and the conditions that go to the server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pz.connectors.bounds import absent_cursor
from pz.connectors.closest import did_you_mean
from pz.connectors.contract import Bound, DatasetSpec, ReadHints
from pz.connectors.postgres.catalog import Attribute, Name, Table, describe_query, find_table, table_names
from pz.connectors.postgres.faults import translate
from pz.connectors.postgres.predicate import pushed_predicate
from pz.connectors.postgres.types import ReadColumn, read_columns
from pz.errors import Code, PermanentError
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

__all__ = ["Relation", "cursor_conditions", "resolve"]

MONEY_SCALE = "SELECT scale(0::money::numeric)"

_TRANSPARENT = frozenset(
    {"SMALLINT", "INTEGER", "BIGINT", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "VARCHAR"}
)


@frozen(slots=False)
class Relation:
    """A dataset as the live server has it. ``columns`` are those that are read, in order."""

    subject: str
    source: str
    attributes: tuple[Attribute, ...]
    columns: tuple[ReadColumn, ...]
    table: Table | None
    unicode: bool = True
    """Whether the server sees to it that text is valid."""
    money_scale: int = 2
    """Digits behind the point of the server's money."""

    def attribute(self, name: str) -> Attribute | None:
        """The column of this name, exactly or else without regard to case."""
        exact = next((column for column in self.attributes if column.name == name), None)
        folded = [column for column in self.attributes if column.name.lower() == name.lower()]
        return exact or (folded[0] if len(folded) == 1 else None)

    def read_column(self, name: str) -> ReadColumn | None:
        """The same among what is read."""
        exact = next((column for column in self.columns if column.name == name), None)
        folded = [column for column in self.columns if column.name.lower() == name.lower()]
        return exact or (folded[0] if len(folded) == 1 else None)

    def pruned(self, hints: ReadHints) -> tuple[ReadColumn, ...]:
        """The columns that the pipeline needs, in their order here; all when one of them is not known."""
        if hints.columns is None:
            return self.columns
        wanted = [self.read_column(name) for name in hints.columns]
        if not wanted or None in wanted:
            return self.columns
        return tuple(column for column in self.columns if column in wanted)

    def conditions(self, dataset: DatasetSpec, hints: ReadHints) -> list[str]:
        """What the server filters by: the part of the pushed filter that means the same there, and the bounds."""
        found = cursor_conditions(self, dataset)
        if hints.predicate is not None:
            comparable = {
                column.name.lower(): column
                for column in self.columns
                if self._comparable(column) and self.read_column(column.name.lower()) in {column, None}
            }
            pushed = pushed_predicate(hints.predicate, comparable)
            if pushed is not None:
                found.append(pushed)
        return found

    def _comparable(self, column: ReadColumn) -> bool:
        """Whether the server compares the column as DuckDB compares what is read of it."""
        attribute = self.attribute(column.name)
        if attribute is None or column.expression not in {quote(column.name), f"{quote(column.name)}::numeric"}:
            return False
        if attribute.type.storage.name in {"bpchar", "money"}:
            return False  # blanks at its end do not count there; money is compared with nothing but money
        return column.duckdb in _TRANSPARENT or column.duckdb.startswith("DECIMAL(")

    def select(self, columns: Sequence[ReadColumn], conditions: Sequence[str]) -> str:
        """The statement that reads, guards behind the columns."""
        selected = [column.selected for column in columns]
        selected += [f"{column.guard} AS {quote(f'_pz_guard_{i}')}" for i, column in enumerate(columns) if column.guard]
        where = f"\nWHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(selected)}\nFROM {self.source}{where}"

    def schema(self, columns: Sequence[ReadColumn]) -> pa.Schema:
        """The Arrow schema of batches with these columns."""
        import pyarrow as pa

        return pa.schema([pa.field(column.name, column.arrow) for column in columns])


def resolve(connection: psycopg.Connection[Any], dataset: DatasetSpec) -> Relation:
    """Look the dataset up.

    Raises:
        PermanentError: PZ0747 when it is not there, PZ0740 when a column cannot be held, PZ0505 for a cursor that is not.
    """
    query = dataset.options.get("query")
    table: Table | None = None
    if query is None:
        name = Name.of(dataset.entity)
        subject, table = f"table {name}", find_table(connection, name)
        if table is None:
            near = did_you_mean(str(name), table_names(connection, name.schema)) or None
            raise PermanentError(f"{subject} does not exist", code=Code.PZ0747, hint=near)
        source, attributes = name.quoted, table.columns
    else:
        subject, plain = f"the query of '{dataset.entity}'", plain_query(str(query))
        source, attributes = f"(\n{plain}\n) AS q", _describe(connection, subject, plain)
        _require_names(subject, attributes)
    money = any(attribute.type.storage.builtin == "money" for attribute in attributes)
    row = connection.execute(MONEY_SCALE).fetchone() if money else None
    scale = int(row[0]) if row else 2
    columns = read_columns(attributes, dataset.columns, subject=subject, money_scale=scale)
    if table is not None and table.kind == "f":  # its values are another system's
        columns = tuple(column.as_text for column in columns)
    if not columns:
        raise PermanentError(f"{subject} has no columns", code=Code.PZ0740)
    unicode = connection.info.parameter_status("server_encoding") != "SQL_ASCII"
    relation = Relation(subject, source, attributes, columns, table, unicode, scale)
    if dataset.cursor is not None and relation.read_column(dataset.cursor) is None:
        raise absent_cursor(subject, dataset.cursor, [column.name for column in columns])
    return relation


# What a query is made of, as far as it matters where it ends: fillers, then whatever may hold a comment's or an end's signs.
_LEXEME = re.compile(
    r"""(?P<filler>\s+|;|--[^\n]*|/\*.*?\*/)
      | [eE]'(?:[^'\\]|\\.|'')*'
      | \w+
      | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
      | '(?:[^']|'')*'
      | "(?:[^"]|"")*"
      | .""",
    re.DOTALL | re.VERBOSE,
)


def plain_query(query: str) -> str:
    """A query fit to stand in parentheses: without semicolons and comments at its end."""
    ends = [found.end() for found in _LEXEME.finditer(query) if found["filler"] is None]
    return query[: ends[-1]].lstrip() if ends else ""


def _describe(connection: psycopg.Connection[Any], subject: str, query: str) -> tuple[Attribute, ...]:
    import psycopg

    try:
        return describe_query(connection, query)
    except psycopg.Error as failure:
        refused = translate(failure, subject)
        if isinstance(refused, PermanentError):
            hint = refused.hint or "correct `query:`; it is one SELECT, and stands in a FROM clause in parentheses"
            raise PermanentError(refused.message, hint=hint, code=Code.PZ0747) from failure
        raise


def _require_names(subject: str, attributes: Sequence[Attribute]) -> None:
    names = [attribute.name for attribute in attributes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or "?column?" in names:
        raise PermanentError(
            f"{subject} has columns without a name of their own: {', '.join(twice or ['?column?'])}",
            hint="give each column a name with AS",
            code=Code.PZ0740,
        )


def cursor_conditions(relation: Relation, dataset: DatasetSpec) -> list[str]:
    """The bounds of an incremental read. Rows without a cursor value pass: whether they count is the engine's decision."""
    if dataset.cursor is None:
        return []
    attribute = relation.attribute(dataset.cursor)
    assert attribute is not None
    bare = quote(attribute.name)
    ends = [(">", dataset.lower), ("<", dataset.upper)]
    found = [_side(bare, operator, bound, attribute) for operator, bound in ends if bound is not None]
    if not found:
        return []
    inside = " AND ".join(found)
    return [f"({inside})" if attribute.not_null else f"(({inside}) OR {bare} IS NULL)"]


def _side(bare: str, operator: str, bound: Bound, attribute: Attribute) -> str:
    """A literal of the column's own type, so that an index on it is used. Canonical text means UTC, as the session does."""
    kind = attribute.type.storage.name
    inclusive = "=" if bound.inclusive else ""
    value = bound.value
    if kind == "date" and len(value) > 10:
        value = value[:10]  # a moment within a day: `>` would lose that day's rows, the engine cuts exactly
        inclusive = "="
    return f"{bare} {operator}{inclusive} {literal(value)}"
