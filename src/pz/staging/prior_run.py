"""Taking over what an earlier run of the chain has already staged and recorded.

The earlier run's file is attached read-only under an alias of the node's own (two nodes may reuse at once), checked,
copied in one transaction together with the records, and always detached. Whatever is wrong with it is a `NotReused` with a
reason fit for printing, never an error: the load is then read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pz.durable import Step
from pz.errors import StateError
from pz.frozen import frozen
from pz.sqltext import literal, qualified, quote
from pz.staging import meta
from pz.staging.completion import SCHEMA, count_rows, table_exists
from pz.staging.meta import (
    AcceptedRow,
    Checkpoint,
    Ledger,
    NodeDone,
    NodeRead,
    NodeWindow,
    PartitionDone,
    PlannedPartition,
)
from pz.staging.part_writer import prefix
from pz.staging.partition_ledger import PartitionLedger, node_key, part_table
from pz.staging.redaction import redact
from pz.staging.session import STAGING_FILE, StagingSession, check_file, opening_failure
from pz.staging.transaction import Transaction, transaction

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "Asked",
    "NotReused",
    "PriorLoad",
    "Reused",
    "ReusedPartitions",
    "can_reuse",
    "copy_deliveries",
    "read_load",
    "reuse_node",
    "reuse_partitions",
]

T = TypeVar("T")


@frozen
class Asked:
    """What a load needs of a dataset now: these columns (None: all) and the rows of this filter (None: all)."""

    columns: tuple[str, ...] | None = None
    predicate: str | None = None


@frozen
class Reused:
    """A whole node was copied; ``done`` is its record in this run, candidate and token included."""

    done: NodeDone


@frozen
class ReusedPartitions:
    """Some partitions were copied: ``done`` whole ones of ``rows`` rows, and ``resumable`` ones up to their checkpoint."""

    done: int
    resumable: int
    rows: int


@frozen
class NotReused:
    """Nothing was copied. ``reason`` is what the note says; None: there was nothing to reuse, which needs no note."""

    reason: str | None


@frozen
class PriorLoad:
    """What an earlier run has pinned of a load: a retry inherits it. ``total`` is None while its plan was open."""

    window: NodeWindow | None
    read: NodeRead | None
    plan: tuple[PlannedPartition, ...]
    total: int | None
    done: NodeDone | None

    def __repr__(self) -> str:
        return f"PriorLoad(partitions={len(self.plan)}, total={self.total})"


class _Unusable(Exception):
    """Why the earlier run's staging cannot be used; None needs no note."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


def read_load(session: StagingSession, prior_dir: Path, node_id: str) -> PriorLoad | NotReused:
    """What an earlier run has pinned of a load."""

    def read(cursor: DuckDBPyConnection, alias: str) -> PriorLoad:
        prior = Ledger(cursor, alias)
        return PriorLoad(
            prior.window(node_id),
            prior.node_read(node_id),
            prior.plan(node_id),
            prior.plan_total(node_id),
            prior.node_done(node_id),
        )

    return _with_prior(session, prior_dir, node_id, read)


def reuse_node(
    session: StagingSession, prior_dir: Path, node_id: str, asked: Asked | None = None
) -> Reused | NotReused:
    """Copy a finished node with all of its tables and its record, or nothing.

    A source load that need not be read again, or the input relation of an output whose delivery is to be continued. Refused
    unless every recorded table is there with its recorded count and, for a load, covers what is ``asked``.
    """

    def copy(cursor: DuckDBPyConnection, alias: str) -> Reused:
        done = _finished(cursor, alias, node_id, asked or Asked())
        window = Ledger(cursor, alias).window(node_id)
        with transaction(cursor, Step.REUSE_LOAD) as tx:
            for table, rows in zip(done.tables, done.row_counts, strict=True):
                _copy_table(tx, alias, table, rows)
            meta.record(tx, done)
            if window is not None and Ledger(cursor).window(node_id) is None:
                meta.record(tx, window)
        return Reused(done)

    return _with_prior(session, prior_dir, node_id, copy)


def can_reuse(session: StagingSession, prior_dir: Path, node_id: str, asked: Asked) -> bool:
    """Whether `reuse_node` would find all that it needs; nothing is copied."""
    found = _with_prior(session, prior_dir, node_id, lambda cursor, alias: _finished(cursor, alias, node_id, asked))
    return isinstance(found, NodeDone)


def reuse_partitions(
    session: StagingSession,
    prior_dir: Path,
    ledger: PartitionLedger,
    *,
    planned: Iterable[str],
    window: NodeWindow | None,
    checkpoints: bool,
) -> ReusedPartitions | NotReused:
    """Copy the finished partitions of an unfinished load and, if ``checkpoints``, the prefixes that a token covers.

    ``planned`` are the ids of this run's plan, ``window`` this run's slice. Refused when the earlier run read another slice
    or was narrowed otherwise, when its main table does not hold what its ledger accounts for, or when it finished a partition
    that is not planned now. A prefix that its token does not cover exactly is left out.
    """
    wanted = frozenset(planned)

    def copy(cursor: DuckDBPyConnection, alias: str) -> ReusedPartitions:
        (done, rows), points = _partial(cursor, alias, ledger, wanted, window)
        points = points if checkpoints else ()
        if not done and not points:
            raise _Unusable(None)
        with transaction(cursor, Step.REUSE_PARTITIONS) as tx:
            if done:
                _copy_done(tx, alias, ledger, rows)
            _copy_points(tx, alias, ledger, points)
        return ReusedPartitions(done, len(points), rows + sum(point.row_count for point in points))

    return _with_prior(session, prior_dir, ledger.node_id, copy)


def copy_deliveries(session: StagingSession, prior_dir: Path, node_ids: Sequence[str]) -> int | NotReused:
    """Copy the attempts and delivery ledgers of outputs into this run, before dispatch; return how many attempts.

    What this run has recorded of an output already is left alone. A `NotReused` with a reason means that attempts in doubt
    may be unknown to this run: the caller must not deliver an append as if it were the first.
    """

    def copy(cursor: DuckDBPyConnection, alias: str) -> int:
        prior, own = Ledger(cursor, alias), Ledger(cursor)
        fresh = [node_id for node_id in node_ids if not own.attempts(node_id) and own.delivery(node_id) is None]
        attempts = [attempt for attempt in prior.attempts() if attempt.node_id in fresh]
        with transaction(cursor, Step.RECORD_ATTEMPT) as tx:
            meta.record(tx, *attempts)
            for node_id in fresh:
                delivery = prior.delivery(node_id)
                if delivery is not None:
                    meta.record(
                        tx, delivery, *(AcceptedRow(node_id, at) for at in sorted(prior.accepted_rows(node_id)))
                    )
        session.flush_folder()
        return len(attempts)

    return _with_prior(session, prior_dir, "deliveries", copy)


# ---- attaching


def _with_prior(
    session: StagingSession, prior_dir: Path, node_id: str, work: Callable[[DuckDBPyConnection, str], T]
) -> T | NotReused:
    import duckdb

    try:
        with session.cursor() as cursor, _attached(cursor, prior_dir, node_id) as alias:
            return work(cursor, alias)
    except duckdb.InterruptException:
        raise  # a cancelled run is no fault of the earlier one
    except _Unusable as unusable:
        return NotReused(unusable.reason)
    except StateError as refused:
        return NotReused(refused.problems[0].message)
    except (duckdb.Error, OSError) as failure:
        reason = redact(failure).splitlines()
        return NotReused(
            f"the staging of run {prior_dir.name} cannot be used: {reason[0] if reason else 'no reason given'}"
        )


@contextmanager
def _attached(cursor: DuckDBPyConnection, prior_dir: Path, node_id: str) -> Iterator[str]:
    import duckdb

    path = prior_dir / STAGING_FILE
    alias = f"pz_prior_{node_key(node_id)}"
    if not path.is_file():
        raise _Unusable(f"the staging of run {prior_dir.name} is gone")
    check_file(path)
    try:
        cursor.execute(f"ATTACH {literal(str(path))} AS {quote(alias)} (TYPE duckdb, READ_ONLY)")
    except duckdb.InterruptException:
        raise
    except duckdb.Error as failure:
        raise opening_failure(path, failure) from failure
    try:
        meta.check_owner(cursor, alias, prior_dir.name)
        yield alias
    finally:
        with suppress(duckdb.Error):  # a failed detach must not hide what went wrong before it
            cursor.execute(f"DETACH {quote(alias)}")


# ---- checking and copying


def _finished(cursor: DuckDBPyConnection, alias: str, node_id: str, asked: Asked) -> NodeDone:
    done = Ledger(cursor, alias).node_done(node_id)
    if done is None:
        raise _Unusable(None)
    if done.predicate is not None and done.predicate != asked.predicate:
        raise _Unusable("the earlier run staged other rows of the dataset")
    held = {column.name for column in done.columns}
    if (asked.columns is None and done.pushed_columns is not None) or not set(asked.columns or ()) <= held:
        raise _Unusable("the earlier run staged fewer columns of the dataset")
    for table, rows in zip(done.tables, done.row_counts, strict=True):
        if not table_exists(cursor, table, alias):
            raise _Unusable(f"the earlier run's table {table} is missing")
        if count_rows(cursor, qualified(alias, SCHEMA, table)) != rows:
            raise _Unusable(f"the earlier run's table {table} does not hold the rows that were recorded")
    return done


def _partial(
    cursor: DuckDBPyConnection, alias: str, ledger: PartitionLedger, planned: frozenset[str], window: NodeWindow | None
) -> tuple[tuple[int, int], tuple[Checkpoint, ...]]:
    """The count of finished partitions with their rows, and the checkpoints that can be continued."""
    prior = Ledger(cursor, alias)
    done, rows = prior.accounted(ledger.node_id)
    points = prior.checkpoints(ledger.node_id)
    if not done and not points:
        raise _Unusable(None)
    if not _same_slice(prior.window(ledger.node_id), window):
        raise _Unusable("the earlier run read another slice")
    if prior.node_read(ledger.node_id) != ledger.read:
        raise _Unusable("the earlier run read the dataset in another way")
    held = count_rows(cursor, _in(alias, ledger.table)) if table_exists(cursor, ledger.table, alias) else 0
    if held != rows:
        raise _Unusable("the earlier run's rows and its ledger disagree")
    if not prior.finished(ledger.node_id) <= planned:
        raise _Unusable("the source has other partitions now")
    whole = tuple(
        point
        for point in points
        if point.partition_id in planned and _prefix_is_whole(cursor, alias, ledger.node_id, point)
    )
    return (done, rows), whole


def _same_slice(prior: NodeWindow | None, now: NodeWindow | None) -> bool:
    if prior is None or now is None:
        return prior is now
    ends = (prior.lower_bound, prior.upper_bound, prior.cursor)
    return ends == (now.lower_bound, now.upper_bound, now.cursor)


def _prefix_is_whole(cursor: DuckDBPyConnection, alias: str, node_id: str, point: Checkpoint) -> bool:
    part = part_table(node_id, point.partition_id)
    if not table_exists(cursor, part, alias):
        return point.row_count == 0
    return count_rows(cursor, prefix(_in(alias, part), point.row_count)) == point.row_count


def _copy_done(tx: Transaction, alias: str, ledger: PartitionLedger, rows: int) -> None:
    ledger.forget_columns()
    if table_exists(tx.cursor, ledger.table, alias):
        _copy_table(tx, alias, ledger.table, rows)
    meta.copy_records(tx, PartitionDone, alias, ledger.node_id)


def _copy_points(tx: Transaction, alias: str, ledger: PartitionLedger, points: Sequence[Checkpoint]) -> None:
    for point in points:
        if point.row_count:
            _copy_table(tx, alias, part_table(ledger.node_id, point.partition_id), point.row_count, first=True)
    meta.record(tx, *points)
    if Ledger(tx.cursor).node_read(ledger.node_id) is None:
        meta.record(tx, ledger.read)


def _copy_table(tx: Transaction, alias: str, table: str, rows: int, *, first: bool = False) -> None:
    """Copy a table, or its ``first`` rows, and count them again: what arrives must be what was recorded."""
    own, prior = qualified(SCHEMA, table), _in(alias, table)
    tx.execute(f"CREATE OR REPLACE TABLE {own} AS SELECT * FROM {prefix(prior, rows) if first else prior}")
    if count_rows(tx.cursor, own) != rows:
        raise _Unusable(f"the copy of {table} does not hold the rows that were recorded")


def _in(alias: str, table: str) -> str:
    return qualified(alias, SCHEMA, table)
