"""Small projects, one per legal cell of the pairing matrix, each with a plain-Python model of what must be delivered.

The far side of a scenario is a `Server`: it holds the source and the target, outlives every process, and is mutated between
runs by `Scenario.mutate`. `Model` plays source and destination in dictionaries and lists, without any code of the engine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from pz.connectors.contract import OnDelete, ReadShape, WriteStrategy
from pz.connectors.deletes import LIMIT
from pz.graph.delivery import EFFECTIVELY_ONCE, MATRIX
from pz.testing.oracle import rows_of
from pz.testing.server import Server

Row = dict[str, Any]

COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "at": "BIGINT"}
# Few threads: a run of thirty rows spends most of its time on starting them.
PROJECT = """\
name: shop
version: 1.0.0
engine:
  threads: 2
  duckdb: { threads: 1, memory_limit: 200MB }
"""
SWEPT = PROJECT + "retention: { keep_last: 1 }\n"
"""The same, and the second run removes the data of the first."""


def pipeline(number: str = "") -> str:
    """The SQL of a flow: source to output, as it is."""
    return (
        f"INSERT INTO {{{{ sink('dst{number}', 'out{number}') }}}}\n"
        f"SELECT * FROM {{{{ source('src{number}', 'orders{number}') }}}}\n"
    )


class Far(Protocol):
    """What the model needs of the far side of a project; `Server` is one."""

    def mutate(
        self, table: str, *, insert: Sequence[Row] = (), update: Sequence[Row] = (), delete: Sequence[Row] = ()
    ) -> int:
        """Change the source in one transaction."""
        ...

    def target(self, name: str) -> pa.Table:
        """What the output holds; no rows when there is none."""
        ...


@dataclass(frozen=True)
class Scenario:
    """A cell of the matrix over one kind of connector.

    ``read`` and ``write`` are the options of the two entities; ``source`` and ``sink`` name the connectors.
    """

    name: str
    shape: ReadShape
    strategy: WriteStrategy
    on_delete: OnDelete | None = None
    source: str = "reference"
    sink: str = "reference"
    read: Mapping[str, Any] = field(default_factory=dict)
    write: Mapping[str, Any] = field(default_factory=dict)
    native: int = 0

    def create(self, root: Path) -> None:
        """Write the project and make its far side, with fifteen rows."""
        (root / "pipelines").mkdir(parents=True)
        (root / "project.yml").write_text(SWEPT)
        (root / "connections.yml").write_text(json.dumps(self.connections(), indent=1))  # JSON is YAML
        (root / "pipelines" / "orders.sql").write_text(pipeline())
        self.declare_source(Server(root / "far"))

    def declare_source(self, server: Server, number: str = "") -> None:
        """Make the empty table that the flow reads."""
        server.create(f"orders{number}", COLUMNS, keys=["id"], native=self.native)

    def connections(self, number: str = "") -> dict[str, Any]:
        """The two connections of the flow; a ``number`` behind every name lets several flows share a project."""
        read: dict[str, Any] = {"batch_rows": 5, **self.read}
        if self.shape is ReadShape.INCREMENTAL:
            read["sync"] = {"mode": "incremental", "cursor": "at"}
            read["columns"] = {"id": "bigint", "name": "varchar", "at": "bigint"}
        elif self.shape is ReadShape.CDC:
            read["sync"] = {"mode": "cdc"}
        write: dict[str, Any] = {"strategy": self.strategy.value, **self.write}
        if self.strategy is WriteStrategy.MERGE:
            write["keys"] = ["id"]
        if self.on_delete is not None:
            write["on_delete"] = self.on_delete.value
        if self.strategy is WriteStrategy.APPEND and self.shape is not ReadShape.FULL:
            write["duplicates"] = "accept"
        return {
            f"src{number}": {"connector": self.source, "path": "far", "entities": {f"orders{number}": {"read": read}}},
            f"dst{number}": {"connector": self.sink, "path": "far", "entities": {f"out{number}": {"write": write}}},
        }

    @property
    def once(self) -> bool:
        """Whether the cell promises effectively-once."""
        found = next(
            c for c in MATRIX if (c.shape, c.strategy) == (self.shape, self.strategy) and self.on_delete in c.on_delete
        )
        return found.guarantee is not None and found.guarantee.level == EFFECTIVELY_ONCE

    @property
    def once_in_a_chain(self) -> bool:
        """Whether a slice comes once within a run and its retries: by a mark, or a file name of its own."""
        return self.once or self.sink != "reference_api"


def create_flows(root: Path, scenarios: Sequence[Scenario], connection: Mapping[str, Any]) -> None:
    """A project with a flow ``flow<n>`` for each scenario, run on one thread; ``connection`` goes into every connection.

    One thread makes a run the same each time: the nth passage of a point is always the same moment.
    """
    (root / "pipelines").mkdir(parents=True)
    (root / "project.yml").write_text(PROJECT.replace("threads: 2", "threads: 1"))
    declared: dict[str, Any] = {}
    for number, scenario in enumerate(scenarios):
        scenario.declare_source(Server(root / "far"), str(number))
        (root / "pipelines" / f"flow{number}.sql").write_text(pipeline(str(number)))
        declared |= {name: {**found, **connection} for name, found in scenario.connections(str(number)).items()}
    (root / "connections.yml").write_text(json.dumps(declared, indent=1))


class Model:
    """What the source holds and what a faultless engine has delivered so far."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.source: dict[int, Row] = {}
        self.clock = 0
        self.delivered: list[Row] = []
        self._mark = 0
        self._changed: dict[int, int] = {}
        self._deleted: set[int] = set()

    def mutate(self, server: Far, number: int) -> None:
        """The ``number``-th change of the source: inserts, then also updates and deletes."""
        inserts = [self._row(number * 100 + n, "new") for n in range(15)]
        updates: list[Row] = []
        deletes: list[Row] = []
        if number:
            old = sorted(self.source)
            updates = [self._row(key, f"changed {number}") for key in old[1:5]]
            deletes = [{"id": key} for key in old[6:8]]
        server.mutate("orders", insert=inserts, update=updates, delete=deletes)
        for row in (*inserts, *updates):
            self.source[row["id"]] = row
            self._changed[row["id"]] = row["at"]
        for row in deletes:
            del self.source[row["id"]]
            self._deleted.add(row["id"])

    def deliver(self) -> None:
        """One complete run."""
        fresh = self._read()
        strategy = self.scenario.strategy
        if strategy is WriteStrategy.REPLACE:
            self.delivered = fresh
        elif strategy is WriteStrategy.APPEND:
            self.delivered = self.delivered + fresh
        else:
            merged = {row["id"]: row for row in self.delivered} | {row["id"]: row for row in fresh}
            if self.scenario.on_delete in {OnDelete.DELETE, OnDelete.SOFT}:
                merged = {key: row for key, row in merged.items() if key not in self._deleted}
            self.delivered = list(merged.values())
        self._mark = self.clock

    def _read(self) -> list[Row]:
        """What a run reads: all, or what changed behind the mark."""
        if self.scenario.shape is ReadShape.FULL:
            return list(self.source.values())
        return [row for row in self.source.values() if row["at"] > self._mark]

    def _row(self, key: int, name: str) -> Row:
        self.clock += 1
        return {"id": key, "name": name, "at": self.clock}

    def broken_promise(self, server: Far, *, retried: bool = False) -> str | None:
        """What is wrong with the destination, None when the cell's promise holds; ``retried`` by nothing but retries."""
        found = server.target("out").to_pylist()
        if self.scenario.on_delete is OnDelete.SOFT:
            found = [row for row in found if row.get("_pz_deleted_at") is None]
        found = [{name: value for name, value in row.items() if name != "_pz_deleted_at"} for row in found]
        have, want = rows_of(found), rows_of(self.delivered)
        missing, extra = want - have, have - want
        if not (self.scenario.once_in_a_chain if retried else self.scenario.once):
            extra = Counter({row: count for row, count in extra.items() if row not in want})
        if missing or extra:
            return (
                f"{sum(missing.values())} missing {list(missing)[:2]}, {sum(extra.values())} too many {list(extra)[:2]}"
            )
        return None


PARTS: Mapping[str, Any] = {"partitions": 3, "checkpoints": True}

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("full-replace", ReadShape.FULL, WriteStrategy.REPLACE, read={**PARTS, "lazy": True}),
    Scenario("full-replace-streaming", ReadShape.FULL, WriteStrategy.REPLACE, sink="reference_api", read=PARTS),
    Scenario("full-append", ReadShape.FULL, WriteStrategy.APPEND, read=PARTS),
    Scenario("full-append-streaming", ReadShape.FULL, WriteStrategy.APPEND, sink="reference_api", read=PARTS),
    Scenario(
        "full-append-native",
        ReadShape.FULL,
        WriteStrategy.APPEND,
        write={"native": True},
        read={"native": "whole"},
        native=3,
    ),
    Scenario(
        "full-merge", ReadShape.FULL, WriteStrategy.MERGE, read={"native": "partition", "partitions": 3}, native=3
    ),
    Scenario("full-merge-plain", ReadShape.FULL, WriteStrategy.MERGE, source="reference_plain"),
    Scenario("incremental-append", ReadShape.INCREMENTAL, WriteStrategy.APPEND, read=PARTS),
    Scenario(
        "incremental-append-streaming", ReadShape.INCREMENTAL, WriteStrategy.APPEND, sink="reference_api", read=PARTS
    ),
    Scenario(
        "incremental-append-over-read", ReadShape.INCREMENTAL, WriteStrategy.APPEND, read={**PARTS, "bounds": "ignore"}
    ),
    Scenario("incremental-merge", ReadShape.INCREMENTAL, WriteStrategy.MERGE, read=PARTS),
    Scenario("incremental-merge-silent", ReadShape.INCREMENTAL, WriteStrategy.MERGE, read={**PARTS, "probe": "silent"}),
    Scenario("feed-append", ReadShape.FEED, WriteStrategy.APPEND, source="reference_api", read={"feed": True}),
    Scenario("feed-merge", ReadShape.FEED, WriteStrategy.MERGE, source="reference_api", read={"feed": True}),
    Scenario(
        "feed-merge-streaming",
        ReadShape.FEED,
        WriteStrategy.MERGE,
        source="reference_api",
        sink="reference_api",
        read={"feed": True},
    ),
    Scenario("cdc-delete", ReadShape.CDC, WriteStrategy.MERGE, OnDelete.DELETE, write={LIMIT: 1}),
    Scenario("cdc-soft", ReadShape.CDC, WriteStrategy.MERGE, OnDelete.SOFT, write={LIMIT: 1}),
    Scenario("cdc-ignore", ReadShape.CDC, WriteStrategy.MERGE, OnDelete.IGNORE),
)
"""Every legal cell at least once; `test_crash_sweep` checks that none is missing."""
