"""What the reference source promises: whole reads in stable parts, bounds as scripted, tokens, change rows, faults."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pz.connectors.contract import (
    BatchOptions,
    Bound,
    CancelToken,
    ConnectionSpec,
    DatasetSpec,
    IdentifiedPartition,
    Partition,
    ReadHints,
    ReadShape,
    SnapshotPartition,
)
from pz.errors import Cancelled, PermanentError, TransientError
from pz.testing.oracle import assert_equal
from pz.testing.reference import Reference, ReferenceApi, ReferencePlain
from pz.testing.reference_source import (
    ChangePartition,
    DatabaseSource,
    FeedPartition,
    FeedSource,
    ReferenceSource,
    StablePartition,
)
from pz.testing.script import Fault, UnexpectedFault
from pz.testing.server import Server
from pz.testing.values import arrow_schema, duck_types

COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "at": "TIMESTAMP", "price": "DECIMAL(9,2)"}
ROWS = [
    {"id": n, "name": f"n{n}", "at": f"2024-01-{n + 1:02d}T00:00:00", "price": "1.50" if n % 2 else None}
    for n in range(9)
]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    found = Server(tmp_path / "far")
    found.create("orders", COLUMNS, keys=["id"], native=3)
    found.insert("orders", [{**row, "price": None} for row in ROWS])
    return found


def spec(**options: object) -> DatasetSpec:
    return DatasetSpec("ref", "orders", options)


def source(server: Server, connector: ReferencePlain | None = None) -> ReferenceSource:
    return (connector or Reference()).open_source(ConnectionSpec("ref", {"path": server.path.name}, server.path.parent))


def read(partitions: object, token: CancelToken | None = None) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for partition in partitions:  # type: ignore[attr-defined]
        for batch in partition.read(BatchOptions(), token or CancelToken()):
            rows += batch.to_pylist()
    return rows


@pytest.mark.parametrize("options", [{}, {"partitions": 4, "batch_rows": 2}, {"partition_rows": 2, "lazy": True}])
def test_the_partitions_of_a_plan_are_one_full_read(server: Server, options: dict[str, object]) -> None:
    partitions = list(source(server).plan_read(spec(**options), ReadHints()))
    assert_equal(read(partitions), server.table("orders"))
    ids = [p.partition_id for p in partitions if isinstance(p, IdentifiedPartition)]
    assert len(set(ids)) == len(partitions)


def test_batches_carry_exactly_the_declared_schema(server: Server) -> None:
    reader = source(server)
    (partition,) = reader.plan_read(spec(), ReadHints())
    batches = list(partition.read(BatchOptions(), CancelToken()))
    assert {batch.schema for batch in batches} == {reader.schema(spec())}


def test_a_partition_resumes_strictly_behind_its_token(server: Server) -> None:
    options = {"batch_rows": 2, "checkpoints": True}
    (first,) = source(server).plan_read(spec(**options), ReadHints())
    (second,) = source(server).plan_read(spec(**options), ReadHints())
    assert isinstance(first, StablePartition)
    assert isinstance(second, StablePartition)
    stream = first.read(BatchOptions(), CancelToken())
    seen = next(stream).to_pylist() + next(stream).to_pylist()
    token = first.try_get_checkpoint()
    assert token is not None
    assert second.try_resume(token)
    assert_equal(seen + read([second]), server.table("orders"))


def test_a_partition_is_rebuilt_from_its_spec(server: Server) -> None:
    planned = list(source(server).plan_read(spec(partitions=3), ReadHints()))
    assert all(isinstance(p, StablePartition) for p in planned)
    again = source(server)
    assert isinstance(again, DatabaseSource)
    rebuilt = [again.restore_partition(spec(partitions=3), ReadHints(), p.spec) for p in planned]  # type: ignore[attr-defined]
    assert_equal(read(rebuilt[1:2]), read(planned[1:2]))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("honour", {3, 4, 5}), ("partial", {0, 1, 2, 3, 4, 5}), ("ignore", set(range(9)))],
)
def test_bounds_are_honoured_ignored_or_over_read_as_scripted(server: Server, mode: str, expected: set[int]) -> None:
    bounded = DatasetSpec(
        "ref",
        "orders",
        {"bounds": mode},
        cursor="at",
        cursor_type="timestamp",
        lower=Bound("2024-01-03T00:00:00.000000", inclusive=False),
        upper=Bound("2024-01-06T00:00:00.000000", inclusive=True),
    )
    assert {row["id"] for row in read(source(server).plan_read(bounded, ReadHints()))} == expected


def test_the_probe_counts_null_cursors_and_knows_the_highest_value(server: Server) -> None:
    server.insert("orders", [{"id": 100}])
    answer = source(server).probe(DatasetSpec("ref", "orders", {}, cursor="at"))
    assert (answer.upper, answer.null_cursors, answer.rows) == ("2024-01-09T00:00:00.000000", 1, 10)


def test_a_native_fragment_reads_what_the_partition_reads(server: Server) -> None:
    import duckdb

    partitions = list(source(server).plan_read(spec(partitions=3, native="partition"), ReadHints()))
    with duckdb.connect() as connection:
        for partition in partitions:
            assert isinstance(partition, StablePartition)
            scan = partition.native_scan()
            assert scan is not None
            native = connection.sql(f"SELECT * FROM {scan.relation}").to_arrow_table()
            assert_equal(native, read([partition]))


def test_a_feed_gives_what_changed_since_its_token(server: Server) -> None:
    reader = source(server, ReferenceApi())
    assert isinstance(reader, FeedSource)
    assert reader.natural_read_shape(spec(feed=True)) is ReadShape.FEED
    (first,) = reader.plan_read(spec(feed=True), ReadHints())
    assert isinstance(first, FeedPartition)
    assert_equal(read([first]), server.table("orders"))
    token = first.try_get_sync_state()
    server.mutate("orders", insert=[{"id": 50}], update=[{"id": 3, "name": "new"}])
    again = DatasetSpec("ref", "orders", {"feed": True}, prior_sync_state=token)
    (second,) = reader.plan_read(again, ReadHints())
    assert {row["id"] for row in read([second])} == {50, 3}


def test_an_expired_token_is_a_permanent_error_that_names_the_way_out(server: Server) -> None:
    server.expire_tokens("orders")
    stale = DatasetSpec("ref", "orders", {"feed": True}, prior_sync_state="pztok~orders~1")
    (partition,) = source(server, ReferenceApi()).plan_read(stale, ReadHints())
    with pytest.raises(PermanentError, match="--full-refresh"):
        read([partition])


def test_change_capture_gives_a_snapshot_and_then_the_log(server: Server) -> None:
    capture = DatasetSpec("ref", "orders", {}, change_capture=True)
    (snapshot,) = source(server).plan_read(capture, ReadHints())
    assert isinstance(snapshot, ChangePartition)
    rows = read([snapshot])
    assert {row["_pz_op"] for row in rows} == {"insert"}
    assert snapshot.key_columns() == ("id",)
    assert isinstance(snapshot, SnapshotPartition)
    assert (snapshot.is_snapshot(), snapshot.position()) == (True, str(server.head()))
    token = snapshot.try_get_sync_state()
    server.mutate("orders", update=[{"id": 1, "name": "x"}], delete=[{"id": 2}])
    polled = DatasetSpec("ref", "orders", {}, change_capture=True, prior_sync_state=token)
    (poll,) = source(server).plan_read(polled, ReadHints())
    assert [(row["_pz_op"], row["id"], row["name"]) for row in read([poll])] == [
        ("update", 1, "x"),
        ("delete", 2, None),
    ]
    assert isinstance(poll, SnapshotPartition)
    assert not poll.is_snapshot()


def test_an_idle_poll_offers_no_new_token(server: Server) -> None:
    idle = DatasetSpec("ref", "orders", {}, change_capture=True, prior_sync_state=f"pztok~orders~{server.head()}")
    (poll,) = source(server).plan_read(idle, ReadHints())
    assert isinstance(poll, ChangePartition)
    assert read([poll]) == []
    assert poll.try_get_sync_state() is None


def test_a_fault_fires_at_its_nth_call_of_its_partition_and_only_there(server: Server) -> None:
    server.script.add(Fault("batch", "transient", partition="1", nth=2, retry_after=7.0))
    partitions = list(source(server).plan_read(spec(partitions=2, batch_rows=2), ReadHints()))
    read(partitions[:1])
    with pytest.raises(TransientError) as raised:
        read(partitions[1:])
    assert raised.value.retry_after == 7.0
    assert len(read(partitions[1:])) == 4
    assert server.script.reads("orders") == {"0": 1, "1": 2}


def test_an_unexpected_exception_is_none_that_the_contract_names(server: Server) -> None:
    server.script.add(Fault("plan_read", "unexpected"))
    with pytest.raises(UnexpectedFault):
        source(server).plan_read(spec(), ReadHints())


def test_a_hanging_call_ends_when_it_is_cancelled(server: Server) -> None:
    server.script.add(Fault("batch", "hang"))
    token = CancelToken()
    token.cancel()
    (partition,) = source(server).plan_read(spec(), ReadHints())
    with pytest.raises(Cancelled):
        read([partition], token)


def test_columns_added_and_retyped_at_the_source_are_seen_by_the_next_read(server: Server) -> None:
    server.alter("orders", {"id": "VARCHAR", "name": "VARCHAR", "extra": "DATE"})
    assert source(server).schema(spec()).types == [pa.string(), pa.string(), pa.date32()]
    assert {row["id"] for row in read(source(server).plan_read(spec(), ReadHints()))} == {str(n) for n in range(9)}


def test_the_plain_connector_has_one_anonymous_partition(server: Server) -> None:
    partitions: list[Partition] = list(source(server, ReferencePlain()).plan_read(spec(partitions=5), ReadHints()))
    assert len(partitions) == 1
    assert not isinstance(partitions[0], IdentifiedPartition)


def test_type_names_known_by_heart_are_those_that_duckdb_prints() -> None:
    kinds = {
        name: name
        for name in ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "DECIMAL(9,2)")
    }
    kinds["TIMESTAMP WITH TIME ZONE"] = "TIMESTAMP WITH TIME ZONE"
    assert dict(duck_types(arrow_schema(kinds))) == kinds
    nested = {"a": "INTEGER[]", "b": "STRUCT(x INTEGER)"}
    assert dict(duck_types(arrow_schema(nested))) == nested
