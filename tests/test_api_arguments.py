"""What the methods of the Python API take, and that anything else is told by the argument's name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pz
from pz.project.scaffold import create


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> pz.OpenProject:
    root = tmp_path_factory.mktemp("api") / "demo"
    create(root, "sample")
    return pz.open_project(root, environ={})


@pytest.mark.parametrize(
    "select", ["flights orders_enriched", ["flights", "orders_enriched"], ("orders_enriched", "flights")]
)
def test_a_selection_is_a_selector_or_several_that_unite(tmp_path: Path, select: Any) -> None:
    sql = "SELECT 1 AS a"
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "project.yml").write_text("name: demo\nversion: '1'\n")
    for name in ("flights", "orders_enriched", "other"):
        (tmp_path / f"pipelines/{name}.sql").write_text(sql)
    planned = pz.open_project(tmp_path).plan(select=select)
    assert {node.name for node in planned.nodes} == {"flights", "orders_enriched"}


Call = Callable[[Any], object]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda p: p.run(["a"]), r"\*flows must be a text, not list: give them one by one, as in run\('a', 'b'\)"),
        (lambda p: p.run(None), r"\*flows must be a text, not NoneType"),
        (lambda p: p.plan(select=3), "select must be a text or a list of texts or None, not int"),
        (lambda p: p.test(select=[3]), "select must be a text or a list of texts or None, not list"),
        (lambda p: p.run(vars='{"a": 1}'), "vars must be a mapping of names to values or None, not str"),
        (lambda p: p.run(full_refresh="no"), "full_refresh must be True or False, not str"),
        (lambda p: p.run(everything="flights"), "everything must be True or False, not str"),
        (lambda p: p.run(max_passes="3"), "max_passes must be a whole number, not str"),
        (lambda p: p.run(on_event=3), "on_event must be a function or None, not int"),
        (lambda p: p.retry(cancel=True), "cancel must be a pz.CancelToken or None, not bool"),
        (lambda p: p.show("a", limit="3"), "limit must be a whole number, not str"),
        (lambda p: p.show(3), "pipeline must be a text, not int"),
        (lambda p: p.runs(limit=True), "limit must be a whole number or None, not bool"),
        (lambda p: p.clean(older_than="30d"), "older_than must be a datetime.timedelta or None, not str"),
        (lambda p: p.state.set("a.b", 5), "value must be a text, not int"),
        (lambda p: p.cdc.drop(3), "key must be a text, not int"),
        (lambda p: pz.open_project(None), "path must be a text or a path, not NoneType"),  # type: ignore[arg-type]  # what is tried
        (lambda p: pz.open_project(".", environ=[]), "environ must be a mapping of names to texts or None, not list"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_another_type_is_told_by_its_name(opened: pz.OpenProject, call: Call, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        call(opened)
    assert not os.path.lexists(opened.root / ".pz"), "nothing was begun"
