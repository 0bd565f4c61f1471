"""The live tree on a terminal of a fixed size."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from cli_support import OUTLINE, RUN, completed, scripted_run, started
from pz.cli.render.board import Board
from pz.cli.render.live import LiveRenderer, draw
from pz.events import Event, NodeProgress, OutlineNode, RunStarted


def screen(events: list[Event], width: int, height: int, unicode: bool = True, now: float = 2.0) -> list[str]:
    """The lines of one frame, ``now`` seconds after everything happened."""
    board = Board()
    for event in events:
        board.apply(event, 0.0)
    console = Console(file=io.StringIO(), width=width, height=height, record=True, force_terminal=True)
    console.print(draw(board, now, width, height, unicode))
    return console.export_text().splitlines()


def test_a_frame_shows_flows_nodes_figures_and_a_bar() -> None:
    assert screen(scripted_run()[:5], 110, 20) == [
        f"run {RUN}  0/4 nodes  2.0s",
        "└── orders  0/4",
        "    ├── ⠋       crm.orders                                  1,200 rows     600/s    2.0s ━━━━────────────  25%",
        "    ├── ·       stg_orders",
        "    ├── ·       stg_orders.not_null",
        "    └── ·       lake.orders",
    ]


def test_views_and_checks_show_their_time_alone() -> None:
    load, view, *_ = OUTLINE
    outline = (load, dataclasses.replace(view, counted=False))
    start = RunStarted(run_id=RUN, project_name="shop", node_count=2, outline=outline)
    lines = screen([start, completed(load), completed(view, ms=1500)], 80, 20)
    assert lines[2].split()[-4:] == ["0", "rows", "-/s", "0.0s"]
    assert lines[3].split()[1:] == ["ok", "stg_orders", "1.5s"]
    assert len(lines[2]) == len(lines[3])


def test_a_finished_board_shows_how_each_node_ended() -> None:
    lines = screen(scripted_run(), 80, 20)
    assert lines[1] == "└── orders  4/4  1 failed"
    assert [line.split()[1:3] for line in lines[2:]] == [
        ["ok", "crm.orders"],
        ["ok", "stg_orders"],
        ["FAIL", "stg_orders.not_null"],
        ["skip", "lake.orders"],
    ]


def test_a_locale_without_unicode_gets_ascii_marks() -> None:
    text = "\n".join(line.split("── ")[-1] for line in screen(scripted_run()[:5], 110, 20, unicode=False))
    assert text.isascii()
    assert "####------------  25%" in text


def long_names(count: int) -> list[Event]:
    nodes = tuple(OutlineNode(f"{n:016}", "Pipeline", f"名前_{n}_" + "x" * 120, f"flow_{n % 7}") for n in range(count))
    begin = RunStarted(run_id=RUN, project_name="p", node_count=count, outline=nodes)
    return [begin, *(started(node) for node in nodes[:3]), completed(nodes[5], "failed", error_message="no")]


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 3, 10, 50])
def test_no_frame_is_wider_or_higher_than_the_screen(width: int, height: int) -> None:
    lines = screen(long_names(40), width, height)
    assert len(lines) <= max(height, 3)
    assert max(cell_len(line) for line in lines) <= max(width, 12)


def test_what_runs_and_what_failed_comes_before_what_waits() -> None:
    lines = screen(long_names(40), 60, 10)
    assert sum("⠋" in line for line in lines) == 3
    assert sum("FAIL" in line for line in lines) == 1
    assert lines[-1].endswith("and 36 more nodes")


def test_progress_of_an_unknown_node_is_ignored() -> None:
    assert screen([NodeProgress(run_id=RUN, node_id="f" * 16, rows=1, bytes=1, batches=1)], 80, 10)


def test_the_view_ends_as_a_plain_tree_and_the_errors() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80, height=24, force_terminal=True, no_color=True)
    view = LiveRenderer(console, clock=lambda: 0.0)
    for event in scripted_run():
        view.handle(event)
        view.tick()
    view.finish()
    end = file.getvalue().rsplit("0.0s", 1)[-1]
    assert "FAIL stg_orders.not_null\n  error PZ0510: 2 row(s) violate not_null(id)" in _plain(end)
    assert "\x1b[?25h" in file.getvalue()


def test_several_passes_leave_a_tree_each() -> None:
    file = io.StringIO()
    view = LiveRenderer(Console(file=file, width=80, height=24, force_terminal=True), clock=lambda: 0.0)
    for event in [*scripted_run(), *scripted_run()]:
        view.handle(event)
    view.finish()
    assert _plain(file.getvalue()).count("error PZ0510") == 2


def _plain(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_outline_nodes_are_not_on_the_wire() -> None:
    assert "outline" not in RunStarted(run_id=RUN, project_name="p", node_count=4, outline=OUTLINE).to_wire()
