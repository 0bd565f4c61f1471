"""A real HTTP server on loopback whose every answer a test scripts: status, headers, body, delay, cut.

    with Api() as api:
        api.on("GET", "/items", Reply.json([{"id": 1}]))       # answers in order; the last one stays
        api.route("GET", "/pages", lambda request: Reply.json(...))

Every request is logged. It speaks HTTP/1.1 over plain sockets, so that a test can break exactly what it wants to break.
"""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request as it came. ``query`` holds the last value of a name, ``pairs`` all of them."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def query(self) -> dict[str, str]:
        return dict(self.pairs)

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """An answer. ``framing``: length, chunked or close. ``cut``: bytes of the body after which the connection breaks
    (-1: before the status line, -2: the request is not even read). ``reset`` breaks it with RST instead of FIN. ``drip`` and
    ``head_drip`` are seconds between two pieces of ``drip_size`` bytes of the body, and between two bytes of the head."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    framing: str = "length"
    cut: int | None = None
    reset: bool = False
    drip: float = 0.0
    head_drip: float = 0.0
    drip_size: int = 1

    @classmethod
    def json(cls, content: Any, status: int = 200, **headers: str) -> Reply:
        return cls(status, {"Content-Type": "application/json", **_named(headers)}, json.dumps(content).encode())

    @classmethod
    def text(cls, content: str, kind: str, status: int = 200, **headers: str) -> Reply:
        return cls(status, {"Content-Type": kind, **_named(headers)}, content.encode())

    def gzipped(self) -> Reply:
        return replace(self, headers={**self.headers, "Content-Encoding": "gzip"}, body=gzip.compress(self.body, 1))


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


Handler = Callable[[Asked], Reply]


class Api:
    """The server. Unknown paths answer 404."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._tls = tls
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.asked: list[Asked] = []
        self.connections = 0

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def on(self, method: str, path: str, *replies: Reply) -> None:
        """Answer with these replies one after the other; the last one is given from then on."""
        waiting = list(replies)

        def answer(_: Asked) -> Reply:
            with self._lock:
                return waiting.pop(0) if len(waiting) > 1 else waiting[0]

        self.route(method, path, answer)

    def route(self, method: str, path: str, handler: Handler) -> None:
        """Answer with what the handler gives. A path that ends in ``*`` serves everything that begins like it."""
        self._handlers[method, path] = handler

    def requests(self, path: str | None = None, method: str | None = None) -> list[Asked]:
        with self._lock:
            return [a for a in self.asked if path in (None, a.path) and method in (None, a.method)]

    def counts(self) -> dict[str, int]:
        found: defaultdict[str, int] = defaultdict(int)
        for asked in self.requests():
            found[asked.path] += 1
        return dict(found)

    def __enter__(self) -> Api:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        with socket.socket() as wake:
            wake.settimeout(1)
            wake.connect_ex(("127.0.0.1", self.port))
        self._socket.close()
        with self._lock:
            open_now = list(self._open)
        for connection in open_now:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self._stopped.is_set():
                connection.close()
                return
            with self._lock:
                self.connections += 1
                self._open.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
            with connection.makefile("rb") as reader:
                while (asked := _read(reader)) is not None and self._answer(connection, asked):
                    pass
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                self._open.discard(plain)
            connection.close()

    def _answer(self, connection: socket.socket, asked: Asked) -> bool:
        with self._lock:
            self.asked.append(asked)
        reply = self._reply(asked)
        if reply.delay:
            self._stopped.wait(reply.delay)
        return _send(connection, asked, reply)

    def _reply(self, asked: Asked) -> Reply:
        handler = self._handlers.get((asked.method, asked.path))
        if handler is None:
            starts = [
                (path, found)
                for (method, path), found in self._handlers.items()
                if method == asked.method and path.endswith("*") and asked.path.startswith(path[:-1])
            ]
            handler = max(starts, key=lambda pair: len(pair[0]))[1] if starts else None
        return Reply.json({"message": "no such path"}, 404) if handler is None else handler(asked)


def _read(reader: Any) -> Asked | None:
    line = reader.readline()
    if not line.strip():
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (header := reader.readline()) not in (b"\r\n", b"\n", b""):
        name, _, value = header.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    size = int(headers.get("content-length", 0))
    body = reader.read(size)
    return Asked(method, target, headers, body) if len(body) == size else None


def _send(connection: socket.socket, asked: Asked, reply: Reply) -> bool:
    """Write the answer; False when the connection is over."""
    if reply.cut == -1:
        return _break(connection, reply.reset)
    body = reply.body
    headers = dict(reply.headers)
    if reply.framing == "length" and reply.status not in (204, 304):
        headers["Content-Length"] = str(len(body))
    elif reply.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    else:
        headers["Connection"] = "close"
    head = f"HTTP/1.1 {reply.status} Scripted\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers.items()) + "\r\n"
    content = b"" if reply.status in (204, 304) else (_chunked(body) if reply.framing == "chunked" else body)
    if reply.cut is not None:
        content = content[: reply.cut]
    _write(connection, head.encode("latin-1"), reply.head_drip)
    _write(connection, content, reply.drip, reply.drip_size)
    if reply.cut is not None:
        return _break(connection, reply.reset)
    return reply.framing != "close" and reply.status != 304


def _write(connection: socket.socket, content: bytes, drip: float, size: int = 1) -> None:
    if not drip:
        connection.sendall(content)
        return
    for at in range(0, len(content), size):
        connection.sendall(content[at : at + size])
        time.sleep(drip)  # that is what the reply is scripted to do


def _chunked(body: bytes) -> bytes:
    parts = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def _break(connection: socket.socket, reset: bool) -> bool:
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def paged(records: Sequence[Any], size: int, **around: Any) -> Handler:
    """A handler of ``?page=N`` (from 1): a list of records, or an object around it under ``items``."""

    def answer(asked: Asked) -> Reply:
        page = int(asked.query.get("page", "1"))
        part = list(records[(page - 1) * size : page * size])
        return Reply.json({"items": part, **around} if around else part)

    return answer
