"""What became of an attempt whose outcome is not known: asked of the destination, never guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pz.connectors.contract import OutputSpec, RecallingSink, Settlement, SettlingSink, Sink, Slice
from pz.errors import ConnectorError
from pz.plan.specs import output_spec

if TYPE_CHECKING:
    from pz.engine.prepare import Prepared
    from pz.graph.model import SinkNode
    from pz.runs.model import RunRecord
    from pz.staging.meta import SinkAttempt

__all__ = ["settled", "settlement"]


def settled(prepared: Prepared, sink: SinkNode, attempt: SinkAttempt, record: RunRecord) -> Settlement:
    """What became of an attempt of the run that ``record`` is of; it may have been made before the output was edited.

    A destination that cannot be asked tells nothing: the run that follows says why.
    """
    output = replace(output_spec(sink), origin=record.origin, node=attempt.node_id)
    try:
        with prepared.connections.sink(sink.connection) as opened:
            return settlement(opened, output, record.project, attempt.run_id, attempt.ordinal, attempt.marker)
    except ConnectorError:
        return Settlement.UNKNOWN


def settlement(sink: Sink, output: OutputSpec, project: str, run: str, ordinal: int, mark: str | None) -> Settlement:
    """Ask by what the attempt itself had recorded, then by the mark that it would have left with its data."""
    if mark is not None and isinstance(sink, RecallingSink):
        found = sink.recall(output, mark)
        if found is not Settlement.UNKNOWN:
            return found
    if not isinstance(sink, SettlingSink):
        return Settlement.UNKNOWN
    left = Slice.of_mark(project, mark) if mark is not None else None
    return sink.settle(output if left is None else replace(output, slice=left), run, ordinal)
