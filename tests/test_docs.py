"""The documentation says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import generate_docs
from pz.codes import CODES, Code

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#]*)(#[^)]*)?\)")


@pytest.mark.parametrize("page", generate_docs.pages(), ids=lambda page: page.name)
def test_generated_regions_are_fresh(page: Path) -> None:
    assert page.read_text() == generate_docs.refresh(page.read_text()), "run: python scripts/generate_docs.py"


@pytest.mark.parametrize("page", generate_docs.pages(), ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = [match[1] for match in LINK.finditer(page.read_text()) if match[1]]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("code", list(Code))
def test_a_code_has_a_meaning_in_a_sentence_and_a_hint_that_instructs(code: Code) -> None:
    info = CODES[code]
    assert info.phase
    for text in (info.meaning, info.hint):
        assert text.endswith(".")
        assert len(text) <= 112
        assert "~" not in text
        assert not text.startswith(("Names ", "Shows ", "Lists ", "Explains ", "States "))
