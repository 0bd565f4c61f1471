"""What DuckDB says of SQL that does not compile: the part that helps, and where it points to."""

from __future__ import annotations

import re

__all__ = ["cast_line", "line_of", "shortened", "unknown_column"]

_NOISE = re.compile(r"^(LINE \d+:|\s*\^|Candidate functions:|\t)")
_UNKNOWN = re.compile(r'Referenced column "(.+?)" not found')
_ECHO = re.compile(r"\n\n(LINE (\d+): )(.*)\n( *)\^\Z")
_LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)


def line_of(said: object) -> int | None:
    """The line of the statement that the message points to, from 1; None where it points to none."""
    match = _LINE.search(str(said))
    return None if match is None else int(match[1])


def cast_line(said: object) -> tuple[int, str] | None:
    """The line of the statement, from 1, with the cast that failed on a row, and its text; None where that is not sure.

    DuckDB shows the place of a cast inside of a view as if it were one of the statement: there, no cast is to be seen.
    """
    match = _ECHO.search(str(said))
    if match is None:
        return None
    column = len(match[4]) - len(match[1])
    is_cast = match[3][column:].lower().startswith(("cast", "try_cast", "::"))
    return (int(match[2]), match[3]) if column >= 0 and is_cast else None


def shortened(said: object) -> str:
    """The first useful lines of the message: what is wrong and what it suggests, without the echo of the SQL."""
    lines = [line.strip() for line in str(said).splitlines() if line.strip() and not _NOISE.match(line)]
    return " ".join(lines[:3]).removeprefix("Binder Error: ").removeprefix("Catalog Error: ")


def unknown_column(failure: BaseException) -> str | None:
    """The column that DuckDB does not find; None for another complaint."""
    found = _UNKNOWN.search(str(failure)) if type(failure).__name__ == "BinderException" else None
    return None if found is None else found[1]
