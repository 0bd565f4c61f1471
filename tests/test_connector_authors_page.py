"""The page for connector authors shows a connector that passes; what stands there runs."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pz.testing.conformance import Verdict, run_conformance

PAGE = Path(__file__).parents[1] / "docs" / "connector-authors.md"
BLOCK = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files, importable."""
    folder = tmp_path / "example"
    folder.mkdir()
    for name, text in BLOCK.findall(PAGE.read_text()):
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("shelf", "shelf_fixture", "test_shelf"):
        sys.modules.pop(name, None)


def test_the_connector_on_the_page_passes_the_suite(example: Path, tmp_path: Path) -> None:
    fixture = importlib.import_module("shelf_fixture").fixture
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    report = run_conformance(fixture(scratch))
    assert report.ok, report.render()
    assert sum(result.verdict is Verdict.PASSED for result in report.results) > 15


def test_the_tests_on_the_page_run(example: Path, tmp_path: Path) -> None:
    test_shelf_keeps_the_contract = importlib.import_module("test_shelf").test_shelf_keeps_the_contract
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    test_shelf_keeps_the_contract(scratch)


def test_every_check_that_the_page_names_exists() -> None:
    from pz.testing.conformance_writes import WRITE_CHECKS

    named = re.findall(r"gaps=\{\"(\w+)\"", PAGE.read_text())
    assert named
    assert set(named) <= {check.__name__ for check in WRITE_CHECKS}
