"""The staging database of a run: its birth, its cursors, its end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from pz import durable
from pz.connectors.contract import CancelToken
from pz.durable import Step
from pz.errors import Cancelled, Code, NodeError, StateError
from pz.staging.session import StagingSession
from pz.staging.transaction import Transaction

LIMIT = 200 * 1024 * 1024
ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "20260101T000000Z-aaaa"
    path.mkdir()
    return path


@pytest.fixture
def session(run_dir: Path) -> Iterator[StagingSession]:
    with StagingSession.create(run_dir, memory_limit_bytes=LIMIT) as opened:
        yield opened


def test_every_cursor_finds_the_runs_schemas_without_a_prefix(session: StagingSession) -> None:
    with session.cursor() as first, session.cursor() as second:
        first.execute("CREATE TABLE staging.orders AS SELECT 1 AS id")
        assert second.sql("SELECT id FROM staging.orders").fetchall() == [(1,)]
        assert second.sql("SELECT version FROM pz_meta.meta").fetchall() == [(1,)]


def test_cursors_work_in_threads_at_the_same_time(session: StagingSession) -> None:
    def stage(number: int) -> None:
        with session.cursor() as cursor, session.transaction(cursor, Step.STAGE_ROWS) as tx:
            tx.execute(f"CREATE TABLE staging.t{number} AS SELECT {number} AS n FROM range(1000)")

    threads = [threading.Thread(target=stage, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with session.cursor() as cursor:
        for number in range(8):
            assert cursor.execute(f"SELECT DISTINCT n, count(*) FROM staging.t{number} GROUP BY n").fetchall() == [
                (number, 1000)
            ]


def test_nothing_of_the_surroundings_reaches_a_statement(session: StagingSession) -> None:
    local = [1, 2, 3]
    with session.cursor() as cursor:
        assert cursor.sql("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
        assert cursor.sql("SELECT current_setting('autoinstall_known_extensions')").fetchall() == [(False,)]
        assert cursor.sql("SELECT current_setting('temp_directory')").fetchall() == [(str(session.run_dir / "tmp"),)]
        with pytest.raises(duckdb.CatalogException):
            cursor.execute("SELECT * FROM local")
    assert local == [1, 2, 3]


def test_a_closed_session_leaves_one_file_which_can_be_read_again(session: StagingSession, run_dir: Path) -> None:
    with session.cursor() as cursor:
        cursor.execute("CREATE TABLE staging.orders AS SELECT * FROM range(10)")
    session.close()
    assert [path.name for path in run_dir.iterdir()] == ["staging.duckdb"]
    with (
        StagingSession.open_read_only(run_dir) as one,
        StagingSession.open_read_only(run_dir) as two,
        one.cursor() as first,
        two.cursor() as second,
    ):
        assert first.execute("SELECT sum(range) FROM staging.orders").fetchall() == [(45,)]
        assert second.execute("SELECT count(*) FROM staging.orders").fetchall() == [(10,)]
        with pytest.raises(duckdb.Error):
            first.execute("DROP TABLE staging.orders")


def test_a_file_that_is_still_written_to_is_not_opened(session: StagingSession, run_dir: Path) -> None:
    with pytest.raises(StateError) as refused:
        StagingSession.open_read_only(run_dir)
    assert refused.value.code is Code.PZ0533


def test_another_process_may_not_open_a_file_that_is_written_to(session: StagingSession, run_dir: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pz.staging.session import StagingSession\n"
        "try: StagingSession.open_read_only(Path(sys.argv[1]))\n"
        "except Exception as refused: print(refused.code)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(run_dir)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "PZ0533"


def test_an_existing_staging_file_is_never_overwritten(session: StagingSession, run_dir: Path) -> None:
    with pytest.raises(StateError) as refused:
        StagingSession.create(run_dir, memory_limit_bytes=LIMIT)
    assert refused.value.code is Code.PZ0708


def test_a_failed_transaction_is_rolled_back_and_the_cursor_stays_usable(session: StagingSession) -> None:
    with session.cursor() as cursor:
        for failure in (KeyboardInterrupt, ZeroDivisionError, duckdb.Error):
            with pytest.raises(failure), session.transaction(cursor, Step.STAGE_ROWS) as tx:
                _create_and_fail(tx, failure)
        assert cursor.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'staging'").fetchall() == []
        with pytest.raises(RuntimeError):
            tx.execute("SELECT 1")


def _create_and_fail(tx: Transaction, failure: type[BaseException]) -> None:
    tx.execute("CREATE TABLE staging.half AS SELECT 1 AS a")
    if failure is duckdb.Error:
        tx.execute("SELECT * FROM staging.missing")
    raise failure


def test_cancelling_interrupts_a_running_statement(session: StagingSession) -> None:
    cancel = CancelToken()
    with session.cursor() as cursor:
        timer = threading.Timer(0.2, cancel.cancel)
        timer.start()
        with (
            pytest.raises(Cancelled),
            session.interruptible(cursor, cancel),
            session.transaction(cursor, Step.MATERIALIZE) as tx,
        ):
            tx.execute(f"CREATE TABLE staging.never AS {ENDLESS}")
        timer.join()
        assert cursor.execute("SELECT 42").fetchall() == [(42,)]
        with session.transaction(cursor, Step.MATERIALIZE) as tx:
            tx.execute("CREATE TABLE staging.never AS SELECT 1 AS a")


def test_cancelling_interrupts_a_stream_of_arrow_batches(session: StagingSession) -> None:
    cancel = CancelToken()
    with session.cursor() as cursor:
        relation = cursor.sql("SELECT a.range * b.range AS x FROM range(1000000) a, range(1000000) b")
        with pytest.raises(Cancelled), session.interruptible(cursor, cancel):
            _drain_and_cancel(relation, cancel)


def _drain_and_cancel(relation: duckdb.DuckDBPyRelation, cancel: CancelToken) -> None:
    for _ in relation.to_arrow_reader(1000):
        cancel.cancel()


def test_a_cancelled_token_stops_a_block_before_it_begins(session: StagingSession) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with session.cursor() as cursor, pytest.raises(Cancelled), session.interruptible(cursor, cancel):
        raise AssertionError("must not get here")


def test_an_error_that_is_no_interrupt_passes_through(session: StagingSession) -> None:
    cancel = CancelToken()
    with session.cursor() as cursor, pytest.raises(ZeroDivisionError), session.interruptible(cursor, cancel):
        raise ZeroDivisionError


def test_a_setup_statement_runs_once_however_many_threads_ask(session: StagingSession) -> None:
    with session.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE memory.calls")
    statements = ["CREATE SCHEMA IF NOT EXISTS memory.once", "SELECT nextval('memory.calls')"]
    threads = [threading.Thread(target=session.run_setup, args=(statements,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with session.cursor() as cursor:
        assert cursor.execute("SELECT nextval('memory.calls')").fetchall() == [(2,)]


def test_a_failed_setup_statement_is_issued_again_and_shows_no_value(session: StagingSession, tmp_path: Path) -> None:
    statement = f"ATTACH '{tmp_path}/s3cret/there.duckdb' AS there (READ_ONLY)"
    with pytest.raises(NodeError) as failed:
        session.run_setup([statement])
    assert failed.value.code is Code.PZ0311
    assert "s3cret" not in str(failed.value)
    assert "ATTACH '***' AS there" in str(failed.value)
    assert isinstance(failed.value.__cause__, duckdb.Error)
    (tmp_path / "s3cret").mkdir()
    duckdb.connect(tmp_path / "s3cret" / "there.duckdb").close()
    session.run_setup([statement])
    session.run_setup([statement])


def _finished(run_dir: Path) -> Path:
    with StagingSession.create(run_dir, memory_limit_bytes=LIMIT) as made, made.cursor() as cursor:
        cursor.execute("CREATE TABLE staging.t AS SELECT * FROM range(1000)")
    return run_dir / "staging.duckdb"


def test_a_file_cut_at_any_of_64_places_is_refused_or_whole(run_dir: Path) -> None:
    whole = _finished(run_dir).read_bytes()
    for part in range(64):
        (run_dir / "staging.duckdb").write_bytes(whole[: len(whole) * part // 64])
        assert _sum_or_refusal(run_dir) in {(1000, 499500), Code.PZ0708, "unreadable rows"}
    (run_dir / "staging.duckdb").write_bytes(whole)
    assert _sum_or_refusal(run_dir) == (1000, 499500)


def _sum_or_refusal(run_dir: Path) -> object:
    try:
        with StagingSession.open_read_only(run_dir) as opened, opened.cursor() as cursor:
            return cursor.execute("SELECT count(*), sum(range) FROM staging.t").fetchone()
    except StateError as refused:
        return refused.code
    except duckdb.Error:
        return "unreadable rows"  # the catalogue was whole, the rows were not: DuckDB says so when they are read


@pytest.mark.parametrize(
    "content", [b"", b"DUCK", b"\0" * 8 + b"DUCK", b"SQLite format 3\0" + b"\0" * 4096, b"a,b\n1,2\n" * 999]
)
def test_a_foreign_file_is_refused(run_dir: Path, content: bytes) -> None:
    (run_dir / "staging.duckdb").write_bytes(content)
    with pytest.raises(StateError) as refused:
        StagingSession.open_read_only(run_dir)
    assert refused.value.code is Code.PZ0708


def test_a_duckdb_file_that_pz_did_not_write_is_refused(run_dir: Path) -> None:
    duckdb.connect(run_dir / "staging.duckdb").close()
    with pytest.raises(StateError) as refused:
        StagingSession.open_read_only(run_dir)
    assert refused.value.code is Code.PZ0708


def test_a_file_swapped_between_runs_or_of_a_newer_version_is_refused(run_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "staging.duckdb").write_bytes(_finished(run_dir).read_bytes())
    with pytest.raises(StateError, match="another run"):
        StagingSession.open_read_only(other)
    with duckdb.connect(run_dir / "staging.duckdb") as direct:
        direct.execute("UPDATE pz_meta.meta SET version = 2")
    with pytest.raises(StateError, match="another version"):
        StagingSession.open_read_only(run_dir)


def test_an_absent_file_is_refused(run_dir: Path) -> None:
    with pytest.raises(StateError) as refused:
        StagingSession.open_read_only(run_dir)
    assert refused.value.code is Code.PZ0708


@pytest.mark.parametrize("name", [Step.CREATE_META, Step.CREATE_STAGING])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_birth_that_fails_leaves_no_half_made_file(run_dir: Path, name: Step, side: str) -> None:
    durable.rearm(f"{name}.{side}=enospc")
    try:
        with pytest.raises(StateError) as failed:
            StagingSession.create(run_dir, memory_limit_bytes=LIMIT)
    finally:
        durable.rearm()
    assert failed.value.code is Code.PZ0532
    assert all(path.name == "staging.duckdb" for path in run_dir.iterdir())


def test_the_python_callers_of_a_closed_session_are_told(session: StagingSession) -> None:
    session.close()
    session.close()
    with pytest.raises(RuntimeError), session.cursor():
        pass
