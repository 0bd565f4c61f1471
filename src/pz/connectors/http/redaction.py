"""Keeps what must not be published out of what a server said.

A server may echo a request: its headers, its query, its body. So every value of the connection that could be a secret is
masked wherever it turns up, in plain, percent-encoded or base64 spelling, and so is what looks like a credential.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from urllib.parse import quote, quote_plus

__all__ = ["EXCERPT", "Redactor", "leaves", "numbers_in", "shortened", "without_values"]

EXCERPT = 160
"""Characters of a server's own words that a message may hold."""

_LINE = 16_000
"""Characters that are looked at: more than are shown, so that a value is recognised before it is cut."""

MASK = "***"
_SHORTEST = 3
_NAMES = r"token|key|secret|password|passwd|credential|authorization|signature|sig"
_KINDS = r"access|refresh|id|auth|api|client|session|bearer"
_VALUE = r"\"[^\"]*\"|'[^']*'|<[^>]*>|(?:bearer|basic)\s+\S+|[^\s\"'<>,;&}]+"
_LOOKS_SECRET = re.compile(rf"(?i)((?:{_KINDS})?[-_ ]?(?:{_NAMES})[\"']?\s*[:=]\s*)({_VALUE})")
_ELEMENT = re.compile(r"(?is)(<([a-z:_-]*(?:token|key|secret|password|signature)[a-z]*)>)(.*?)(</\2>)")
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+")

_PLACES = (
    r"rows?|lines?|items?|records?|entry|entries|elements?|objects?|ind(?:ex|ices|exes)|positions?|offset|no\.?|number"
)
_NUMBER = re.compile(
    rf"(?P<said>(?i:(?<!\w)(?:{_PLACES})[\"']?\s*[:=#]?\s*)|(?<=\w)\[)?"
    r"(?P<alone>(?<![\w.,:/+-])(?<!\d )(?=\d{1,4}(?!\d)))?(?P<digits>\d+)(?P<ends>(?![\w…]|[ .,:/+-]\d))?"
)


class Redactor:
    """Masks known secrets. Thread-safe; secrets that come up later (an access token) are added."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Mask this text, too, from now on. Texts of one or two characters are left: they would mask everything."""
        if len(secret) < _SHORTEST:
            return
        raw = secret.encode("utf-8", "surrogatepass")
        spellings = {secret, quote(secret, safe="", errors="replace"), quote_plus(secret, errors="replace")}
        spellings |= {json.dumps(secret)[1:-1], base64.b64encode(raw).decode().rstrip("=")}
        with self._lock:
            self._known |= spellings

    def clean(self, text: str) -> str:
        """The text with every secret masked."""
        with self._lock:
            known = sorted(self._known, key=len, reverse=True)
        for secret in known:
            text = text.replace(secret, MASK)
        text = _ELEMENT.sub(rf"\1{MASK}\4", text)
        text = _LOOKS_SECRET.sub(rf"\1{MASK}", text)
        return _SCHEME.sub(rf"\1 {MASK}", text)

    def excerpt(self, body: bytes) -> str:
        """The beginning of a body, as one line of printable text, cleaned *before* it is cut; empty when there is none."""
        return shortened(self.line(body))

    def line(self, body: bytes) -> str:
        """The same, cut only where nothing is shown: to be cleaned of more, then `shortened`."""
        text = self.clean(body[:64_000].decode("utf-8", "replace"))
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_LINE]


def without_values(words: str, sent: bytes, positions: int = 0, numbers: Collection[str] | None = None) -> str:
    """Words of a server without what stood in the rows that were sent, cut to `EXCERPT`.

    A number stays where it is said as the position of a row ("row 30") and is at most ``positions``, and where it has few
    digits, stands alone and is none of ``numbers`` (default: those of ``sent``); a longer one may be a value spelled otherwise.
    """
    values = {text for line in _contents(sent) for text in leaves(line) if text.strip() and not text.isdecimal()}
    for text in sorted(values, key=len, reverse=True):
        if text in words:
            words = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", MASK, words)
    known = numbers_in(sent) if numbers is None else numbers

    def kept(found: re.Match[str]) -> str:
        digits = found["digits"]
        if found["said"] and found["ends"] is not None and int(digits) <= positions:
            return found[0]
        if found["alone"] is not None and found["ends"] is not None and digits.lstrip("0") not in known:
            return found[0]
        return f"{found['said'] or ''}#"

    return shortened(_NUMBER.sub(kept, words))


def numbers_in(sent: bytes) -> frozenset[str]:
    """Every run of digits, without leading zeros."""
    return frozenset(digits.decode().lstrip("0") for digits in re.findall(rb"\d+", sent))


def shortened(line: str) -> str:
    """A line of at most `EXCERPT` characters."""
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"


def _contents(sent: bytes) -> Iterator[object]:
    for line in sent.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            yield line.decode("utf-8", "replace")


def leaves(value: object) -> Iterator[str]:
    """Every text inside a nested option value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
