"""``.pz/state/watermarks.json``: how far each incremental dataset has been read and delivered."""

from __future__ import annotations

from pathlib import Path

from pz.state.entries import EntryStore

__all__ = ["watermark_store"]


def watermark_store(state_dir: Path) -> EntryStore:
    """The watermarks of the project whose ``.pz`` is given."""
    return EntryStore(state_dir / "state" / "watermarks.json", "watermarks")
