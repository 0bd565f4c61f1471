"""Two kinds of state in two files: a dataset's own, by the way in which it is read, and what another way has left.

A watermark means nothing to a feed or to change capture, and a token nothing to an incremental read. What another way has
stored is no first run either: it is refused until a full refresh has replaced it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pz.connectors.contract import ReadShape
from pz.errors import Code, Problem
from pz.frozen import frozen
from pz.state.entries import Binding, Entry, Token
from pz.state.sync_state import is_pending, token_store
from pz.state.watermarks import watermark_store

__all__ = ["Found", "StateFiles", "check_kind"]

_WORDS = {
    ReadShape.INCREMENTAL: "an incremental read",
    ReadShape.FEED: "a feed",
    ReadShape.CDC: "change capture",
}


@frozen
class Found:
    """What is stored of a dataset: in the file of its own kind, and in the other one."""

    own: Entry | None = None
    other: Entry | None = None


@frozen(slots=False)
class StateFiles:
    """Both files, read together."""

    watermarks: Mapping[str, Entry]
    tokens: Mapping[str, Entry]

    @classmethod
    def read(cls, state_dir: Path) -> StateFiles:
        """Read them. Raises StateError PZ0706 for a damaged one, PZ0529 for one that cannot be read."""
        return cls(watermark_store(state_dir).read(), token_store(state_dir).read())

    def of(self, key: str, shape: ReadShape | None) -> Found:
        """What there is of a dataset that is read in this shape."""
        watermark, token = self.watermarks.get(key), self.tokens.get(key)
        return Found(watermark, token) if shape is ReadShape.INCREMENTAL else Found(token, watermark)


def check_kind(key: str, found: Found, shape: ReadShape, here: Binding) -> Problem | None:
    """PZ0705 when what is stored of dataset ``key`` was stored by another way of reading; a full refresh replaces it.

    State of the own kind wins over what a death has left of the other. A pending snapshot is no state.
    """
    own = None if found.own is None or is_pending(found.own) else found.own
    stored = own or found.other
    if stored is None or is_pending(stored) or (stored is own and not _of_another_shape(stored, here)):
        return None
    by = _WORDS[_shape_of(stored)]
    message = f"the state of '{key}' was stored by {by}, but the dataset is read as {_WORDS[shape].removeprefix('an ')}"
    hint = "run with --full-refresh to read everything again"
    if _shape_of(stored) is ReadShape.CDC:
        hint += f"; then `pz cdc drop {key}` lets go of what the source keeps for it"
    return Problem(Code.PZ0705, message, hint=hint)


def _of_another_shape(stored: Entry, here: Binding) -> bool:
    """Whether feed and change capture differ; an entry from before the shape was kept says nothing."""
    return bool(stored.binding.shape and here.shape) and stored.binding.shape != here.shape


def _shape_of(stored: Entry) -> ReadShape:
    if not isinstance(stored.value, Token):
        return ReadShape.INCREMENTAL
    return ReadShape(stored.binding.shape) if stored.binding.shape else ReadShape.CDC
