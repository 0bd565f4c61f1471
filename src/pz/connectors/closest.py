"""What was meant by a name that is not there: an option, a column, a file."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["closest", "did_you_mean"]


def closest(word: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """The known name that is most like ``word``, whatever the case of either; None where nothing is like it."""
    import difflib  # late: only errors need it

    by_case = {name.lower(): name for name in known}
    match = difflib.get_close_matches(word.lower(), list(by_case), n=1, cutoff=cutoff)
    return by_case[match[0]] if match else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``; empty where nothing is like ``word``."""
    found = closest(word, known)
    return "" if found is None else f"did you mean '{found}'?"
