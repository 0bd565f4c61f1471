"""The partition ledger: rows in the main table and the ledger's account of them never disagree."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from pz.connectors.contract import Bound, PermanentError
from pz.durable import Step
from pz.errors import Code, EngineError, NodeError
from pz.staging.completion import NodeFacts, complete_node
from pz.staging.grouping import Grouping, complete_group
from pz.staging.meta import Ledger, NodeRead, NodeWindow, PartitionDone
from pz.staging.part_writer import PartWriter
from pz.staging.partition_ledger import (
    Arrival,
    PartitionLedger,
    PlanChanged,
    part_table,
    pin_window,
)
from pz.staging.session import StagingSession

NODE = "0123456789abcdef"
OTHER = "fedcba9876543210"
TABLE = "src_shop__orders"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[StagingSession]:
    with StagingSession.create(tmp_path, memory_limit_bytes=300_000_000) as opened:
        yield opened


@pytest.fixture
def cursor(session: StagingSession) -> Iterator[duckdb.DuckDBPyConnection]:
    with session.cursor() as opened:
        yield opened


@pytest.fixture
def ledger() -> PartitionLedger:
    return PartitionLedger(NODE, TABLE)


def rows(start: int, count: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(start, start + count), pa.int64()), "text": pa.array(["x"] * count, pa.string())}
    )


def land(cursor: duckdb.DuckDBPyConnection, partition_id: str, start: int, count: int) -> Arrival:
    writer = PartWriter(cursor, NODE, partition_id)
    writer.append(rows(start, count))
    return writer.arrival()


def pin(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger, *ids: str) -> int:
    pinning = ledger.pinning(cursor)
    pinning.add((partition_id, None) for partition_id in ids)
    return pinning.close()


def held(cursor: duckdb.DuckDBPyConnection, table: str = TABLE) -> list[int]:
    return [row[0] for row in cursor.execute(f'SELECT id FROM staging."{table}" ORDER BY id').fetchall()]


def tables(cursor: duckdb.DuckDBPyConnection) -> set[str]:
    found = cursor.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'staging'").fetchall()
    return {row[0] for row in found}


def test_a_completed_partition_moves_its_rows_drops_its_table_and_is_recorded(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    pin(cursor, ledger, "a", "b")
    ledger.complete(cursor, [land(cursor, "a", 0, 3)])
    ledger.complete(cursor, [land(cursor, "b", 3, 2)])
    assert held(cursor) == [0, 1, 2, 3, 4]
    assert tables(cursor) == {TABLE}
    assert Ledger(cursor).partitions_done(NODE) == (PartitionDone(NODE, "a", 3), PartitionDone(NODE, "b", 2))


def test_bounds_apply_while_rows_move_so_that_ledger_and_table_agree(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    pin(cursor, ledger, "a", "b", "c")
    done = ledger.complete(
        cursor,
        [
            land(cursor, "a", 0, 10),
            Arrival("b", batch=rows(100, 5)),
            Arrival("c", source="(SELECT 7::BIGINT AS id, 'y' AS text)"),
        ],
        where="id > 6 AND id <= 101",
    )
    assert [(entry.rows, entry.trimmed) for entry in done] == [(3, 7), (2, 3), (1, None)]
    assert held(cursor) == [7, 7, 8, 9, 100, 101]
    assert ledger.finish(cursor).rows == 6


def test_a_partition_completes_with_its_group_or_not_at_all(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    arrivals = [Arrival("a", batch=rows(0, 1)), Arrival("b", source="(SELECT error('no')::BIGINT AS id, 'x' AS text)")]
    with pytest.raises(duckdb.Error):
        ledger.complete(cursor, arrivals)
    assert held(cursor) == []
    assert Ledger(cursor).partitions_done(NODE) == ()


def test_no_partition_is_recorded_twice(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 1))])
    with pytest.raises(duckdb.ConstraintException):
        ledger.complete(cursor, [Arrival("a", batch=rows(0, 1))])
    assert held(cursor) == [0]


def test_the_first_partition_becomes_the_main_table_without_a_copy(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    arrival = land(cursor, "a", 0, 3)
    (name,) = arrival.tables or ()
    before = cursor.execute("SELECT table_oid FROM duckdb_tables() WHERE table_name = ?", [name]).fetchall()
    ledger.complete(cursor, [arrival])
    after = cursor.execute("SELECT table_oid FROM duckdb_tables() WHERE table_name = ?", [TABLE]).fetchall()
    assert (before, held(cursor)) == (after, [0, 1, 2])


def test_a_partition_of_other_columns_is_an_engine_fault(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 1))])
    with pytest.raises(NodeError, match="differ") as failed:
        complete_group(ledger, cursor, [Arrival("secret", source="(SELECT 1::INTEGER AS id, 'x' AS text)")])
    assert "secret" not in str(failed.value)


def test_columns_are_matched_by_name(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 1))])
    ledger.complete(cursor, [Arrival("b", source="(SELECT 'y' AS text, 9::BIGINT AS id)")])
    assert cursor.execute(f"SELECT * FROM staging.{TABLE} ORDER BY id").fetchall() == [(0, "x"), (9, "y")]


def test_partitions_complete_from_several_threads(session: StagingSession, ledger: PartitionLedger) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with session.cursor() as own:
                for part in range(10):
                    start = (number * 10 + part) * 5
                    ledger.complete(own, [land(own, f"{number}/{part}", start, 5)])
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with session.cursor() as cursor:
        assert held(cursor) == list(range(300))
        assert tables(cursor) == {TABLE}
        done = Ledger(cursor).partitions_done(NODE)
        assert {entry.partition_id for entry in done} == {f"{n}/{p}" for n in range(6) for p in range(10)}


def test_a_load_is_done_only_when_its_closed_plan_is_done(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    pinning = ledger.pinning(cursor)
    pinning.add([("a", None), ("b", None)])
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 2))])
    ledger.complete(cursor, [Arrival("b", batch=rows(2, 2))])
    assert not ledger.is_complete(cursor)
    with pytest.raises(EngineError):
        ledger.finish(cursor)
    assert pinning.close() == 2
    done = ledger.finish(cursor, NodeFacts(candidate="3", candidate_type="bigint"))
    assert done == Ledger(cursor).node_done(NODE)
    assert (done.rows, done.candidate) == (4, "3")
    assert [column.name for column in done.columns] == ["id", "text"]
    assert ledger.finish(cursor) == Ledger(cursor).node_done(NODE)


def test_a_load_whose_table_disagrees_with_its_ledger_is_not_done(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    pin(cursor, ledger, "a")
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 2))])
    cursor.execute(f"DELETE FROM staging.{TABLE} WHERE id = 0")
    with pytest.raises(EngineError):
        ledger.finish(cursor)
    assert Ledger(cursor).node_done(NODE) is None


def test_a_load_without_rows_is_done_with_an_empty_table(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    pin(cursor, ledger, "a")
    ledger.complete(cursor, [PartWriter(cursor, NODE, "a").arrival()])
    ledger.create_main(cursor, "(SELECT 1 AS id)")
    assert ledger.finish(cursor).row_counts == (0,)


def test_every_table_of_a_node_is_recorded(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    pin(cursor, ledger, "a")
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 2))])
    cursor.execute(f"CREATE TABLE staging.{TABLE}__deletes AS SELECT 5 AS id")
    done = ledger.finish(cursor, side_tables=[f"{TABLE}__deletes"])
    assert (done.tables, done.row_counts) == ((TABLE, f"{TABLE}__deletes"), (2, 1))


def test_rows_and_record_of_any_node_commit_together(session: StagingSession) -> None:
    with session.cursor() as cursor:
        with session.transaction(cursor, Step.MATERIALIZE) as tx:
            tx.execute("CREATE TABLE staging.clean AS SELECT 1 AS a UNION ALL SELECT 2")
            done = complete_node(tx, NODE, ["clean"])
        assert Ledger(cursor).node_done(NODE) == done
        assert done.row_counts == (2,)


# ---- pinning


@pytest.mark.parametrize("ids", [["a", ""], ["a", "a"]])
def test_missing_and_repeated_ids_are_refused_without_showing_them(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger, ids: list[str]
) -> None:
    with pytest.raises(PermanentError) as refused:
        pin(cursor, ledger, *(f"secret{name}" if name else "" for name in ids))
    assert refused.value.code is Code.PZ0319
    assert "secret" not in str(refused.value)
    pinning = PartitionLedger(OTHER, "t").pinning(cursor)
    pinning.add([("late", None)])
    with pytest.raises(PermanentError):
        pinning.add([("late", None)])


def test_a_second_enumeration_keeps_the_places_of_the_first(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    unfinished = ledger.pinning(cursor)
    unfinished.add([("a", "spec a"), ("b", None)])
    assert Ledger(cursor).plan_total(NODE) is None
    assert pin(cursor, ledger, "c", "b", "a") == 3
    plan = Ledger(cursor).plan(NODE)
    assert [(entry.partition_id, entry.spec) for entry in plan] == [("a", "spec a"), ("b", None), ("c", None)]
    assert Ledger(cursor).plan_total(NODE) == 3


def test_a_partition_that_did_not_come_again_leaves_the_plan_unless_it_is_done(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    ledger.pinning(cursor).add([("gone", None), ("done", None)])
    assert pin(cursor, ledger, "done", "new") == 2
    assert [entry.partition_id for entry in Ledger(cursor).plan(NODE)] == ["done", "new"]
    ledger.complete(cursor, [Arrival("done", batch=rows(0, 2))])
    with pytest.raises(PlanChanged):
        pin(cursor, ledger, "new")
    ledger.reset(cursor)
    assert pin(cursor, ledger, "new") == 1
    assert (ledger.start(cursor).done, tables(cursor)) == (frozenset(), set())


def test_many_partitions_are_pinned_in_order(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    names = [f"p{n}" for n in range(3000)]
    pinning = ledger.pinning(cursor)
    for start in range(0, 3000, 1000):
        pinning.add((name, None) for name in names[start : start + 1000])
    assert pinning.close() == 3000
    assert [entry.partition_id for entry in Ledger(cursor).plan(NODE)] == names


def test_a_window_is_pinned_once_and_holds(cursor: duckdb.DuckDBPyConnection) -> None:
    first = NodeWindow.of(NODE, None, Bound("9", True), "id", "bigint")
    assert pin_window(cursor, first) == first
    assert pin_window(cursor, NodeWindow.of(NODE, None, Bound("12", True), "id", "bigint")) == first


# ---- attempts and checkpoints


def test_a_failed_attempt_leaves_the_prefix_in_the_part_table_and_the_main_table_alone(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    assert ledger.start(cursor).done == frozenset()
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 2))])
    writer = PartWriter(cursor, NODE, "b")
    for start in (10, 12, 14):
        writer.append(rows(start, 2))
        if start < 14:
            writer.save(f"after {start}")
    assert held(cursor) == [0, 1]
    assert held(cursor, part_table(NODE, "b")) == [10, 11, 12, 13, 14, 15]
    assert ledger.start(cursor).done == {"a"}
    resumed = PartWriter(cursor, NODE, "b")
    assert held(cursor, part_table(NODE, "b")) == [10, 11, 12, 13]
    assert resumed.checkpoint is not None
    assert (resumed.checkpoint.token, resumed.rows) == ("after 12", 4)
    resumed.append(rows(14, 2))
    ledger.complete(cursor, [resumed.arrival()])
    assert held(cursor) == [0, 1, 10, 11, 12, 13, 14, 15]
    assert Ledger(cursor).checkpoints(NODE) == ()
    assert tables(cursor) == {TABLE}


def test_clean_up_keeps_checkpointed_part_tables_and_leaves_other_nodes_alone(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    ledger.start(cursor)
    kept = PartWriter(cursor, NODE, "kept")
    kept.append(rows(0, 1))
    kept.save("t")
    kept.append(rows(1, 1))
    cursor.execute(f"CREATE TABLE staging.{part_table(NODE, 'unclaimed')} AS SELECT 1 AS id")
    for name in (part_table(OTHER, "x"), "model"):
        cursor.execute(f"CREATE TABLE staging.{name} AS SELECT 1 AS id")
    ledger.start(cursor)
    assert tables(cursor) == {part_table(NODE, "kept"), part_table(OTHER, "x"), "model"}


@pytest.mark.parametrize("damage", ["DELETE FROM staging.{part} WHERE id = 0", "DROP TABLE staging.{part}"])
def test_a_token_whose_prefix_is_not_whole_is_not_trusted(cursor: duckdb.DuckDBPyConnection, damage: str) -> None:
    writer = PartWriter(cursor, NODE, "a")
    writer.append(rows(0, 2))
    writer.save("t")
    cursor.execute(damage.format(part=part_table(NODE, "a")))
    again = PartWriter(cursor, NODE, "a")
    assert (again.checkpoint, again.rows) == (None, 0)
    assert tables(cursor) == set()
    assert Ledger(cursor).checkpoints(NODE) == ()


def test_what_lies_behind_a_token_is_cut_off_each_time_the_partition_is_continued(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    """Also where batches are larger than a row group, and the file was checkpointed in between."""
    sizes, at, covered = (150_000, 3, 40_000, 7), 0, 0
    for attempt, size in enumerate(sizes):
        writer = PartWriter(cursor, NODE, "a")
        assert writer.rows == covered
        writer.append(rows(covered, size))
        covered += size
        writer.save(f"after {covered}")
        for at in (0, 1):  # rows that no token covers, with numbers of their own
            writer.append(rows(-(attempt + 1) * 200_000 - at, 130_000 if attempt % 2 else 2))
        cursor.execute("CHECKPOINT run")
    resumed = PartWriter(cursor, NODE, "a")
    assert (resumed.rows, resumed.checkpoint and resumed.checkpoint.token) == (covered, f"after {covered}")
    ledger.complete(cursor, [resumed.arrival()])
    assert held(cursor) == list(range(covered))


def test_a_checkpoint_costs_the_same_however_many_rows_it_covers(cursor: duckdb.DuckDBPyConnection) -> None:
    writer = PartWriter(cursor, NODE, "a")
    for page in range(3):
        writer.append(rows(page, 1))
        writer.save(str(page))
    assert tables(cursor) == {part_table(NODE, "a")}
    assert [(point.token, point.row_count) for point in Ledger(cursor).checkpoints(NODE)] == [("2", 3)]


def test_a_token_may_cover_no_rows(cursor: duckdb.DuckDBPyConnection) -> None:
    PartWriter(cursor, NODE, "a").save("first page was empty")
    again = PartWriter(cursor, NODE, "a")
    assert again.checkpoint is not None
    assert again.checkpoint.token == "first page was empty"
    assert again.arrival().tables == ()
    again.append(rows(0, 2))
    later = PartWriter(cursor, NODE, "a")
    assert (later.rows, later.arrival().tables) == (0, ())


def test_a_refused_token_starts_the_partition_over(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    writer = PartWriter(cursor, NODE, "a")
    writer.append(rows(0, 2))
    writer.save("t")
    again = PartWriter(cursor, NODE, "a")
    again.restart()
    again.append(rows(5, 1))
    ledger.complete(cursor, [again.arrival()])
    assert held(cursor) == [5]


def test_a_projection_casts_batches_as_they_land(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    writer = PartWriter(cursor, NODE, "a", projection="id::DECIMAL(9,2) AS id, text")
    writer.append(rows(1, 1).to_batches()[0])
    ledger.complete(cursor, [writer.arrival()])
    assert [column.type for column in (ledger.columns or ())] == ["DECIMAL(9,2)", "VARCHAR"]


def test_the_only_partition_of_a_feed_is_never_skipped(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    pin(cursor, ledger, "feed")
    ledger.complete(cursor, [Arrival("feed", batch=rows(0, 2))])
    assert ledger.start(cursor, discard_done=True) == PartitionLedger(NODE, TABLE).start(cursor)
    assert tables(cursor) == set()
    assert Ledger(cursor).plan_total(NODE) == 1


def test_what_was_read_in_another_way_is_not_kept(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    ledger.start(cursor)
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 2))])
    narrower = PartitionLedger(NODE, TABLE, NodeRead(NODE, ("id",), "id > 1", "[]"))
    assert narrower.start(cursor).done == frozenset()
    assert tables(cursor) == set()
    assert Ledger(cursor).node_read(NODE) == narrower.read


def test_an_attempt_starts_over_when_table_and_ledger_disagree(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 2))])
    assert ledger.start(cursor).done == frozenset()
    ledger.complete(cursor, [Arrival("a", batch=rows(0, 2))])
    assert PartitionLedger(NODE, TABLE).start(cursor).rows == 2
    cursor.execute(f"INSERT INTO staging.{TABLE} VALUES (9, 'stray')")
    again = PartitionLedger(NODE, TABLE)
    assert (again.start(cursor).done, tables(cursor)) == (frozenset(), set())


# ---- groups


def test_a_group_isolates_the_partition_that_fails(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    arrivals = [Arrival(f"p{n}", batch=rows(n, 1)) for n in range(9)]
    arrivals[4] = Arrival("p4", source="(SELECT error('no')::BIGINT AS id, 'x' AS text)")
    outcome = complete_group(ledger, cursor, arrivals)
    assert {done.partition_id for done in outcome.completed} == {f"p{n}" for n in range(9) if n != 4}
    assert [failed.partition_id for failed in outcome.failed] == ["p4"]
    assert held(cursor) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_batches_of_a_group_are_counted_singly(cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger) -> None:
    reordered = pa.table({"text": ["y"], "id": pa.array([50], pa.int64())})
    arrivals = [Arrival("a", batch=rows(0, 4)), Arrival("b", batch=rows(4, 0)), Arrival("c", batch=rows(10, 3))]
    outcome = complete_group(ledger, cursor, [*arrivals, Arrival("d", batch=reordered)], where="id >= 2 AND id <> 11")
    found = {done.partition_id: (done.rows, done.trimmed) for done in outcome.completed}
    assert found == {"a": (2, 2), "b": (0, 0), "c": (2, 1), "d": (1, 0)}
    assert held(cursor) == [2, 3, 10, 12, 50]
    assert {entry.partition_id: entry.row_count for entry in Ledger(cursor).partitions_done(NODE)} == {
        name: count for name, (count, _) in found.items()
    }


def test_a_group_completes_when_it_is_full_and_at_the_end(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    grouping = Grouping(ledger, cursor, max_partitions=4, max_size=100)
    outcomes = [grouping.add(Arrival(f"p{n}", batch=rows(n, 1)), 1) for n in range(6)]
    assert [len(outcome.completed) for outcome in outcomes] == [0, 0, 0, 4, 0, 0]
    assert len(grouping.add(Arrival("big", batch=rows(6, 100)), 100).completed) == 3
    assert grouping.flush().completed == ()
    assert held(cursor) == list(range(106))


def test_rows_that_become_the_main_table_are_verified_like_any(
    cursor: duckdb.DuckDBPyConnection, ledger: PartitionLedger
) -> None:
    """The first partition's table is renamed instead of copied; what it was read from may have changed all the same."""

    def changed() -> None:
        raise PermanentError("it changed while it was read")

    pin(cursor, ledger, "a")
    arrival = land(cursor, "a", 0, 3)
    with pytest.raises(PermanentError, match="changed while it was read"):
        ledger.complete(cursor, [arrival], before_commit=changed)
    assert Ledger(cursor).finished(NODE) == frozenset()
    assert ledger.columns is None
    ledger.complete(cursor, [arrival], before_commit=lambda: None)
    assert held(cursor) == [0, 1, 2]
