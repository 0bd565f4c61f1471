"""Response bodies: decoded while they arrive, and never taken for whole when they are not.

The client library accepts a gzip body that is cut off, drops every gzip member behind the first, and cannot see the end of
a body that only the closing of the connection ends. So bodies are taken raw from the wire and decoded here, with a check
of the end: a gzip stream must end with a whole member, and what a closed connection ended must end by itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from pz.errors import Code, ConnectorError, PermanentError, TransientError

__all__ = ["Framing", "GzipDecoder", "decoded", "encodings_of", "framing_of"]

_GZIP = 16 + zlib.MAX_WBITS
_STEP = 1024 * 1024


class Framing:
    """How the end of a body is known."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


def framing_of(status: int, headers: Mapping[str, str]) -> str:
    """Which of the three it is; a status without a body counts as of known length."""
    if status in (204, 304):
        return Framing.LENGTH
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Framing.CHUNKED
    return Framing.LENGTH if "content-length" in headers else Framing.CLOSE


def encodings_of(headers: Mapping[str, str]) -> list[str]:
    """The content codings of a response, in the order in which they must be undone.

    Raises:
        PermanentError: for a coding that was not asked for.
    """
    named = [part.strip().lower() for part in headers.get("content-encoding", "").split(",")]
    codings = [part for part in named if part and part != "identity"]
    unknown = [coding for coding in codings if coding not in {"gzip", "x-gzip"}]
    if unknown:
        raise PermanentError("the response is compressed in a way that was not asked for", code=Code.PZ0765)
    return list(reversed(codings))


class GzipDecoder:
    """Undoes gzip (RFC 1952): all members, bounded output, and `finish` tells whether the end was there."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False
        self._padding = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What the data decompresses to, in pieces of at most 1 MiB."""
        more = False
        while data or more:
            if self._member.eof:
                data, more = self._next_member(data), False
                continue
            self._begun = True
            try:
                piece = self._member.decompress(data, _STEP)
            except zlib.error as error:
                raise PermanentError("the response is not valid gzip", code=Code.PZ0765) from error
            if piece:
                yield piece
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            more = len(piece) == _STEP and not self._member.eof  # zlib may hold output back with all input taken

    def finish(self) -> None:
        """Raise TransientError when the stream was cut: the same request may bring the rest."""
        if self._begun and not self._member.eof:
            raise TransientError("the response was cut off inside its gzip stream", code=Code.PZ0765)

    def _next_member(self, data: bytes) -> bytes:
        rest = data.lstrip(b"\0")
        self._padding = self._padding or len(rest) < len(data)
        if not rest:
            return b""
        if self._padding:
            raise PermanentError("the response holds something behind its gzip stream", code=Code.PZ0765)
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False
        return rest


def decoded(chunks: Iterable[bytes], layers: int, check: Callable[[int], None]) -> Iterator[bytes]:
    """The body under ``layers`` of gzip, each checked for its end. ``check`` gets the total size and may raise."""
    decoders = [GzipDecoder() for _ in range(layers)]
    stream: Iterable[bytes] = chunks
    for decoder in decoders:
        stream = _through(decoder, stream)
    size = 0
    for piece in stream:
        size += len(piece)
        check(size)
        yield piece


def _through(decoder: GzipDecoder, chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        yield from decoder.feed(chunk)
    decoder.finish()


def too_large(limit: int) -> ConnectorError:
    """The error of a response that is larger than the connection allows."""
    return PermanentError(
        f"the response is larger than max_response_mb allows ({limit // 2**20} MB)",
        code=Code.PZ0765,
        hint="ask for smaller pages, or raise max_response_mb of the connection",
    )
