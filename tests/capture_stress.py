"""A writer that changes tables at random while `pz run` polls and dies at random, and what equal means at the end."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postgres_server import Database
from projects import write
from pz.durable import Step
from pz.testing.faults import Outcome, WarmInterpreter, start_fresh

if TYPE_CHECKING:
    import psycopg

KEYS = 400
MODES = ("delete", "soft", "ignore")
PROJECT = "name: stress\nversion: 1.0.0\nengine:\n  threads: 2\n  duckdb: { threads: 1, memory_limit: 300MB }\n"
STEPS = (
    *(
        Step.PEND_SNAPSHOT,
        Step.CAPTURE_SLOT,
        Step.STAGE_ROWS,
        Step.COMPLETE_LOAD,
        Step.MATERIALIZE,
        Step.RECORD_ATTEMPT,
    ),
    *(Step.SINK_PREPARE, Step.SINK_WRITE, Step.SINK_COMMIT, Step.WRITE_RESULTS, Step.ADVANCE_STATE, Step.ACKNOWLEDGE),
    Step.FINISH_RUN,
)

# Wide: whole old rows are in the log, so keys may move with their large values. Narrow: only keys are.
WIDE, NARROW = "wide", "narrow"
LARGE = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 120))"
SCHEMA = (
    "CREATE TABLE wide (id int PRIMARY KEY, n int, note text, big text)",
    "ALTER TABLE wide REPLICA IDENTITY FULL",
    "ALTER TABLE wide ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE narrow (id int PRIMARY KEY, n int, note text, big text)",
    "ALTER TABLE narrow ALTER big SET STORAGE EXTERNAL",
    "CREATE PUBLICATION pz_src FOR TABLE wide, narrow",
    *(f"CREATE SCHEMA {mode}_copy" for mode in MODES),
)


@dataclass
class Writer:
    """Random transactions over both tables until it has made ``goal`` changes; reproducible but for its timing.

    It idles for ``pause`` seconds between transactions, so that many polls see it at work.
    """

    database: Database
    seed: int
    goal: int
    batch: int = 6
    pause: float = 0.02
    made: int = 0
    failure: BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.idle = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self.thread.is_alive()

    def _work(self) -> None:
        try:
            with self.database.connect() as connection:
                connection.autocommit = False
                connection.execute(f"SELECT setseed({self.chance.random()})")
                while self.made < self.goal:
                    self._transaction(connection)
                    self.idle.wait(self.pause)
        except BaseException as failure:
            self.failure = failure

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        changed = 0
        for _ in range(self.chance.randint(1, self.batch)):
            if self.chance.random() < 0.1:
                connection.execute("SAVEPOINT part")
                self._change(connection)
                connection.execute("ROLLBACK TO SAVEPOINT part")
            changed += self._change(connection)
        if self.chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()  # durable: ok - the test's own transaction
            self.made += changed

    def _change(self, connection: psycopg.Connection[Any]) -> int:
        """One statement; how many rows it changed."""
        table, key = self.chance.choice((WIDE, NARROW)), self.chance.randrange(KEYS)
        kind = self.chance.choices(
            ("insert", "many", "note", "same", "large", "empty", "move", "delete"), (25, 5, 30, 5, 8, 4, 8, 15)
        )[0]
        other, n = self.chance.randrange(KEYS), self.chance.randrange(1_000_000)
        free = f"NOT EXISTS (SELECT FROM {table} o WHERE o.id = {other})"
        small = "" if table == WIDE else "AND big IS NULL"
        statement = {
            "insert": f"INSERT INTO {table} SELECT {key}, {n}, 'new', {LARGE if n % 3 == 0 else 'NULL'} ON CONFLICT DO NOTHING",
            "many": f"UPDATE {table} SET n = n + 1 WHERE id BETWEEN {key} AND {key + 20}",
            "note": f"UPDATE {table} SET note = 'n{n}', n = {n} WHERE id = {key}",
            "same": f"UPDATE {table} SET note = note WHERE id = {key}",
            "large": f"UPDATE {table} SET big = {LARGE} WHERE id = {key}",
            "empty": f"UPDATE {table} SET big = NULL, note = NULL WHERE id = {key}",
            "move": f"UPDATE {table} SET id = {other} WHERE id = {key} AND {free} {small}",
            "delete": f"DELETE FROM {table} WHERE id = {key}",
        }[kind]
        return connection.execute(statement).rowcount


def replica_project(root: Path, database: Database) -> Path:
    """Both tables, each staged once and merged in all three ways."""
    cdc = {"read": {"sync": {"mode": "cdc"}}}
    retry = {"retry": {"max_attempts": 2, "base_delay": "50ms"}}
    connections = {
        "src": {"connector": "postgres", **database.options, **retry, "entities": {WIDE: cdc, NARROW: cdc}},
        "dst": {"connector": "postgres", **database.options, **retry},
    }
    files = {"project.yml": PROJECT, "connections.yml": json.dumps(connections)}
    for table in (WIDE, NARROW):
        files[f"pipelines/stg_{table}.sql"] = f"SELECT * FROM {{{{ source('src', '{table}') }}}}"
        for mode in MODES:
            sink = f"{{{{ sink('dst', '{mode}_copy.{table}', strategy: 'merge', keys: ['id'], on_delete: '{mode}') }}}}"
            files[f"pipelines/{mode}_{table}.sql"] = f"INSERT INTO {sink} SELECT * FROM {{{{ ref('stg_{table}') }}}}"
    return write(root, files)


@dataclass(frozen=True)
class Fate:
    """What becomes of a run: it lives, dies at a durable step, or dies after so many seconds wherever it is."""

    failpoint: str = ""
    seconds: float | None = None


def fates(chance: random.Random, share: float) -> Iterator[Fate]:
    """One for each run; ``share`` of them are to die."""
    while True:
        if chance.random() >= share:
            yield Fate()
        elif chance.random() < 0.3:
            yield Fate(seconds=chance.uniform(0.5, 4.0))
        else:
            nth = chance.choice((1, 1, 1, 2, 3))
            yield Fate(f"{chance.choice(STEPS)}.{chance.choice(('before', 'after'))}:{nth}=kill")


@dataclass
class Tally:
    """How the runs ended."""

    runs: int = 0
    killed: int = 0
    failed: list[str] = field(default_factory=list)


def poll_until_done(
    warm: WarmInterpreter, root: Path, writers: Sequence[Writer], chance: random.Random, share: float
) -> Tally:
    """Run, die, run or retry, until every writer has ended; then once more, undisturbed."""
    tally, died = Tally(), False
    fate = fates(chance, share)
    while not all(writer.done for writer in writers):
        verb = ("retry",) if died and chance.random() < 0.5 else ("run", "--all")
        outcome = _run(warm, verb, root, next(fate))
        tally.runs += 1
        died = outcome.killed
        tally.killed += died
        if not died and outcome.code != 0 and not _nothing_to_retry(verb, outcome.stdout + outcome.stderr):
            tally.failed.append(outcome.stdout[-1500:] + outcome.stderr[-1500:])
    last = warm.run(("run", "--all"), root, timeout=240)
    if last.code != 0:
        tally.failed.append(last.stdout[-1500:] + last.stderr[-1500:])
    return tally


def _run(warm: WarmInterpreter, verb: tuple[str, ...], root: Path, fate: Fate) -> Outcome:
    if fate.seconds is None:
        return warm.run(verb, root, failpoint=fate.failpoint, timeout=240)
    child = start_fresh(verb, root)
    threading.Event().wait(fate.seconds)
    child.kill()
    return child.wait(240)


def _nothing_to_retry(verb: tuple[str, ...], told: str) -> bool:
    """A run that died before it was recorded leaves nothing to continue."""
    return verb == ("retry",) and any(code in told for code in ("PZ0502", "PZ0503", "PZ0504", "PZ0707"))


EQUAL: Mapping[str, str] = {
    "delete": """
        (SELECT * FROM {t} EXCEPT ALL SELECT id, n, note, big FROM delete_copy.{t})
        UNION ALL (SELECT id, n, note, big FROM delete_copy.{t} EXCEPT ALL SELECT * FROM {t})""",
    "soft": """
        (SELECT * FROM {t} EXCEPT ALL SELECT id, n, note, big FROM soft_copy.{t} WHERE _pz_deleted_at IS NULL)
        UNION ALL
        (SELECT id, n, note, big FROM soft_copy.{t} WHERE _pz_deleted_at IS NULL EXCEPT ALL SELECT * FROM {t})""",
    "ignore": "SELECT * FROM {t} EXCEPT ALL SELECT id, n, note, big FROM ignore_copy.{t}",
}
"""Rows that break what each way of treating deletes defines as equal."""


def unequal(database: Database) -> dict[str, int]:
    """Broken rows per way and table; empty when all copies are what they should be."""
    found: dict[str, int] = {}
    for table in (WIDE, NARROW):
        for mode, query in EQUAL.items():
            broken = len(database.rows(query.format(t=table)))
            if broken:
                found[f"{mode} {table}"] = broken
    return found
