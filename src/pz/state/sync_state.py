"""``.pz/state/sync-state.json``: the token that each feed or cdc dataset wants to be handed next time.

Tokens are replayed verbatim and never looked into, compared, logged or shown.
"""

from __future__ import annotations

from pathlib import Path

from pz.state.entries import Entry, EntryStore, Token

__all__ = ["SNAPSHOT_PENDING", "is_pending", "token_store"]

SNAPSHOT_PENDING = "pz:snapshot pending"
"""Stands for no token at all: the dataset is to be read from its beginning, whatever became of the run that wanted to."""


def is_pending(entry: Entry) -> bool:
    """Whether the entry says no more than that a snapshot is to come."""
    return isinstance(entry.value, Token) and entry.value.token == SNAPSHOT_PENDING


def token_store(state_dir: Path) -> EntryStore:
    """The tokens of the project whose ``.pz`` is given."""
    return EntryStore(state_dir / "state" / "sync-state.json", "tokens")
