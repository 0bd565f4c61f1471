"""Chunks of rows: cut greedily from the first row on, whatever batches the rows come in.

Where a chunk begins and ends follows from the rows alone (their number and their bytes), so a delivery that continues
behind an acknowledged chunk cuts the same chunks as the first attempt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from pz.connectors.contract import OutputSpec

__all__ = ["Chunk", "Chunker", "idempotency_key"]


@dataclass(frozen=True)
class Chunk:
    """Rows to send: their places in the drain, in order, and their json lines. ``end`` is the place behind the chunk."""

    offsets: range | tuple[int, ...]
    end: int
    lines: list[bytes]

    def body(self, *, ndjson: bool, envelope: str | None) -> bytes:
        """The request's body: a json list, perhaps under a key, or one object a line."""
        text = b"".join(self.lines)
        if ndjson:
            return text
        listed = b"[" + text[:-1].replace(b"\n", b",") + b"]"  # a line end inside a text is escaped, so these are ours
        if envelope is None:
            return listed
        import json

        return b"{" + json.dumps(envelope).encode() + b":" + listed + b"}"


class Chunker:
    """Collects lines and gives whole chunks. ``accepted`` are places whose rows are left out."""

    def __init__(self, rows: int, size: int, start: int = 0, accepted: frozenset[int] = frozenset()) -> None:
        self._most_rows = rows
        self._most_bytes = size
        self._accepted = accepted
        self._lines: list[bytes] = []
        self._offsets: list[int] = []
        self._bytes = 0
        self._next = start

    def add(self, lines: BinaryIO) -> Iterator[Chunk]:
        """Take lines; give every chunk that is full."""
        while taken := list(islice(lines, self._most_rows - len(self._lines))):
            if not self._accepted and self._bytes + sum(map(len, taken)) <= self._most_bytes:
                self._take(taken)
            else:
                yield from self._singly(taken)
            if len(self._lines) >= self._most_rows:
                yield self._cut()

    def rest(self) -> Iterator[Chunk]:
        """The last chunk, if there is one."""
        if self._lines:
            yield self._cut()

    @property
    def reached(self) -> int:
        """The place behind the last row that was taken."""
        return self._next

    def _take(self, lines: list[bytes]) -> None:
        self._lines += lines
        self._offsets += range(self._next, self._next + len(lines))
        self._bytes += sum(map(len, lines))
        self._next += len(lines)

    def _singly(self, lines: list[bytes]) -> Iterator[Chunk]:
        for line in lines:
            if self._next in self._accepted:
                self._next += 1
                continue
            full = len(self._lines) >= self._most_rows or self._bytes + len(line) > self._most_bytes
            if self._lines and full:
                yield self._cut()
            self._take([line])

    def _cut(self) -> Chunk:
        first, last = self._offsets[0], self._offsets[-1]
        offsets = range(first, last + 1) if last - first + 1 == len(self._offsets) else tuple(self._offsets)
        chunk = Chunk(offsets, self._next, self._lines)
        self._lines, self._offsets, self._bytes = [], [], 0
        return chunk


def idempotency_key(output: OutputSpec, chunk: Chunk, body: bytes) -> str:
    """What a chunk is called: the run that began the chain, the output, the chunk's place, the SHA-256 of its body.

    A chunk that is sent again within a chain of retries has the same key; equal rows of another run have another.
    """
    return f"{output.origin}-{output.node}-{chunk.offsets[0]}-{hashlib.sha256(body).hexdigest()}"
