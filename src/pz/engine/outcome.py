"""What executing a node yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pz.frozen import frozen

__all__ = ["Outcome"]


@frozen(slots=False)
class Outcome:
    """Rows moved, and the optional blocks of the node's result (``provenance``, ``partitions``, ``delivery`` ...)."""

    rows: int = 0
    blocks: Mapping[str, Any] = field(default_factory=dict)
