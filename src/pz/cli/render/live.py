"""The view for terminals: a tree of flows and nodes, redrawn in place, that ends as the plain summary."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from pz.cli.failures import problem_lines
from pz.cli.output import printable
from pz.cli.render.board import Board, Phase, Row, chosen
from pz.cli.render.cells import cut
from pz.cli.render.lines import Repeats, counted, pass_line, remark
from pz.errors import Severity
from pz.events import Event, NodeCompleted, NodeStarted, RunCompleted, RunStarted

__all__ = ["LiveRenderer", "draw"]

_STYLES = {"ok": "green", "FAIL": "bold red", "skip": "dim", "reused": "cyan", "carried": "cyan", "fused": "green"}
_FINAL_LINES = 400
_BAR_CELLS = 16


class LiveRenderer:
    """Draws the board in place; notes and warnings scroll by above it.

    ``tick`` redraws, so that elapsed times and spinners move while nothing happens. ``clock`` is replaceable for tests.
    """

    def __init__(self, console: Console, verbosity: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._verbosity = verbosity
        self._clock = clock
        self._board = Board()
        self._names: dict[str, str] = {}
        self._repeats = Repeats()
        self._live: Live | None = None
        self._ended: RunCompleted | None = None

    def handle(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, RunCompleted):
            self._ended = event
        if isinstance(event, RunStarted):
            self._leave_final_tree()
            if self._ended is not None:
                self._console.print(Text(pass_line(self._ended)))
            self._board = Board()
            self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
            self._live.start()
        if isinstance(event, NodeStarted | NodeCompleted):
            self._names[event.node_id] = event.node_name
        self._board.apply(event, self._clock())
        self._print_remark(event)

    def tick(self) -> None:
        """Redraw."""
        if self._live is not None:
            width, height = self._console.size
            self._live.update(draw(self._board, self._clock(), width, height - 1, self._unicode), refresh=True)

    def finish(self) -> None:
        """Replace the moving tree by its final form, with the errors below it."""
        self._leave_final_tree()

    @property
    def _unicode(self) -> bool:
        return "utf" in self._console.encoding.lower()

    def _print_remark(self, event: Event) -> None:
        problem = None if self._repeats.known(event) else remark(event, self._names)
        if problem is None or (self._verbosity < 0 and problem.severity is Severity.NOTE):
            return
        style = "yellow" if problem.severity is Severity.WARNING else "dim"
        for line in problem_lines(problem):
            self._console.print(Text(line, style=style))

    def _leave_final_tree(self) -> None:
        if self._live is None:
            return
        self._live.update(Text(""), refresh=False)
        self._live.stop()
        self._live = None
        if self._verbosity >= 0:
            width = self._console.size.width
            self._console.print(draw(self._board, self._clock(), width, _FINAL_LINES, self._unicode))
        for row in self._board.failed:
            self._console.print(Text(printable(f"FAIL {row.node.name}"), style="bold red"))
            for line in row.errors:
                self._console.print(Text(printable(line)))


def draw(board: Board, now: float, width: int, height: int, unicode: bool = True) -> Group:
    """The board as a tree of at most ``height`` lines, none wider than ``width`` cells."""
    flows = board.flows()
    shown = chosen(flows, max(height - 1, 1))
    flat = set(flows) == {""}
    tree = Tree(_title(board, now, width, unicode), guide_style="dim")
    for flow, rows in flows.items():
        visible = [row for row in rows if row.node.node_id in shown]
        if not visible:
            continue
        branch = tree if flat else tree.add(_flow_label(flow, rows, width - 4, unicode))
        for row in visible:
            branch.add(_row_label(row, now, width - (4 if flat else 8), unicode))
    hidden = len(board.rows) - len(shown)
    if hidden:
        tree.add(_fitted(f"and {counted(hidden, 'more node')}", width - 4, "dim", unicode))
    return Group(tree)


def _title(board: Board, now: float, width: int, unicode: bool) -> Text:
    total = max(board.node_count, len(board.rows))
    text = f"run {board.run_id}  {board.done}/{total} nodes  {_clock_text(now - board.started)}"
    return _fitted(text, width, "bold", unicode)


def _flow_label(flow: str, rows: list[Row], width: int, unicode: bool) -> Text:
    done = sum(row.phase in {Phase.FINISHED, Phase.FAILED} for row in rows)
    failed = sum(row.phase is Phase.FAILED for row in rows)
    text = f"{printable(flow) or 'others'}  {done}/{len(rows)}"
    return _fitted(f"{text}  {failed} failed" if failed else text, width, "bold red" if failed else "bold", unicode)


def _row_label(row: Row, now: float, width: int, unicode: bool) -> Text:
    """``<word> <name> <figures>``: the figures give way first, then the name is cut."""
    word, style = _word(row, now, unicode)
    figures = _figures(row, now, width, unicode)
    room = width - 8 - (cell_len(figures) + 1 if figures else 0)
    if room < 12:
        figures, room = "", width - 8
    name = cut(printable(row.node.name), max(room, 1), unicode)
    label = Text(no_wrap=True, overflow="crop")
    label.append(f"{word:<7} ", style)
    label.append(set_cell_size(name, max(room, 1)) if figures else name, "dim" if row.phase is Phase.WAITING else "")
    if figures:
        label.append(f" {figures}", "dim")
    label.truncate(max(width, 1), overflow="crop")
    return label


def _word(row: Row, now: float, unicode: bool) -> tuple[str, str]:
    if row.phase is Phase.RUNNING:
        frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if unicode else "|/-\\"
        return frames[int(now * 10) % len(frames)], "yellow"
    if row.phase is Phase.WAITING:
        return ("·" if unicode else "."), "dim"
    return row.word, _STYLES.get(row.word, "")


def _figures(row: Row, now: float, width: int, unicode: bool) -> str:
    """Rows, rate and time; a bar when the total is known and there is room for one."""
    if row.phase is Phase.WAITING:
        return ""
    seconds = row.elapsed(now)
    moved = f"{row.rows:>11,} rows {_rate(row.rows, seconds):>9}"
    parts = [moved if row.node.counted or row.rows else " " * len(moved), f"{_clock_text(seconds):>7}"]
    if row.remark:
        parts.append(row.remark)
    if row.phase is Phase.RUNNING and row.total:
        share = min(row.rows / row.total, 1.0)
        parts.append(f"{_bar(share, unicode)} {share:>4.0%}" if width >= 84 else f"{share:>4.0%}")
    return " ".join(parts)


def _bar(share: float, unicode: bool) -> str:
    full, empty = ("━", "─") if unicode else ("#", "-")
    filled = int(share * _BAR_CELLS)
    return full * filled + empty * (_BAR_CELLS - filled)


def _rate(rows: int, seconds: float) -> str:
    if rows == 0 or seconds < 0.001:
        return "-/s"
    rate = rows / seconds
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.1f}{unit}/s"
    return f"{rate:.0f}/s"


def _clock_text(seconds: float) -> str:
    if seconds < 60:
        return f"{max(seconds, 0):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _fitted(text: str, width: int, style: str, unicode: bool) -> Text:
    return Text(cut(printable(text), max(width, 1), unicode), style=style, no_wrap=True, overflow="crop")
