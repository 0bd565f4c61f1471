"""What DuckDB says of SQL that does not compile: the part that helps, and where it points to."""

from __future__ import annotations

import re

__all__ = ["line_of", "shortened", "unknown_column"]

_NOISE = re.compile(r"^(LINE \d+:|\s*\^|Candidate functions:|\t)")
_UNKNOWN = re.compile(r'Referenced column "(.+?)" not found')
_LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)


def line_of(said: object) -> int | None:
    """The line of the statement that the message points to, from 1; None where it points to none."""
    match = _LINE.search(str(said))
    return None if match is None else int(match[1])


def shortened(said: object) -> str:
    """The first useful lines of the message: what is wrong and what it suggests, without the echo of the SQL."""
    lines = [line.strip() for line in str(said).splitlines() if line.strip() and not _NOISE.match(line)]
    return " ".join(lines[:3]).removeprefix("Binder Error: ").removeprefix("Catalog Error: ")


def unknown_column(failure: BaseException) -> str | None:
    """The column that DuckDB does not find; None for another complaint."""
    found = _UNKNOWN.search(str(failure)) if type(failure).__name__ == "BinderException" else None
    return None if found is None else found[1]
