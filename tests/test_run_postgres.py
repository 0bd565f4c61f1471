"""Whole runs over a real PostgreSQL: files and tables in and out, windows, retries, and acknowledgements that get lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import pz
from postgres_proxy import Proxy, Verdict, commits_a_load
from postgres_server import Database
from postgres_support import cancelled_when_busy, rows_of
from pz.cli.failures import ExitCode, explain
from pz.durable import Step
from pz.engine.result import RunResult
from pz.errors import Cancelled, ProjectError
from pz.testing.faults import run_fresh
from pz.testing.reference import distribution_path
from pz.testing.server import Server
from running import errors, project, rows, run

FILE = "data/people.csv"
PEOPLE = "id,name\n1,Ann\n2,Bo\n"
APPEND = "INSERT INTO {{ sink('pg', 'people') }} SELECT * FROM {{ source('files', 'people') }}"


def demo(
    root: Path,
    pg: Mapping[str, Any],
    sql: str,
    *,
    entities: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
    **others: Any,
) -> pz.OpenProject:
    """A project with the connections ``pg``, ``files`` (data/) and ``lake`` (out/) and one pipeline; one attempt a node."""
    connections = {
        "pg": {"connector": "postgres", "retry": {"max_attempts": 1}, **pg, "entities": dict(entities or {})},
        "files": {"connector": "localfiles", "root": "data"},
        "lake": {"connector": "localfiles", "root": "out"},
        **others,
    }
    return project(root, {"connections.yml": json.dumps(connections), "pipelines/p.sql": sql, **(files or {})})


def told(act: Callable[..., RunResult]) -> tuple[RunResult, str]:
    """What a run or a retry came to, and every message on the way."""
    said: list[str] = []
    result = act(on_event=lambda event: said.append(str(getattr(event, "message", ""))))
    return result, "\n".join(said)


def state(root: Path, name: str = "watermarks") -> dict[str, Any]:
    path = root / f".pz/state/{name}.json"
    return dict(json.loads(path.read_text())[name.split("-")[-1]]) if path.exists() else {}


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy(database) as running:
        yield running


# --- the end of a probe


def test_a_run_that_is_cancelled_while_it_probes_moves_nothing_and_ends_as_cancelled(
    tmp_path: Path, database: Database
) -> None:
    query = "SELECT k FROM generate_series(1, 9) k, pg_sleep(600) s"
    entities = {"t": {"read": {"query": query, "sync": {"mode": "incremental", "cursor": "k"}}}}
    sql = "INSERT INTO {{ sink('pg', 'copy', strategy: 'merge', keys: ['k']) }} SELECT * FROM {{ source('pg', 't') }}"
    opened, stop = demo(tmp_path, database.options, sql, entities=entities), pz.CancelToken()
    with cancelled_when_busy(database, stop), pytest.raises(Cancelled) as caught:
        run(opened, cancel=stop)
    assert explain(caught.value)[1] is ExitCode.FATAL
    assert database.rows("SELECT to_regclass('copy')") == [(None,)]
    assert database.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pz' AND state = 'active'"
    ) == [(0,)]


def test_a_target_that_is_not_there_is_told_by_validate_as_the_run_would(tmp_path: Path, database: Database) -> None:
    opened = demo(tmp_path, database.options, APPEND.replace("'people'", "'nowhere.people'", 1), files={FILE: PEOPLE})
    assert not [problem for problem in opened.validate() if str(problem.severity) == "error"]
    [told] = [problem for problem in opened.validate(connect=True) if str(problem.severity) == "error"]
    with pytest.raises(pz.ProjectError) as refused:
        run(opened)
    [problem] = refused.value.problems
    assert (told.code, told.where, told.hint) == (problem.code, problem.where, problem.hint)
    assert told.code == "PZ0741"


# --- in and out


def test_a_table_becomes_a_parquet_file(tmp_path: Path, database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, amount numeric(12,2), ordered timestamptz, tags text[], doc jsonb)",
        """INSERT INTO orders SELECT n, n / 3.0, '2024-01-01 00:00+00'::timestamptz + n * interval '1 hour',
           ARRAY['a', NULL], '{"n": 1}' FROM generate_series(1, 500) n""",
    )
    opened = demo(
        tmp_path,
        database.options,
        "INSERT INTO {{ sink('lake', 'orders') }} "
        "SELECT id, amount, epoch(ordered) AS ordered, tags, doc FROM {{ source('pg', 'orders') }} WHERE id > 100",
    )
    assert errors(run(opened)) == {}
    found = rows(tmp_path / "out/orders/*.parquet")
    assert len(found) == 400
    assert sum(row[1] for row in found) == database.rows("SELECT sum(amount) FROM orders WHERE id > 100")[0][0]
    assert {row[0] for row in found} == set(range(101, 501))


def test_a_file_is_appended_and_every_run_leaves_one_mark(tmp_path: Path, database: Database) -> None:
    opened = demo(tmp_path, database.options, APPEND, files={FILE: PEOPLE})
    assert errors(run(opened)) == {}
    assert errors(run(opened)) == {}
    assert rows_of(database, "people") == [(1, "Ann"), (1, "Ann"), (2, "Bo"), (2, "Bo")]
    assert database.rows("SELECT count(*), sum(rows) FROM _pz_slices") == [(2, 4)]


@pytest.mark.parametrize("method", ["truncate", "delete", "swap"])
def test_a_file_replaces_a_table_by_every_method(tmp_path: Path, database: Database, method: str) -> None:
    sql = f"INSERT INTO {{{{ sink('pg', 'people', strategy: 'replace', replace_method: '{method}') }}}} "
    opened = demo(
        tmp_path, database.options, sql + "SELECT * FROM {{ source('files', 'people') }}", files={FILE: PEOPLE}
    )
    for content in (PEOPLE, "id,name\n3,Cy\n"):
        (tmp_path / FILE).write_text(content)
        assert errors(run(opened)) == {}
    assert rows_of(database, "people") == [(3, "Cy")]


def test_a_file_is_merged(tmp_path: Path, database: Database) -> None:
    sql = "INSERT INTO {{ sink('pg', 'people', strategy: 'merge', keys: ['id']) }} SELECT * FROM {{ source('files', 'people') }}"
    opened = demo(tmp_path, database.options, sql, files={FILE: PEOPLE})
    assert errors(run(opened)) == {}
    (tmp_path / FILE).write_text("id,name\n2,Bob\n2,Bert\n3,Cy\n")
    result, said = told(lambda **options: run(opened, **options))
    assert errors(result) == {}
    assert "occur more than once" in said
    assert rows_of(database, "people") == [(1, "Ann"), (2, "Bob"), (3, "Cy")]


def test_a_target_that_lacks_its_unique_index_stops_the_run_before_anything_moves(
    tmp_path: Path, database: Database
) -> None:
    database.run("CREATE TABLE people (id bigint, name text)")
    sql = "INSERT INTO {{ sink('pg', 'people', strategy: 'merge', keys: ['id']) }} SELECT * FROM {{ source('files', 'people') }}"
    with pytest.raises(ProjectError, match="no unique index"):
        run(demo(tmp_path, database.options, sql, files={FILE: PEOPLE}))


@pytest.mark.parametrize("on_delete", ["delete", "soft", "ignore"])
def test_deletes_of_a_captured_table_are_applied_as_declared(
    tmp_path: Path, database: Database, on_delete: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(distribution_path()))
    far = Server(tmp_path / "far")
    far.create("orders", {"id": "BIGINT", "name": "VARCHAR"}, keys=["id"])
    far.mutate("orders", insert=[{"id": n, "name": "new"} for n in range(1, 5)])
    source = {"connector": "reference", "path": "far", "entities": {"orders": {"read": {"sync": {"mode": "cdc"}}}}}
    sql = f"INSERT INTO {{{{ sink('pg', 'o', strategy: 'merge', keys: ['id'], on_delete: '{on_delete}') }}}} "
    opened = demo(tmp_path, database.options, sql + "SELECT * FROM {{ source('src', 'orders') }}", src=source)
    assert errors(run(opened)) == {}
    far.mutate("orders", update=[{"id": 1, "name": "changed"}], delete=[{"id": 2}, {"id": 3}])
    assert errors(run(opened)) == {}
    if on_delete == "soft":
        assert database.rows("SELECT id FROM o WHERE _pz_deleted_at IS NULL ORDER BY id") == [(1,), (4,)]
        far.mutate("orders", insert=[{"id": 2, "name": "again"}])
        assert errors(run(opened)) == {}
        assert database.rows("SELECT id FROM o WHERE _pz_deleted_at IS NULL ORDER BY id") == [(1,), (2,), (4,)]
    kept = {"delete": [1, 4], "soft": [1, 2, 3, 4], "ignore": [1, 2, 3, 4]}[on_delete]
    assert [row[0] for row in database.rows("SELECT id FROM o ORDER BY id")] == kept
    assert database.rows("SELECT name FROM o WHERE id = 1") == [("changed",)]


# --- incremental


EVENTS = (
    "CREATE TABLE events (id int PRIMARY KEY, moment timestamp, what text)",
    "INSERT INTO events SELECT n, '2024-01-01'::timestamp + n * interval '12 hours', 'x' FROM generate_series(1, 20) n",
)
COLUMNS = {"id": "int", "moment": "timestamp", "what": "varchar"}


def test_windows_over_a_table_tile_without_gap_or_overlap(tmp_path: Path, database: Database) -> None:
    database.run(*EVENTS)
    sync = {
        "mode": "incremental",
        "cursor": "moment",
        "initial": "2023-12-31",
        "max_window": "3d",
        "until": "2024-01-20",
    }
    sql = "INSERT INTO {{ sink('pg', 'copy', duplicates: 'accept') }} SELECT * FROM {{ source('pg', 'events') }}"
    entities = {"events": {"read": {"sync": sync, "columns": COLUMNS}}}
    opened = demo(tmp_path, database.options, sql, entities=entities)
    assert errors(opened.run(everything=True, until_caught_up=True)) == {}
    assert rows_of(database, "copy") == rows_of(database, "events")
    assert database.rows("SELECT count(*) > 3 FROM _pz_slices") == [(True,)]


def test_a_window_passes_a_gap_in_the_numbers(tmp_path: Path, database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1), (2), (40)")
    sync = {"mode": "incremental", "cursor": "id", "initial": 0, "max_window": 10}
    sql = "INSERT INTO {{ sink('pg', 'copy', strategy: 'merge', keys: ['id']) }} SELECT * FROM {{ source('pg', 'items') }}"
    entities = {"items": {"read": {"sync": sync, "columns": {"id": "int"}}}}
    opened = demo(tmp_path, database.options, sql, entities=entities)
    for _ in range(5):
        assert errors(run(opened)) == {}
    assert rows_of(database, "copy") == rows_of(database, "items")


def test_ties_of_the_boundary_that_come_late_are_merged_and_a_lookback_finds_late_commits(
    tmp_path: Path, database: Database
) -> None:
    database.run(*EVENTS)
    sync = {"mode": "incremental", "cursor": "moment", "lookback": "2d"}
    sql = "INSERT INTO {{ sink('pg', 'copy', strategy: 'merge', keys: ['id']) }} SELECT * FROM {{ source('pg', 'events') }}"
    entities = {"events": {"read": {"sync": sync, "columns": COLUMNS}}}
    opened = demo(tmp_path, database.options, sql, entities=entities)
    late = database.connect()
    late.autocommit = False
    late.execute("INSERT INTO events VALUES (100, '2024-01-10 12:00', 'begun before, committed after the read')")
    assert errors(run(opened)) == {}
    mark = state(tmp_path)["pg.events"]["value"]
    late.commit()  # durable: ok - the test's own transaction
    late.close()
    database.run("INSERT INTO events SELECT 101, max(moment), 'tie' FROM events")
    assert errors(run(opened)) == {}
    assert state(tmp_path)["pg.events"]["value"] == mark
    assert rows_of(database, "copy") == rows_of(database, "events")


def test_a_bounded_read_is_pushed_to_the_server(tmp_path: Path, database: Database, proxy: Proxy) -> None:
    database.run(*EVENTS)
    sync = {"mode": "incremental", "cursor": "moment"}
    sql = "INSERT INTO {{ sink('lake', 'copy', duplicates: 'accept') }} SELECT id, moment FROM {{ source('pg', 'events') }}"
    opened = demo(tmp_path, proxy.options, sql, entities={"events": {"read": {"sync": sync}}})
    assert errors(run(opened)) == {}
    seen = len(proxy.links)
    database.run("INSERT INTO events VALUES (50, '2025-01-01', 'new')")
    assert errors(run(opened)) == {}
    reads = [s for link in proxy.links[seen:] for s in link.statements if "TO STDOUT" in s and '"events"' in s]
    assert len(reads) == 1, reads
    assert '"moment" > ' in reads[0]
    assert '"moment" <= ' in reads[0]
    assert '"what"' not in reads[0]


# --- failures in the middle


def ranged(database: Database, rows_: int = 4000) -> dict[str, Any]:
    database.run(
        "CREATE TABLE big (id int PRIMARY KEY, note text)",
        f"INSERT INTO big SELECT n, repeat('x', 100) FROM generate_series(1, {rows_}) n",
    )
    return {"big": {"read": {"partition_column": "id", "partitions": 4}}}


TO_LAKE = "INSERT INTO {{ sink('lake', 'big', strategy: 'replace') }} SELECT id, note FROM {{ source('pg', 'big') }}"


def test_ranges_without_rows_do_not_disturb_a_read_of_some_columns(tmp_path: Path, database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, name text, big text)",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (1000, 'z')",
    )
    read = {"orders": {"read": {"partition_column": "id", "partitions": 4}}}
    sql = "INSERT INTO {{ sink('lake', 'orders', strategy: 'replace') }} SELECT name FROM {{ source('pg', 'orders') }}"
    opened = demo(tmp_path, database.options, sql, entities=read)
    assert errors(run(opened)) == {}
    assert rows(tmp_path / "out/orders/*.parquet") == [("a",), ("b",), ("z",)]
    database.run("TRUNCATE orders")
    assert errors(run(opened)) == {}
    assert rows(tmp_path / "out/orders/*.parquet") == []


@pytest.mark.parametrize("kind", ["text", "uuid", "money", "float8"])
def test_a_column_that_is_no_cursor_is_refused_before_anything_is_read(
    tmp_path: Path, database: Database, kind: str
) -> None:
    database.run(f"CREATE TABLE orders (id int, at {kind})")
    read = {"orders": {"read": {"sync": {"mode": "incremental", "cursor": "at"}}}}
    sql = "INSERT INTO {{ sink('lake', 'orders', duplicates: 'accept') }} SELECT * FROM {{ source('pg', 'orders') }}"
    with pytest.raises(ProjectError, match="a cursor is a whole or decimal number"):
        run(demo(tmp_path, database.options, sql, entities=read))


def test_a_partitioned_read_that_broke_is_continued_by_a_retry(
    tmp_path: Path, database: Database, proxy: Proxy
) -> None:
    opened = demo(tmp_path, proxy.options, TO_LAKE, entities=ranged(database))
    third = "\"id\" >= '2001'::int4"
    proxy.once(Verdict.CUT, lambda link, side, kind, body: side == "server" and kind == b"d" and link.copies(third))
    failed = run(opened)
    assert "1 of 4 partitions failed" in str(errors(failed))
    database.run("UPDATE big SET note = 'changed' WHERE id IN (1, 2500)")
    proxy.heal()
    seen = len(proxy.links)
    result, said = told(opened.retry)
    assert errors(result) == {}
    assert "3 finished partition(s) reused" in said
    reads = [s for link in proxy.links[seen:] for s in link.statements if "TO STDOUT" in s]
    assert len(reads) == 1
    assert third in reads[0]
    found = dict(rows(tmp_path / "out/big/*.parquet"))
    assert sorted(found) == list(range(1, 4001))
    assert (found[1], found[2500]) == ("x" * 100, "changed"), "a resumed read mixes two moments, as its page says"


def test_with_consistent_a_retry_reads_everything_again(tmp_path: Path, database: Database, proxy: Proxy) -> None:
    entities = ranged(database)
    entities["big"]["read"]["consistent"] = True
    opened = demo(tmp_path, proxy.options, TO_LAKE, entities=entities)
    proxy.once(Verdict.CUT, lambda link, side, kind, body: side == "server" and kind == b"d" and link.copies("2001"))
    assert run(opened).exit_code == 1
    database.run("UPDATE big SET note = 'changed' WHERE id IN (1, 2500)")
    proxy.heal()
    result = opened.retry()
    assert errors(result) == {}
    found = dict(rows(tmp_path / "out/big/*.parquet"))
    assert (len(found), found[1], found[2500]) == (4000, "changed", "changed")


def test_a_load_that_broke_in_the_middle_is_sent_whole_by_a_retry_without_reading_again(
    tmp_path: Path, database: Database, proxy: Proxy
) -> None:
    ranged(database, 300_000)
    sql = "INSERT INTO {{ sink('far', 'copy') }} SELECT id, note FROM {{ source('pg', 'big') }}"
    far = {"connector": "postgres", **proxy.options, "retry": {"max_attempts": 1}}
    staged = {"pipelines/configs/p.yml": "pipeline: p\nchecks:\n  - not_null: [id]\n"}
    opened = demo(tmp_path, database.options, sql, far=far, files=staged)
    second = iter(range(10_000))
    proxy.once(Verdict.CUT, lambda link, side, kind, body: side == "client" and kind == b"d" and next(second) == 200)
    assert run(opened).exit_code == 1
    assert database.rows("SELECT to_regclass('copy')") == [(None,)]
    proxy.heal()
    database.run("DELETE FROM big")
    result = opened.retry()
    assert errors(result) == {}
    assert database.rows("SELECT count(*), count(DISTINCT id) FROM copy") == [(300_000, 300_000)]


def test_a_transient_failure_is_retried_within_the_run(tmp_path: Path, database: Database, proxy: Proxy) -> None:
    sql = "INSERT INTO {{ sink('far', 'people') }} SELECT * FROM {{ source('files', 'people') }}"
    far = {"connector": "postgres", **proxy.options, "retry": {"max_attempts": 2, "base_delay": "10ms"}}
    opened = demo(tmp_path, database.options, sql, files={FILE: PEOPLE}, far=far)
    proxy.once(Verdict.CUT, commits_a_load)
    assert errors(run(opened)) == {}
    assert proxy.fired == 1
    assert rows_of(database, "people") == [(1, "Ann"), (2, "Bo")]


# --- acknowledgements that get lost


def appending(ledger: str) -> str:
    return (
        f"INSERT INTO {{{{ sink('pg', 'people', strategy: 'append', ledger: {ledger}) }}}} "
        "SELECT * FROM {{ source('files', 'people') }}"
    )


LEDGERS = pytest.mark.parametrize("ledger", ["'on'", "'off'"])


@LEDGERS
def test_a_commit_whose_answer_is_lost_is_settled_by_looking(
    tmp_path: Path, database: Database, proxy: Proxy, ledger: str
) -> None:
    opened = demo(tmp_path, proxy.options, appending(ledger), files={FILE: PEOPLE})
    proxy.once(Verdict.LOSE_ANSWER, commits_a_load)
    assert errors(run(opened)) == {}
    assert proxy.fired == 1
    assert rows_of(database, "people") == [(1, "Ann"), (2, "Bo")]


@LEDGERS
def test_a_commit_that_never_arrived_is_told_from_one_that_did(
    tmp_path: Path, database: Database, proxy: Proxy, ledger: str
) -> None:
    opened = demo(tmp_path, proxy.options, appending(ledger), files={FILE: PEOPLE})
    proxy.once(Verdict.CUT, commits_a_load)
    assert "broke before the commit" in str(errors(run(opened)))
    assert errors(opened.retry()) == {}
    assert rows_of(database, "people") == [(1, "Ann"), (2, "Bo")]


@LEDGERS
@pytest.mark.parametrize("verdict", [Verdict.LOSE_ANSWER, Verdict.CUT])
def test_an_outcome_that_cannot_be_asked_for_is_unknown_and_a_retry_settles_it(
    tmp_path: Path, database: Database, proxy: Proxy, ledger: str, verdict: Verdict
) -> None:
    opened = demo(tmp_path, proxy.options, appending(ledger), files={FILE: PEOPLE})
    proxy.once(verdict, commits_a_load, then="refuse")
    assert "PZ0704" in str(errors(run(opened)))
    proxy.heal()
    result, said = told(opened.retry)
    assert errors(result) == {}
    assert ("had committed" in said) == (verdict is Verdict.LOSE_ANSWER)
    assert rows_of(database, "people") == [(1, "Ann"), (2, "Bo")]


@LEDGERS
def test_a_commit_that_arrives_after_the_retry_has_begun_lands_once(
    tmp_path: Path, database: Database, proxy: Proxy, ledger: str
) -> None:
    opened = demo(tmp_path, {**proxy.options, "command_timeout_seconds": 1}, appending(ledger), files={FILE: PEOPLE})
    proxy.once(Verdict.HOLD, commits_a_load)
    assert "PZ0704" in str(errors(run(opened)))
    proxy.heal()
    waiting = opened.retry()
    assert waiting.exit_code == 1, "nobody may write while the old transaction is open"
    assert database.rows("SELECT to_regclass('people')") == [(None,)]
    proxy.release()
    assert errors(opened.retry()) == {}
    assert rows_of(database, "people") == [(1, "Ann"), (2, "Bo")]


@LEDGERS
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_killed_at_its_commit_lands_once(tmp_path: Path, database: Database, ledger: str, moment: str) -> None:
    opened = demo(tmp_path, database.options, appending(ledger), files={FILE: PEOPLE})
    killed = run_fresh(("run", "--all"), tmp_path, failpoint=f"{Step.SINK_COMMIT}.{moment}=kill")
    assert killed.killed, killed.stderr
    assert errors(opened.retry()) == {}
    assert rows_of(database, "people") == [(1, "Ann"), (2, "Bo")]


def test_on_another_timeline_the_outcome_stays_unknown_and_the_retry_says_what_it_does(
    tmp_path: Path, database: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pz.connectors.postgres import fate

    opened = demo(tmp_path, proxy.options, appending("'off'"), files={FILE: PEOPLE})
    proxy.once(Verdict.LOSE_ANSWER, commits_a_load)
    monkeypatch.setattr(fate, "FATE", fate.FATE.replace("timeline_id FROM", "timeline_id + 1 FROM"))
    assert "PZ0704" in str(errors(run(opened)))
    result, said = told(opened.retry)
    assert errors(result) == {}
    assert "cannot be told" in said
    assert len(rows_of(database, "people")) == 4


@LEDGERS
def test_a_fresh_run_after_an_unknown_outcome_does_not_append_the_slice_again(
    tmp_path: Path, database: Database, proxy: Proxy, ledger: str
) -> None:
    database.run(*EVENTS)
    sync = {"mode": "incremental", "cursor": "moment"}
    sql = (
        f"INSERT INTO {{{{ sink('far', 'copy', strategy: 'append', duplicates: 'accept', ledger: {ledger}) }}}} "
        "SELECT * FROM {{ source('pg', 'events') }}"
    )
    far = {"connector": "postgres", **proxy.options, "retry": {"max_attempts": 1}}
    opened = demo(tmp_path, database.options, sql, entities={"events": {"read": {"sync": sync}}}, far=far)
    proxy.once(Verdict.LOSE_ANSWER, commits_a_load, then="refuse")
    assert "PZ0704" in str(errors(run(opened)))
    assert state(tmp_path) == {}
    proxy.heal()
    database.run("INSERT INTO events VALUES (50, '2025-01-01', 'new')")
    assert errors(run(opened)) == {}
    assert rows_of(database, "copy") == rows_of(database, "events")


def test_links_of_a_run_are_closed_when_it_ends(tmp_path: Path, database: Database) -> None:
    opened = demo(tmp_path, database.options, TO_LAKE, entities=ranged(database))
    assert errors(run(opened)) == {}
    left = database.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pz' AND datname = current_database()"
    )
    assert left == [(0,)]
