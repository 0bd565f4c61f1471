"""What `pz plan` prints, from a plan made by hand: no database is needed for it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cli_support import invoke
from projects import write
from pz.api import open_project
from pz.cli.plan import guarantee_text
from pz.codes import Code
from pz.connectors.contract import ReadShape
from pz.errors import Problem, Severity
from pz.graph.delivery import Guarantee
from pz.graph.model import NodeKind
from pz.plan.artifact import plan_to_json, write_plan
from pz.plan.model import Budget, Plan, PlannedNode, Way
from pz.plan.planner import thread_notes
from pz.project.model import RetryPolicy
from pz.project.scaffold import create

MIB = 1024 * 1024
ONCE = Guarantee("effectively-once", "keys unique")
PLAN = Plan(
    (
        PlannedNode(
            "a" * 16, NodeKind.SOURCE_LOAD, "crm.orders", Way.NATIVE_SCAN, "read=incremental cursor=id",
            read_shape=ReadShape.INCREMENTAL, retry=RetryPolicy(), partitions=3,
        ),
        PlannedNode("b" * 16, NodeKind.PIPELINE, "stg_orders", Way.DUCK_SQL, "table"),
        PlannedNode(
            "c" * 16, NodeKind.SINK_WRITE, "lake.orders", Way.ARROW_STREAM, "merge on id",
            guarantees={"crm.orders": ONCE, "crm.items": ONCE}, retry=RetryPolicy(5),
        ),
        PlannedNode(
            "d" * 16, NodeKind.SINK_WRITE, "lake.log", Way.NATIVE_COPY, "append",
            guarantees={"crm.orders": ONCE, "crm.log": Guarantee("at-least-once", "consented")},
        ),
    ),
    Budget(600 * MIB, 100 * MIB, 256 * MIB),
    ("engine.duckdb.threads is not set",),
)  # fmt: skip


@dataclass
class Planner:
    plan_: Plan = PLAN
    calls: list[tuple[tuple[str, ...], dict[str, Any]]] = field(default_factory=list)

    def plan(self, *flows: str, **options: Any) -> Plan:
        self.calls.append((flows, options))
        return self.plan_


def test_the_plan_is_a_table_with_the_budget_and_the_notes_below() -> None:
    printed = invoke("plan", project=Planner()).out.splitlines()
    rows = [[cell for cell in re.split(r" {2,}", line) if cell] for line in printed[:5]]
    assert rows == [
        ["node", "kind", "way", "guarantee", "partitions", "retry", "reason"],
        ["crm.orders", "SourceLoad", "native_scan", "3", "3x 1s..30s", "read=incremental cursor=id"],
        ["stg_orders", "Pipeline", "duck_sql", "table"],
        [
            *("lake.orders", "SinkWrite", "arrow_stream", "guarantee=effectively-once (keys unique)", "5x 1s..30s"),
            "merge on id",
        ],
        [
            *("lake.log", "SinkWrite", "native_copy"),
            "crm.orders: guarantee=effectively-once (keys unique); crm.log: guarantee=at-least-once (consented)",
            "append",
        ],
    ]
    assert printed[5:] == [
        "memory: 956.0 MiB = duckdb 600.0 MiB + channels 100.0 MiB + overhead 256.0 MiB",
        "staging disk: not known offline",
        "note: engine.duckdb.threads is not set",
    ]


def test_the_guarantee_is_seen_where_lines_are_cut_off_at_80_columns() -> None:
    """Once it was the last column, behind the reason, which may be of any length."""
    printed = [line[:80] for line in invoke("plan", project=Planner()).out.splitlines()]
    assert any(line.startswith("lake.orders") and "guarantee=effectively-once" in line for line in printed)


def test_selection_and_connect_reach_the_planner() -> None:
    planner = Planner()
    invoke("plan", "a", "--connect", project=planner)
    assert planner.calls == [(("a",), {"select": None, "everything": False, "connect": True})]


def test_json_is_what_the_artifact_holds(tmp_path: Path) -> None:
    printed = json.loads(invoke("plan", "--json", project=Planner()).out)
    assert printed == plan_to_json(PLAN)
    assert json.loads(write_plan(tmp_path / "target", PLAN).read_text()) == printed


def test_a_node_holds_what_applies_to_it_and_nothing_else() -> None:
    load, pipeline, *_ = plan_to_json(PLAN)["nodes"]
    assert load["retry"] == {"maxAttempts": 3, "baseDelaySeconds": 1.0, "maxDelaySeconds": 30.0}
    assert (load["readShape"], load["partitions"]) == ("incremental", 3)
    assert set(pipeline) == {"id", "kind", "name", "way", "reason"}


def test_warnings_of_the_way_to_the_plan_are_printed() -> None:
    warning = Problem(Code.PZ0223, "nobody uses 'x'", "x.sql", hint="load it", severity=Severity.WARNING)
    got = invoke("plan", project=Planner(replace(PLAN, warnings=(warning,))))
    assert (got.code, got.err) == (0, "warning PZ0223: nobody uses 'x' (x.sql)\nhint: load it\n")


def test_a_refusal_outside_of_the_selection_is_in_the_artifact() -> None:
    refusal = Problem(Code.PZ0363, "no tokens here")
    node = PlannedNode("e" * 16, NodeKind.SOURCE_LOAD, "x.y", Way.ARROW_STREAM, "read=feed", refusal=refusal)
    (written,) = plan_to_json(Plan((node,), PLAN.budget))["nodes"]
    assert written["refusal"] == {"code": "PZ0363", "message": "no tokens here"}


def test_threads_are_worth_a_note_where_each_has_little_memory() -> None:
    """Once every plan of every fresh project ended in this note."""
    assert list(thread_notes(None, 8 * 1024 * MIB, 8)) == []
    assert list(thread_notes(4, 1024 * MIB, 64)) == []
    (note,) = thread_notes(None, 8 * 1024 * MIB, 64)
    assert note.startswith("engine.duckdb.threads is not set: DuckDB uses 64 cores, with 128 MiB of memory for each")


def test_a_fused_chain_gives_its_reason_once(tmp_path: Path) -> None:
    create(tmp_path / "demo", "minimal")
    reasons = [node.reason for node in open_project(tmp_path / "demo").plan().nodes]
    assert [reason.split("; ")[-1] for reason in reasons] == [
        "fused into lake.joined_in_2024",
        "fused into lake.joined_in_2024",
        "one statement from source to sink 'lake.joined_in_2024', nothing staged to resume from",
    ]


def test_an_output_without_a_dataset_above_has_its_guarantee_too(tmp_path: Path) -> None:
    sinks = "{{ sink('lake', 'r', strategy: 'replace') }}, {{ sink('lake', 'a') }}"
    files = {
        "connections.yml": "lake: { connector: localfiles, root: out }\n",
        "pipelines/days.sql": f"INSERT INTO [{sinks}]\nSELECT 1 AS one",
    }
    planned = {node.name: node for node in open_project(write(tmp_path, files), environ={}).plan().nodes}
    assert guarantee_text(planned["lake.r"]) == "guarantee=effectively-once"
    assert guarantee_text(planned["lake.a"]).startswith("guarantee=at-least-once")
    assert list(planned["lake.r"].guarantees or {}) == ["days"]
