"""``.pz/state/sync-state.json``: the token that each feed or cdc dataset wants to be handed next time.

Tokens are replayed verbatim and never looked into, compared, logged or shown.
"""

from __future__ import annotations

from pathlib import Path

from pz.state.entries import EntryStore

__all__ = ["token_store"]


def token_store(state_dir: Path) -> EntryStore:
    """The tokens of the project whose ``.pz`` is given."""
    return EntryStore(state_dir / "state" / "sync-state.json", "tokens")
