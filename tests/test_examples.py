"""Every example in the README and in docs/ works as it is shown."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from markdown_examples import Runner, examples

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# The pages come before the last verbs; this goes when they are there.
NEEDED = ("pz.cli.main", "pz.api", "pz.engine.run", "pz.connectors.files.localfiles", "pz.connectors.duckdb.connector")
READY = all(find_spec(module) is not None for module in NEEDED)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_block_says_whether_it_is_run(page: Path) -> None:
    examples(page)


@pytest.mark.skipif(not READY, reason="the command line is not there yet")
@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.name)
def test_a_page_works_as_it_is_shown(page: Path, tmp_path: Path) -> None:
    runner = Runner(page, tmp_path)
    for example in examples(page):
        runner.run(example)
