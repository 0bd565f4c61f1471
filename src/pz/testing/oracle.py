"""Compare relations as multisets of whole rows, whatever their order.

Counts lie: two tables with equal counts can differ in every cell. `digest` is one text per multiset; the assertions name
rows that are missing or too many, up to a handful, with how often.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["assert_contains", "assert_equal", "assert_equal_alive", "differences", "digest", "rows_of", "without"]

_SHOWN = 5


def rows_of(relation: pa.Table | Iterable[Mapping[str, Any]]) -> Counter[str]:
    """The multiset of rows: each as text with its column names, so that column order does not matter."""
    rows = relation.to_pylist() if hasattr(relation, "to_pylist") else relation
    return Counter(_spell(row) for row in rows)


def digest(relation: pa.Table | Iterable[Mapping[str, Any]]) -> str:
    """A SHA-256 over the sorted rows: equal for equal multisets."""
    summary = hashlib.sha256()
    for text, count in sorted(rows_of(relation).items()):
        summary.update(f"{count} {text}\n".encode())
    return summary.hexdigest()


def differences(actual: Any, expected: Any) -> tuple[Counter[str], Counter[str]]:
    """What is missing from ``actual`` and what is too many in it."""
    have, want = rows_of(actual), rows_of(expected)
    return want - have, have - want


def assert_equal(actual: Any, expected: Any, what: str = "relation") -> None:
    """Both hold the same rows, each as often."""
    missing, extra = differences(actual, expected)
    if missing or extra:
        raise AssertionError(f"{what}: {_describe('missing', missing)}; {_describe('too many', extra)}")


def assert_contains(actual: Any, expected: Any, what: str = "relation") -> None:
    """Every expected row is there at least as often, and no row that was never expected: duplicates alone may be more."""
    missing, extra = differences(actual, expected)
    foreign = Counter({text: count for text, count in extra.items() if text not in rows_of(expected)})
    if missing or foreign:
        raise AssertionError(f"{what}: {_describe('missing', missing)}; {_describe('foreign', foreign)}")


def assert_equal_alive(actual: pa.Table, expected: Any, mark: str = "_pz_deleted_at", what: str = "relation") -> None:
    """Equal after soft deletes: rows without the mark, the mark's column left out."""
    rows = [row for row in actual.to_pylist() if row.get(mark) is None]
    assert_equal(without(rows, mark), expected, what)


def without(rows: Iterable[Mapping[str, Any]], *columns: str) -> Sequence[Mapping[str, Any]]:
    """The rows without some columns."""
    return [{name: value for name, value in row.items() if name not in columns} for row in rows]


def _spell(row: Mapping[str, Any]) -> str:
    # repr keeps 1 from 1.0, '1' from 1 and -0.0 from 0.0; NaN equals itself here.
    return ", ".join(f"{name}={row[name]!r}" for name in sorted(row))


def _describe(word: str, rows: Counter[str]) -> str:
    if not rows:
        return f"0 {word}"
    shown = [f"{count} x ({text})" for text, count in sorted(rows.items())[:_SHOWN]]
    rest = len(rows) - len(shown)
    return f"{sum(rows.values())} {word}: {'; '.join(shown)}{f' and {rest} more' if rest > 0 else ''}"
