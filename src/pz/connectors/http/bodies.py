"""Response bodies: decoded while they arrive, and never taken for whole when they are not.

The client library accepts a gzip body that is cut off, drops every gzip member behind the first, and cannot see the end of
a body that only the closing of the connection ends. So bodies are taken raw from the wire and decoded here, with a check
of the end: a gzip stream must end with a whole member, a deflate stream with its checksum, and what a closed connection
ended must end by itself. A text in another charset than UTF-8 is turned into it on the way.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from pz.errors import Code, ConnectorError, PermanentError, TransientError

__all__ = [
    "DeflateDecoder",
    "Framing",
    "GzipDecoder",
    "charset_of",
    "decoded",
    "encodings_of",
    "framing_of",
    "transcoded",
]

_GZIP = 16 + zlib.MAX_WBITS
_STEP = 1024 * 1024
_PYTHONS_OWN = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape"})
"""Codecs of text that no server means by a charset: they would change what stands there."""

_FOREIGN = frozenset({"br", "zstd", "compress", "dcb", "dcz"})
"""Codings that a message may name; anything else is what a server made up, perhaps from what it was sent."""
_UTF8 = frozenset({"utf-8", "ascii"})


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
    unknown = [coding for coding in codings if coding not in _DECODERS]
    if unknown:
        told = unknown[0] if unknown[0] in _FOREIGN else "something else"
        raise PermanentError(
            f"the response is encoded as {told}; only gzip and deflate were asked for",
            code=Code.PZ0765,
            hint="a gateway may do that whatever it is asked; ask its owner",
        )
    return list(reversed(codings))


def charset_of(headers: Mapping[str, str]) -> str | None:
    """The charset that the Content-Type names, as Python calls it; None for UTF-8, ASCII and where none is named.

    Raises:
        PermanentError: for a charset that is not known.
    """
    for part in headers.get("content-type", "").split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            found = value.strip().strip("\"'").lower()
            if not found:
                return None
            try:
                known = codecs.lookup(found).name
                "".encode(known)  # base64 and its like are codecs, but of no text
                if known in _PYTHONS_OWN:
                    raise LookupError
            except (LookupError, ValueError):
                raise PermanentError(
                    "the charset of the response is not known",
                    code=Code.PZ0765,
                    hint="ask for UTF-8, say by an Accept-Charset in headers",
                ) from None
            return None if known in _UTF8 else known
    return None


def transcoded(pieces: Iterable[bytes], charset: str | None) -> Iterator[bytes]:
    """The same text in UTF-8. A byte order mark goes with the old charset."""
    if charset is None:
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(charset)()
    first = True
    try:
        for piece in pieces:
            text = decoder.decode(piece)
            if text and first:
                text, first = text.removeprefix("\ufeff"), False
            yield text.encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        raise PermanentError("the response is not text in the charset that it names", code=Code.PZ0765) from error


class Decoder(Protocol):
    """Undoes one content coding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What the data decompresses to, in pieces of at most 1 MiB."""
        ...

    def finish(self) -> None:
        """Raise TransientError when the stream was cut: the same request may bring the rest."""
        ...


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


class DeflateDecoder:
    """Undoes deflate: a zlib stream (RFC 1950), or the bare one that some servers send under this name."""

    def __init__(self) -> None:
        self._head = b""
        self._stream: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What the data decompresses to, in pieces of at most 1 MiB."""
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            wrapped = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        more = True
        while data or more:
            try:
                piece = self._stream.decompress(data, _STEP)
            except zlib.error as error:
                raise PermanentError("the response is not valid deflate", code=Code.PZ0765) from error
            if piece:
                yield piece
            if self._stream.unused_data or (self._stream.eof and self._stream.unconsumed_tail):
                raise PermanentError("the response holds something behind its deflate stream", code=Code.PZ0765)
            data = self._stream.unconsumed_tail
            more = len(piece) == _STEP and not self._stream.eof

    def finish(self) -> None:
        """Raise TransientError when the stream was cut: the same request may bring the rest."""
        if self._head or (self._stream is not None and not self._stream.eof):
            raise TransientError("the response was cut off inside its deflate stream", code=Code.PZ0765)


_DECODERS: Mapping[str, Callable[[], Decoder]] = {
    "gzip": GzipDecoder,
    "x-gzip": GzipDecoder,
    "deflate": DeflateDecoder,
}


def decoded(chunks: Iterable[bytes], codings: Sequence[str], check: Callable[[int], None]) -> Iterator[bytes]:
    """The body with its codings undone in order, each checked for its end. ``check`` gets the total size and may raise."""
    decoders = [_DECODERS[coding]() for coding in codings]
    stream: Iterable[bytes] = chunks
    for decoder in decoders:
        stream = _through(decoder, stream)
    size = 0
    for piece in stream:
        size += len(piece)
        check(size)
        yield piece


def _through(decoder: Decoder, chunks: Iterable[bytes]) -> Iterator[bytes]:
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
