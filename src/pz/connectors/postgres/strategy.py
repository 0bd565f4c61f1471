"""What the strategies do between the last row and COMMIT, as SQL over a table that holds the new rows.

append            COPY into the target; nothing left to do
replace truncate  COPY into a temporary table, TRUNCATE, INSERT ... SELECT; into an empty target, COPY alone
replace delete    COPY into a temporary table, DELETE, INSERT ... SELECT
replace swap      COPY into a new table, DROP the old one, rename
merge             COPY into a temporary table, INSERT ... ON CONFLICT DO UPDATE
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import OnDelete, OutputSpec
from pz.connectors.deletes import DELETED_AT, Deletes, refuse_beyond_limit
from pz.connectors.postgres.target import Target
from pz.durable import Step, step
from pz.errors import Code, PermanentError
from pz.sqltext import quote

if TYPE_CHECKING:
    import psycopg

__all__ = [
    "KEPT",
    "KEYS",
    "PARTIAL",
    "STAGE",
    "apply_deletes",
    "apply_partial",
    "count_living",
    "create_temp",
    "fill",
    "insert",
    "is_blank",
    "keep_blank",
    "merge",
    "remove_others",
    "widen_texts",
]

STAGE, KEYS, KEPT, PARTIAL = "_pz_stage", "_pz_deletes", "_pz_kept", "_pz_partial"

# A table without a page holds no row, whoever asks; COPY does what INSERT would do unless there are rules or policies.
BLANK = """
SELECT pg_relation_size(oid) = 0 AND relkind = 'r' AND NOT relhassubclass AND NOT relhasrules AND NOT row_security_active(oid)
FROM pg_catalog.pg_class WHERE oid = %s::oid
"""


def is_blank(connection: psycopg.Connection[Any], target: Target) -> bool:
    """Whether the target is a plain table without a page, so that COPY into it is all that a replace needs."""
    row = connection.execute(BLANK, [target.table.oid]).fetchone()
    return bool(row and row[0])


def keep_blank(connection: psycopg.Connection[Any], target: Target) -> bool:
    """Keep other writers out until the end, unless one is there already; readers do not wait. Says whether it is blank still."""
    import psycopg

    try:
        with connection.transaction():
            connection.execute(f"LOCK TABLE {target.name.quoted} IN SHARE ROW EXCLUSIVE MODE NOWAIT")
    except (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege):
        return False
    return is_blank(connection, target)


def create_temp(
    connection: psycopg.Connection[Any], name: str, target: Target, columns: Sequence[str], *, texts: bool = False
) -> str:
    """A temporary table with the types of the target's columns; with ``texts``, character columns have no length."""
    typed = [_typed(target, column, texts) for column in columns]
    connection.execute(
        f"CREATE TEMP TABLE {quote(name)} ON COMMIT DROP AS "
        f"SELECT {', '.join(typed)} FROM {target.name.quoted} WITH NO DATA"
    )
    return f"pg_temp.{quote(name)}"


def _typed(target: Target, column: str, texts: bool) -> str:
    bounded = target.attribute(column).type.storage.name == "varchar"
    return f"{quote(column)}::text AS {quote(column)}" if texts and bounded else quote(column)


def fill(connection: psycopg.Connection[Any], target: Target, stage: str, emptying: str) -> None:
    """Empty the target and fill it from the stage."""
    with step(Step.SINK_WRITE):
        connection.execute(f"{emptying} {target.name.quoted}")
        connection.execute(_insert_sql(target, stage))


def insert(connection: psycopg.Connection[Any], target: Target, stage: str) -> None:
    """Add the stage's rows to the target."""
    with step(Step.SINK_WRITE):
        connection.execute(_insert_sql(target, stage))


def _insert_sql(target: Target, stage: str) -> str:
    return f"INSERT INTO {target.name.quoted} ({target.listed}){target.overriding} SELECT {target.listed} FROM {stage}"


def merge(connection: psycopg.Connection[Any], output: OutputSpec, target: Target, stage: str) -> None:
    """Insert the stage's rows, or update those whose keys are there. One row per key survives."""
    import psycopg  # Postgres refuses to touch a row twice in a statement; duplicates are looked for only then

    with step(Step.SINK_WRITE):
        connection.execute("SAVEPOINT pz_merge")
        try:
            connection.execute(_merge_sql(output, target, f"SELECT {target.listed} FROM {stage}"))
        except psycopg.errors.CardinalityViolation:
            connection.execute("ROLLBACK TO SAVEPOINT pz_merge")
            connection.execute(_merge_sql(output, target, _survivors(output, target, stage)))
        connection.execute("RELEASE SAVEPOINT pz_merge")


def _merge_sql(output: OutputSpec, target: Target, rows: str) -> str:
    keys = ", ".join(quote(key) for key in output.keys)
    changed = [
        f"{quote(column.name)} = excluded.{quote(column.name)}"
        for column in target.columns
        if column.name not in output.keys and target.attribute(column.name).identity != "a"
    ]
    if output.on_delete is OnDelete.SOFT and DELETED_AT not in {column.name for column in target.columns}:
        changed.append(f"{quote(DELETED_AT)} = NULL")
    action = f"DO UPDATE SET {', '.join(changed)}" if changed else "DO NOTHING"
    return f"INSERT INTO {target.name.quoted} ({target.listed}){target.overriding} {rows} ON CONFLICT ({keys}) {action}"


def _survivors(output: OutputSpec, target: Target, stage: str) -> str:
    """The highest by ``dedupe_by``, else the last in the order of all columns, by the rules of staging."""
    keys = ", ".join(quote(key) for key in output.keys)
    order = [output.dedupe_by] if output.dedupe_by else []
    order += [column.name for column in target.columns]
    ranked = ", ".join(f"{_sortable(target, name)} DESC NULLS LAST" for name in order)
    return f"SELECT DISTINCT ON ({keys}) {target.listed} FROM {stage} ORDER BY {keys}, {ranked}"


def _sortable(target: Target, name: str) -> str:
    kind = target.attribute(name).type.storage
    if kind.name in {"text", "varchar", "bpchar", "name"}:
        return f'{quote(name)} COLLATE "C"'
    numbers = {
        "bool",
        "int2",
        "int4",
        "int8",
        "float4",
        "float8",
        "numeric",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "uuid",
    }
    return quote(name) if kind.name in numbers else f'{quote(name)}::text COLLATE "C"'


def apply_partial(
    connection: psycopg.Connection[Any], output: OutputSpec, target: Target, stage: str, columns: Sequence[str]
) -> None:
    """Update the rows with these keys in these columns only.

    Raises:
        PermanentError: PZ0745 when a row is not there: what it did not carry is nowhere to be found.
    """
    changed = [f"{quote(name)} = s.{quote(name)}" for name in columns if name not in output.keys]
    if output.on_delete is OnDelete.SOFT:
        changed.append(f"{quote(DELETED_AT)} = NULL")
    if not changed:
        changed = [f"{quote(output.keys[0])} = s.{quote(output.keys[0])}"]
    with step(Step.SINK_WRITE):
        asked = connection.execute(f"SELECT count(*) FROM {stage}").fetchone()
        done = connection.execute(
            f"UPDATE {target.name.quoted} t SET {', '.join(changed)} FROM {stage} s WHERE {_same_keys(output)}"
        ).rowcount
    if asked is None or done < asked[0]:
        raise PermanentError(
            f"target {target.name}: {(asked or [0])[0] - done} row(s) whose unchanged columns were not sent are not there",
            hint="set REPLICA IDENTITY FULL on the captured table and run once with --full-refresh",
            code=Code.PZ0745,
        )


def apply_deletes(
    connection: psycopg.Connection[Any], output: OutputSpec, target: Target, stage: str, merged: str
) -> None:
    """Delete the rows with these keys, or stamp those that are not stamped yet; what was ``merged`` stays."""
    with step(Step.SINK_WRITE):
        connection.execute(_deletes(output, target).by_key(stage, merged))


def count_living(connection: psycopg.Connection[Any], output: OutputSpec, target: Target) -> int:
    """Rows of the target that are not marked as deleted."""
    row = connection.execute(_deletes(output, target).count_living()).fetchone()
    return int(row[0]) if row else 0


def remove_others(
    connection: psycopg.Connection[Any], output: OutputSpec, target: Target, kept: str, before: int
) -> None:
    """Delete, or stamp, the rows whose keys a snapshot does not hold. ``before`` is how many there were before the write.

    Raises:
        PermanentError: PZ0749 when that is more than the limit; the caller rolls back.
    """
    with step(Step.SINK_WRITE):
        connection.execute(f"ANALYZE {kept}")
        removed = connection.execute(_deletes(output, target).all_but(kept)).rowcount
    refuse_beyond_limit(output.options, f"target {target.name}", removed, before)


def _deletes(output: OutputSpec, target: Target) -> Deletes:
    return Deletes(output, target.name.quoted)


def _same_keys(output: OutputSpec, other: str = "s") -> str:
    return " AND ".join(f"t.{quote(key)} = {other}.{quote(key)}" for key in output.keys)


def widen_texts(connection: psycopg.Connection[Any], target: Target, stage: str) -> None:
    """Make varchar columns long enough for what is staged; never shorter. Only for ``evolve``."""
    bounded = {
        column.name: target.attribute(column.name).type.storage.modifier - 4
        for column in target.columns
        if target.attribute(column.name).type.storage.name == "varchar"
        and target.attribute(column.name).type.storage.modifier > 4
        and target.attribute(column.name).type.base is None
    }
    if not bounded:
        return
    lengths = ", ".join(f"coalesce(max(char_length({quote(name)})), 0)" for name in bounded)
    row = connection.execute(f"SELECT {lengths} FROM {stage}").fetchone()
    changes = [
        f"ALTER COLUMN {quote(name)} TYPE varchar({needed})"
        for (name, length), needed in zip(bounded.items(), row or (), strict=True)
        if needed > length
    ]
    if changes:
        with step(Step.SINK_PREPARE):
            connection.execute(f"ALTER TABLE {target.name.quoted} " + ", ".join(changes))
