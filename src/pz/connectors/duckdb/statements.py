"""The SQL that writes a table of a DuckDB file: the same statements on every way of moving."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pz.connectors.contract import (
    Column,
    OnDelete,
    OutputSpec,
    PermanentError,
    SchemaPolicy,
    WriteStrategy,
    find_column,
)
from pz.connectors.deletes import DELETED_AT, Deletes
from pz.connectors.duckdb.place import Table
from pz.errors import Code
from pz.sqltext import literal, qualified, quote

__all__ = ["SLICES", "Writing"]

SLICES = "_pz_slices"
"""The table of a destination that holds the mark of each slice that landed."""

INSTANT = "TIMESTAMP WITH TIME ZONE"

_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")

# One row per difference between what is written and the target: the messages of PZ0780.
_DIFFERENCES = """
SELECT CASE WHEN count(*) > 0 THEN error({prefix} || string_agg(what, '; ' ORDER BY position)) END FROM (
    SELECT w.position, CASE
        WHEN t.data_type IS NULL THEN 'it has no column ''' || w.name || ''''
        ELSE 'column ''' || w.name || ''' is ' || t.data_type || ', not ' || w.type END AS what
    FROM (VALUES {written}) AS w(position, name, type, accepted)
    LEFT JOIN (
        SELECT column_name, data_type FROM duckdb_columns()
        WHERE database_name = {catalog} AND lower(schema_name) = lower({schema}) AND lower(table_name) = lower({table})
    ) AS t ON lower(t.column_name) = lower(w.name)
    WHERE t.data_type IS NULL OR NOT list_contains(w.accepted, t.data_type)
)
"""

_CREATE_SLICES = """
CREATE TABLE IF NOT EXISTS {table} (
    project VARCHAR NOT NULL, output VARCHAR NOT NULL, slice VARCHAR NOT NULL, run VARCHAR NOT NULL,
    ordinal INTEGER NOT NULL, rows BIGINT NOT NULL, "at" TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (project, output, slice)
)
"""


class Writing:
    """The statements for one output into one table; ``relation`` is what is read from."""

    def __init__(self, output: OutputSpec, table: Table, relation: str, columns: Sequence[Column]) -> None:
        self._output = output
        self._table = table
        self._relation = relation
        self._columns = tuple(columns)
        self._refuse_unwritable()

    def prepare(self) -> tuple[str, ...]:
        """Create the target if it is missing, let the policy widen it, and refuse what does not fit."""
        if self._output.strategy is WriteStrategy.REPLACE:
            return ()
        statements = [f"CREATE TABLE IF NOT EXISTS {self._table.sql} AS SELECT {self._definition()} LIMIT 0"]
        if self._output.schema_policy is not SchemaPolicy.FAIL_ON_CHANGE:
            statements += [self._add(column) for column in self._target_columns()]
        return (*statements, *self.checks())

    def write(self) -> tuple[str, ...]:
        """Move the rows."""
        if self._output.strategy is WriteStrategy.REPLACE:
            return (f"CREATE OR REPLACE TABLE {self._table.sql} AS SELECT * FROM {self._relation}",)
        if self._output.strategy is WriteStrategy.APPEND:
            return (f"INSERT INTO {self._table.sql} BY NAME SELECT * FROM {self._relation}",)
        return (self._merge(),)

    @property
    def deletes(self) -> Deletes:
        """The statements that delete in the table."""
        return Deletes(self._output, self._table.sql)

    def delete(self, keys: str) -> str:
        """Delete, or mark, the rows with the keys of a relation.

        Where the target's collation takes other keys for the same, what was merged by one of those stays.
        """
        merged = f"(SELECT * FROM {self._relation} ANTI JOIN {keys} USING ({_names(self._output.keys)}))"
        return self.deletes.by_key(keys, merged)

    def mark(self, rows: str) -> tuple[str, ...]:
        """Place the slice's mark, before the data: a second attempt at the same slice then fails on its key.

        ``rows`` is SQL for the number of rows. Nothing when the output carries no slice.
        """
        slice_, attempt = self._output.slice, self._output.attempt
        if slice_ is None or attempt is None:
            return ()
        table = self._slices()
        told = ", ".join(literal(text) for text in (slice_.project, self._output.entity, slice_.mark, attempt.run))
        insert = f"INSERT INTO {table} VALUES ({told}, {attempt.ordinal}, {rows}, now())"
        return (_CREATE_SLICES.format(table=table), insert)

    def count_mark(self, rows: str) -> tuple[str, ...]:
        """Give the slice's mark the number of rows, where it is known only after they were written."""
        condition = self.mark_condition()
        return () if condition is None else (f"UPDATE {self._slices()} SET rows = {rows} WHERE {condition}",)

    def mark_condition(self) -> str | None:
        """What identifies the mark of this slice."""
        if self._output.slice is None or self._output.attempt is None:
            return None
        parts = (self._output.slice.project, self._output.entity, self._output.slice.mark)
        named = zip(("project", "output", "slice"), parts, strict=True)
        return " AND ".join(f"{name} = {literal(value)}" for name, value in named)

    def _slices(self) -> str:
        return qualified(self._table.catalog, "main", SLICES)

    def _stamps(self) -> bool:
        """Whether the target has a marker that the rows do not bring."""
        return self._output.on_delete is OnDelete.SOFT and find_column(self._columns, DELETED_AT) is None

    def _target_columns(self) -> tuple[Column, ...]:
        return (*self._columns, Column(DELETED_AT, INSTANT)) if self._stamps() else self._columns

    def _definition(self) -> str:
        if not self._columns:
            return f"* FROM {self._relation}"
        return ", ".join(f"NULL::{column.type} AS {quote(column.name)}" for column in self._target_columns())

    def _add(self, column: Column) -> str:
        return f"ALTER TABLE {self._table.sql} ADD COLUMN IF NOT EXISTS {quote(column.name)} {column.type}"

    def checks(self) -> tuple[str, ...]:
        """Statements that fail where the target cannot take what is written."""
        if not self._columns or self._output.strategy is WriteStrategy.REPLACE:
            return ()
        written = ", ".join(
            f"({position}, {literal(column.name)}, {literal(column.type)}, [{_texts(_accepted(column.type))}])"
            for position, column in enumerate(self._target_columns())
        )
        prefix = literal(f"[pz {Code.PZ0780}] target '{self._table.label}' does not fit what is written: ")
        check = _DIFFERENCES.format(
            prefix=prefix,
            written=written,
            catalog=literal(self._table.catalog),
            schema=literal(self._table.schema),
            table=literal(self._table.name),
        )
        return (check,)

    def _merge(self) -> str:
        keys = self._output.keys
        folded = {key.lower() for key in keys}
        others = [column.name for column in self._columns if column.name.lower() not in folded]
        names = [column.name for column in self._columns]
        matched = " AND ".join(f"t.{quote(key)} = s.{quote(key)}" for key in keys)
        sets = [f"{quote(name)} = s.{quote(name)}" for name in others]
        if self._stamps():
            sets.append(f"{quote(DELETED_AT)} = NULL")
        update = f" WHEN MATCHED THEN UPDATE SET {', '.join(sets)}" if sets else ""
        listed, values = _names(names), ", ".join(f"s.{quote(name)}" for name in names)
        insert = f" WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})"
        return f"MERGE INTO {self._table.sql} AS t USING ({self._survivors()}) AS s ON {matched}{update}{insert}"

    def _survivors(self) -> str:
        """One row per key: the highest by ``dedupe_by``, else the last in the order of all columns."""
        order = [f"{quote(column.name)} DESC NULLS FIRST" for column in self._columns]
        if self._output.dedupe_by is not None:
            order.insert(0, f"{quote(self._output.dedupe_by)} DESC NULLS LAST")
        by = f" ORDER BY {', '.join(order)}" if order else ""
        numbered = f"row_number() OVER (PARTITION BY {_names(self._output.keys)}{by})"
        return f"SELECT * FROM {self._relation} QUALIFY {numbered} = 1"

    def _refuse_unwritable(self) -> None:
        output, columns = self._output, {column.name.lower() for column in self._columns}
        wanted = (*output.keys, *([output.dedupe_by] if output.dedupe_by else []))
        missing = [name for name in wanted if columns and name.lower() not in columns]
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            raise PermanentError(f"what is written to '{self._table.label}' has no column {names}", code=Code.PZ0780)
        marker = find_column(self._columns, DELETED_AT)
        if output.on_delete is OnDelete.SOFT and marker is not None and marker.type != INSTANT:
            raise PermanentError(
                f"what is written to '{self._table.label}' has a column '{DELETED_AT}' of type {marker.type}, which "
                f"`on_delete: soft` cannot stamp; it must be {INSTANT}",
                code=Code.PZ0780,
            )


def _names(names: Iterable[str]) -> str:
    return ", ".join(quote(name) for name in names)


def _texts(texts: Iterable[str]) -> str:
    return ", ".join(literal(text) for text in texts)


def _accepted(type_: str) -> tuple[str, ...]:
    """The target types that hold every value of a written type unchanged."""
    if type_ in _SIGNED:
        return _SIGNED[_SIGNED.index(type_) :]
    if type_ in _UNSIGNED:
        at = _UNSIGNED.index(type_)
        return (*_UNSIGNED[at:], *_SIGNED[at + 1 :])
    if type_ == "FLOAT":
        return ("FLOAT", "DOUBLE")
    if type_.startswith("ENUM("):
        return (type_, "VARCHAR")
    return (type_,)
