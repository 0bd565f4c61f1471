"""The crash sweep with PostgreSQL as source and sink: death at every durable step, one retry or one run, and nothing lost.

Change capture has a sweep of its own (`test_capture_sweep`), because a slot cannot be copied with its database.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from postgres_server import Database, PostgresServer
from pz.connectors.contract import ReadShape, WriteStrategy
from pz.testing.faults import WarmInterpreter
from sweep import STAGES, Sweep, folder
from sweep_scenarios import SWEPT, Row, Scenario, pipeline

RANGES: Mapping[str, Any] = {"partition_column": "id", "partitions": 3}


def scenario(name: str, shape: ReadShape, strategy: WriteStrategy, **options: Mapping[str, Any]) -> Scenario:
    return Scenario(name, shape, strategy, source="postgres", sink="postgres", **options)  # type: ignore[arg-type]


SCENARIOS = (
    scenario("full-replace", ReadShape.FULL, WriteStrategy.REPLACE, read=RANGES),
    scenario("full-replace-swap", ReadShape.FULL, WriteStrategy.REPLACE, write={"replace_method": "swap"}),
    scenario("full-append", ReadShape.FULL, WriteStrategy.APPEND, read=RANGES),
    scenario("full-append-passed-on", ReadShape.FULL, WriteStrategy.APPEND),
    scenario("full-append-unmarked", ReadShape.FULL, WriteStrategy.APPEND, write={"ledger": "off"}),
    scenario("incremental-append", ReadShape.INCREMENTAL, WriteStrategy.APPEND, read=RANGES),
    scenario("incremental-merge", ReadShape.INCREMENTAL, WriteStrategy.MERGE, read=RANGES),
)


class PostgresFar:
    """A database of the test's server. Its name stays, because state is bound to it; stages are templates of it."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def mutate(
        self, table: str, *, insert: Sequence[Row] = (), update: Sequence[Row] = (), delete: Sequence[Row] = ()
    ) -> int:
        with self.database.connect() as connection, connection.transaction():
            for row in insert:
                connection.execute(f"INSERT INTO {table} VALUES (%(id)s, %(name)s, %(at)s)", row)
            for row in update:
                connection.execute(f"UPDATE {table} SET name = %(name)s, at = %(at)s WHERE id = %(id)s", row)
            for row in delete:
                connection.execute(f"DELETE FROM {table} WHERE id = %(id)s", row)
        return 0

    def target(self, name: str) -> pa.Table:
        if self.database.rows(f"SELECT to_regclass('{name}')") == [(None,)]:
            return pa.table({})
        with self.database.connect() as connection:
            cursor = connection.execute(f"SELECT * FROM {name}")
            columns = [column.name for column in cursor.description or ()]
            return pa.table(dict(zip(columns, zip(*cursor.fetchall(), strict=True), strict=False)))

    def become(self, template: str) -> None:
        """Make the database a copy of another one."""
        copy_database(self.database.server, template, self.database.name)


def copy_database(server: PostgresServer, template: str, name: str) -> None:
    with server.connect() as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")


class PostgresSweep(Sweep):
    """The sweep over databases."""

    def __init__(self, root: Path, warm: WarmInterpreter, server: PostgresServer) -> None:
        super().__init__(root, warm)
        self._server = server

    def far(self, scenario: Scenario, root: Path) -> PostgresFar:
        name = f"sweep_{os.getpid()}_{scenario.name.replace('-', '_')}"
        return PostgresFar(Database(self._server, name))

    def create(self, scenario: Scenario, root: Path) -> None:
        far = self.far(scenario, root)
        far.become("template0")
        far.database.run("CREATE TABLE orders (id bigint PRIMARY KEY, name varchar, at bigint)")
        connections = scenario.connections()
        for found in connections.values():
            found.pop("path")
            found |= far.database.options
        connections["src"]["entities"]["orders"]["read"].pop("batch_rows")
        (root / "pipelines").mkdir(parents=True)
        (root / "project.yml").write_text(SWEPT)
        (root / "pipelines" / "orders.sql").write_text(pipeline())
        (root / "connections.yml").write_text(json.dumps(connections))

    def keep(self, scenario: Scenario, stage: str) -> None:
        far = self.far(scenario, Path())
        copy_database(self._server, far.database.name, f"{far.database.name}_{stage}")

    def restore(self, scenario: Scenario, stage: str) -> None:
        far = self.far(scenario, Path())
        far.become(f"{far.database.name}_{stage}")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[PostgresSweep]:
    with WarmInterpreter() as warm:
        made = PostgresSweep(folder(tmp_path_factory), warm, postgres_server)
        yield made
        made.remove()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_sampled_death_is_recovered(sweep: PostgresSweep, scenario: Scenario) -> None:
    assert sweep.failures(sweep.sampled(scenario, STAGES)) == []


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_death_is_recovered(sweep: PostgresSweep, scenario: Scenario, stage: str) -> None:
    assert sweep.failures(sweep.cases(scenario, stage)) == []
