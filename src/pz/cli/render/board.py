"""What the live view knows of a run, and how it fits a screen: a model of rows, and rows chosen to fit a height."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from pz.cli.render.lines import changes, error_lines, node_word, skip_reason
from pz.events import Event, NodeCompleted, NodeProgress, NodeStarted, OutlineNode, RetryScheduled, RunStarted

__all__ = ["Board", "Phase", "Row", "chosen"]


class Phase(IntEnum):
    """How much a row deserves a line when there are more rows than lines."""

    RUNNING = 0
    FAILED = 1
    FINISHED = 2
    WAITING = 3


@dataclass(slots=True)
class Row:
    """One node on the board."""

    node: OutlineNode
    phase: Phase = Phase.WAITING
    word: str = ""
    rows: int = 0
    total: int | None = None
    started: float = 0.0
    seconds: float = 0.0
    remark: str = ""
    errors: tuple[str, ...] = ()
    order: int = 0

    def elapsed(self, now: float) -> float:
        """Seconds since the start while running, else how long it took."""
        return max(now - self.started, 0.0) if self.phase is Phase.RUNNING else self.seconds


class Board:
    """All nodes of one run by flow, in the order of the outline, brought up to date by events."""

    def __init__(self) -> None:
        self.run_id = ""
        self.started = 0.0
        self.node_count = 0
        self.rows: dict[str, Row] = {}
        self._finished = 0

    def apply(self, event: Event, now: float) -> None:
        """Take one event into account; ``now`` is a monotonic time in seconds."""
        match event:
            case RunStarted():
                self.run_id, self.started, self.node_count = event.run_id, now, event.node_count
                self.rows = {node.node_id: Row(node) for node in event.outline}
            case NodeStarted():
                row = self._row(event.node_id, event.kind, event.node_name)
                row.phase, row.started = Phase.RUNNING, now
            case NodeProgress() if event.node_id in self.rows:
                row = self.rows[event.node_id]
                row.rows, row.total, row.remark = event.rows, event.total, ""
            case RetryScheduled() if event.node_id in self.rows:
                self.rows[event.node_id].remark = f"retry {event.attempt + 1}/{event.max_attempts}"
            case NodeCompleted():
                self._complete(event)

    def _complete(self, event: NodeCompleted) -> None:
        row = self._row(event.node_id, event.kind, event.node_name)
        row.phase = Phase.FAILED if event.status == "failed" else Phase.FINISHED
        row.word, row.rows, row.remark = node_word(event), event.rows, skip_reason(event) or changes(event)
        row.seconds, row.errors = event.duration_ms / 1000, tuple(error_lines(event))
        self._finished += 1
        row.order = self._finished

    def _row(self, node_id: str, kind: str, name: str) -> Row:
        return self.rows.setdefault(node_id, Row(OutlineNode(node_id, kind, name)))

    @property
    def done(self) -> int:
        """How many nodes have ended."""
        return sum(row.phase in {Phase.FAILED, Phase.FINISHED} for row in self.rows.values())

    @property
    def failed(self) -> tuple[Row, ...]:
        """The failed rows, in the order in which they failed."""
        return tuple(sorted((row for row in self.rows.values() if row.phase is Phase.FAILED), key=lambda r: r.order))

    def flows(self) -> dict[str, list[Row]]:
        """Rows by flow, both in the order of the outline."""
        grouped: dict[str, list[Row]] = {}
        for row in self.rows.values():
            grouped.setdefault(row.node.flow, []).append(row)
        return grouped


def chosen(flows: dict[str, list[Row]], lines: int) -> set[str]:
    """The ids of the nodes to show in ``lines`` lines: running first, then failed, newly finished, waiting.

    A flow's own line counts as well. Everything is chosen when everything fits.
    """
    every = [row for rows in flows.values() for row in rows]
    headings = _headings(flows)
    if len(every) + headings <= lines:
        return {row.node.node_id for row in every}
    room, picked, opened = lines - 1, set[str](), set[str]()
    for row in _by_interest(every):
        cost = 1 + (headings > 0 and row.node.flow not in opened)
        if cost > room:
            continue
        room -= cost
        picked.add(row.node.node_id)
        opened.add(row.node.flow)
    return picked


def _headings(flows: dict[str, list[Row]]) -> int:
    return 0 if set(flows) == {""} else len(flows)


def _by_interest(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.phase, -row.order))
