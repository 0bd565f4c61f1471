"""Whether a captured table is still what it was: which alterations a window can be followed through, and which not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pz.sqltext import quote

__all__ = ["alterations", "widens"]

Columns = Mapping[str, tuple[int, int, int]]
"""Names with number, type oid and modifier in the catalogue."""

# Oids of types whose texts can be read as another: a column may have been widened inside a window.
_WIDER = {(21, 23), (21, 20), (23, 20), (1043, 25), (700, 701)}
_VARCHAR, _NUMERIC = 1043, 1700


def alterations(before: Columns, now: Columns, with_default: Collection[str]) -> Iterator[str]:
    """What has been done to the columns that cannot be followed; the log does not tell what it did to rows at rest."""
    named = {number: name for name, (number, _, _) in before.items()}
    for name, (number, *kind) in now.items():
        was = named.get(number)
        if was is None:
            if name in before:
                yield f"column {quote(name)} was dropped and added again"
            elif name in with_default:
                yield f"column {quote(name)} was added with a default, which rows at rest got unseen"
        elif was != name:
            yield f"column {quote(was)} was renamed to {quote(name)}"
        elif not widens(before[name][1:], tuple(kind)):
            yield f"column {quote(name)} got another type"


def widens(before: tuple[int, int], now: tuple[int, ...]) -> bool:
    """Whether every value of the one type is a value of the other with the same text."""
    (old, old_modifier), (new, new_modifier) = before, now
    if old != new:
        return (old, new) in _WIDER
    if old_modifier == new_modifier or new_modifier == -1:
        return True
    if old_modifier == -1:
        return False
    if old == _NUMERIC:
        same_scale = (old_modifier - 4) & 0x7FF == (new_modifier - 4) & 0x7FF
        return same_scale and new_modifier >= old_modifier
    return old == _VARCHAR and new_modifier >= old_modifier
