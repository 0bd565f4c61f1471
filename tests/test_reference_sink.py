"""What the reference sink promises: a transaction with a mark or visible rows with acknowledgements, and scripted faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pz.connectors.contract import (
    CheckpointingSession,
    ConnectionSpec,
    DeleteApplyingSession,
    OnDelete,
    OutcomeUnknown,
    OutputSpec,
    PartialUpdateSession,
    PermanentError,
    RetainingSession,
    SchemaPolicy,
    Settlement,
    Slice,
    WriteAttempt,
    WriteStrategy,
)
from pz.connectors.deletes import LIMIT
from pz.testing.oracle import assert_equal, assert_equal_alive
from pz.testing.reference import Reference, ReferenceApi
from pz.testing.reference_sink import ReferenceSink, StreamingSession
from pz.testing.script import Fault
from pz.testing.server import Server

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def batch(*rows: tuple[int | None, str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": a, "v": b} for a, b in rows], schema=SCHEMA)


def table(*rows: tuple[int, str | None]) -> list[dict[str, Any]]:
    return [{"id": a, "v": b} for a, b in rows]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "far")


def sink(server: Server, **options: Any) -> ReferenceSink:
    return Reference().open_sink(ConnectionSpec("ref", {"path": str(server.path), **options}, server.path))


def output(strategy: str = "append", *, ordinal: int = 1, prior: Any = (), **more: Any) -> OutputSpec:
    more.setdefault("keys", ("id",) if strategy == "merge" else ())
    more.setdefault("options", {})
    attempt = WriteAttempt("a" * 16, "run-1", ordinal, "run-1", prior)
    mark = Slice("shop", "run-1", "a" * 16, "f1")
    return OutputSpec("ref", "out", WriteStrategy(strategy), attempt=attempt, slice=mark, **more)


def write(server: Server, spec: OutputSpec, *batches: pa.RecordBatch) -> int:
    session = sink(server).begin_write(spec, SCHEMA)
    for part in batches:
        session.write_batch(part)
    rows = session.commit().rows
    session.close()
    return rows


def fresh(spec: OutputSpec, fingerprint: str) -> OutputSpec:
    from dataclasses import replace

    return replace(spec, slice=Slice("shop", "run-1", "a" * 16, fingerprint))


def test_nothing_is_visible_before_commit_and_everything_after(server: Server) -> None:
    session = sink(server).begin_write(output(), SCHEMA)
    session.write_batch(batch((1, "a")))
    assert server.target("out").num_rows == 0
    session.commit()
    assert_equal(server.target("out"), table((1, "a")))


def test_a_slice_lands_once_however_often_it_is_sent(server: Server) -> None:
    assert write(server, output(), batch((1, "a"))) == 1
    assert write(server, output(ordinal=2), batch((1, "a"))) == 1
    assert_equal(server.target("out"), table((1, "a")))


def test_a_merge_keeps_one_survivor_per_key_and_a_replace_the_last_rows_only(server: Server) -> None:
    write(server, output("merge"), batch((1, "a"), (1, "c"), (1, "b"), (2, None)))
    assert_equal(server.target("out"), table((1, "c"), (2, None)))
    write(server, fresh(output("replace"), "f2"), batch((3, "x")))
    assert_equal(server.target("out"), table((3, "x")))
    write(server, fresh(output("merge"), "f3"), batch((3, "y")))
    assert_equal(server.target("out"), table((3, "y")))


def test_a_null_merge_key_fails_the_commit_and_changes_nothing(server: Server) -> None:
    with pytest.raises(PermanentError, match="NULL"):
        write(server, output("merge"), batch((1, "a"), (None, "b")))
    assert server.target("out").num_rows == 0
    assert server.slices() == []


@pytest.mark.parametrize("policy", [OnDelete.DELETE, OnDelete.SOFT])
def test_deletes_come_after_the_upserts_of_their_transaction(server: Server, policy: OnDelete) -> None:
    session = sink(server).begin_write(output("merge", on_delete=policy), SCHEMA)
    assert isinstance(session, DeleteApplyingSession)
    session.write_batch(batch((1, "a"), (2, "b")))
    session.apply_deletes(pa.RecordBatch.from_pydict({"id": [2]}))
    session.commit()
    assert_equal_alive(server.target("out"), table((1, "a")))
    assert server.target("out").num_rows == (1 if policy is OnDelete.DELETE else 2)
    write(server, fresh(output("merge", on_delete=policy), "f2"), batch((2, "back")))
    assert_equal_alive(server.target("out"), table((1, "a"), (2, "back")))


@pytest.mark.parametrize("policy", [OnDelete.DELETE, OnDelete.SOFT])
def test_what_is_not_among_the_keys_to_retain_goes(server: Server, policy: OnDelete) -> None:
    write(server, output("merge", on_delete=policy), batch((1, "a"), (2, "b"), (3, "c")))
    told = replace(output("merge", on_delete=policy), options={LIMIT: 1})
    session = sink(server).begin_write(fresh(told, "f2"), SCHEMA)
    assert isinstance(session, RetainingSession)
    session.write_batch(batch((4, "d")))
    for keys in ([], [4], [1, 9]):
        session.retain_only(pa.record_batch({"id": pa.array(keys, pa.int64())}))
    assert_equal_alive(server.target("out"), table((1, "a"), (2, "b"), (3, "c")))
    session.commit()
    assert_equal_alive(server.target("out"), table((1, "a"), (4, "d")))
    assert server.target("out").num_rows == (2 if policy is OnDelete.DELETE else 4)


def test_a_partial_update_leaves_the_named_columns_alone(server: Server) -> None:
    write(server, output("merge"), batch((1, "kept")))
    session = sink(server).begin_write(fresh(output("merge"), "f2"), SCHEMA)
    assert isinstance(session, PartialUpdateSession)
    session.apply_partial(batch((1, None)), ["v"])
    session.commit()
    assert_equal(server.target("out"), table((1, "kept")))


@pytest.mark.parametrize(
    ("moment", "truth", "rows"), [("before", Settlement.NOT_COMMITTED, 0), ("after", Settlement.COMMITTED, 1)]
)
def test_the_mark_tells_what_became_of_a_commit_without_an_answer(
    server: Server, moment: str, truth: Settlement, rows: int
) -> None:
    server.script.add(Fault("commit", "unknown", moment=moment))
    with pytest.raises(OutcomeUnknown):
        write(server, output(), batch((1, "a")))
    assert server.target("out").num_rows == rows
    assert sink(server).settle(output(), "run-1", 1) is truth
    assert sink(server, settle="unavailable").settle(output(), "run-1", 1) is Settlement.UNKNOWN


def test_a_commit_that_arrives_after_its_retry_changes_nothing(server: Server) -> None:
    server.script.add(Fault("commit", "late"))
    with pytest.raises(OutcomeUnknown):
        write(server, output(), batch((1, "a")))
    write(server, output(ordinal=2), batch((1, "a")))
    assert server.deliver_late() == 1
    assert_equal(server.target("out"), table((1, "a")))


def test_new_columns_need_a_policy_that_allows_them(server: Server) -> None:
    write(server, output(), batch((1, "a")))
    wide = SCHEMA.append(pa.field("w", pa.int32()))
    session = sink(server).begin_write(fresh(output(), "f2"), wide)
    with pytest.raises(PermanentError, match="no column w"):
        session.commit()
    allowed = fresh(output(schema_policy=SchemaPolicy.ADDITIVE), "f3")
    sink(server).begin_write(allowed, wide).commit()
    assert server.target("out").schema.names == ["id", "v", "w"]


def test_commit_and_abort_exclude_each_other(server: Server) -> None:
    session = sink(server).begin_write(output(), SCHEMA)
    session.commit()
    with pytest.raises(RuntimeError, match="defect"):
        session.abort()


def streaming(server: Server, spec: OutputSpec, **options: Any) -> StreamingSession:
    connection = ConnectionSpec("api", {"path": str(server.path), **options}, server.path)
    session = ReferenceApi().open_sink(connection).begin_write(spec, SCHEMA)
    assert isinstance(session, StreamingSession)
    assert isinstance(session, CheckpointingSession)
    return session


def test_a_streaming_session_acknowledges_what_is_visible_and_resumes_behind_it(server: Server) -> None:
    first = streaming(server, output())
    first.write_batch(batch((1, "a"), (2, "b")))
    assert first.acknowledged_rows() == 2
    assert first.acknowledged_rows() is None
    first.abort()
    second = streaming(server, output())
    assert second.try_resume(2)
    second.write_batch(batch((3, "c")))
    assert second.acknowledged_rows() == 3
    assert second.commit().rows == 3
    assert_equal(server.target("out"), table((1, "a"), (2, "b"), (3, "c")))


def test_a_lagging_destination_confirms_one_batch_late(server: Server) -> None:
    session = streaming(server, output(options={"acknowledge": "lagging"}))
    session.write_batch(batch((1, "a")))
    assert session.acknowledged_rows() == 0
    session.write_batch(batch((2, "b")))
    assert session.acknowledged_rows() == 1


def test_the_acknowledged_prefix_ends_before_the_first_refused_item(server: Server) -> None:
    server.refuse("out", "v", "bad")
    session = streaming(server, output(options={"on_refusal": "continue"}))
    with pytest.raises(PermanentError, match="refused 1 row"):
        session.write_batch(batch((1, "a"), (2, "bad"), (3, "c")))
    assert session.acknowledged_rows() == 1
    assert_equal(server.target("out"), table((1, "a"), (3, "c")))


@pytest.mark.parametrize(("abort", "left"), [("none", 3), ("best_effort", 1)])
def test_an_abort_leaves_what_its_semantics_say(server: Server, abort: str, left: int) -> None:
    session = streaming(server, output(), abort=abort)
    session.write_batch(batch((1, "a"), (2, "b"), (3, "c")))
    session.close()
    assert server.target("out").num_rows == left


def test_a_streaming_replace_empties_the_target_first(server: Server) -> None:
    write(server, output(), batch((1, "old")))
    session = streaming(server, output("replace"))
    session.write_batch(batch((2, "new")))
    session.commit()
    assert_equal(server.target("out"), table((2, "new")))


def test_every_arrow_type_that_duckdb_gives_comes_back_as_it_went(server: Server) -> None:
    import duckdb

    query = """
        SELECT 1::TINYINT a, 2::UBIGINT b, 'NaN'::FLOAT c, '-0.0'::DOUBLE d, 12.345::DECIMAL(18,3) e, 'x'::BLOB f,
               DATE '2020-02-29' g, TIMESTAMP '2020-01-01 00:00:00.000001' h, TIMESTAMPTZ '2020-01-01 00:00:00+02' i,
               TIME '23:59:59.999999' j, INTERVAL '1 month 2 days' k, [1, NULL, 3] l, {'a': 1, 'b': 'z'} m,
               MAP {'k': 1} n, TRUE o, NULL::VARCHAR p, '12345678-1234-1234-1234-123456789012'::UUID q
    """
    with duckdb.connect() as connection:
        sent = connection.sql(query).to_arrow_table()
    session = sink(server).begin_write(output(), sent.schema)
    for part in sent.to_batches():
        session.write_batch(part)
    session.commit()
    assert_equal(server.target("out"), sent)
