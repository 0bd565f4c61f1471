"""Exact replicas under fire: a few thousand changes in `make test`, hundreds of thousands in `make soak`."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from capture_stress import PROJECT, SCHEMA, Writer, poll_until_done, replica_project, unequal
from postgres_server import Database
from projects import write
from pz.testing.faults import WarmInterpreter

SEED = int(os.environ.get("PZ_STRESS_SEED", "20240229"))


def replicate(tmp_path: Path, database: Database, goal: int, share: float, batch: int) -> None:
    database.run(*SCHEMA)
    root = replica_project(tmp_path, database)
    writers = [Writer(database, SEED, goal, batch)]
    for writer in writers:
        writer.thread.start()
    with WarmInterpreter() as warm:
        tally = poll_until_done(warm, root, writers, random.Random(SEED), share)
    assert [writer.failure for writer in writers] == [None]
    print(f"{sum(w.made for w in writers)} changes, {tally.runs} runs, {tally.killed} killed, seed {SEED}")
    assert tally.failed == []
    assert tally.killed > 0
    assert unequal(database) == {}
    assert database.rows("SELECT count(*) FROM pg_replication_slots") == [(2,)]


@pytest.mark.slow
def test_copies_are_exact_though_runs_die(tmp_path: Path, database: Database) -> None:
    replicate(tmp_path, database, goal=4_000, share=0.7, batch=6)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_copies_are_exact_after_hundreds_of_thousands_of_changes(tmp_path: Path, database: Database) -> None:
    replicate(tmp_path, database, goal=int(os.environ.get("PZ_STRESS_CHANGES", "200000")), share=0.7, batch=12)


@pytest.mark.slow
def test_incremental_windows_with_ties_are_exact_though_runs_die(tmp_path: Path, database: Database) -> None:
    database.run(
        "CREATE TABLE events (id int PRIMARY KEY, n int, updated_at timestamp NOT NULL)",
        "CREATE INDEX ON events (updated_at)",
        "CREATE SCHEMA copy",
    )
    sync = {"mode": "incremental", "cursor": "updated_at"}
    columns = {"id": "int", "n": "int", "updated_at": "timestamp"}
    events = {"read": {"sync": sync, "columns": columns, "partition_column": "id", "partitions": 3}}
    connections = {
        "src": {"connector": "postgres", **database.options, "entities": {"events": events}},
        "dst": {"connector": "postgres", **database.options},
    }
    sink = "{{ sink('dst', 'copy.events', strategy: 'merge', keys: ['id']) }}"
    files = {
        "project.yml": PROJECT,
        "connections.yml": json.dumps(connections),
        "pipelines/events.sql": f"INSERT INTO {sink} SELECT * FROM {{{{ source('src', 'events') }}}}",
    }
    writer = Ticker(database)
    writer.thread.start()
    with WarmInterpreter() as warm:
        tally = poll_until_done(warm, write(tmp_path, files), [writer], random.Random(SEED), 0.7)
    assert writer.failure is None
    assert tally.failed == []
    missing = "(SELECT * FROM events EXCEPT ALL SELECT * FROM copy.events)"
    extra = "(SELECT * FROM copy.events EXCEPT ALL SELECT * FROM events)"
    assert database.rows(f"{missing} UNION ALL {extra}") == []


class Ticker(Writer):
    """Inserts and updates whose moments are whole seconds, so that many rows tie with the last watermark."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, SEED, 1_500, pause=0.01)

    def _work(self) -> None:
        try:
            with self.database.connect() as connection:
                while self.made < self.goal:
                    key = self.chance.randrange(2_000)
                    connection.execute(
                        "INSERT INTO events SELECT n, n, date_trunc('second', clock_timestamp()) "
                        "FROM generate_series(%s::int, %s::int) n "
                        "ON CONFLICT (id) DO UPDATE SET n = events.n + 1, updated_at = excluded.updated_at",
                        [key, key + self.chance.randrange(4)],
                    )
                    self.made += 1
                    self.idle.wait(self.pause)
        except BaseException as failure:
            self.failure = failure
