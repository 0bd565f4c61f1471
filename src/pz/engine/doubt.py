"""What became of an attempt whose outcome is not known: asked of the destination, never guessed."""

from __future__ import annotations

from dataclasses import replace

from pz.connectors.contract import OutputSpec, RecallingSink, Settlement, SettlingSink, Sink, Slice

__all__ = ["settlement"]


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
