"""The generated reference holds every verb and every option."""

from __future__ import annotations

import re

from cli_support import commands
from pz.cli.reference import markdown


def test_every_verb_has_a_section_with_its_options() -> None:
    sections = dict(re.findall(r"^#+ (pz[^\n]*)\n(.*?)(?=^#+ pz|\Z)", markdown(), re.DOTALL | re.MULTILINE))
    assert list(sections) == list(commands())
    for path, command in commands().items():
        for param in command.params:
            spelled = param.opts[-1] if param.param_type_name == "option" else param.metavar
            if path == "pz" or param.panel != "Global":
                assert spelled in sections[path], (path, spelled)


def test_no_table_row_is_broken_by_a_bar_or_a_line_end() -> None:
    for line in markdown().splitlines():
        if line.startswith("| "):
            assert re.sub(r"\\\|", "", line).count("|") == 3, line


def test_the_text_is_the_same_every_time() -> None:
    assert markdown() == markdown()
