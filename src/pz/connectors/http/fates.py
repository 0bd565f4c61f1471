"""What an answer says about each row of a chunk, where an API accepts some rows and refuses others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pz.connectors.http.pagination import MISSING
from pz.connectors.http.redaction import Redactor, numbers_in, without_values
from pz.connectors.http.selection import Document, parts_of
from pz.connectors.http.writing_options import PartialSuccess
from pz.errors import ConnectorError
from pz.frozen import frozen

__all__ = ["Refusal", "Unclear", "places", "refusals", "told"]

SHOWN = 3
"""Different reasons that a message tells."""

LISTED = 10
"""Positions that a message tells."""


class Unclear(Exception):
    """The answer does not tell the fate of every row."""


@frozen
class Refusal:
    """A refused row: its number in the chunk, from 0, and the API's reason, fit to be published; perhaps empty."""

    number: int
    reason: str


@frozen
class Sent:
    """The rows of a chunk, and every number in them."""

    lines: list[bytes]
    numbers: frozenset[str]


def refusals(body: bytes, how: PartialSuccess, lines: list[bytes], redactor: Redactor) -> list[Refusal]:
    """The refused rows, in order. Raises `Unclear` when the answer is not what was declared."""
    try:
        entries = Document(body, "").at(parts_of(how.items))
        if not isinstance(entries, list):
            raise Unclear("there is no list of rows in it")
        found = dict(_judged(entries, how, len(lines)))
    except (ConnectorError, ValueError, RecursionError) as error:
        raise Unclear("it is not json") from error
    sent = Sent(lines, numbers_in(b"\n".join(lines)) if found else frozenset())
    return [Refusal(number, _reason(found[number], how, number, sent, redactor)) for number in sorted(found)]


def _judged(entries: list[Any], how: PartialSuccess, count: int) -> Iterator[tuple[int, Any]]:
    if how.index is None and len(entries) != count:
        raise Unclear(f"it has {len(entries)} entries for {count} rows")
    seen: set[int] = set()
    for position, entry in enumerate(entries):
        number = position if how.index is None else _walk(entry, how.index)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count or number in seen:
            raise Unclear("an entry names no row, or one that another entry names")
        seen.add(number)
        if not _accepted(entry, how):
            yield number, entry


def _accepted(entry: Any, how: PartialSuccess) -> bool:
    found = _walk(entry, how.pointer)
    if how.judge == "error":
        return found is MISSING or found is None
    if how.judge == "ok" and isinstance(found, bool):
        return found
    if how.judge == "status":
        text = str(found)
        if not isinstance(found, bool) and text.isascii() and text.isdigit():
            return 200 <= int(text[:6]) < 300
    raise Unclear(f"an entry has no usable {how.judge}")


def _reason(entry: Any, how: PartialSuccess, number: int, sent: Sent, redactor: Redactor) -> str:
    """The API's words, without secrets and without what stood in the row."""
    pointer = how.reason or (how.pointer if how.judge == "error" else None)
    found = MISSING if pointer is None else _walk(entry, pointer)
    if found is MISSING or found is None:
        return ""
    words = found if isinstance(found, str) else _as_json(found)
    return without_values(redactor.line(words.encode()), sent.lines[number], len(sent.lines), sent.numbers)


def _as_json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _walk(entry: Any, pointer: str) -> Any:
    for part in parts_of(pointer):
        if isinstance(entry, dict) and part in entry:
            entry = entry[part]
        elif isinstance(entry, list) and part.isdigit() and int(part) < len(entry):
            entry = entry[int(part)]
        else:
            return MISSING
    return entry


def told(refused: list[Refusal]) -> str:
    """The different reasons, as the end of a message."""
    reasons = list(dict.fromkeys(refusal.reason for refusal in refused if refusal.reason))
    if not reasons:
        return ""
    more = f" and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    return f": {'; '.join(reasons[:SHOWN])}{more}"


def places(offsets: Iterable[int]) -> str:
    """Where rows stand in the order in which an output is delivered, counted from 1; never what they hold."""
    numbers = [offset + 1 for offset in offsets]
    more = f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
    return f"row{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:LISTED]))}{more} of the sorted output"
