"""What `Project.run` and `Project.retry` return."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pz.errors import Problem
from pz.frozen import frozen
from pz.runs.model import NodeResult, RunResults, RunStatus

if TYPE_CHECKING:
    import pyarrow as pa

    from pz.engine.reading import Reading

__all__ = ["Progress", "RunResult"]


@frozen
class Progress:
    """How far the run's windowed datasets are from their stop: whether any has one, whether all reached it, and whether
    this pass has stored any state."""

    has_stop: bool
    reached: bool
    stored_state: bool

    @classmethod
    def of(cls, reading: Reading, *, stored: bool) -> Progress:
        """The progress after a pass that read these slices."""
        stopping = [found.bounds for found in reading.slices.values() if found.bounds.has_stop]
        return cls(bool(stopping), all(bounds.reaches_stop for bounds in stopping), stored)


@frozen(slots=False)
class RunResult:
    """What became of a run, with access to what it staged."""

    run_id: str
    run_dir: Path
    results: RunResults
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    cancelled: bool = False
    nothing_to_do: bool = False
    progress: Progress | None = None

    def __repr__(self) -> str:
        """One short line; the fields would be pages."""
        return f"<RunResult {self.run_id}: {self.status}, {self._totals}>"

    @property
    def status(self) -> RunStatus:
        """The terminal status."""
        return self.results.status

    @property
    def nodes(self) -> tuple[NodeResult, ...]:
        """One result per node of the execution set."""
        return self.results.nodes

    @property
    def exit_code(self) -> int:
        """0 everything succeeded; 1 a node failed or state could not be stored; 3 cancelled or fatal."""
        if self.nothing_to_do or (self.status is RunStatus.SUCCESS and not self.cancelled):
            return 0
        return 1 if self.status is RunStatus.COMPLETED_WITH_FAILURES else 3

    @property
    def summary(self) -> str:
        """The one-line summary that the console prints."""
        return f"run {self.run_id}: {self._totals} ({self.run_dir / 'run_results.json'})"

    @property
    def _totals(self) -> str:
        count = {"success": 0, "failed": 0, "skipped": 0}
        for node in self.nodes:
            count[node.status] += 1
        return f"{count['success']} succeeded, {count['failed']} failed, {count['skipped']} skipped"

    def table(self, name: str) -> pa.Table:
        """The rows of a staged relation: a pipeline's name, or ``src_<connection>__<entity>``.

        Raises:
            StateError: the staging database is gone (retention) or cannot be opened.
            ProjectError: PZ0210, nothing of that name was staged, for example because its chain was fused.
        """
        from pz.engine.show import read_staged

        return read_staged(self.run_dir, name)
