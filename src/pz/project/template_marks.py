"""Marks that rendering leaves in its own output: which template line text came from, and where a sink was called.

They are bracketed by NUL, which no project file may hold, so nothing that an author writes can be taken for one.
"""

from __future__ import annotations

import re

from pz.frozen import frozen
from pz.project.sqlscan import significant

__all__ = [
    "LINE_ARGUMENT",
    "MARK",
    "SinkPrefix",
    "find_sink_prefix",
    "line_mark",
    "sink_mark",
    "sink_marks",
    "unmark",
    "without_sink_marks",
]

#: The argument by which a call of ours learns where it stands.
LINE_ARGUMENT = "__pz_line__"

MARK = "\x00"

_LINE = re.compile(f"{MARK}@([0-9]+){MARK}")
_SINK = re.compile(f"{MARK}>([0-9]*){MARK}")


def line_mark(line: int) -> str:
    """Says that the text behind it begins on a line of the template."""
    return f"{MARK}@{line}{MARK}"


def sink_mark(number: int | None) -> str:
    """Stands where a sink was called; without a number when that call was refused."""
    return f"{MARK}>{'' if number is None else number}{MARK}"


def sink_marks(text: str) -> set[int]:
    """The numbers of the sinks whose marks are in the text."""
    return {int(number) for number in _SINK.findall(text) if number}


def unmark(text: str) -> tuple[str, tuple[int, ...]]:
    """Take the line marks out again: the text, and for each of its lines the line of the template it came from."""
    pieces = _LINE.split(text)
    lines, content = [1], False
    for number, piece in zip(("1", *pieces[1::2]), pieces[::2], strict=True):
        if not content:
            lines[-1] = int(number)
        lines.extend(range(int(number) + 1, int(number) + 1 + piece.count("\n")))
        _, newline, tail = piece.rpartition("\n")
        content = bool(tail.strip()) or (content and not newline)
    return "".join(pieces[::2]), tuple(lines)


def without_sink_marks(text: str) -> str:
    """The text without marks of sinks, for what follows a problem that was reported."""
    return _SINK.sub("", text)


@frozen
class SinkPrefix:
    """``INSERT INTO <sink>`` or ``INSERT INTO [<sink>, <sink>]`` before a query: its extent and its sinks."""

    start: int
    end: int
    sinks: tuple[int, ...]


def find_sink_prefix(text: str) -> SinkPrefix | None:
    """The INSERT INTO at the head of the text, if sinks and nothing else follow it. Comments may stand anywhere."""
    tokens = significant(text)
    words = [next(tokens, None) for _ in range(3)]
    if any(word is None for word in words):
        return None
    insert, into, first = ((span[0], span[1], text[span[0] : span[1]]) for span in words if span is not None)
    if (insert[2].lower(), into[2].lower()) != ("insert", "into"):
        return None
    if _SINK.fullmatch(first[2]):
        return SinkPrefix(insert[0], first[1], tuple(sink_marks(first[2])))
    if first[2] != "[":
        return None
    numbers: list[int] = []
    expected_sink = True
    for start, end in tokens:
        token = text[start:end]
        if expected_sink and _SINK.fullmatch(token):
            numbers.extend(sink_marks(token))
        elif not expected_sink and token == "]":
            return SinkPrefix(insert[0], end, tuple(numbers))
        elif expected_sink or token != ",":
            return None
        expected_sink = not expected_sink
    return None
