"""Messages of a real server decoded, and every type as a change: it must look like a row of the snapshot."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from postgres_server import Database
from postgres_support import as_text, dataset, read, source_of
from pz.connectors.contract import BatchOptions, CancelToken, DatasetSpec
from pz.connectors.postgres.capture import CapturePartition
from pz.connectors.postgres.pgoutput import (
    Begin,
    Change,
    Commit,
    Malformed,
    Message,
    Relation,
    Truncate,
    Unchanged,
    decode,
)
from pz.connectors.postgres.prerequisites import capture_shape
from pz.connectors.postgres.relation import resolve
from pz.connectors.postgres.texts import array_elements
from pz.connectors.postgres.window import ChangeWindow
from pz.errors import Code, PermanentError, TransientError
from test_postgres_types import CASES, DECLARED, Case, Declared, declared_table

HEADER = 4


def poll(database: Database, spec: DatasetSpec, *, options: BatchOptions | None = None) -> tuple[pa.Table, DatasetSpec]:
    """All rows of one read, and the dataset with the token for the next."""
    source = source_of(database)
    try:
        (part,) = source.plan_read(spec, None)  # type: ignore[arg-type]
        assert isinstance(part, CapturePartition)
        batches = list(part.read(options or BatchOptions(), CancelToken()))
        schema = source.schema(spec)
        assert all(batch.schema == schema for batch in batches)
        return pa.Table.from_batches(batches, schema), replace(spec, prior_sync_state=part.try_get_sync_state())
    finally:
        source.close()


def captured(database: Database, *statements: str) -> DatasetSpec:
    database.run(*statements, "CREATE PUBLICATION pz_pg FOR TABLE t")
    return dataset(change_capture=True)


# --- messages


def messages(database: Database, *statements: str) -> list[bytes]:
    """What the plugin says about statements."""
    database.run("SELECT pg_create_logical_replication_slot('raw', 'pgoutput')", *statements)
    found = database.rows(
        "SELECT data FROM pg_logical_slot_get_binary_changes('raw', NULL, NULL, "
        "'proto_version', '1', 'publication_names', 'pz_pg')"
    )
    return [bytes(row[0]) for row in found]


def test_the_messages_of_a_server_are_decoded_and_cut_ones_are_told(database: Database) -> None:
    captured(database, "CREATE TABLE t (id int PRIMARY KEY, a text, b text)")
    raw = messages(
        database,
        "INSERT INTO t VALUES (1, NULL, 'é')",
        "INSERT INTO t SELECT 2, 'x', string_agg(md5(n::text), '') FROM generate_series(1, 400) n",
        "UPDATE t SET a = 'y' WHERE id = 2",
        "UPDATE t SET id = 3 WHERE id = 1",
        "DELETE FROM t WHERE id = 3",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "UPDATE t SET a = 'z'",
        "DELETE FROM t",
        "TRUNCATE t",
    )
    found: list[Message] = [message for message in map(decode, raw) if message is not None]
    relations = [m for m in found if isinstance(m, Relation)]
    assert [(c.name, c.type_oid, c.modifier, c.key) for c in relations[0].columns] == [
        ("id", 23, -1, True),
        ("a", 25, -1, False),
        ("b", 25, -1, False),
    ]
    assert (relations[0].schema, relations[0].table, relations[0].identity) == ("public", "t", "d")
    assert relations[-1].identity == "f"
    oid = relations[0].oid
    long = found_long(found)
    assert [m for m in found if isinstance(m, Change)] == [
        Change("insert", oid, None, False, [b"1", None, "é".encode()]),
        Change("insert", oid, None, False, [b"2", b"x", long]),
        Change("update", oid, None, False, [b"2", b"y", Unchanged.VALUE]),
        Change("update", oid, [b"1", None, None], False, [b"3", None, "é".encode()]),
        Change("delete", oid, [b"3", None, None], False, None),
        Change("update", oid, [b"2", b"y", long], True, [b"2", b"z", Unchanged.VALUE]),
        Change("delete", oid, [b"2", b"z", long], True, None),
    ]
    assert [m for m in found if isinstance(m, Truncate)] == [Truncate((oid,))]
    begins, commits = [m for m in found if isinstance(m, Begin)], [m for m in found if isinstance(m, Commit)]
    assert [b.commit_lsn for b in begins] == [c.commit_lsn for c in commits]
    assert all(c.commit_lsn < c.end_lsn for c in commits)
    for message in raw:
        for cut in range(len(message)):
            if len(message) > 1000 and 100 < cut < len(message) - 100:
                continue
            with pytest.raises(Malformed):
                decode(message[:cut])
        with pytest.raises(Malformed):
            decode(message + b"\0")


def found_long(found: list[Message]) -> bytes:
    inserted = [m for m in found if isinstance(m, Change) and m.operation == "insert"][1]
    assert inserted.new is not None
    value = inserted.new[2]
    assert isinstance(value, bytes)
    assert len(value) == 400 * 32
    return value


def test_a_row_of_another_width_is_told_and_not_taken_apart_wrongly(database: Database) -> None:
    spec = captured(database, "CREATE TABLE t (id int PRIMARY KEY, a text)")
    with database.connect() as connection:
        relation, table = resolve(connection, spec), resolve(connection, spec).table
        assert table is not None
        shape = capture_shape(connection, spec, table)
    window = ChangeWindow(relation, shape, 0, 2**63)
    try:
        begin, announced, insert, *_ = messages(database, "INSERT INTO t VALUES (1, 'x')")
        for message in (begin, announced, insert):
            window.take(message)
        count, cells = (2).to_bytes(2, "big"), insert[8:]
        assert insert[6:8] == count
        with pytest.raises(TransientError, match="number of columns"):
            window.take(insert[:6] + (3).to_bytes(2, "big") + cells + b"n")
        assert window.batch().column("a").to_pylist() == ["x"]
    finally:
        window.close()


def test_an_unknown_message_is_told() -> None:
    with pytest.raises(Malformed, match="unknown kind"):
        decode(b"?123")
    assert decode(b"Owhatever") is None


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("{}", []),
        ("{1,NULL,3}", ["1", None, "3"]),
        ('{"NULL","a,b","q\\"q","back\\\\slash","",x y}', ["NULL", "a,b", 'q"q', "back\\slash", "", "x y"]),
        ('{"{1}"}', ["{1}"]),
        ('{"l\nl"}', ["l\nl"]),
    ],
)
def test_array_literals_are_taken_apart(text: str, elements: list[str | None]) -> None:
    assert array_elements(text) == elements


def test_an_array_is_taken_apart_at_the_sign_of_its_type() -> None:
    assert array_elements("{(1,1),(0,0);NULL;(2,2),(1,1)}", ";") == ["(1,1),(0,0)", None, "(2,2),(1,1)"]


@pytest.mark.parametrize("text", ["{{1},{2}}", "[0:1]={1,2}"])
def test_arrays_that_are_no_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="array"):
        array_elements(text)


# --- types


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.ddl)
def test_a_changed_row_looks_like_a_row_of_the_snapshot(database: Database, case: Case) -> None:
    spec = captured(database, *case.setup, f"CREATE TABLE t (k int PRIMARY KEY, v {case.ddl})")
    if not case.logged:
        refuse_capture(database, spec)
        return
    first, spec = poll(database, spec)
    assert first.num_rows == 0
    with database.connect() as connection:
        for k, value in enumerate([*case.values, None]):
            connection.execute(f"INSERT INTO t VALUES (%s, %s::text::{case.ddl})", [k, value])
    changes, spec = poll(database, spec)
    source = source_of(database)
    plain = read(source, dataset()).sort_by("k")
    source.close()
    assert as_text(changes.select(plain.schema.names)) == as_text(plain)
    assert changes.select(plain.schema.names).schema.equals(plain.schema)
    snapshot, _ = poll(database, replace(spec, prior_sync_state=None))
    assert as_text(snapshot.sort_by("k").select(plain.schema.names)) == as_text(plain)


def refuse_capture(database: Database, spec: DatasetSpec) -> None:
    """The probe and the read name the column, and without it the table is captured."""
    for attempt in (lambda: source_of(database).probe(spec), lambda: poll(database, spec)):
        with pytest.raises(PermanentError, match='column\\(s\\) "v"') as refused:
            attempt()
        assert refused.value.code is Code.PZ0740
        assert "`columns:`" in str(refused.value.hint)
    poll(database, replace(spec, columns={"k": "int"}))


@pytest.mark.parametrize("case", DECLARED, ids=str)
def test_every_declared_conversion_of_a_change_is_that_of_the_snapshot(database: Database, case: Declared) -> None:
    columns = declared_table(database, case, [])
    database.run("CREATE PUBLICATION pz_pg FOR TABLE t")
    spec = dataset(change_capture=True, columns=columns)
    if not case.logged:
        refuse_capture(database, spec)
        return
    _, spec = poll(database, spec)
    with database.connect() as connection:
        for k, value in enumerate([*case.values, None]):
            connection.execute(f"INSERT INTO t VALUES (%s, %s::text::{case.ddl})", [k, value])
    changes, _ = poll(database, spec)
    snapshot, _ = poll(database, replace(spec, prior_sync_state=None))
    assert as_text(changes.select(["k", "v"])) == as_text(snapshot.sort_by("k").select(["k", "v"]))
    assert changes.schema == snapshot.schema
    for value in case.refused:
        database.run("DELETE FROM t")
        _, spec = poll(database, replace(spec, prior_sync_state=None))
        with database.connect() as connection:
            connection.execute(f"INSERT INTO t VALUES (1, %s::text::{case.ddl})", [value])
        with pytest.raises(PermanentError, match="'v'") as refused:
            poll(database, spec)
        assert not value or value not in str(refused.value)


def test_zeros_behind_the_last_digit_of_a_numeric_say_nothing(database: Database) -> None:
    spec = captured(database, "CREATE TABLE t (k int PRIMARY KEY, v numeric)")
    _, spec = poll(database, spec)
    database.run("INSERT INTO t VALUES (1, round(1 / 8.0, 60)), (2, 100), (3, 10.50), (4, 0.000)")
    changes, _ = poll(database, spec)
    assert [str(v) for v in changes.column("v").to_pylist()] == ["0.125000000", "100.000000000", "10.500000000", "0E-9"]


def test_declared_types_are_the_same_in_changes_and_in_the_snapshot(database: Database) -> None:
    columns = {
        **dict.fromkeys(("i", "n", "b", "ip", "tz", "c", "a", "m", "by", "f"), "varchar"),
        "k": "bigint",
        "n2": "double",
        "n3": "decimal(30,4)",
        "tz2": "timestamp",
        "d": "timestamp",
        "ts": "timestamptz",
    }
    spec = captured(
        database,
        "CREATE TABLE t (k int PRIMARY KEY, i int, n numeric, b bool, ip inet, tz timestamptz, c char(5), a int[], m money,"
        " by bytea, f float8, n2 numeric, n3 numeric(10,2), tz2 timestamptz, d date, ts timestamp)",
    )
    spec = replace(spec, columns=columns)
    _, spec = poll(database, spec)
    database.run(
        "INSERT INTO t VALUES (1, 5, 'NaN', true, '10.0.0.1', '2024-01-01 10:00+02', 'x', '{{1},{2}}', 12.5, '\\xff', 0.1,"
        " 2.5, 3.25, '2024-01-01 10:00+02', '2024-02-03', '2024-02-03 04:05')",
        "INSERT INTO t (k, ip) VALUES (2, '10.1.0.0/16')",
    )
    changes, _ = poll(database, spec)
    source = source_of(database)
    plain = read(source, dataset(columns=columns)).sort_by("k")
    source.close()
    assert as_text(changes.select(plain.schema.names)) == as_text(plain)


def test_a_value_that_cannot_be_held_names_the_column_and_never_the_value(database: Database) -> None:
    spec = captured(database, "CREATE TABLE t (k int PRIMARY KEY, v numeric(8,2), w int[])")
    _, spec = poll(database, spec)
    database.run("INSERT INTO t VALUES (1, 'NaN')")
    with pytest.raises(PermanentError, match="'v'") as refused:
        poll(database, spec)
    assert refused.value.code is Code.PZ0740
    assert "NaN" not in str(refused.value)
    database.run("UPDATE t SET v = 1, w = '{{4711}}'")
    with pytest.raises(PermanentError, match="w") as refused:
        poll(database, replace(spec, columns={"k": "int", "w": "int[]"}))
    assert "4711" not in str(refused.value)


def test_batches_keep_to_the_asked_size_and_the_order_of_the_log(database: Database) -> None:
    spec = captured(database, "CREATE TABLE t (k int PRIMARY KEY, v text)")
    _, spec = poll(database, spec)
    database.run(
        "INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) n",
        "UPDATE t SET v = 'y' WHERE k <= 10",
    )
    source = source_of(database)
    (part,) = source.plan_read(spec, None)  # type: ignore[arg-type]
    batches = list(part.read(BatchOptions(target_bytes=100_000, max_rows=300), CancelToken()))
    source.close()
    assert sum(batch.num_rows for batch in batches) == 5010
    assert max(batch.num_rows for batch in batches) <= 300
    assert max(batch.nbytes for batch in batches) < 200_000
    positions = [p for batch in batches for p in batch.column("_pz_lsn").to_pylist()]
    assert positions == sorted(set(positions))
    last = batches[-1].to_pylist()[-1]
    assert (last["_pz_op"], last["k"], last["v"]) == ("update", 10, "y")
    assert last["_pz_changed_at"] is not None


@pytest.mark.parametrize("polled", [False, True])
def test_a_column_that_comes_between_the_look_at_the_table_and_its_read_is_noticed(
    database: Database, polled: bool
) -> None:
    spec = captured(database, "CREATE TABLE t (k int PRIMARY KEY, v text)")
    if polled:
        _, spec = poll(database, spec)
    source = source_of(database)
    (part,) = source.plan_read(spec, None)  # type: ignore[arg-type]
    database.run("ALTER TABLE t ADD COLUMN w text", "INSERT INTO t VALUES (1, 'a', 'lost')")
    with pytest.raises(PermanentError, match="altered while the run began"):
        list(part.read(BatchOptions(), CancelToken()))
    source.close()


def test_a_cancelled_poll_stops(database: Database) -> None:
    from pz.errors import Cancelled

    spec = captured(database, "CREATE TABLE t (k int PRIMARY KEY, v text)")
    _, spec = poll(database, spec)
    database.run("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n")
    source, stop = source_of(database), CancelToken()
    (part,) = source.plan_read(spec, None)  # type: ignore[arg-type]
    stream = part.read(BatchOptions(max_rows=100), stop)
    next(stream)
    stop.cancel()
    with pytest.raises(Cancelled):
        list(stream)
    source.close()
    assert database.rows("SELECT active FROM pg_replication_slots") == [(False,)]
