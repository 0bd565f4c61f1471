"""What executing a node yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Outcome"]


@dataclass(frozen=True)
class Outcome:
    """Rows moved, and the optional blocks of the node's result (``provenance``, ``partitions``, ``delivery`` ...)."""

    rows: int = 0
    blocks: Mapping[str, Any] = field(default_factory=dict)
