"""Templates of `pz init`."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb
import pytest
import yaml

import pz
from pz.errors import Code, ProjectError
from pz.project import scaffold
from pz.project.scaffold import create, templates
from running import run
from sample_data import sample_tables

ROOT = Path(__file__).parents[1]
SCAFFOLDS = ROOT / "src" / "pz" / "project" / "scaffolds"
NAMES = [info.name for info in templates()]


def test_every_template_on_disk_is_announced() -> None:
    assert sorted(NAMES) == sorted(path.name for path in SCAFFOLDS.iterdir() if path.is_dir())


@pytest.mark.parametrize("template", NAMES)
def test_a_template_is_written_whole_and_named_after_its_directory(tmp_path: Path, template: str) -> None:
    target = tmp_path / "my flights"
    written = create(target, template)
    files = {path.relative_to(SCAFFOLDS / template) for path in (SCAFFOLDS / template).rglob("*") if path.is_file()}
    assert {path.relative_to(target) for path in written} == files
    assert yaml.safe_load((target / "project.yml").read_text())["name"] == "my flights"
    assert ".pz/" in (target / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("template", ["minimal", "sample", "incremental"])
def test_a_template_runs_twice(tmp_path: Path, template: str) -> None:
    create(tmp_path / "demo", template)
    opened = pz.open_project(tmp_path / "demo", environ={})
    for _ in range(2):
        assert run(opened).exit_code == 0


@pytest.mark.parametrize("template", NAMES)
def test_no_template_asks_of_a_slice_what_only_the_whole_can_answer(tmp_path: Path, template: str) -> None:
    create(tmp_path / "demo", template)
    warnings = pz.open_project(tmp_path / "demo", environ={}).plan(everything=True).warnings
    assert [problem for problem in warnings if problem.code is Code.PZ0711] == []


def test_the_incremental_template_does_what_its_readme_says(tmp_path: Path) -> None:
    create(tmp_path / "demo", "incremental")
    opened = pz.open_project(tmp_path / "demo", environ={})
    run(opened)
    with (tmp_path / "demo/data/events.csv").open("a") as events:
        events.write("6,ada,signed_out,2024-03-02 12:00:00\n")
    (load, *_) = run(opened).nodes
    assert load.rows == 2  # the new event, and the last one of the run before
    with duckdb.connect(str(tmp_path / "demo/warehouse.duckdb"), read_only=True) as warehouse:
        assert warehouse.execute("SELECT count(*), max(id) FROM events").fetchall() == [(6, 6)]
    # The last event comes again with the newer version that the slice holds as well; by all columns the older one is last.
    with (tmp_path / "demo/data/events.csv").open("a") as events:
        events.write("6,ada,renamed,2024-03-02 13:00:00\n")
    assert run(opened).exit_code == 0
    with duckdb.connect(str(tmp_path / "demo/warehouse.duckdb"), read_only=True) as warehouse:
        assert warehouse.execute("SELECT action FROM events WHERE id = 6").fetchall() == [("renamed",)]


def test_a_name_that_yaml_would_read_as_a_number_stays_text(tmp_path: Path) -> None:
    create(tmp_path / "2024", "minimal")
    assert yaml.safe_load((tmp_path / "2024" / "project.yml").read_text())["name"] == "2024"


def test_an_empty_directory_may_be_filled(tmp_path: Path) -> None:
    assert create(tmp_path, "minimal")


def test_a_directory_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("mine")
    with pytest.raises(ProjectError) as raised:
        create(tmp_path, "minimal")
    assert raised.value.code is Code.PZ0130
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("mine")
    with pytest.raises(ProjectError) as raised:
        create(tmp_path / "demo", "minimal")
    assert raised.value.code is Code.PZ0130


def test_an_unknown_template_gets_a_near_miss_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as raised:
        create(tmp_path / "demo", "smaple")
    assert raised.value.code is Code.PZ0131
    assert "'sample'" in raised.value.problems[0].advice
    assert not (tmp_path / "demo").exists()


def test_the_sample_data_are_lines_of_the_published_tables() -> None:
    for name, text in sample_tables().items():
        assert (SCAFFOLDS / "sample" / "data" / f"{name}.csv").read_bytes().decode() == text, name


def test_the_sample_keeps_the_quirks_of_the_data() -> None:
    rows = list(csv.DictReader(io.StringIO((SCAFFOLDS / "sample" / "data" / "flights.csv").read_text())))
    assert len(rows) == 2824
    assert any(row["dep_time"] == "2400" for row in rows)
    assert any(row["dep_time"] == "NA" and row["arr_delay"] == "NA" for row in rows)


@pytest.mark.slow
def test_the_wheel_holds_every_template_file(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a copy, because a build leaves files behind that hide what is missing
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    expected = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (Path(scaffold.__file__).parent / "scaffolds").rglob("*")
        if path.is_file()
    }
    assert expected <= packed
    assert "pz/py.typed" in packed
