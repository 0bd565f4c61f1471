"""A full disk is a coded error or a failed transaction; what was committed before stays and can be continued."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from pz.durable import Step
from pz.errors import Code, StateError
from pz.staging.meta import Ledger
from pz.staging.partition_ledger import Arrival, PartitionLedger
from pz.staging.session import StagingSession
from pz.testing.faults import Tmpfs, tmpfs

NODE, TABLE = "0123456789abcdef", "src_shop__orders"
KIB = 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Tmpfs]:
    with contextlib.ExitStack() as stack:
        try:
            mounted = stack.enter_context(tmpfs(tmp_path / "disk", 4096 * KIB))
        except PermissionError as refused:
            pytest.skip(str(refused))
        (mounted.path / "run1").mkdir()
        yield mounted


def part(number: int) -> Arrival:
    """About 160 KB that don't compress."""
    ids = pa.array(range(number * 10_000, number * 10_000 + 10_000), pa.int64())
    text = pa.array([f"{hash((number, row)):020x}" for row in range(10_000)], pa.string())
    return Arrival(f"p{number}", batch=pa.table({"id": ids, "text": text}))


def fill(ledger: PartitionLedger, cursor: duckdb.DuckDBPyConnection) -> int:
    """Complete partitions until the disk is full; return how many were completed."""
    for number in range(100):
        try:
            ledger.complete(cursor, [part(number)])
        except duckdb.Error:
            return number
    return 100


def held(run_dir: Path) -> tuple[int, int]:
    """Rows in the main table, and rows that the ledger accounts for."""
    with StagingSession.open_read_only(run_dir) as session, session.cursor() as cursor:
        row = cursor.execute(f"SELECT count(*) FROM staging.{TABLE}").fetchone()
        assert row is not None
        return int(row[0]), sum(entry.row_count for entry in Ledger(cursor).partitions_done(NODE))


def test_a_staging_file_that_finds_no_room_is_a_coded_error(disk: Tmpfs) -> None:
    disk.resize(64 * KIB)
    with pytest.raises(StateError) as failed:
        StagingSession.create(disk.path / "run1", memory_limit_bytes=100_000_000)
    assert failed.value.code is Code.PZ0532
    assert list((disk.path / "run1").iterdir()) == []


def test_a_disk_that_fills_up_keeps_what_was_committed(disk: Tmpfs) -> None:
    run_dir = disk.path / "run1"
    with StagingSession.create(run_dir, memory_limit_bytes=100_000_000) as session, session.cursor() as cursor:
        ledger = PartitionLedger(NODE, TABLE)
        ledger.start(cursor)
        completed = fill(ledger, cursor)
        rows = cursor.execute(f"SELECT count(*) FROM staging.{TABLE}").fetchone()
        assert rows == (completed * 10_000,)
    assert 0 < completed < 100
    assert held(run_dir) == (completed * 10_000, completed * 10_000)


def test_a_run_continues_when_there_is_room_again(disk: Tmpfs) -> None:
    run_dir = disk.path / "run1"
    with StagingSession.create(run_dir, memory_limit_bytes=100_000_000) as session, session.cursor() as cursor:
        ledger = PartitionLedger(NODE, TABLE)
        ledger.start(cursor)
        fill(ledger, cursor)
        disk.resize(64 * 1024 * KIB)
        done = ledger.start(cursor).done
        for number in range(30):
            if f"p{number}" not in done:
                ledger.complete(cursor, [part(number)])
        with session.transaction(cursor, Step.MATERIALIZE) as tx:
            tx.execute("CREATE TABLE staging.model AS SELECT 1 AS a")
    assert held(run_dir) == (300_000, 300_000)
