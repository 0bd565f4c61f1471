"""The view for pipes, files and CI: plain lines, one per finished node, in the order in which things happened."""

from __future__ import annotations

from pz.cli.failures import problem_lines
from pz.cli.output import Stream, printable
from pz.cli.render.lines import Repeats, completed_line, error_lines, pass_line, remark, retention_line
from pz.errors import Severity
from pz.events import Event, NodeCompleted, NodeProgress, NodeStarted, RetentionSwept, RunCompleted, RunStarted

__all__ = ["ConsoleRenderer", "RemarkRenderer"]


class RemarkRenderer:
    """Prints notes and warnings only: what stands on standard error while JSON lines take standard output."""

    def __init__(self, out: Stream, verbosity: int = 0) -> None:
        self._out = out
        self._verbosity = verbosity
        self._names: dict[str, str] = {}
        self._repeats = Repeats()

    def handle(self, event: Event) -> None:
        """Print the event if it is a note or a warning."""
        if isinstance(event, NodeStarted | NodeCompleted):
            self._names[event.node_id] = event.node_name
        problem = None if self._repeats.known(event) else remark(event, self._names)
        if problem is not None and (self._verbosity >= 0 or problem.severity is not Severity.NOTE):
            for line in problem_lines(problem):
                self._out.line(line)

    def tick(self) -> None:
        """Nothing moves."""

    def finish(self) -> None:
        """Nothing is left to do."""


class ConsoleRenderer(RemarkRenderer):
    """``ok|FAIL|skip|reused|carried|fused <name> <rows> rows <ms> ms``, errors indented below; views and checks without rows.

    Quiet (-1) prints failures and warnings only; verbose (1) adds starts, kinds and accounting; 2 adds progress.
    """

    def __init__(self, out: Stream, verbosity: int = 0) -> None:
        super().__init__(out, verbosity)
        self._ended: RunCompleted | None = None
        self._uncounted: frozenset[str] = frozenset()

    def handle(self, event: Event) -> None:
        """Print what the event means to a reader of a log."""
        super().handle(event)
        if isinstance(event, RunStarted):
            self._uncounted = frozenset(node.node_id for node in event.outline if not node.counted)
            if self._ended is not None:
                self._out.line(pass_line(self._ended))
        if isinstance(event, RunCompleted):
            self._ended = event
        for line in self._lines(event):
            self._out.line(printable(line))

    def _lines(self, event: Event) -> list[str]:
        loud, louder = self._verbosity >= 1, self._verbosity >= 2
        match event:
            case NodeCompleted() if self._verbosity >= 0 or event.status == "failed":
                counted = event.node_id not in self._uncounted
                return [completed_line(event, counted=counted, verbose=loud), *error_lines(event)]
            case RunStarted() if loud:
                return [f"start run {event.run_id}: {event.node_count} nodes of {event.project_name}"]
            case NodeStarted() if loud:
                return [f"start {event.node_name} [{event.kind}]"]
            case NodeProgress() if louder:
                total = "" if event.total is None else f" of {event.total}"
                return [f"moved {self._names.get(event.node_id, event.node_id)} {event.rows}{total} rows"]
            case RunCompleted() if loud:
                return [f"end run {event.run_id}: {event.status} {event.duration_ms} ms"]
            case RetentionSwept() if loud and event.runs:
                return [retention_line(event)]
        return []
