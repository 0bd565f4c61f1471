"""Which files make up a project, what is said about the others, and that all faults of all files come together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pz
from projects import loaded, places, refused, write
from pz.errors import Problems, ProjectError
from pz.project.loader import load
from pz.project.scaffold import create, templates
from pz.project.templates import render

as_root = os.geteuid() == 0


def test_pipelines_are_found_at_any_depth_except_below_configs(tmp_path: Path) -> None:
    names = [
        "a.sql",
        "x/b.sql",
        "x/y/c.sql",
        "configs/d.sql",
        "x/configs/e.sql",
        ".hidden/f.sql",
        ".g.sql",
        "h.SQL",
        "i.txt",
    ]
    project = loaded(tmp_path, {f"pipelines/{name}": "select 1" for name in names}).project
    assert list(project.pipelines) == ["a", "b", "c"]
    assert [pipeline.location.file for pipeline in project.pipelines.values()] == [
        "pipelines/a.sql",
        "pipelines/x/b.sql",
        "pipelines/x/y/c.sql",
    ]


@pytest.mark.parametrize(("first", "second"), [("a.sql", "x/a.sql"), ("Orders.sql", "x/orders.sql")])
def test_two_pipelines_cannot_share_a_name(tmp_path: Path, first: str, second: str) -> None:
    (problem,) = refused(tmp_path, {f"pipelines/{first}": "select 1", f"pipelines/{second}": "select 1"})
    assert (problem.code, problem.file) == ("PZ0110", f"pipelines/{second}")
    assert first.removesuffix(".sql") in problem.message


@pytest.mark.parametrize(
    ("stem", "suggestion"), [("my-orders", "my_orders"), ("2024", "_2024"), ("a.b", "a_b"), ("a b", "a_b")]
)
def test_a_pipeline_needs_a_plain_name(tmp_path: Path, stem: str, suggestion: str) -> None:
    (problem,) = refused(tmp_path, {f"pipelines/{stem}.sql": "select 1"})
    assert (problem.code, problem.file) == ("PZ0136", f"pipelines/{stem}.sql")
    assert problem.advice == f"rename the file to {suggestion}.sql"


@pytest.mark.parametrize("stem", ["__pz_cte__a", "__PZ_part"])
def test_our_own_table_names_are_reserved(tmp_path: Path, stem: str) -> None:
    (problem,) = refused(tmp_path, {f"pipelines/{stem}.sql": "select 1"})
    assert (problem.code, problem.file) == ("PZ0136", f"pipelines/{stem}.sql")


def test_yaml_that_is_not_read_draws_a_warning(tmp_path: Path) -> None:
    files = {
        "pipelines/a.sql": "select 1",
        "connections.yml": "",
        "connections.yaml": "",
        "pipelines/configs/a.yaml": "",
        "pipelines/a.yml": "",
        "pipelines/configs/deep/b.yml": "",
    }
    warnings = loaded(tmp_path, files).warnings
    assert [(warning.code, warning.file, warning.hint) for warning in warnings] == [
        ("PZ0135", "connections.yaml", "rename it to connections.yml"),
        ("PZ0135", "pipelines/a.yml", "move it to pipelines/configs/a.yml"),
        ("PZ0135", "pipelines/configs/a.yaml", "rename it to a.yml"),
        ("PZ0135", "pipelines/configs/deep/b.yml", "move it to pipelines/configs/b.yml"),
    ]


@pytest.mark.parametrize("name", ["connections.yaml", "connection.yml", "Connections.yml", "conections.yaml"])
def test_connections_under_another_name_are_told_once_and_nothing_that_follows_from_it(
    tmp_path: Path, name: str
) -> None:
    """Before, each connection that a pipeline names was told as unknown, and the file was not told at all."""
    lake = "lake: {connector: localfiles, root: out}\n"
    sql = "INSERT INTO {{ sink('lake', 'o', strategy: 'replace') }} SELECT 1 AS a"
    found = pz.open_project(write(tmp_path, {name: lake, "pipelines/a.sql": sql}), environ={}).validate()
    assert [(str(problem.code), problem.message, problem.hint) for problem in found] == [
        ("PZ0135", f"'{name}' is not read", "rename it to connections.yml")
    ]


@pytest.mark.parametrize(
    ("present", "hint"),
    [
        ({"project.yaml": ""}, "rename project.yaml"),
        ({"Projct.yml": ""}, "rename Projct.yml to project.yml"),
        ({"x": ""}, "pz init"),
        ({}, "pz init"),
    ],
)
def test_a_folder_without_a_project_is_named(tmp_path: Path, present: dict[str, str], hint: str) -> None:
    folder = tmp_path / "somewhere"
    for name, text in present.items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.raises(ProjectError) as caught:
        load(folder, environ={})
    (problem,) = caught.value.problems
    assert problem.code == "PZ0101"
    assert str(folder) in problem.message
    assert hint in problem.advice


def test_all_faults_of_all_files_come_together_ordered_by_file_and_line(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "project.yml": "name: demo\nversion: 1\nengine: {threads: 0}\nvars: {a: '${NOPE}'}\n",
        "connections.yml": "lake:\n  max_concurrency: 0\nmy-lake: {connector: x}\n",
        "pipelines/a-b.sql": "select 1",
        "pipelines/c.sql": b"select '\xff'",
        "pipelines/configs/c.yml": "pipeline: c\nchecks: [unique: {}]\nmaterialization: x\n",
        "pipelines/configs/d.yml": "pipeline: d\n",
        "pipelines/configs/e.yml": "a: [\n",
    }
    assert places(refused(tmp_path, files)) == [
        ("PZ0101", "connections.yml:1"),
        ("PZ0122", "connections.yml:2"),
        ("PZ0136", "connections.yml:3"),
        ("PZ0136", "pipelines/a-b.sql"),
        ("PZ0104", "pipelines/c.sql:1"),
        ("PZ0113", "pipelines/configs/c.yml:2"),
        ("PZ0134", "pipelines/configs/c.yml:3"),
        ("PZ0111", "pipelines/configs/d.yml:1"),
        ("PZ0101", "pipelines/configs/e.yml:2"),
        ("PZ0120", "project.yml:3"),
        ("PZ0103", "project.yml:4"),
    ]


@pytest.mark.parametrize(
    ("content", "line", "hint"),
    [
        (b"name: demo\nversion: \xff\n", 2, "UTF-8"),
        (b"name: demo\n\nversion: \x00\n", 3, "remove"),
        ("name: demo\n".encode("utf-16"), 1, "UTF-8"),
    ],
)
def test_bytes_that_are_no_text_are_refused_with_their_line(
    tmp_path: Path, content: bytes, line: int, hint: str
) -> None:
    (problem,) = refused(tmp_path, {"project.yml": content})
    assert (problem.code, problem.where) == ("PZ0101", f"project.yml:{line}")
    assert hint in problem.advice


def test_a_byte_order_mark_and_foreign_line_endings_are_no_content(tmp_path: Path) -> None:
    files = {
        "project.yml": b"\xef\xbb\xbfname: demo\r\nversion: 1\r\n",
        "pipelines/a.sql": b"\xef\xbb\xbfselect 1\r\n, 2\r, 3\n",
    }
    project = loaded(tmp_path, files).project
    assert project.name == "demo"
    assert project.pipelines["a"].text == "select 1\n, 2\n, 3"


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {})
    (tmp_path / "connections.yml").mkdir()
    (tmp_path / "pipelines" / "a.sql").mkdir(parents=True)
    with pytest.raises(ProjectError) as caught:
        load(tmp_path, environ={})
    assert places(caught.value.problems) == [("PZ0101", "connections.yml")]


def test_a_link_to_nowhere_is_not_an_absent_file(tmp_path: Path) -> None:
    write(tmp_path, {})
    (tmp_path / "connections.yml").symlink_to(tmp_path / "gone.yml")
    with pytest.raises(ProjectError) as caught:
        load(tmp_path, environ={})
    assert places(caught.value.problems) == [("PZ0101", "connections.yml")]


@pytest.mark.skipif(as_root, reason="root may read everything")
def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"connections.yml": "", "pipelines/a.sql": "select 1", "pipelines/x/b.sql": "select 1"})
    closed = [tmp_path / "connections.yml", tmp_path / "pipelines/a.sql", tmp_path / "pipelines/x"]
    for path in closed:
        path.chmod(0)
    try:
        with pytest.raises(ProjectError) as caught:
            load(tmp_path, environ={})
    finally:
        for path in closed:
            path.chmod(0o700)
    assert places(caught.value.problems) == [
        ("PZ0531", "connections.yml"),
        ("PZ0531", "pipelines/a.sql"),
        ("PZ0531", "pipelines/x"),
    ]


def test_permission_denied_has_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"connections.yml": ""})
    read = Path.read_bytes

    def denied(path: Path) -> bytes:
        if path.name == "connections.yml":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(ProjectError) as caught:
        load(tmp_path, environ={})
    assert places(caught.value.problems) == [("PZ0531", "connections.yml")]


def test_loading_imports_neither_duckdb_nor_pyarrow_nor_jinja(tmp_path: Path) -> None:
    write(tmp_path, {"connections.yml": "a: {connector: x, entities: {b: {read: {columns: {c: 'decimal(9,2)'}}}}}"})
    script = (
        "import sys; from pz.project.loader import load; load(sys.argv[1]);"
        "print([name for name in ('duckdb', 'pyarrow', 'jinja2', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("template", [info.name for info in templates()])
def test_the_templates_of_init_load_and_render_without_a_word(tmp_path: Path, template: str) -> None:
    create(tmp_path / "made", template)
    result = load(tmp_path / "made", environ={})
    problems = Problems()
    rendered = [render(result.project, pipeline, {}, problems) for pipeline in result.project.pipelines.values()]
    assert (result.warnings, problems.errors, problems.warnings) == ((), (), ())
    assert all(pipeline.sql for pipeline in rendered)
