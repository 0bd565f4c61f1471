"""State moves only behind committed outputs, judged on the full graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pz import durable
from pz.cursors import CursorType
from pz.errors import Code
from pz.graph.model import Graph, NodeKind, PipelineNode, SinkNode, SourceNode
from pz.oslock import OsLock
from pz.project.model import Materialization, ReadDecl, WriteDecl
from pz.runs.model import NodeResult, NodeStatus
from pz.state import advancement
from pz.state.advancement import CARRIED_FORWARD, REUSED, Decision, Verdict, decide, store
from pz.state.entries import Binding, Entry, Token, Value, Watermark
from pz.state.stores import local
from pz.state.sync_state import token_store
from pz.state.watermarks import watermark_store


def source(name: str) -> SourceNode:
    return SourceNode(
        id=name,
        kind=NodeKind.SOURCE_LOAD,
        name=f"crm.{name}",
        connection="crm",
        entity=name,
        relation=name,
        read=ReadDecl(),
    )


def pipeline(name: str, *parents: str) -> PipelineNode:
    return PipelineNode(
        id=name, kind=NodeKind.PIPELINE, name=name, parents=parents, sql="", materialization=Materialization.TABLE
    )


def sink(name: str, parent: str) -> SinkNode:
    return SinkNode(
        id=name,
        kind=NodeKind.SINK_WRITE,
        name=f"lake.{name}",
        parents=(parent,),
        connection="lake",
        entity=name,
        pipeline=parent,
        write=WriteDecl(),
    )


# a -> p -> (s1, s2);  b -> q -> s3, and q also reads p;  c has no output
GRAPH = Graph(
    (
        source("a"),
        source("b"),
        source("c"),
        pipeline("p", "a"),
        pipeline("q", "b", "p"),
        sink("s1", "p"),
        sink("s2", "p"),
        sink("s3", "q"),
    )
)


def mark(value: int) -> Watermark:
    return Watermark("id", CursorType.INT, str(value))


def results(**changes: NodeStatus | str | None) -> dict[str, NodeResult]:
    """Everything succeeded, except: a status, a provenance, or None for a node that was not part of the run."""
    found = {}
    for node in GRAPH.nodes:
        change = changes.get(node.id, NodeStatus.SUCCESS)
        result = NodeResult(node.id, node.kind, node.name, NodeStatus.SUCCESS)
        if isinstance(change, NodeStatus):
            found[node.id] = replace(result, status=change)
        elif change is not None:
            found[node.id] = replace(result, provenance=change)
    return found


CANDIDATES: dict[str, Value] = {"a": mark(10), "b": Token("t"), "c": mark(30)}


def advancing(found: dict[str, NodeResult]) -> set[str]:
    return {d.key for d in decide(GRAPH, found, CANDIDATES) if d.verdict is Verdict.ADVANCE}


def test_everything_advances_when_everything_committed() -> None:
    assert advancing(results()) == {"crm.a", "crm.b", "crm.c"}


@pytest.mark.parametrize("bad", [NodeStatus.FAILED, NodeStatus.SKIPPED, None])
def test_an_output_that_did_not_commit_blocks_all_datasets_above_it_and_no_other(bad: NodeStatus | None) -> None:
    assert advancing(results(s3=bad)) == {"crm.c"}
    assert advancing(results(s1=bad)) == {"crm.b", "crm.c"}


def test_a_blocked_dataset_says_which_output_blocks_it() -> None:
    decisions = {d.key: d for d in decide(GRAPH, results(s2=None), CANDIDATES)}
    assert decisions["crm.a"].verdict is Verdict.BLOCKED
    assert decisions["crm.a"].reason == "output 'lake.s2' was not part of this run"


def test_a_dataset_without_outputs_advances_on_its_load_alone() -> None:
    assert advancing({"c": results()["c"]}) == {"crm.c"}


def test_a_failed_load_or_one_that_offers_nothing_has_nothing_to_advance() -> None:
    decisions = {d.key: d.verdict for d in decide(GRAPH, results(a=NodeStatus.FAILED), {"a": mark(10)})}
    assert decisions == {"crm.a": Verdict.NOTHING, "crm.b": Verdict.NOTHING, "crm.c": Verdict.NOTHING}


def test_a_dataset_that_was_not_read_is_not_decided_on() -> None:
    assert {d.key for d in decide(GRAPH, {"c": results()["c"]}, CANDIDATES)} == {"crm.c"}


def test_a_carried_output_counts_only_behind_a_reused_load() -> None:
    carried = results(a=REUSED, b=REUSED, s1=CARRIED_FORWARD, s3=CARRIED_FORWARD)
    assert advancing(carried) == {"crm.a", "crm.b", "crm.c"}
    read_anew = results(a=REUSED, s1=CARRIED_FORWARD, s3=CARRIED_FORWARD)
    assert advancing(read_anew) == {"crm.a", "crm.c"}
    decision = next(d for d in decide(GRAPH, read_anew, CANDIDATES) if d.key == "crm.b")
    assert decision.code is Code.PZ0709
    assert "read anew" in (decision.reason or "")


RUN = "20260710T120000123Z-ab12"
WHERE = {key: Binding(f"at {key}", {"lake.x": "d"}) for key in ("crm.a", "crm.b", "crm.c")}


def save(
    tmp_path: Path, found: tuple[Decision, ...], seen: dict[str, Entry | None], **kwargs: bool
) -> advancement.Stored:
    return store(
        found, watermark_store(tmp_path), token_store(tmp_path), run_id=RUN, seen=seen, bindings=WHERE, **kwargs
    )


def advance_to(value: int) -> tuple[Decision, ...]:
    return (Decision("crm.a", Verdict.ADVANCE, mark(value)),)


def test_both_kinds_of_state_are_written_with_run_and_binding(tmp_path: Path) -> None:
    stored = save(tmp_path, decide(GRAPH, results(), CANDIDATES), {})
    assert set(stored.written) == {"crm.a", "crm.b", "crm.c"}
    assert stored.problem is None
    assert watermark_store(tmp_path).read() == {
        "crm.a": Entry(mark(10), RUN, WHERE["crm.a"]),
        "crm.c": Entry(mark(30), RUN, WHERE["crm.c"]),
    }
    assert token_store(tmp_path).read() == {"crm.b": Entry(Token("t"), RUN, WHERE["crm.b"])}


def test_blocked_datasets_are_left_alone(tmp_path: Path) -> None:
    assert save(tmp_path, decide(GRAPH, results(s3=None), CANDIDATES), {}).written == ("crm.c",)


def test_a_slower_older_run_never_moves_a_watermark_back(tmp_path: Path) -> None:
    save(tmp_path, advance_to(10), {})
    seen = watermark_store(tmp_path).read()["crm.a"]
    save(tmp_path, advance_to(30), {"crm.a": seen})
    stored = save(tmp_path, advance_to(20), {"crm.a": seen})
    assert stored.failures["crm.a"].code is Code.PZ0520
    assert watermark_store(tmp_path).read()["crm.a"].value == mark(30)


def test_a_candidate_below_the_stored_value_is_kept_back_except_by_a_full_refresh(tmp_path: Path) -> None:
    save(tmp_path, advance_to(30), {})
    seen = dict(watermark_store(tmp_path).read())
    assert save(tmp_path, advance_to(9), {**seen}) == advancement.Stored(unchanged=("crm.a",))
    assert save(tmp_path, advance_to(9), {**seen}, full_refresh=True).written == ("crm.a",)


def test_storing_twice_is_harmless_so_a_takeover_may_replay_it(tmp_path: Path) -> None:
    save(tmp_path, advance_to(10), {})
    again = save(tmp_path, advance_to(10), {})
    assert (again.unchanged, again.problem) == (("crm.a",), None)


def test_one_dataset_that_cannot_be_stored_does_not_hold_up_the_others(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "sync-state.json").write_bytes(b"{")
    stored = save(tmp_path, decide(GRAPH, results(), CANDIDATES), {})
    assert set(stored.written) == {"crm.a", "crm.c"}
    assert stored.problem is not None
    assert stored.problem.code is Code.PZ0527
    assert "'crm.b'" in stored.problem.message
    assert "PZ0706" in stored.problem.message


def test_a_full_disk_names_every_dataset_and_raises_nothing(tmp_path: Path) -> None:
    durable.rearm("advance_state.before:1=enospc,advance_state.before:3=enospc")
    try:
        stored = save(tmp_path, decide(GRAPH, results(), CANDIDATES), {})
    finally:
        durable.rearm()
    assert set(stored.failures) == {"crm.a", "crm.c"}
    assert stored.written == ("crm.b",)
    assert stored.problem is not None
    assert "'crm.a'" in stored.problem.message
    assert "'crm.c'" in stored.problem.message


def test_a_store_that_cannot_be_reached_is_tried_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    class Busy(OsLock):
        def acquire(self, wait: float = 0.0, owner: object = None) -> bool:
            tries.append(wait)
            return False

    monkeypatch.setattr(local, "OsLock", Busy)
    stored = save(tmp_path, advance_to(10), {})
    assert len(tries) == 3
    assert stored.failures["crm.a"].code is Code.PZ0518
