"""Chunks of rows: cut greedily from the first row on, whatever batches the rows come in.

Where a chunk begins and ends follows from the rows alone (their number and their bytes), so a delivery that continues
behind an acknowledged chunk cuts the same chunks as the first attempt.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain

from pz.connectors.contract import OutputSpec
from pz.connectors.http.encode import Lines
from pz.frozen import frozen

__all__ = ["Chunk", "Chunker", "idempotency_key"]


@frozen(slots=False)
class Chunk:
    """Rows to send, as lines: ``places`` are where they stand in the drain, ``end`` is the place behind the chunk."""

    places: tuple[range, ...]
    end: int
    text: bytes

    def __len__(self) -> int:
        return sum(map(len, self.places))

    @property
    def offsets(self) -> list[int]:
        """The place of each row, in order."""
        return list(chain.from_iterable(self.places))

    @property
    def lines(self) -> list[bytes]:
        """The rows one by one."""
        return self.text.split(b"\n")[:-1]

    def body(self, *, ndjson: bool, envelope: str | None) -> bytes:
        """The request's body: a json list, perhaps under a key, or one object a line."""
        if ndjson:
            return self.text
        listed = b"[" + self.text[:-1].replace(b"\n", b",") + b"]"
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
        self._texts: list[bytes] = []
        self._places: list[range] = []
        self._rows = 0
        self._bytes = 0
        self._next = start

    def add(self, lines: Lines) -> Iterator[Chunk]:
        """Take lines; give every chunk that is full."""
        first = self._next
        for start, end in self._wanted(len(lines)):
            self._next = first + start
            while start < end:
                fitting = self._fitting(lines, start, end)
                if fitting > start:
                    self._take(lines, start, fitting)
                if fitting < end or self._rows >= self._most_rows:
                    yield self._cut()
                start = fitting
        self._next = first + len(lines)

    def rest(self) -> Iterator[Chunk]:
        """The last chunk, if there is one."""
        if self._rows:
            yield self._cut()

    @property
    def reached(self) -> int:
        """The place behind the last row that was taken."""
        return self._next

    def _wanted(self, count: int) -> Iterator[tuple[int, int]]:
        """The stretches of the next ``count`` lines between those that are left out."""
        known = sorted(place - self._next for place in self._accepted if self._next <= place < self._next + count)
        starts, ends = [0, *(place + 1 for place in known)], [*known, count]
        return ((start, end) for start, end in zip(starts, ends, strict=True) if start < end)

    def _fitting(self, lines: Lines, start: int, end: int) -> int:
        """Up to which line the present chunk takes more; a first one always fits."""
        most = min(end, start + self._most_rows - self._rows)
        last = lines.bounds[start] + self._most_bytes - self._bytes
        fitting = most if lines.bounds[most] <= last else bisect_right(lines.bounds, last, start, most) - 1
        return max(fitting, start if self._rows else start + 1)

    def _take(self, lines: Lines, start: int, end: int) -> None:
        self._texts.append(lines.between(start, end))
        self._places.append(range(self._next, self._next + end - start))
        self._rows += end - start
        self._bytes += len(self._texts[-1])
        self._next += end - start

    def _cut(self) -> Chunk:
        chunk = Chunk(tuple(self._places), self._next, b"".join(self._texts))
        self._texts, self._places, self._rows, self._bytes = [], [], 0, 0
        return chunk


def idempotency_key(output: OutputSpec, chunk: Chunk, body: bytes) -> str:
    """What a chunk is called: the run that began the chain, the output, the chunk's place, the SHA-256 of its body.

    A chunk that is sent again within a chain of retries has the same key; equal rows of another run have another.
    """
    return f"{output.origin}-{output.node}-{chunk.places[0].start}-{hashlib.sha256(body).hexdigest()}"
