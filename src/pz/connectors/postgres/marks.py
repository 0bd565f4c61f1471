"""The ledger of slices at the destination: ``_pz_slices`` in the schema of the target.

A slice's row is inserted before its data, in the same transaction. Its primary key makes a late commit of an earlier
attempt and its retry exclude each other: whoever comes second waits for the first, and then finds the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pz.connectors.postgres.catalog import Name
from pz.durable import Step, step
from pz.errors import Code, PermanentError
from pz.sqltext import quote

if TYPE_CHECKING:
    import psycopg

    from pz.connectors.contract import OutputSpec, Slice, WriteAttempt

__all__ = ["MARKS", "count_rows", "ensure_ledger", "has_landed", "lock_output", "place", "require_ledger", "wanted"]

MARKS = "_pz_slices"

LEDGER = """
CREATE TABLE IF NOT EXISTS {ledger} (
    project text NOT NULL,
    output text NOT NULL,
    slice text NOT NULL,
    run text NOT NULL,
    ordinal integer NOT NULL,
    rows bigint,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, output, slice)
)
"""

# A slice may be found by itself or by the attempt that wrote it.
LANDED = """
SELECT rows FROM {ledger}
WHERE project = %(project)s AND output = %(output)s
  AND (slice = %(slice)s OR (run = %(run)s AND ordinal = %(ordinal)s))
"""

PLACE = """
INSERT INTO {ledger} (project, output, slice, run, ordinal) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (project, output, slice) DO NOTHING
"""

COUNT = "UPDATE {ledger} SET rows = %s WHERE project = %s AND output = %s AND slice = %s"


# What the role lacks to use the ledger, or to create it.
USE = """
SELECT privilege FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) privilege
WHERE NOT has_table_privilege(%s::regclass, privilege)
"""
CREATE = """
SELECT 'CREATE' FROM pg_catalog.pg_namespace WHERE nspname = %s AND NOT has_schema_privilege(oid, 'CREATE')
"""


def wanted(output: OutputSpec) -> bool:
    """Whether an append to the output leaves its mark."""
    return output.options.get("ledger", True) not in {False, "off"}


def _ledger(target: Name) -> str:
    return f"{quote(target.schema)}.{quote(MARKS)}"


def ensure_ledger(connection: psycopg.Connection[Any], target: Name) -> None:
    """Create the ledger if it is missing, in a transaction of its own. Two that create it at once take turns."""
    import psycopg

    if _exists(connection, target):
        connection.rollback()
        return
    try:
        with step(Step.SINK_PREPARE):
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('pz:_pz_slices', 0))")
            connection.execute(LEDGER.format(ledger=_ledger(target)))
            connection.commit()
    except psycopg.errors.InsufficientPrivilege as failure:
        raise _may_not(target, "create", f"CREATE ON SCHEMA {quote(target.schema)}") from failure


def require_ledger(connection: psycopg.Connection[Any], target: Name) -> None:
    """Raises PermanentError PZ0741 where the role may neither use the ledger nor, where there is none, create it."""
    there = _exists(connection, target)
    wanted, of = (USE, _ledger(target)) if there else (CREATE, target.schema)
    lacking = [row[0] for row in connection.execute(wanted, [of]).fetchall()]
    if lacking and there:
        raise _may_not(target, "use", f"{', '.join(lacking)} ON {_ledger(target)}")
    if lacking:
        raise _may_not(target, "create", f"CREATE ON SCHEMA {quote(target.schema)}")


def _may_not(target: Name, act: str, grant: str) -> PermanentError:
    return PermanentError(
        f"target {target}: the role of the connection may not {act} {MARKS} in schema {quote(target.schema)}, the ledger that "
        "keeps an append from landing twice",
        hint=f"GRANT {grant} TO the role, or write with `ledger: off` (see docs/postgres.md)",
        code=Code.PZ0741,
    )


def _exists(connection: psycopg.Connection[Any], target: Name) -> bool:
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [_ledger(target)]).fetchone()
    return bool(row and row[0])


def lock_output(connection: psycopg.Connection[Any], target: Name) -> None:
    """Hold the output until the transaction ends: writers take turns, and whoever holds it knows that nobody writes.

    Waits as long as the connection waits for locks; also for a write whose client has gone.
    """
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"pz:output:{target}"])


def place(connection: psycopg.Connection[Any], target: Name, slice_: Slice, attempt: WriteAttempt) -> int | None:
    """Insert the slice's row; the row count of the one that has landed already, None when this is the first."""
    identity = [slice_.project, str(target), slice_.mark, attempt.run, attempt.ordinal]
    placed = connection.execute(PLACE.format(ledger=_ledger(target)), identity).rowcount
    if placed:
        return None
    landed = has_landed(connection, target, slice_, attempt.run, attempt.ordinal)
    return landed if landed is not None else 0


def has_landed(connection: psycopg.Connection[Any], target: Name, slice_: Slice, run: str, ordinal: int) -> int | None:
    """Rows of the slice, or of the attempt, if its row is there; None if not."""
    if not _exists(connection, target):
        return None
    row = connection.execute(
        LANDED.format(ledger=_ledger(target)),
        {
            "project": slice_.project,
            "output": str(target),
            "slice": slice_.mark,
            "run": run,
            "ordinal": ordinal,
        },
    ).fetchone()
    return None if row is None else int(row[0] or 0)


def count_rows(connection: psycopg.Connection[Any], target: Name, slice_: Slice, rows: int) -> None:
    """Complete the slice's row once the count is known; still the same transaction."""
    connection.execute(COUNT.format(ledger=_ledger(target)), [rows, slice_.project, str(target), slice_.mark])
