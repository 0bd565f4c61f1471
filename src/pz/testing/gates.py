"""An operation gate that is always open, and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pz.connectors.contract import CancelToken

__all__ = ["OpenGate"]

T = TypeVar("T")


class OpenGate:
    """Runs every operation at once and once; remembers labels and reported budgets."""

    def __init__(self) -> None:
        self.labels: list[tuple[str, bool]] = []
        self.budgets: list[tuple[int, float]] = []

    def execute(self, label: str, idempotent: bool, operation: Callable[[], T], cancel: CancelToken | None = None) -> T:
        """See `OperationGate`."""
        self.labels.append((label, idempotent))
        return operation()

    def report_budget(self, remaining: int, reset_seconds: float) -> None:
        """See `OperationGate`."""
        self.budgets.append((remaining, reset_seconds))
