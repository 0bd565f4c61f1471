"""The accounting schema: what is written comes back, and what must not be written is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from pz.connectors.contract import Bound, Column
from pz.durable import Step
from pz.errors import EngineError
from pz.staging import meta
from pz.staging.meta import (
    AcceptedRow,
    AttemptState,
    Checkpoint,
    Delivery,
    Entry,
    Ledger,
    NodeDone,
    NodeWindow,
    PartitionDone,
    PlanClosed,
    PlannedPartition,
    SinkAttempt,
)
from pz.staging.session import StagingSession
from pz.staging.transaction import Transaction, transaction

NODE = "0123456789abcdef"
DONE = NodeDone(
    NODE,
    ("src_a__b", "src_a__b__deletes"),
    (3, 1),
    (Column("id", "INTEGER"), Column('odd "name"', "DECIMAL(18,3)[]")),
    pushed_columns=("id",),
    predicate="id > 3",
    candidate="2026-01-01T00:00:00.000000",
    candidate_type="timestamp",
    token="t" * 5000,
    details='{"a": 1}',
)


@pytest.fixture
def cursor(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with StagingSession.create(tmp_path, memory_limit_bytes=10**8) as session, session.cursor() as opened:
        yield opened


def write(cursor: duckdb.DuckDBPyConnection, *entries: Entry) -> None:
    with transaction(cursor, Step.STAGE_ROWS) as tx:
        meta.record(tx, *entries)


def test_every_record_comes_back_as_it_was_written(cursor: duckdb.DuckDBPyConnection) -> None:
    window = NodeWindow.of(NODE, Bound("1", False), None, "id", "bigint")
    plan = tuple(PlannedPartition(NODE, f"p{n}", n, None if n else "spec") for n in range(3))
    write(
        cursor,
        *plan,
        PlanClosed(NODE, 3),
        PartitionDone(NODE, "p1", 10),
        PartitionDone(NODE, "p0", 7),
        Checkpoint(NODE, "p2", "tok'en", 4),
        window,
        DONE,
        SinkAttempt(NODE, "r1", 1, AttemptState.UNKNOWN),
        SinkAttempt(NODE, "r2", 1, AttemptState.BEGUN, "mark"),
        Delivery(NODE, 2, 5, "123"),
        AcceptedRow(NODE, 4),
        AcceptedRow(NODE, 4),
    )
    ledger = Ledger(cursor)
    assert ledger.plan(NODE) == plan
    assert ledger.plan_total(NODE) == 3
    assert ledger.partitions_done(NODE) == (PartitionDone(NODE, "p1", 10), PartitionDone(NODE, "p0", 7))
    assert ledger.checkpoints(NODE) == (Checkpoint(NODE, "p2", "tok'en", 4),)
    assert ledger.window(NODE) == window
    assert (window.lower_bound, window.upper_bound) == (Bound("1", False), None)
    assert ledger.node_done(NODE) == DONE
    assert ledger.nodes_done() == (DONE,)
    assert DONE.rows == 3
    assert [(a.run_id, a.state, a.marker) for a in ledger.attempts(NODE)] == [
        ("r1", AttemptState.UNKNOWN, None),
        ("r2", AttemptState.BEGUN, "mark"),
    ]
    assert ledger.attempts() == ledger.attempts(NODE)
    assert ledger.delivery(NODE) == Delivery(NODE, 2, 5, "123")
    assert ledger.accepted_rows(NODE) == {4}


def test_what_was_not_recorded_is_absent(cursor: duckdb.DuckDBPyConnection) -> None:
    ledger = Ledger(cursor)
    assert [ledger.plan(NODE), ledger.partitions_done(NODE), ledger.checkpoints(NODE), ledger.attempts()] == [()] * 4
    assert [ledger.plan_total(NODE), ledger.window(NODE), ledger.node_done(NODE), ledger.delivery(NODE)] == [None] * 4
    assert ledger.accepted_rows(NODE) == frozenset()


def test_a_checkpoint_a_delivery_and_a_finished_node_replace_their_predecessor(
    cursor: duckdb.DuckDBPyConnection,
) -> None:
    for rows in (1, 2):
        write(
            cursor,
            Checkpoint(NODE, "p", f"t{rows}", rows),
            Delivery(NODE, rows, 5, "h"),
            NodeDone(NODE, ("t",), (rows,), ()),
        )
    ledger = Ledger(cursor)
    assert ledger.checkpoints(NODE) == (Checkpoint(NODE, "p", "t2", 2),)
    assert ledger.delivery(NODE) == Delivery(NODE, 2, 5, "h")
    assert ledger.node_done(NODE) == NodeDone(NODE, ("t",), (2,), ())


@pytest.mark.parametrize(
    "entry",
    [
        PlannedPartition(NODE, "p", 0),
        PlanClosed(NODE, 1),
        PartitionDone(NODE, "p", 1),
        NodeWindow.of(NODE, None, None, "id", None),
        SinkAttempt(NODE, "r", 1, AttemptState.BEGUN),
    ],
)
def test_what_happens_once_is_recorded_once(cursor: duckdb.DuckDBPyConnection, entry: Entry) -> None:
    write(cursor, entry)
    with pytest.raises(duckdb.ConstraintException):
        write(cursor, entry)


@pytest.mark.parametrize(
    "entry",
    [
        PlannedPartition(NODE, "", 0),
        PlannedPartition(NODE, "p", -1),
        PlanClosed(NODE, -1),
        PartitionDone(NODE, "p", -1),
        Checkpoint(NODE, "p", "t", -1),
        NodeDone(NODE, (), (), ()),
        NodeDone(NODE, ("t",), (1, 2), ()),
        SinkAttempt(NODE, "r", 0, AttemptState.BEGUN),
        Delivery(NODE, 6, 5, "h"),
        Delivery(NODE, -1, 5, "h"),
        AcceptedRow(NODE, -1),
    ],
)
def test_an_impossible_record_is_refused_by_the_database(cursor: duckdb.DuckDBPyConnection, entry: Entry) -> None:
    with pytest.raises(duckdb.ConstraintException):
        write(cursor, entry)


def test_an_attempt_changes_only_from_a_state_that_allows_it(cursor: duckdb.DuckDBPyConnection) -> None:
    write(cursor, SinkAttempt(NODE, "r", 1, AttemptState.BEGUN))
    with transaction(cursor, Step.RECORD_ATTEMPT) as tx:
        meta.move_attempt(tx, NODE, "r", 1, AttemptState.COMMITTED, allowed=[AttemptState.BEGUN])
    with pytest.raises(EngineError), transaction(cursor, Step.RECORD_ATTEMPT) as tx:
        meta.move_attempt(tx, NODE, "r", 1, AttemptState.ABORTED, allowed=[AttemptState.BEGUN])
    assert Ledger(cursor).attempts(NODE)[0].state is AttemptState.COMMITTED


def test_erasing_takes_the_named_partitions_only(cursor: duckdb.DuckDBPyConnection) -> None:
    write(cursor, *(Checkpoint(NODE, f"p{n}", "t", n) for n in range(4)), Checkpoint("other", "p0", "t", 1))
    with transaction(cursor, Step.COMPLETE_PARTITION) as tx:
        assert meta.erase(tx, Checkpoint, NODE, partition_ids=["p0", "p2"]) == 2
    assert [c.partition_id for c in Ledger(cursor).checkpoints(NODE)] == ["p1", "p3"]
    with transaction(cursor, Step.COMPLETE_PARTITION) as tx:
        assert meta.erase(tx, Checkpoint, NODE) == 2
    assert len(Ledger(cursor).checkpoints("other")) == 1


def test_writing_needs_an_open_transaction(cursor: duckdb.DuckDBPyConnection) -> None:
    ended = Transaction(cursor)
    ended.close()
    with pytest.raises(RuntimeError):
        meta.record(ended, PlanClosed(NODE, 1))


def test_every_table_and_column_explains_itself(cursor: duckdb.DuckDBPyConnection) -> None:
    tables = cursor.execute("SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'pz_meta'").fetchall()
    columns = cursor.execute(
        "SELECT table_name || '.' || column_name, comment FROM duckdb_columns() WHERE schema_name = 'pz_meta'"
    ).fetchall()
    assert len(tables) == 11
    assert [name for name, comment in (*tables, *columns) if not comment] == []


def test_records_and_tables_have_the_same_columns(cursor: duckdb.DuckDBPyConnection) -> None:
    for kind in Entry.__subclasses__():
        rows = cursor.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = 'pz_meta' AND table_name = ?",
            [kind.table],
        ).fetchall()
        numbered = {"seq": "BIGINT"} if kind.numbered else {}
        assert dict(rows) == {**kind.types, **numbered}


def test_a_token_is_not_shown_when_a_record_is_printed() -> None:
    assert "secret" not in repr(Checkpoint(NODE, "secret", "secret", 1))
    assert "secret" not in repr(NodeDone(NODE, ("t",), (1,), (), token="secret"))


def test_only_meta_writes_the_accounting_schema() -> None:
    writes = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM|DROP TABLE|ALTER TABLE)\s+(run\.)?pz_meta\b", re.IGNORECASE)
    source = Path(meta.__file__).parents[1]
    assert [p.name for p in source.rglob("*.py") if writes.search(p.read_text())] == ["meta.py"]
