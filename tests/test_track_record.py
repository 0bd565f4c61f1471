"""The page of bugs found names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "RELIABILITY.md").read_text(encoding="utf-8")


def test_every_command_of_the_track_record_selects_a_test() -> None:
    commands = re.findall(
        r'`(?:PZ_\w+=\d+ )?pytest (?:-m soak -s )?(tests/\w+\.py)(?: -m "")?(?: -k (\w+|"[^"]+"))?`', PAGE
    )
    assert len(commands) == PAGE.count("pytest ")
    for file, wanted in commands:
        names = re.findall(r"^ *def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        for word in (part.partition(" and ")[0] for part in wanted.strip('"').split(" or ")):
            assert any(word in name for name in names), f"{file}: no test is called like {word!r}"


def test_every_file_that_is_named_exists() -> None:
    for file in set(re.findall(r"`(tests/\w+\.py)`", PAGE)):
        assert (ROOT / file).is_file(), file
