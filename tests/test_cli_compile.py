"""`pz ls` and `pz compile` over the sample project."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli_support import Answer, invoke
from pz.api import open_project
from pz.durable import Step
from pz.project.scaffold import create
from pz.testing.faults import WarmInterpreter, list_steps


@pytest.fixture
def project(tmp_path: Path) -> Path:
    create(tmp_path / "demo", "sample")
    return tmp_path / "demo"


def pz(root: Path, *arguments: str) -> Answer:
    return invoke(*arguments, project=open_project(root, environ={}))


def test_nodes_are_listed_parents_first_with_their_places(project: Path) -> None:
    listed = json.loads(pz(project, "ls", "--json").out)
    order = [(entry["kind"], entry["name"]) for entry in listed]
    assert ("Pipeline", "orders_enriched") in order
    place = {entry["name"]: n for n, entry in enumerate(listed) if entry["kind"] == "Pipeline"}
    assert all(
        place[need] < n for n, e in enumerate(listed) for need in e["needs"] if need in place and e["kind"] != "x"
    )
    assert all(entry["where"] for entry in listed)
    assert {entry["kind"] for entry in listed} == {"SourceLoad", "Pipeline", "Check", "SinkWrite"}


def test_the_table_names_what_each_node_is(project: Path) -> None:
    lines = pz(project, "ls").out.splitlines()
    assert lines[0].split() == ["node", "kind", "how", "needs", "where"]
    assert any(line.split()[:3] == ["orders_enriched", "Pipeline", "table"] for line in lines)


def test_a_selection_is_taken_exactly(project: Path) -> None:
    listed = json.loads(pz(project, "ls", "--select", "orders_enriched", "--json").out)
    assert [entry["name"] for entry in listed] == ["orders_enriched"]
    assert pz(project, "ls", "--select", "nope").err.startswith("error PZ0210: ")


def test_compile_writes_the_manifest_and_the_sql_and_says_where(project: Path) -> None:
    got = pz(project, "compile")
    target = project / ".pz" / "target"
    assert got.code == 0
    assert str(target / "manifest.json") in got.out
    manifest = json.loads((target / "manifest.json").read_text())
    pipelines = {node["name"] for node in manifest["nodes"] if node["kind"] == "Pipeline"}
    assert {path.stem for path in (target / "compiled").iterdir()} == pipelines


def test_compile_removes_the_sql_of_pipelines_that_are_gone(project: Path) -> None:
    stale = project / ".pz" / "target" / "compiled" / "gone.sql"
    stale.parent.mkdir(parents=True)
    stale.write_text("select 1")
    pz(project, "compile", "--select", "orders_enriched")
    assert stale.exists()
    pz(project, "compile")
    assert not stale.exists()


@pytest.mark.slow
def test_a_compilation_that_dies_is_done_again_by_the_next(tmp_path: Path) -> None:
    """At every durable step; what a dead one leaves is no half of a file, and the next leaves what it would anyway."""
    create(tmp_path / "demo", "sample")
    with WarmInterpreter() as warm:
        stale = tmp_path / "demo" / ".pz" / "target" / "compiled" / "gone.sql"
        stale.parent.mkdir(parents=True)
        stale.write_text("select 1")
        shutil.copytree(tmp_path / "demo", tmp_path / "whole")
        assert warm.run(["compile"], tmp_path / "whole", trace=tmp_path / "trace").code == 0
        whole = contents(tmp_path / "whole")
        passed = list_steps(tmp_path / "trace")
        assert {name.partition(".")[0] for name in passed} == {Step.WRITE_MANIFEST}
        for name, count in passed.items():
            for nth in range(1, count + 1):
                point = f"{name.removesuffix('.inside')}:{nth}={'torn' if name.endswith('.inside') else 'kill'}"
                root = tmp_path / f"{name}-{nth}"
                shutil.copytree(tmp_path / "demo", root)
                assert warm.run(["compile"], root, failpoint=point).killed, point
                left = contents(root)
                left.pop("compiled/gone.sql", None)
                assert left.items() <= whole.items(), point
                assert warm.run(["compile"], root).code == 0
                assert contents(root) == whole, point


def contents(root: Path) -> dict[str, bytes]:
    """What is there to be read; a file that was being written lies beside it under a hidden name."""
    target = root / ".pz" / "target"
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("[!.]*") if path.is_file()}


def test_a_faulty_project_is_refused_with_file_and_line(project: Path) -> None:
    (project / "project.yml").write_text("name: [")
    for verb in ("ls", "compile"):
        got = pz(project, verb)
        assert got.code == 2
        assert "(project.yml:" in got.err
