"""Deaths at durable steps between files and DuckDB databases: recovered like those of the reference connectors.

`make crash-sweep` dies at the first and the last passage of every point, `make test` at a sampled one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pz.connectors.contract import ReadShape, WriteStrategy
from pz.testing.faults import WarmInterpreter
from sweep import RECOVERIES, STAGES, Sweep, folder
from sweep_scenarios import SWEPT, Far, Scenario, pipeline

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

PLACES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "localfiles": ({"root": "files"}, {"root": "out"}),
    "duckdb": ({"path": "source.duckdb"}, {"path": "target.duckdb"}),
}
"""Where source and target of a connector lie."""

SCENARIOS = (
    Scenario("files-replace", ReadShape.FULL, WriteStrategy.REPLACE, source="localfiles", sink="localfiles"),
    Scenario("files-append", ReadShape.FULL, WriteStrategy.APPEND, source="localfiles", sink="localfiles"),
    Scenario(
        "files-incremental-append", ReadShape.INCREMENTAL, WriteStrategy.APPEND, source="localfiles", sink="localfiles"
    ),
    Scenario("files-merge-duckdb", ReadShape.INCREMENTAL, WriteStrategy.MERGE, source="localfiles", sink="duckdb"),
    Scenario("duckdb-append", ReadShape.INCREMENTAL, WriteStrategy.APPEND, source="duckdb", sink="duckdb"),
    Scenario("duckdb-full-append", ReadShape.FULL, WriteStrategy.APPEND, source="duckdb", sink="duckdb"),
    Scenario("duckdb-merge", ReadShape.FULL, WriteStrategy.MERGE, source="duckdb", sink="duckdb"),
    Scenario("duckdb-replace", ReadShape.FULL, WriteStrategy.REPLACE, source="duckdb", sink="duckdb"),
    Scenario("duckdb-files", ReadShape.FULL, WriteStrategy.REPLACE, source="duckdb", sink="localfiles"),
)


class LocalSide:
    """Source and target in files and DuckDB databases of the project, with those methods of `Server` that a sweep uses.

    Rows of the source lie in three csv files, or in a table; each is replaced whole, as an export job would do it.
    """

    def __init__(self, root: Path, scenario: Scenario) -> None:
        self._root = root
        self._scenario = scenario

    def mutate(
        self, table: str, *, insert: Sequence[Row] = (), update: Sequence[Row] = (), delete: Sequence[Row] = ()
    ) -> int:
        """Change the source."""
        known = self._root / "rows.json"
        rows = {row["id"]: row for row in (json.loads(known.read_text()) if known.exists() else [])}
        rows |= {row["id"]: row for row in (*insert, *update)}
        for row in delete:
            del rows[row["id"]]
        known.write_text(json.dumps(list(rows.values())))
        (self._export if self._scenario.source == "localfiles" else self._store)(table, list(rows.values()))
        return len(rows)

    def target(self, name: str) -> pa.Table:
        """What the output holds."""
        import duckdb
        import pyarrow as pa

        if self._scenario.sink == "localfiles":
            files = [str(file) for file in sorted((self._root / "out").rglob("*.parquet"))]
            if not files:
                return pa.table({})
            with duckdb.connect() as oracle:
                return oracle.execute("SELECT * FROM read_parquet(?)", [files]).to_arrow_table()
        if not (self._root / "target.duckdb").exists():
            return pa.table({})
        with duckdb.connect(str(self._root / "target.duckdb")) as oracle:
            try:
                return oracle.execute(f"SELECT * FROM {name}").to_arrow_table()
            except duckdb.CatalogException:
                return pa.table({})

    def _export(self, name: str, rows: Sequence[Row]) -> None:
        folder = self._root / "files" / name
        folder.mkdir(parents=True, exist_ok=True)
        for part in range(3):
            lines = [f"{row['id']},{row['name']},{row['at']}" for row in rows if row["id"] % 3 == part]
            aside = folder / f"part{part}.tmp"
            aside.write_text("\n".join(["id,name,at", *lines, ""]))
            aside.replace(folder / f"part{part}.csv")  # durable: ok - the far side's own store

    def _store(self, name: str, rows: Sequence[Row]) -> None:
        import duckdb

        with duckdb.connect(str(self._root / "source.duckdb")) as store:
            store.execute(f'CREATE OR REPLACE TABLE {name} (id BIGINT, name VARCHAR, "at" BIGINT)')
            store.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", [[r["id"], r["name"], r["at"]] for r in rows])


class LocalSweep(Sweep):
    """Projects over files and databases of their own."""

    def create(self, scenario: Scenario, root: Path) -> None:
        found = scenario.connections()
        read, write = found["src"]["entities"]["orders"]["read"], found["dst"]["entities"]["out"]["write"]
        del read["batch_rows"]
        if scenario.source == "localfiles":
            columns = {"id": "bigint", "name": "varchar", "at": "bigint"}
            read |= {"path": "orders/*.csv", "columns": columns}
        places = PLACES[scenario.source][0], PLACES[scenario.sink][1]
        connections = {
            "src": {"connector": scenario.source, **places[0], "entities": {"orders": {"read": read}}},
            "dst": {"connector": scenario.sink, **places[1], "entities": {"out": {"write": write}}},
        }
        (root / "pipelines").mkdir(parents=True)
        (root / "project.yml").write_text(SWEPT)
        (root / "pipelines" / "orders.sql").write_text(pipeline())
        (root / "connections.yml").write_text(json.dumps(connections))

    def far(self, scenario: Scenario, root: Path) -> Far:
        return LocalSide(root, scenario)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSweep]:
    with WarmInterpreter() as warm:
        made = LocalSweep(folder(tmp_path_factory), warm)
        yield made
        made.remove()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_sampled_death_is_recovered(sweep: LocalSweep, scenario: Scenario) -> None:
    assert sweep.failures(sweep.sampled(scenario, STAGES)) == []


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_death_is_recovered(sweep: LocalSweep, scenario: Scenario, stage: str, recovery: str) -> None:
    assert sweep.failures(sweep.cases(scenario, stage, [recovery])) == []
