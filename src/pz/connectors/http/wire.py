"""The connections themselves: a request goes out, the head of a response comes in, and its body follows in pieces.

The client library waits at most so long for each piece, so a server that sends one byte now and then could keep it for
ever. Here the head of a response has a deadline as a whole, and what follows it, like what is sent, has a least speed.
Every socket is known, so that a cancellation breaks it instead of waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pz.connectors.http.settings import Settings
from pz.errors import Cancelled
from pz.frozen import frozen

if TYPE_CHECKING:
    import socket

    import httpcore
    import httpx

__all__ = ["Pace", "Response", "Wire"]

SLOWEST = 1024
"""Bytes per second, over a whole `timeout_seconds`, below which a body counts as stalled."""

_IDLE_SECONDS = 5.0
"""How long a connection without work is kept: servers close theirs, too, and a request might meet that."""


@frozen
class Response:
    """A response whose body is still to come: ``pieces``, as they are on the wire. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes]


class Wire:
    """The connections of one opened source or sink, their sockets and their cookies. Thread-safe. Call `close` once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._pool: httpcore.ConnectionPool | None = None
        self._sockets: set[socket.socket] = set()
        self._stopped = threading.Event()
        self._pace = Pace(settings.timeout)
        self._cookies: httpx.Cookies | None = None

    @contextmanager
    def exchange(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None
    ) -> Iterator[Response]:
        """Send a request; the block gets the response and ends it. Raises what the client library raises, or `Cancelled`."""
        import httpcore

        if self._stopped.is_set():
            raise Cancelled
        limits = dict.fromkeys(("connect", "read", "write", "pool"), self._settings.timeout)
        request = httpcore.Request(
            method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=list(self._spelled(method, url, headers, content)),
            content=content,
            extensions={"timeout": limits},
        )
        self._pace.begin()
        answer = self._opened().handle_request(request)
        try:
            self._pace.head_is_there()
            told = _joined(answer.headers)
            if "set-cookie" in told:
                self._keep_cookies(method, url, answer)
            yield Response(answer.status, told, iter(answer.iter_stream()))
        finally:
            answer.close()

    def interrupt(self) -> None:
        """Break every connection: calls under way fail, and none is begun any more, until `reopen`."""
        import socket

        self._stopped.set()
        with self._lock:
            sockets = list(self._sockets)
        for found in sockets:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    def reopen(self) -> None:
        """Take calls again."""
        self._stopped.clear()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def connected(self, made: socket.socket | None) -> None:
        """Remember a socket; one that came about during an interruption is broken at once."""
        if made is None:
            return
        with self._lock:
            self._sockets = {known for known in self._sockets if known.fileno() >= 0}
            self._sockets.add(made)
        if self._stopped.is_set():
            self.interrupt()

    # --- headers

    def _spelled(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None
    ) -> Iterator[tuple[bytes, bytes]]:
        yield b"Host", url.netloc
        if content is not None or method in ("POST", "PUT", "PATCH"):
            yield b"Content-Length", str(len(content or b"")).encode()
        for name, value in headers.items():
            yield name.encode("ascii"), value.encode("ascii")
        if self._cookies is not None:
            yield from self._told_cookies(method, url)

    def _keep_cookies(self, method: str, url: httpx.URL, answer: httpcore.Response) -> None:
        """Some gateways bind a crawl to one of their servers by a cookie; which URLs it goes to is the jar's business."""
        import httpx

        with self._lock:
            if self._cookies is None:
                self._cookies = httpx.Cookies()
            response = httpx.Response(answer.status, headers=answer.headers, request=httpx.Request(method, url))
            self._cookies.extract_cookies(response)

    def _told_cookies(self, method: str, url: httpx.URL) -> list[tuple[bytes, bytes]]:
        import httpx

        assert self._cookies is not None
        request = httpx.Request(method, url)
        with self._lock:
            self._cookies.set_cookie_header(request)
        return [(name, value) for name, value in request.headers.raw if name.lower() == b"cookie"]

    # --- connections

    def _opened(self) -> httpcore.ConnectionPool:
        with self._lock:
            if self._pool is None:
                from pz.connectors.http.streams import Backend

                self._pool = _pool(self._settings, Backend(self._pace, self.connected))
            return self._pool


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Values of one name joined by commas (RFC 9110, 5.2)."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), _text(raw_value)
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _pool(settings: Settings, backend: httpcore.NetworkBackend) -> httpcore.ConnectionPool:
    import httpcore
    import httpx

    shared: dict[str, Any] = {
        "ssl_context": settings.verify(),
        "keepalive_expiry": _IDLE_SECONDS,
        "network_backend": backend,
    }
    if settings.proxy is None:
        return httpcore.ConnectionPool(**shared)
    proxy = httpx.URL(settings.proxy)
    address = httpcore.URL(scheme=proxy.raw_scheme, host=proxy.raw_host, port=proxy.port, target=b"/")
    user = (proxy.username, proxy.password) if proxy.userinfo else None
    checked = shared["ssl_context"] if proxy.scheme == "https" else None  # the proxy by the same authorities
    return httpcore.HTTPProxy(address, proxy_auth=user, proxy_ssl_context=checked, **shared)


class Pace(threading.local):
    """How slow the far side may be, in the exchange of each thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._head_since: float | None = None
        self._restart()

    def begin(self) -> None:
        """Before a request is sent."""
        self._restart()
        self._head_since = self._since

    def head_is_there(self) -> None:
        """From here on a body is read."""
        self._restart()
        self._head_since = None

    def sent(self, size: int) -> None:
        """A piece was taken by the far side. Raises `httpcore.WriteTimeout` when it takes them too slowly."""
        import httpcore

        if self._is_stalled(size):
            raise httpcore.WriteTimeout("stalled")
        self._head_since = time.monotonic()

    def received(self, size: int) -> None:
        """A piece came. Raises `httpcore.ReadTimeout` when a body comes too slowly."""
        import httpcore

        if self._head_since is None and self._is_stalled(size):
            raise httpcore.ReadTimeout("stalled")

    def wait(self, timeout: float | None) -> float | None:
        """How long to wait for the next piece. Raises `httpcore.ReadTimeout` when the head is not there in time."""
        import httpcore

        if self._head_since is None:
            return timeout
        left = self._head_since + self._seconds - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("no whole head")
        return left if timeout is None else min(left, timeout)

    def _restart(self) -> None:
        self._since, self._moved = time.monotonic(), 0

    def _is_stalled(self, size: int) -> bool:
        self._moved += size
        elapsed = time.monotonic() - self._since
        if elapsed <= self._seconds:
            return False
        stalled = self._moved < SLOWEST * elapsed
        self._restart()
        return stalled
