"""Change capture when connections break, servers restart and logs are thrown away: recovery, or an error of its own."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest

import pz
from capture_support import captured, differences, replica, slot
from postgres_proxy import Link, Proxy, Verdict
from postgres_server import Database
from postgres_support import dataset, spec
from pz.connectors.contract import BatchOptions, CancelToken, DatasetSpec, TransientError
from pz.connectors.postgres.connector import Postgres
from pz.engine.nodes.snapshot_pieces import hold
from pz.staging.session import StagingSession
from running import errors, run


def read_through(database: Database, proxy: Proxy, data: DatasetSpec) -> tuple[pa.Table, str | None]:
    """One read through the proxy."""
    source = Postgres().open_source(replace(spec(database), options=proxy.options))
    try:
        (part,) = source.plan_read(data, None)  # type: ignore[arg-type]
        batches = list(part.read(BatchOptions(), CancelToken()))
        return pa.Table.from_batches(batches, source.schema(data)), part.try_get_sync_state()  # type: ignore[attr-defined]
    finally:
        source.close()


def patiently(database: Database, proxy: Proxy, data: DatasetSpec) -> tuple[pa.Table, str | None]:
    """The same, while the server still holds the slot for a connection that it has not missed yet."""
    for _ in range(200):
        try:
            return read_through(database, proxy, data)
        except TransientError as failure:
            if "active" not in failure.message:
                raise
    raise AssertionError("the slot stayed active")


class Nth:
    """Counts messages from the server, where ``statement`` names one only behind it on its connection, and cuts at one."""

    def __init__(self, statement: str = "", cut: int | None = None) -> None:
        self.seen, self.statement, self.cut = 0, statement, cut

    def __call__(self, link: Link, side: str, kind: bytes, body: bytes) -> Verdict:
        if side != "server" or not link.copies(self.statement):
            return Verdict.PASS
        self.seen += 1
        return Verdict.CUT if self.seen == self.cut else Verdict.PASS


def interrupted(database: Database, proxy: Proxy, data: DatasetSpec, rule: Nth) -> pa.Table | None:
    """The rows, or None after an error that another attempt may overcome; any other is raised."""
    proxy.rule = rule
    try:
        return read_through(database, proxy, data)[0]
    except TransientError:
        return None
    finally:
        proxy.heal()


CHANGES = (
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "UPDATE t SET v = 'd' WHERE k = 1",
    "UPDATE t SET k = 9 WHERE k = 2",
    "DELETE FROM t WHERE k = 3",
)


@pytest.mark.slow
def test_a_poll_cut_at_any_message_yields_the_same_window_again(database: Database) -> None:
    database.run("CREATE TABLE t (k int PRIMARY KEY, v text)", "CREATE PUBLICATION pz_pg FOR TABLE t")
    data = dataset(change_capture=True)
    with Proxy(database) as proxy:
        _, token = read_through(database, proxy, data)
        database.run(*CHANGES)
        data = replace(data, prior_sync_state=token)
        proxy.rule = counter = Nth("peek")
        whole, _ = read_through(database, proxy, data)
        assert whole.num_rows == 7
        cuts = [interrupted(database, proxy, data, Nth("peek", cut)) for cut in range(1, counter.seen + 1)]
        assert cuts.count(None) >= 15, "before the end of the stream every cut is an error"
        assert all(again is None or again.equals(whole) for again in cuts)
        again, _ = patiently(database, proxy, data)
        assert again.equals(whole)


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["CREATE_REPLICATION_SLOT", "pg_publication", "COPY"])
def test_a_snapshot_cut_at_any_message_is_taken_anew(database: Database, statement: str) -> None:
    database.run(
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "CREATE PUBLICATION pz_pg FOR TABLE t",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    data = dataset(change_capture=True)
    with Proxy(database) as proxy:
        proxy.rule = counter = Nth(statement)
        whole, _ = read_through(database, proxy, data)
        assert counter.seen > 2
        for cut in range(1, counter.seen + 1, max(1, counter.seen // 8)):
            interrupted(database, proxy, data, Nth(statement, cut))
        again, token = patiently(database, proxy, data)
        assert again.sort_by("k").equals(whole.sort_by("k"))
        database.run("DELETE FROM t WHERE k = 1")
        changes, _ = read_through(database, proxy, replace(data, prior_sync_state=token))
        assert changes.column("_pz_op").to_pylist() == ["delete"]
        assert database.rows("SELECT count(*) FROM pg_replication_slots") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_restarts_in_the_middle_of_a_window_costs_nothing(
    tmp_path: Path, database: Database, how: signal.Signals
) -> None:
    captured(database)
    with Proxy(database) as proxy:
        opened = replica(tmp_path, database, source=proxy.options)
        assert errors(run(opened)) == {}
        database.run("INSERT INTO orders SELECT n, repeat('x', 500), NULL FROM generate_series(1, 20000) n")
        passed = iter(range(100_000))

        def rule(link: Link, side: str, kind: bytes, body: bytes) -> Verdict:
            if side == "server" and kind == b"d" and link.copies("peek") and next(passed) == 5_000:
                database.server.shutdown(how)
            return Verdict.PASS

        proxy.rule = rule
        failed = errors(run(opened))
        database.server.start()
        assert "src_src__orders" in failed
        assert errors(run(opened)) == {}
    assert differences(database) == []


@pytest.mark.slow
def test_a_slot_whose_log_was_thrown_away_is_told(tmp_path: Path, database: Database) -> None:
    captured(database, "id int PRIMARY KEY, name text, big text", "INSERT INTO orders VALUES (1, 'a')")
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for n in range(6):
            database.run(f"INSERT INTO orders VALUES ({n + 10}, 'x')", "SELECT pg_switch_wal()")
        database.run("CHECKPOINT")
        assert slot(database)["status"] == "lost"
        told = str(errors(run(opened)))
        assert "PZ0744" in told
        assert "invalidated" in told
        (shown,) = opened.cdc.status()
        assert (shown.healthy, "invalidated" in shown.details[0]) == (False, True)
    finally:
        database.run("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    assert errors(run(opened, full_refresh=True)) == {}
    assert differences(database) == []


def test_a_slot_that_another_session_reads_is_waited_for_and_not_taken(tmp_path: Path, database: Database) -> None:
    captured(database)
    opened = replica(tmp_path, database)
    assert errors(run(opened)) == {}
    database.run("INSERT INTO orders SELECT n, 'x', NULL FROM generate_series(1, 3) n")
    with contextlib.closing(_busy(database)):
        told = str(errors(run(opened)))
    assert "active" in told
    assert errors(run(opened)) == {}
    assert differences(database) == []


def _busy(database: Database) -> Any:
    """A session that streams from the slot, as some other consumer would."""
    import psycopg

    options = database.options
    connection = psycopg.connect(
        host=options["host"],
        port=options["port"],
        dbname=options["database"],
        user=options["user"],
        password=options["password"],
        replication="database",
        autocommit=True,
    )
    connection.pgconn.send_query(
        b"START_REPLICATION SLOT pz_src_orders LOGICAL 0/0 (proto_version '1', publication_names 'pz_src')"
    )
    while not database.rows("SELECT FROM pg_replication_slots WHERE active"):
        pass
    return connection


# --- a snapshot that breaks off


def pieces_read(proxy: Proxy) -> list[str]:
    """The first page of each piece that was asked for; a piece has a connection of its own each time."""
    found = [re.search(r"ctid >= '\((\d+),", " ".join(link.statements)) for link in proxy.links]
    return [match[1] for match in found if match]


def broken_snapshot(
    root: Path, database: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, attempts: int, sync: dict[str, str]
) -> tuple[pz.OpenProject, list[str]]:
    """A captured table of several pieces, and a project whose source goes through the proxy; what is told collects."""
    monkeypatch.setattr("pz.connectors.postgres.partitions.PAGES_PER_READER", 8)
    captured(database)
    database.run(
        "INSERT INTO orders SELECT n, 'name', repeat('x', 500) FROM generate_series(1, 2000) n", "ANALYZE orders"
    )
    opened = replica(root, database, source=proxy.options, sync=sync)
    connections = json.loads((root / "connections.yml").read_text())
    connections["src"]["retry"] = {"max_attempts": attempts, "base_delay": "1ms"}
    (root / "connections.yml").write_text(json.dumps(connections))
    return opened, []


def in_the_middle(link: Link, side: str, kind: bytes, body: bytes) -> bool:
    """Rows of the last piece, which is begun when others have landed."""
    return side == "server" and kind == b"d" and link.copies("ctid >=") and not link.copies("ctid <")


@pytest.mark.parametrize("sync", [{}, {"slot": "ours"}], ids=["its own slot", "a declared slot"])
def test_a_snapshot_that_breaks_off_goes_on_with_the_pieces_that_are_missing(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch, sync: dict[str, str]
) -> None:
    with Proxy(database) as proxy:
        opened, said = broken_snapshot(tmp_path, database, proxy, monkeypatch, 2, sync)

        def cut(link: Link, side: str, kind: bytes, body: bytes) -> bool:
            found = in_the_middle(link, side, kind, body)
            if found:
                database.run("UPDATE orders SET name = 'later' WHERE id % 2 = 0", "DELETE FROM orders WHERE id = 7")
            return found

        proxy.once(Verdict.CUT, cut)
        result = run(opened, on_event=lambda event: said.append(str(getattr(event, "message", ""))))
        assert errors(result) == {}
        assert any("the others are read under it" in line for line in said)
        [load] = [node for node in result.nodes if node.kind == "SourceLoad"]
        asked = pieces_read(proxy)
        seen = "SELECT count(*), count(*) FILTER (WHERE name = 'later') FROM copy.orders"
        assert database.rows(seen) == [(2000, 0)]
        assert errors(run(opened)) == {}
    assert load.partitions is not None
    assert load.partitions["resumed"] >= 1
    assert load.partitions["total"] == len(set(asked))
    again = len(asked) - len(set(asked))
    assert again == load.partitions["total"] - load.partitions["resumed"], "what had landed is not read again"
    assert differences(database) == []


def test_a_snapshot_whose_moment_is_lost_is_taken_again(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(database) as proxy:
        opened, said = broken_snapshot(tmp_path, database, proxy, monkeypatch, 3, {})

        def cut(link: Link, side: str, kind: bytes, body: bytes) -> bool:
            found = in_the_middle(link, side, kind, body)
            if found:
                database.run(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE backend_type = 'walsender'",
                    "UPDATE orders SET name = 'later' WHERE id % 2 = 0",
                )
            return found

        proxy.once(Verdict.CUT, cut)
        result = run(opened, on_event=lambda event: said.append(str(getattr(event, "message", ""))))
        assert errors(result) == {}
        assert any("taken again from its beginning" in line for line in said)
        seen = "SELECT count(*), count(*) FILTER (WHERE name = 'later') FROM copy.orders"
        assert database.rows(seen) == [(2000, 1000)]
        assert errors(run(opened)) == {}
    assert differences(database) == []


def test_a_snapshot_that_failed_for_good_holds_nothing_and_the_retry_begins_anew(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(database) as proxy:
        opened, _ = broken_snapshot(tmp_path, database, proxy, monkeypatch, 1, {})
        proxy.once(Verdict.CUT, in_the_middle)
        assert run(opened).exit_code == 1
        assert database.rows("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pz'") == [(0,)]
        database.run("DELETE FROM orders WHERE id <= 1000")
        assert errors(opened.retry()) == {}
    assert differences(database) == []


def test_a_snapshot_whose_table_cannot_be_made_is_not_held(tmp_path: Path) -> None:
    """The next attempt would take a held one for a table that its pieces can go into."""
    with StagingSession.create(tmp_path, memory_limit_bytes=300_000_000) as staging:
        run_context = SimpleNamespace(staging=staging)
        context: Any = SimpleNamespace(
            run=run_context, snapshot=None, cursor=staging.cursor, release=lambda: None, cancel=CancelToken()
        )
        taken = SimpleNamespace(pieces=lambda cancel: [None], close=lambda: None)
        landing: Any = SimpleNamespace(node=SimpleNamespace(key="src.orders"))
        with pytest.raises(duckdb.Error):
            hold(context, landing, cast("Any", taken), "no_such_schema.t", pa.schema([("id", pa.int64())]))
    assert context.snapshot is None
