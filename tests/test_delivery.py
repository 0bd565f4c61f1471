"""The pairing matrix says what is guaranteed, and refuses what would lose or silently duplicate rows."""

from __future__ import annotations

from itertools import product

import pytest

from pz.connectors.contract import OnDelete, ReadShape, WriteStrategy
from pz.errors import Code
from pz.graph.delivery import MATRIX, cell, edges, guarantee, merges_everywhere, refusal
from pz.graph.model import Graph, NodeKind, PipelineNode, SinkNode, SourceNode
from pz.project.model import Location, Materialization, ReadDecl, WriteDecl

REPLACE, APPEND, MERGE = WriteStrategy.REPLACE, WriteStrategy.APPEND, WriteStrategy.MERGE
FULL, FEED, INCREMENTAL, CDC = ReadShape.FULL, ReadShape.FEED, ReadShape.INCREMENTAL, ReadShape.CDC


def source(name: str = "s") -> SourceNode:
    return SourceNode(
        id=name, kind=NodeKind.SOURCE_LOAD, name=f"src_crm__{name}", connection="crm", entity=name,
        relation=f"src_crm__{name}", read=ReadDecl(),
    )  # fmt: skip


def sink(write: WriteDecl, *parents: str, name: str = "out") -> SinkNode:
    return SinkNode(
        id=name, kind=NodeKind.SINK_WRITE, name=f"lake.{name}", connection="lake", entity=name, pipeline="p",
        write=write, parents=parents, location=Location("pipelines/p.sql", 1),
    )  # fmt: skip


def test_every_pair_has_exactly_one_cell() -> None:
    for shape, strategy, on_delete in product(ReadShape, WriteStrategy, (None, *OnDelete)):
        matching = [c for c in MATRIX if (c.shape, c.strategy) == (shape, strategy) and on_delete in c.on_delete]
        assert len(matching) == 1
        assert cell(shape, strategy, on_delete) is matching[0]


@pytest.mark.parametrize(
    ("shape", "write", "expected"),
    [
        (FULL, WriteDecl(REPLACE), "effectively-once"),
        (FULL, WriteDecl(APPEND), "at-least-once"),
        (FULL, WriteDecl(MERGE), "effectively-once"),
        (FEED, WriteDecl(REPLACE), Code.PZ0335),
        (FEED, WriteDecl(APPEND), Code.PZ0214),
        (FEED, WriteDecl(APPEND, duplicates_accepted=True), "at-least-once (consented)"),
        (FEED, WriteDecl(MERGE), "effectively-once"),
        (INCREMENTAL, WriteDecl(REPLACE), Code.PZ0335),
        (INCREMENTAL, WriteDecl(REPLACE, duplicates_accepted=True), Code.PZ0335),
        (INCREMENTAL, WriteDecl(APPEND), Code.PZ0214),
        (INCREMENTAL, WriteDecl(APPEND, duplicates_accepted=True), "at-least-once (consented)"),
        (INCREMENTAL, WriteDecl(MERGE), "effectively-once"),
        (CDC, WriteDecl(REPLACE), Code.PZ0335),
        (CDC, WriteDecl(APPEND, duplicates_accepted=True), Code.PZ0335),
        (CDC, WriteDecl(MERGE), Code.PZ0336),
        (CDC, WriteDecl(MERGE, on_delete=OnDelete.DELETE), "effectively-once"),
        (CDC, WriteDecl(MERGE, on_delete=OnDelete.SOFT), "effectively-once"),
        (CDC, WriteDecl(MERGE, on_delete=OnDelete.IGNORE), "effectively-once (upserts; deletes are not propagated)"),
    ],
)
def test_a_pair_is_guaranteed_or_refused_as_the_contract_says(
    shape: ReadShape, write: WriteDecl, expected: str | Code
) -> None:
    problem = refusal(shape, source(), sink(write))
    if isinstance(expected, Code):
        assert guarantee(shape, write) is None
        assert problem is not None
        assert problem.code is expected
        assert problem.where == "pipelines/p.sql:1"
    else:
        assert str(guarantee(shape, write)) == expected
        assert problem is None


def test_only_a_merge_of_captured_deletes_needs_a_sink_that_removes_what_a_snapshot_lacks() -> None:
    weaker = {
        (shape, strategy, on_delete)
        for shape, strategy, on_delete in product(ReadShape, WriteStrategy, (None, *OnDelete))
        for write in [WriteDecl(strategy, on_delete=on_delete)]
        if guarantee(shape, write) != guarantee(shape, write, ghosts=True)
    }
    assert weaker == {(CDC, MERGE, OnDelete.DELETE), (CDC, MERGE, OnDelete.SOFT)}
    promised = guarantee(CDC, WriteDecl(MERGE, on_delete=OnDelete.DELETE), ghosts=True)
    assert str(promised) == "effectively-once (rows that a snapshot does not hold stay)"


def test_the_append_refusal_never_advises_the_strategy_that_is_refused_next() -> None:
    problem = refusal(INCREMENTAL, source("events"), sink(WriteDecl(APPEND), name="events_raw"))
    assert problem is not None
    assert problem.message == (
        "sink 'lake.events_raw' has write.strategy: append and is fed by incremental dataset 'crm.events' -- "
        "delivery is at-least-once, so a retried or replayed slice can duplicate rows"
    )
    assert "replace" not in problem.advice
    assert "duplicates: 'accept'" in problem.advice


def test_the_replace_refusal_says_what_would_be_lost() -> None:
    problem = refusal(INCREMENTAL, source("orders"), sink(WriteDecl(REPLACE), name="orders_curated"))
    assert problem is not None
    assert problem.message == (
        "output 'lake.orders_curated': write.strategy 'replace' fed by incremental dataset 'crm.orders' "
        "would discard previously loaded rows each run."
    )
    assert problem.advice == (
        "use write.strategy: merge (effectively-once), or remove the dataset's sync block for a full re-read"
    )


def test_a_source_merges_everywhere_only_if_every_sink_below_it_merges() -> None:
    one, two = source("one"), source("two")
    pipe = PipelineNode(
        id="p", kind=NodeKind.PIPELINE, name="p", sql="", materialization=Materialization.TABLE, parents=("one",)
    )
    other = PipelineNode(
        id="q", kind=NodeKind.PIPELINE, name="q", sql="", materialization=Materialization.TABLE, parents=("two", "p")
    )
    merged = sink(WriteDecl(MERGE), "p", name="merged")
    appended = sink(WriteDecl(APPEND), "q", name="appended")
    graph = Graph((one, two, pipe, other, merged, appended))
    assert {(a.name, b.name) for a, b in edges(graph)} == {
        ("src_crm__one", "lake.merged"), ("src_crm__one", "lake.appended"), ("src_crm__two", "lake.appended"),
    }  # fmt: skip
    assert not merges_everywhere(graph, one)
    assert merges_everywhere(Graph((one, pipe, merged)), one)


def test_the_hint_of_an_append_is_spelled_as_the_output_is_declared() -> None:
    at_call = sink(WriteDecl(APPEND))
    in_yaml = sink(WriteDecl(APPEND, location=Location("connections.yml", 3)))
    told = [refusal(INCREMENTAL, source("s"), output) for output in (at_call, in_yaml)]
    hints = [problem.hint or "" for problem in told if problem is not None]
    assert "sink('lake', 'out', strategy: 'append', duplicates: 'accept')" in hints[0]
    assert "write:\n  strategy: append\n  duplicates: accept" in hints[1]
