"""A TCP proxy between a test and its PostgreSQL server that knows where messages begin and end.

A *rule* sees every message before it is passed on and decides: pass, cut the connection, lose the answer, hold the message
back. Nothing waits for a time: whatever has to happen first is a message that has been seen.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from postgres_server import Database


class Verdict(StrEnum):
    """What becomes of a message, and of its connection."""

    PASS = "pass"
    CUT = "cut"
    """Both ends are closed; the message is not passed on."""
    LOSE_ANSWER = "lose answer"
    """The server gets it and works; the client's end is closed once the server has answered."""
    HOLD = "hold"
    """The client's end is closed, the server's stays open; `Proxy.release` passes the message on, late."""


@dataclass
class Link:
    """One client's connection through the proxy."""

    number: int
    client: socket.socket
    server: socket.socket
    statements: list[str] = field(default_factory=list)
    answers: int = 0
    mute: bool = False
    held: bytes | None = None

    def copies(self, what: str = "COPY") -> bool:
        """Whether the client has sent a statement that holds this text."""
        return any(what in statement for statement in self.statements)


Rule = Callable[[Link, str, bytes, bytes], Verdict]
"""Gets the link, ``client`` or ``server`` for who speaks, the message's type byte (empty at start-up) and its body."""


def _pass(link: Link, side: str, kind: bytes, body: bytes) -> Verdict:
    return Verdict.PASS


class Proxy:
    """Listens on ``port``; use as a context manager. ``refusing`` drops new connections at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._target = ("127.0.0.1", database.server.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.rule: Rule = _pass
        self.refusing = False
        self.links: list[Link] = []
        self.fired = 0
        self.happened = threading.Event()
        self._lock = threading.RLock()
        self._threads: list[threading.Thread] = []

    @property
    def options(self) -> dict[str, Any]:
        """Connection options that lead through the proxy."""
        return {**self._database.options, "port": self.port, "ssl_mode": "disable"}

    def __enter__(self) -> Proxy:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self.links:
            _close(link.client)
            _close(link.server)
        for thread in self._threads:
            thread.join(10)

    def once(self, verdict: Verdict, when: Callable[[Link, str, bytes, bytes], bool], *, then: str = "") -> None:
        """Apply ``verdict`` to the first message for which ``when`` holds; ``then="refuse"`` takes no connection after it."""

        def rule(link: Link, side: str, kind: bytes, body: bytes) -> Verdict:
            if self.fired or not when(link, side, kind, body):
                return Verdict.PASS
            self.fired += 1
            self.refusing = then == "refuse"
            self.happened.set()
            return verdict

        self.fired = 0
        self.happened.clear()
        self.rule = rule

    def heal(self) -> None:
        """Pass everything from now on."""
        self.rule, self.refusing = _pass, False

    def release(self) -> None:
        """Pass on what was held back, and let the server finish with it."""
        for link in self.links:
            if link.held is not None:
                message, link.held = link.held, None
                link.server.sendall(message)

    # --- pumps

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                _close(client)
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                _close(client)
                continue
            link = Link(len(self.links), client, server)
            self.links.append(link)
            self._spawn(self._from_client, link)
            self._spawn(self._from_server, link)

    def _from_client(self, link: Link) -> None:
        source = _Messages(link.client, starting=True)
        while True:
            found = source.next()
            if found is None:
                break
            kind, body, raw = found
            if kind in {b"Q", b"P"}:
                link.statements.append(body.replace(b"\0", b" ").decode(errors="replace").strip())
            verdict = self._judge(link, "client", kind, body)
            if verdict is Verdict.HOLD:
                link.held = raw
                _close(link.client)
                return  # the server's end stays open
            if verdict is Verdict.CUT:
                break
            link.mute = link.mute or verdict is Verdict.LOSE_ANSWER
            if not _send(link.server, raw):
                break
        if not link.mute:
            _close(link.server)
            _close(link.client)

    def _from_server(self, link: Link) -> None:
        source = _Messages(link.server, starting=False)
        while True:
            found = source.next()
            if found is None:
                break
            kind, body, raw = found
            link.answers += 1
            if link.mute:
                if kind in {b"Z", b"E"}:  # ready again, or an error: what was asked is done
                    break
                continue
            if self._judge(link, "server", kind, body) is Verdict.CUT:
                break
            if not _send(link.client, raw) and link.held is None:
                break
        _close(link.client)
        _close(link.server)

    def _judge(self, link: Link, side: str, kind: bytes, body: bytes) -> Verdict:
        with self._lock:
            return self.rule(link, side, kind, body)


class _Messages:
    """Whole messages out of a socket: type byte, length, body; the first of a client has no type byte."""

    def __init__(self, source: socket.socket, *, starting: bool) -> None:
        self._source = source
        self._starting = starting
        self._buffer = bytearray()

    def next(self) -> tuple[bytes, bytes, bytes] | None:
        """Type, body and the whole; None at the end."""
        prefix = 0 if self._starting else 1
        if not self._fill(prefix + 4):
            return None
        (length,) = struct.unpack_from("!I", self._buffer, prefix)
        if not self._fill(prefix + length):
            return None
        raw = bytes(self._buffer[: prefix + length])
        del self._buffer[: prefix + length]
        self._starting = False
        return raw[:prefix], raw[prefix + 4 :], raw

    def _fill(self, size: int) -> bool:
        while len(self._buffer) < size:
            try:
                more = self._source.recv(65536)
            except OSError:
                return False
            if not more:
                return False
            self._buffer += more
        return True


def _send(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _close(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()


def commits_a_load(link: Link, side: str, kind: bytes, body: bytes) -> bool:
    """The COMMIT of a connection that has copied rows into the server."""
    return side == "client" and kind == b"Q" and body.startswith(b"COMMIT") and link.copies("FROM STDIN")
