"""Did you mean ...? One edit or a difference in case away counts as a slip of the pen; more is another word."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "near_miss"]


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """Return the first of ``known`` that ``word`` misses by one edit (or by case alone); None when nothing is close.

    A known word itself is no miss. One-letter words match by case only: everything is one edit away from them.
    """
    candidates = list(known)
    if word in candidates:
        return None
    by_case = next((name for name in candidates if name.lower() == word.lower()), None)
    if by_case is not None:
        return by_case
    return next((name for name in candidates if len(name) > 1 and _one_edit(word.lower(), name.lower())), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?``, or what is known when nothing is close."""
    candidates = list(known)
    close = near_miss(word, candidates)
    if close is not None:
        return f"did you mean '{close}'?"
    return f"known here: {', '.join(candidates)}" if candidates else ""


def _one_edit(left: str, right: str) -> bool:
    """Whether one insertion, deletion, substitution or swap of neighbours turns one word into the other."""
    if abs(len(left) - len(right)) > 1:
        return False
    start = _shared_prefix(left, right)
    left, right = left[start:], right[start:]
    if len(left) == len(right):
        return left[1:] == right[1:] or (left[:2] == right[1::-1] and left[2:] == right[2:])
    longer, shorter = (left, right) if len(left) > len(right) else (right, left)
    return longer[1:] == shorter


def _shared_prefix(left: str, right: str) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
