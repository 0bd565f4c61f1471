"""Just enough of SQL's lexical rules to find where a query begins and ends: comments, quotes, dollar quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["significant", "without_blanks", "without_end"]

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+ | --[^\n]*)
    | (?P<comment>/\*)
    | [eE]'(?:\\.|''|[^'\\])*'?
    | '(?:''|[^'])*'?
    | "(?:""|[^"])*"?
    | (?P<tag>\$(?:[A-Za-z_]\w*)?\$)
    | \x00[^\x00]*\x00
    | \w+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def without_end(sql: str) -> str:
    """Drop blanks, comments and semicolons at the end, so that the query can be wrapped in brackets."""
    last = 0
    for start, end in significant(sql):
        if sql[start:end] != ";":
            last = end
    return sql[:last]


def without_blanks(sql: str) -> str:
    """The one spelling of SQL that differs only in blanks and comments. A blank beside a dot stays: ``1 .5`` is not ``1.5``."""
    spelled: list[str] = []
    last, dot = 0, False
    for start, end in significant(sql):
        token = sql[start:end]
        glued = start == last and (dot or token == ".")
        spelled.append(token if glued or not spelled else f" {token}")
        last, dot = end, token == "."
    return "".join(spelled)


def significant(sql: str, position: int = 0) -> Iterator[tuple[int, int]]:
    """Start and end of every token that is neither blank nor comment. A text between NULs is one token."""
    while position < len(sql):
        match = _TOKEN.match(sql, position)
        assert match is not None  # the last alternative takes any character
        start, position = position, match.end()
        if match["blank"]:
            continue
        if match["comment"]:
            position = _end_of_comment(sql, position)
            continue
        if match["tag"]:
            close = sql.find(match["tag"], position)
            position = len(sql) if close < 0 else close + len(match["tag"])
        yield start, position


def _end_of_comment(sql: str, position: int) -> int:
    """Block comments nest; one that is never closed reaches to the end."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(sql)
