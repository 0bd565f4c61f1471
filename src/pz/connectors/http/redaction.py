"""Keeps what must not be published out of what a server said.

A server may echo a request: its headers, its query, its body. So every value of the connection that could be a secret is
masked wherever it turns up, in plain, percent-encoded or base64 spelling, and so is what looks like a credential.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

__all__ = ["EXCERPT", "Redactor", "leaves", "without_values"]

EXCERPT = 160
"""Characters of a server's own words that a message may hold."""

MASK = "***"
_SHORTEST = 3
_NAMES = r"token|key|secret|password|passwd|credential|authorization|signature|sig"
_KINDS = r"access|refresh|id|auth|api|client|session|bearer"
_VALUE = r"\"[^\"]*\"|'[^']*'|<[^>]*>|(?:bearer|basic)\s+\S+|[^\s\"'<>,;&}]+"
_LOOKS_SECRET = re.compile(rf"(?i)((?:{_KINDS})?[-_ ]?(?:{_NAMES})[\"']?\s*[:=]\s*)({_VALUE})")
_ELEMENT = re.compile(r"(?is)(<([a-z:_-]*(?:token|key|secret|password|signature)[a-z]*)>)(.*?)(</\2>)")
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+")


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
        text = self.clean(body[:64_000].decode("utf-8", "replace"))
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"


def without_values(words: str, sent: bytes) -> str:
    """Words of a server without any text that stood in the rows that were sent, and without numbers."""
    values = sorted({text for line in _contents(sent) for text in leaves(line) if text.strip()}, key=len, reverse=True)
    for start in range(0, len(values), 500):
        part = "|".join(re.escape(text) for text in values[start : start + 500])
        words = re.sub(rf"(?<!\w)(?:{part})(?!\w)", MASK, words)
    return re.sub(r"\d+", "#", words)


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
