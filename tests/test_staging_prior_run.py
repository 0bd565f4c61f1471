"""Reuse of an earlier run's staging: all that was recorded and verified, or nothing and a reason."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from pz.connectors.contract import Bound
from pz.durable import Step
from pz.staging import meta
from pz.staging.completion import NodeFacts, complete_node
from pz.staging.delivery_ledger import DeliveryLedger
from pz.staging.fingerprint import Fingerprint
from pz.staging.meta import AttemptState, Ledger, NodeDone, NodeRead, NodeWindow, SinkAttempt
from pz.staging.part_writer import PartWriter
from pz.staging.partition_ledger import Arrival, PartitionLedger, part_table, pin_window
from pz.staging.prior_run import (
    Asked,
    NotReused,
    PriorLoad,
    Reused,
    ReusedPartitions,
    copy_deliveries,
    read_load,
    reuse_node,
    reuse_partitions,
)
from pz.staging.session import StagingSession

NODE = "0123456789abcdef"
TABLE = "src_shop__orders"
FACTS = NodeFacts(candidate="9", candidate_type="bigint", token="secret", details="{}")


def run_at(parent: Path, name: str) -> StagingSession:
    path = parent / name
    path.mkdir()
    return StagingSession.create(path, memory_limit_bytes=200_000_000)


@pytest.fixture
def prior(tmp_path: Path) -> Path:
    return tmp_path / "run1"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[StagingSession]:
    with run_at(tmp_path, "run2") as opened:
        yield opened


def rows(start: int, count: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(start, start + count), pa.int64()), "text": pa.array(["x"] * count, pa.string())}
    )


def prepare(prior: Path, work: Callable[[StagingSession, duckdb.DuckDBPyConnection], None]) -> None:
    with run_at(prior.parent, prior.name) as made, made.cursor() as cursor:
        work(made, cursor)


def finished(made: StagingSession, cursor: duckdb.DuckDBPyConnection) -> None:
    """A finished load with a side table and a window."""
    pin_window(cursor, NodeWindow.of(NODE, None, Bound("9", True), "id", "bigint"))
    with made.transaction(cursor, Step.COMPLETE_LOAD) as tx:
        tx.execute(f"CREATE TABLE staging.{TABLE} AS SELECT range AS id, 'x' AS text FROM range(10)")
        tx.execute(f"CREATE TABLE staging.{TABLE}__deletes AS SELECT 99 AS id")
        complete_node(tx, NODE, [TABLE, f"{TABLE}__deletes"], FACTS)


def alter(prior: Path, *statements: str) -> None:
    with duckdb.connect() as direct:
        direct.execute(f"ATTACH '{prior}/staging.duckdb' AS run; USE run")
        for statement in statements:
            direct.execute(statement)


def content(session: StagingSession, table: str) -> list[tuple[object, ...]]:
    with session.cursor() as cursor:
        return cursor.execute(f'SELECT * FROM staging."{table}" ORDER BY ALL').fetchall()


def assert_untouched(session: StagingSession) -> None:
    """Nothing was copied, nothing recorded, and nothing stayed attached."""
    with session.cursor() as cursor:
        assert cursor.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'staging'").fetchall() == []
        assert Ledger(cursor).nodes_done() == ()
        assert Ledger(cursor).partitions_done(NODE) == ()
    assert_detached(session)


def assert_detached(session: StagingSession) -> None:
    with session.cursor() as cursor:
        names = cursor.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal").fetchall()
        assert {name for (name,) in names} == {"memory", "run"}


def test_a_finished_load_is_reused_with_every_table_and_all_that_is_known_of_it(
    session: StagingSession, prior: Path
) -> None:
    prepare(prior, finished)
    outcome = reuse_node(session, prior, NODE)
    assert isinstance(outcome, Reused)
    with session.cursor() as cursor:
        done = Ledger(cursor).node_done(NODE)
        window = Ledger(cursor).window(NODE)
    assert done == outcome.done
    assert (done.candidate, done.token, done.row_counts) == ("9", "secret", (10, 1))
    assert window == NodeWindow.of(NODE, None, Bound("9", True), "id", "bigint")
    assert content(session, TABLE) == [(n, "x") for n in range(10)]
    assert content(session, f"{TABLE}__deletes") == [(99,)]
    assert_detached(session)


def test_the_file_of_a_killed_run_is_read_with_its_log(session: StagingSession, prior: Path) -> None:
    made = run_at(prior.parent, prior.name)
    with made.cursor() as cursor:
        finished(made, cursor)
    log = (prior / "staging.duckdb.wal").read_bytes()
    whole = (prior / "staging.duckdb").read_bytes()
    made.close()
    (prior / "staging.duckdb").write_bytes(whole)
    (prior / "staging.duckdb.wal").write_bytes(log)
    assert isinstance(reuse_node(session, prior, NODE), Reused)
    assert len(content(session, TABLE)) == 10


def test_several_nodes_reuse_one_file_at_the_same_time(session: StagingSession, prior: Path) -> None:
    nodes = [f"{number:016x}" for number in range(6)]

    def fill(made: StagingSession, cursor: duckdb.DuckDBPyConnection) -> None:
        for node in nodes:
            with made.transaction(cursor, Step.COMPLETE_LOAD) as tx:
                tx.execute(f"CREATE TABLE staging.t{node} AS SELECT * FROM range(1000)")
                complete_node(tx, node, [f"t{node}"])

    prepare(prior, fill)
    outcomes: list[Reused | NotReused] = []
    threads = [
        threading.Thread(target=lambda node=node: outcomes.append(reuse_node(session, prior, node))) for node in nodes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(outcome) for outcome in outcomes] == [Reused] * 6
    assert all(len(content(session, f"t{node}")) == 1000 for node in nodes)
    assert_detached(session)


@pytest.mark.parametrize(
    "damage",
    [
        f"DROP TABLE staging.{TABLE}",
        f"DROP TABLE staging.{TABLE}__deletes",
        f"DELETE FROM staging.{TABLE} WHERE id = 3",
        f"INSERT INTO staging.{TABLE}__deletes VALUES (1)",
    ],
)
def test_all_tables_of_a_node_are_reused_or_none(session: StagingSession, prior: Path, damage: str) -> None:
    prepare(prior, finished)
    alter(prior, damage)
    outcome = reuse_node(session, prior, NODE)
    assert isinstance(outcome, NotReused)
    assert TABLE in str(outcome.reason)
    assert_untouched(session)


def test_a_load_that_did_not_finish_is_no_cause_for_a_note(session: StagingSession, prior: Path) -> None:
    prepare(prior, lambda made, cursor: None)
    assert reuse_node(session, prior, NODE) == NotReused(None)


@pytest.mark.parametrize(
    ("staged", "asked", "reused"),
    [
        (NodeFacts(), Asked(), True),
        (NodeFacts(), Asked(("id",), "id > 1"), True),
        (NodeFacts(pushed_columns=("id", "text")), Asked(("id",)), True),
        (NodeFacts(pushed_columns=("id", "text")), Asked(), False),
        (NodeFacts(), Asked(("id", "more")), False),
        (NodeFacts(predicate="id > 1"), Asked(None, "id > 1"), True),
        (NodeFacts(predicate="id > 1"), Asked(), False),
        (NodeFacts(predicate="id > 1"), Asked(None, "id > 2"), False),
    ],
)
def test_what_was_staged_must_cover_what_is_asked(
    session: StagingSession, prior: Path, staged: NodeFacts, asked: Asked, reused: bool
) -> None:
    def stage(made: StagingSession, cursor: duckdb.DuckDBPyConnection) -> None:
        with made.transaction(cursor, Step.COMPLETE_LOAD) as tx:
            tx.execute("CREATE TABLE staging.t AS SELECT 1 AS id, 'x' AS text")
            complete_node(tx, NODE, ["t"], staged)

    prepare(prior, stage)
    assert isinstance(reuse_node(session, prior, NODE, asked), Reused) is reused
    if not reused:
        assert_untouched(session)


@pytest.mark.parametrize("fault", ["absent", "empty", "foreign", "cut", "another run's", "newer", "open"])
def test_an_unusable_file_is_a_reason_and_never_an_error(session: StagingSession, prior: Path, fault: str) -> None:
    prepare(prior, finished)
    path = prior / "staging.duckdb"
    whole = path.read_bytes()
    if fault == "absent":
        path.unlink()
    elif fault in {"empty", "foreign", "cut"}:
        path.write_bytes({"empty": b"", "foreign": b"id,text\n" * 1000, "cut": whole[:5000]}[fault])
    elif fault == "another run's":
        alter(prior, "UPDATE pz_meta.meta SET run_id = 'other'")
    elif fault == "newer":
        alter(prior, "UPDATE pz_meta.meta SET version = 99")
    holder = duckdb.connect()
    if fault == "open":
        holder.execute(f"ATTACH '{path}' AS held")
    for outcome in (
        reuse_node(session, prior, NODE),
        read_load(session, prior, NODE),
        copy_deliveries(session, prior, [NODE]),
        reuse_partitions(session, prior, PartitionLedger(NODE, TABLE), planned=[], window=None, checkpoints=True),
    ):
        assert isinstance(outcome, NotReused)
        assert outcome.reason
        assert "\n" not in outcome.reason
    holder.close()
    assert_untouched(session)


def test_a_file_with_a_flipped_bit_gives_right_rows_or_none(session: StagingSession, prior: Path) -> None:
    prepare(prior, finished)
    path = prior / "staging.duckdb"
    whole = bytearray(path.read_bytes())
    expected = [(n, "x") for n in range(10)]
    for at in range(0, len(whole), len(whole) // 48):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        path.write_bytes(flipped)
        if isinstance(reuse_node(session, prior, NODE), Reused):
            assert content(session, TABLE) == expected
    assert_detached(session)


# ---- partitions


WINDOW = NodeWindow.of(NODE, Bound("0", False), Bound("99", True), "id", "bigint")


def partial(made: StagingSession, cursor: duckdb.DuckDBPyConnection) -> None:
    """Partitions a and b are done, c has a checkpoint, d was not read."""
    pin_window(cursor, WINDOW)
    ledger = PartitionLedger(NODE, TABLE)
    ledger.start(cursor)
    pinning = ledger.pinning(cursor)
    pinning.add((name, f"spec {name}") for name in "abcd")
    pinning.close()
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 3)), Arrival("b", batch=rows(3, 2))])
    writer = PartWriter(cursor, NODE, "c")
    writer.append(rows(5, 2))
    writer.save("after 6")
    writer.append(rows(7, 2))


def reuse(
    session: StagingSession,
    prior: Path,
    *,
    planned: str = "abcd",
    window: NodeWindow | None = WINDOW,
    checkpoints: bool = True,
    read: NodeRead | None = None,
) -> ReusedPartitions | NotReused:
    ledger = PartitionLedger(NODE, TABLE, read)
    return reuse_partitions(session, prior, ledger, planned=planned, window=window, checkpoints=checkpoints)


def test_done_partitions_and_checkpointed_prefixes_are_continued(session: StagingSession, prior: Path) -> None:
    prepare(prior, partial)
    ledger = PartitionLedger(NODE, TABLE)
    with session.cursor() as cursor:
        assert reuse(session, prior) == ReusedPartitions(2, 1, 7)
        assert ledger.start(cursor).done == {"a", "b"}
        pinning = ledger.pinning(cursor)
        pinning.add((name, None) for name in "abcd")
        pinning.close()
        writer = PartWriter(cursor, NODE, "c")
        assert writer.checkpoint is not None
        assert (writer.checkpoint.token, writer.rows) == ("after 6", 2)
        writer.append(rows(7, 2))
        ledger.complete(cursor, [writer.arrival()])
        ledger.complete(cursor, [Arrival("d", batch=rows(9, 1))])
        assert ledger.finish(cursor).rows == 10
    assert content(session, TABLE) == [(n, "x") for n in range(10)]
    assert_detached(session)


def test_without_checkpoints_only_done_partitions_are_copied(session: StagingSession, prior: Path) -> None:
    prepare(prior, partial)
    assert reuse(session, prior, checkpoints=False) == ReusedPartitions(2, 0, 5)
    with session.cursor() as cursor:
        assert Ledger(cursor).checkpoints(NODE) == ()
    assert content(session, TABLE) == [(n, "x") for n in range(5)]


def test_what_an_earlier_run_pinned_can_be_inherited(session: StagingSession, prior: Path) -> None:
    prepare(prior, partial)
    load = read_load(session, prior, NODE)
    assert isinstance(load, PriorLoad)
    assert (load.window, load.read, load.total, load.done) == (WINDOW, NodeRead(NODE), 4, None)
    assert [(entry.partition_id, entry.spec) for entry in load.plan] == [(name, f"spec {name}") for name in "abcd"]


@pytest.mark.parametrize(
    "window",
    [
        None,
        NodeWindow.of(NODE, Bound("0", False), Bound("100", True), "id", "bigint"),
        NodeWindow.of(NODE, Bound("0", False), Bound("99", False), "id", "bigint"),
        NodeWindow.of(NODE, Bound("1", False), Bound("99", True), "id", "bigint"),
        NodeWindow.of(NODE, Bound("0", False), None, "id", "bigint"),
        NodeWindow.of(NODE, Bound("0", False), Bound("99", True), "other", "bigint"),
    ],
)
def test_partitions_of_another_slice_are_not_reused(
    session: StagingSession, prior: Path, window: NodeWindow | None
) -> None:
    prepare(prior, partial)
    assert reuse(session, prior, window=window) == NotReused("the earlier run read another slice")
    assert_untouched(session)


def test_windowed_and_unwindowed_reads_are_different_slices(session: StagingSession, prior: Path) -> None:
    prepare(prior, partial)
    alter(prior, "DELETE FROM pz_meta.node_window")
    assert reuse(session, prior) == NotReused("the earlier run read another slice")
    assert isinstance(reuse(session, prior, window=None), ReusedPartitions)


def test_a_done_partition_that_is_not_planned_now_prevents_reuse(session: StagingSession, prior: Path) -> None:
    prepare(prior, partial)
    assert reuse(session, prior, planned="acd") == NotReused("the source has other partitions now")
    assert_untouched(session)


def test_partitions_read_in_another_way_are_not_reused(session: StagingSession, prior: Path) -> None:
    prepare(prior, partial)
    outcome = reuse(session, prior, read=NodeRead(NODE, ("id",)))
    assert outcome == NotReused("the earlier run read the dataset in another way")
    assert_untouched(session)


@pytest.mark.parametrize("damage", [f"DELETE FROM staging.{TABLE} WHERE id = 1", f"DROP TABLE staging.{TABLE}"])
def test_a_table_that_disagrees_with_its_ledger_prevents_reuse(
    session: StagingSession, prior: Path, damage: str
) -> None:
    prepare(prior, partial)
    alter(prior, damage)
    assert reuse(session, prior) == NotReused("the earlier run's rows and its ledger disagree")
    assert_untouched(session)


@pytest.mark.parametrize("damage", ["DELETE FROM staging.{part} WHERE id = 5", "DROP TABLE staging.{part}"])
def test_a_torn_prefix_is_left_out_and_the_rest_reused(session: StagingSession, prior: Path, damage: str) -> None:
    prepare(prior, partial)
    alter(prior, damage.format(part=part_table(NODE, "c")))
    assert reuse(session, prior) == ReusedPartitions(2, 0, 5)


def test_a_prefix_of_a_partition_that_is_not_planned_now_is_left_out(session: StagingSession, prior: Path) -> None:
    prepare(prior, partial)
    assert reuse(session, prior, planned="abd") == ReusedPartitions(2, 0, 5)


def test_a_run_without_a_ledger_of_the_load_is_no_cause_for_a_note(session: StagingSession, prior: Path) -> None:
    prepare(prior, lambda made, cursor: None)
    assert reuse(session, prior) == NotReused(None)


# ---- deliveries and outputs


def test_attempts_and_deliveries_of_the_chain_are_known_to_the_next_run(session: StagingSession, prior: Path) -> None:
    def deliver(made: StagingSession, cursor: duckdb.DuckDBPyConnection) -> None:
        with made.transaction(cursor, Step.RECORD_ATTEMPT) as tx:
            meta.record(tx, SinkAttempt("sink", "run0", 1, AttemptState.UNKNOWN))
        ledger = DeliveryLedger("sink", "run1")
        ledger.begin_attempt(cursor, marker="m")
        ledger.begin_delivery(cursor, Fingerprint(10, "5"))
        ledger.acknowledge(cursor, 4, accepted=[7])
        DeliveryLedger("unrelated", "run1").begin_attempt(cursor)

    prepare(prior, deliver)
    assert copy_deliveries(session, prior, ["sink", "absent"]) == 2
    own = DeliveryLedger("sink", "run2")
    with session.cursor() as cursor:
        assert own.in_doubt(cursor) == (("run0", 1), ("run1", 1))
        assert own.begin_attempt(cursor) == 1
        assert own.begin_delivery(cursor, Fingerprint(10, "5")) == 4
        assert own.accepted(cursor) == {7}
        assert Ledger(cursor).attempts("unrelated") == ()
        own.acknowledge(cursor, 9)
        assert copy_deliveries(session, prior, ["sink"]) == 0
        assert own.resume_point(cursor, Fingerprint(10, "5")) == 9


def test_the_input_of_an_open_delivery_is_copied_like_a_load(session: StagingSession, prior: Path) -> None:
    def materialize(made: StagingSession, cursor: duckdb.DuckDBPyConnection) -> None:
        with made.transaction(cursor, Step.MATERIALIZE) as tx:
            tx.execute("CREATE TABLE staging.totals AS SELECT 0.1::DOUBLE + 0.2::DOUBLE AS total")
            complete_node(tx, "pipeline", ["totals"])

    prepare(prior, materialize)
    assert isinstance(reuse_node(session, prior, "pipeline"), Reused)
    assert content(session, "totals") == [(0.1 + 0.2,)]


def test_reuse_replaces_what_an_earlier_try_left(session: StagingSession, prior: Path) -> None:
    prepare(prior, finished)
    with session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE staging.{TABLE} AS SELECT 'stray' AS s")
    assert isinstance(reuse_node(session, prior, NODE), Reused)
    assert isinstance(reuse_node(session, prior, NODE), Reused)
    assert content(session, TABLE) == [(n, "x") for n in range(10)]


def test_no_reason_shows_a_token_or_a_partition_id() -> None:
    load = PriorLoad(None, None, (meta.PlannedPartition(NODE, "secret", 0, "secret"),), 1, None)
    assert "secret" not in repr(load) + repr(Arrival("secret")) + repr(NodeDone(NODE, ("t",), (1,), (), token="secret"))
