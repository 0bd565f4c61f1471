"""A selection means exactly the nodes that its grammar says, or is refused with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph_projects import compiled
from pz.errors import ProjectError
from pz.graph.model import Graph
from pz.graph.selection import flow_names, select

FILES = {
    "stg": "SELECT * FROM {{ source('crm', 'shop.orders') }}",
    "mart": "INSERT INTO {{ sink('lake', 'mart') }} SELECT * FROM {{ ref('stg') }}",
    "wide": "INSERT INTO {{ sink('lake', 'wide') }} SELECT * FROM {{ ref('stg') }} JOIN {{ source('crm', 'users') }} USING (id)",
    "alone": "INSERT INTO {{ sink('lake', 'alone') }} SELECT 1 AS id",
    "pipelines/configs/mart.yml": "pipeline: mart\ntags: [daily, core]\nchecks: [{not_null: [id]}]",
    "pipelines/configs/wide.yml": "pipeline: wide\ntags: daily",
}
FLOW = {
    "src_crm__shop_orders", "src_crm__users", "stg", "mart", "wide", "check_mart_not_null_id", "lake.mart", "lake.wide",
}  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return compiled(tmp_path_factory.mktemp("project"), FILES).graph


def names(graph: Graph, ids: frozenset[str]) -> set[str]:
    return {node.name for node in graph.in_order(ids)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mart", {"mart"}),
        ("+mart", {"src_crm__shop_orders", "stg", "mart"}),
        ("mart+", {"mart", "check_mart_not_null_id", "lake.mart"}),
        ("+stg+", FLOW - {"src_crm__users"}),
        ("tag:daily", {"mart", "wide"}),
        ("tag:daily,tag:core", {"mart"}),
        ("tag:core+", {"mart", "check_mart_not_null_id", "lake.mart"}),
        ("alone lake.mart", {"alone", "lake.mart"}),
        ("lake.*", {"lake.mart", "lake.wide", "lake.alone"}),
        ("check_*", {"check_mart_not_null_id"}),
        ("source:crm.*", {"src_crm__shop_orders", "src_crm__users"}),
        ("source:crm.shop.orders+,tag:core", {"mart"}),
        ("  mart \t wide ", {"mart", "wide"}),
    ],
)
def test_a_selector_means_exactly_these_nodes(graph: Graph, text: str, expected: set[str]) -> None:
    assert names(graph, select(graph, select=text)) == expected


def test_a_flow_is_all_that_is_above_and_below_its_name(graph: Graph) -> None:
    assert names(graph, select(graph, flows=["stg"])) == FLOW - {"src_crm__users"}
    assert names(graph, select(graph, flows=["alone", "lake.wide"])) == {
        "alone", "lake.alone", "lake.wide", "wide", "stg", "src_crm__users", "src_crm__shop_orders",
    }  # fmt: skip
    assert names(graph, graph.ancestors(select(graph, flows=["stg"]))) == FLOW


def test_everything_is_everything(graph: Graph) -> None:
    assert names(graph, select(graph, everything=True)) == FLOW | {"alone", "lake.alone"}


def test_one_flow_needs_no_name_and_several_do(graph: Graph, tmp_path: Path) -> None:
    single = compiled(tmp_path, {name: text for name, text in FILES.items() if name != "alone"}).graph
    assert names(single, select(single)) == FLOW
    with pytest.raises(ProjectError) as caught:
        select(graph)
    assert caught.value.code == "PZ0215"
    assert all(name in caught.value.problems[0].advice for name in flow_names(graph))
    assert len(flow_names(graph)) == 2


@pytest.mark.parametrize(
    ("flows", "text", "code", "hint"),
    [
        (["sgt"], None, "PZ0210", "did you mean 'stg'?"),
        (["nothing_like_it"], None, "PZ0210", "the flows are:"),
        ([], "marts", "PZ0210", "did you mean 'mart'?"),
        ([], "tag:dayly", "PZ0210", "did you mean 'daily'?"),
        ([], "source:crm.user", "PZ0210", "did you mean 'crm.users'?"),
        ([], "no_such*", "PZ0210", "known here"),
        ([], "mart,,wide", "PZ0210", "atom"),
        ([], "we$rd", "PZ0210", "atom"),
        ([], " ", "PZ0210", "name a node"),
        ([], "stg mart,wide", "PZ0210", "for either, write a blank: 'mart wide'"),
        (["stg"], "mart", "PZ0216", "one of the three"),
    ],
)
def test_what_matches_nothing_or_is_mixed_is_refused(
    graph: Graph, flows: list[str], text: str | None, code: str, hint: str
) -> None:
    with pytest.raises(ProjectError) as caught:
        select(graph, flows=flows, select=text)
    assert [p.code for p in caught.value.problems] == [code]
    assert hint in caught.value.problems[0].advice


def test_all_unknown_names_are_reported_at_once(graph: Graph) -> None:
    with pytest.raises(ProjectError) as caught:
        select(graph, select="nope mart zilch")
    assert len(caught.value.problems) == 2
