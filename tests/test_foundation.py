"""The registry, the failpoints and the records at the bottom of the house."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pz import durable
from pz.codes import CODES
from pz.durable import Step, step, write_atomic
from pz.errors import Code, Problem, Problems, ProjectError

SRC = Path(__file__).parents[1] / "src" / "pz"


def test_every_code_has_a_meaning() -> None:
    assert set(CODES) == set(Code)


def test_no_code_literal_stands_outside_the_registry() -> None:
    literal = re.compile(r"""["']PZ\d{4}["']""")
    found = [
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if path.name != "codes.py" and literal.search(path.read_text())
    ]
    assert found == []


def test_a_problem_prints_code_place_and_hint() -> None:
    problem = Problem(Code.PZ0101, "no name", "project.yml", 3, "add a name")
    assert problem.render() == "error PZ0101: no name (project.yml:3)\nhint: add a name"


def test_all_problems_of_a_stage_are_raised_together_in_file_order() -> None:
    problems = Problems()
    problems.error(Code.PZ0104, "second", file="b.sql", line=1)
    problems.error(Code.PZ0101, "first", file="a.yml", line=9)
    problems.warn(Code.PZ0135, "only a warning", file="a.yml")
    with pytest.raises(ProjectError) as raised:
        problems.raise_errors()
    assert [p.message for p in raised.value.problems] == ["first", "second"]


def test_a_failpoint_fires_at_its_nth_passage_only() -> None:
    durable.rearm("write_results.before:2=raise")
    try:
        with step(Step.WRITE_RESULTS):
            pass
        with pytest.raises(durable.FailpointError), step(Step.WRITE_RESULTS):
            pass
    finally:
        durable.rearm()


def test_a_failed_atomic_write_leaves_the_old_content_and_no_debris(tmp_path: Path) -> None:
    target = tmp_path / "state.json"
    write_atomic(target, b"old", Step.ADVANCE_STATE)
    durable.rearm("advance_state.before=enospc")
    try:
        with pytest.raises(OSError, match="No space left"):
            write_atomic(target, b"new", Step.ADVANCE_STATE)
    finally:
        durable.rearm()
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]
