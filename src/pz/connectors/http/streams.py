"""The client library's own sockets, with a pace that the far side must keep."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import httpcore

if TYPE_CHECKING:
    import socket

    from pz.connectors.http.wire import Pace

__all__ = ["Backend"]

_SENT_AT_ONCE = 256 * 1024
"""Bytes between two looks at how fast the far side takes them."""


class Backend(httpcore.NetworkBackend):
    """Connects; ``connected`` is told of every socket."""

    def __init__(self, pace: Pace, connected: Callable[[socket.socket], None]) -> None:
        self._pace = pace
        self._connected = connected
        self._own = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """See `httpcore.NetworkBackend`."""
        return self.paced(self._own.connect_tcp(host, port, timeout, local_address, socket_options))

    def paced(self, stream: httpcore.NetworkStream) -> _Paced:
        """The stream under our rules."""
        self._connected(stream.get_extra_info("socket"))
        return _Paced(stream, self, self._pace)


class _Paced(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, backend: Backend, pace: Pace) -> None:
        self._stream = stream
        self._backend = backend
        self._pace = pace

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        piece = self._stream.read(max_bytes, self._pace.wait(timeout))
        self._pace.received(len(piece))
        return piece

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _SENT_AT_ONCE):
            piece = buffer[start : start + _SENT_AT_ONCE]
            self._stream.write(piece, timeout)
            self._pace.sent(len(piece))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return self._backend.paced(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
