"""Every example in the README and in docs/ works as it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from markdown_examples import Runner, examples

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run_page(page: Path, scratch: Path) -> None:
    runner = Runner(page, scratch)
    for example in examples(page):
        runner.run(example)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_block_says_whether_it_is_run(page: Path) -> None:
    examples(page)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_works_as_it_is_shown(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("<!-- run -->\n```console\n$ echo one\ntwo\n```", "echo one printed"),
        ("<!-- run -->\n```console\n$ false\n```", "exit 1"),
        ("<!-- run -->\n```console\n$ true # exit 2\n```", "exit 0"),
        ("<!-- run -->\n```python\nassert False\n```", "AssertionError"),
        ("```console\n$ true\n```", "neither"),
    ],
)
def test_a_page_that_shows_what_does_not_happen_is_found_out(tmp_path: Path, block: str, complaint: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises(AssertionError, match=complaint):
        run_page(page, tmp_path / "scratch")
