"""Fitting text into the cells of a terminal, where wide characters count as two."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

__all__ = ["cut", "levelled"]


def cut(text: str, width: int, unicode: bool) -> str:
    """The text in at most ``width`` cells; what is cut ends in a mark."""
    if cell_len(text) <= width:
        return text
    mark = "…" if unicode else "..."
    if width <= cell_len(mark):
        return set_cell_size(text, width)
    return set_cell_size(text, width - cell_len(mark)).rstrip() + mark


def levelled(widths: Sequence[int], room: int, least: Sequence[int]) -> list[int]:
    """Narrow the widest columns to one common width, so that all take at most ``room``; none goes below its ``least``.

    Where even the least is too much, the least is returned.
    """
    low, high = 0, max(widths, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_at(widths, least, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    return _at(widths, least, low)


def _at(widths: Sequence[int], least: Sequence[int], cap: int) -> list[int]:
    return [max(floor, min(width, cap)) for width, floor in zip(widths, least, strict=True)]
