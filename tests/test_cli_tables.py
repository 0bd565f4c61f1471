"""Tables on a terminal: nothing is broken within a word, and nothing is cut without a mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_support import Capture
from pz.cli.output import Output
from pz.cli.render.table import print_data, print_table
from test_cli_verbs import on_a_terminal

RUN_IDS = ["20260710T120000000Z-ab12", "20260710T110000000Z-cd34"]


class Terminal:
    """A terminal of a width, and what stands on it."""

    def __init__(self, width: int, monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8") -> None:
        monkeypatch.setenv("COLUMNS", str(width))
        self._out = Capture(terminal=True)
        self._out.encoding = encoding
        self.output = Output(self._out, Capture(), {"NO_COLOR": "1"})

    @property
    def lines(self) -> list[str]:
        text = self._out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
        return [line.rstrip() for line in text.splitlines()]


def test_what_is_spare_goes_first_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(40, monkeypatch)
    rows = [[run, "success", "2026-07-10T12:00:00.000Z", "3"] for run in RUN_IDS]
    left_out = print_table(terminal.output, ("run", "status", "started", "ok"), rows, ("ok",), ("started", "status"))
    assert left_out == ("started",)
    assert terminal.lines == [
        "run                       status   ok",
        "─" * 37,
        "20260710T120000000Z-ab12  success   3",
        "20260710T110000000Z-cd34  success   3",
    ]


def test_prose_folds_between_words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(26, monkeypatch)
    print_table(terminal.output, ("name", "what it shows"), [("incremental", "only what is new")])
    assert [line.split("  ")[-1].strip() for line in terminal.lines[2:]] == ["only what is", "new"]


@pytest.mark.parametrize("width", [8, 20, 23])
def test_what_cannot_stand_side_by_side_is_a_paragraph_a_row(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(width, monkeypatch)
    print_table(terminal.output, ("run", "status"), [(run, "success") for run in RUN_IDS])
    first, second = RUN_IDS
    assert terminal.lines == [first, "  status success", second, "  status success"]


WIDE = [f"column_{n}" for n in range(12)]


def test_columns_in_the_middle_give_way_to_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(50, monkeypatch)
    assert print_data(terminal.output, WIDE, [[str(n) for n in range(12)]] * 3) == (8, False)
    assert terminal.lines[0] == "column_0  column_1  …  column_10  column_11"
    assert terminal.lines[2:] == ["0         1         …  10         11"] * 3


def test_a_long_value_is_cut_with_a_mark_and_no_further_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(40, monkeypatch)
    assert print_data(terminal.output, ("id", "text"), [("1", "x" * 50), ("2", "short")]) == (0, True)
    assert terminal.lines[2:] == ["1   " + "x" * 35 + "…", "2   short"]


def test_wide_characters_count_as_two(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(40, monkeypatch)
    print_data(terminal.output, ("id", "text"), [("1", "漢" * 50)])
    assert terminal.lines[2] == "1   " + "漢" * 17 + "…"


def test_what_has_room_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(40, monkeypatch)
    assert print_data(terminal.output, ("id", "text"), [("1", "x" * 36)]) == (0, False)
    assert terminal.lines[2] == "1   " + "x" * 36


def test_a_terminal_without_line_drawing_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(30, monkeypatch, "ascii")
    print_data(terminal.output, WIDE, [["x" * 40] * 12])
    assert "\n".join(terminal.lines).isascii()
    assert "..." in terminal.lines[0].split()


def test_a_pipe_has_everything() -> None:
    out = Capture()
    assert print_data(Output(out, Capture()), WIDE, [["x" * 400] * 12]) == (0, False)
    assert out.getvalue().splitlines()[1].split() == ["x" * 400] * 12


def test_a_preview_of_many_columns_is_a_line_a_row(tmp_path: Path) -> None:
    """Once the sample's 23 columns stood in 50 lines for two rows."""
    from pz.project.scaffold import create

    create(tmp_path / "demo", "sample")
    code, seen = on_a_terminal(tmp_path / "demo", "show", "orders_enriched", "--limit", "5")
    assert code == 0
    *table, note = seen.replace("\r", "").replace("\x1b[0m", "").replace("\x1b[1m", "").splitlines()
    assert len(table) == 2 + 5
    assert max(map(len, table)) <= 100
    assert note.startswith("note: 5 rows, ")
    assert note.endswith(" of 23 columns, all of it: --format csv or json")
