"""A small web API on loopback that keeps rows: the far side of the http connector's fixture. Standard library only.

GET  /items/<name>?page=N&size=N&since=...     pages of a dataset, filtered by its cursor, under ``items``
GET  /delta/<name>?token=N                       the same as a feed: a next link, at the end a delta link
POST /rows/<name>                                append a list of rows
PUT, DELETE /rows/<name>/<key>                   one row
"""

from __future__ import annotations

import atexit
import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["WebApi"]

_PAGE = 7


class WebApi:
    """The server; it runs until the process ends. ``data`` are datasets, ``rows`` what was written, by name."""

    def __init__(self, data: Mapping[str, Sequence[Mapping[str, Any]]], cursor: str, token: str) -> None:
        self.data = data
        self.cursor = cursor
        self.token = token
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        threading.Thread(target=self._server.serve_forever, name="pz-testing-api", daemon=True).start()
        atexit.register(self._stop)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def _stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # --- what the paths do; each gives a status and a body

    def items(self, name: str, query: Mapping[str, str]) -> tuple[int, Any]:
        """A page, from 1."""
        records = self._slice(name, query)
        if records is None:
            return 404, {"message": "no such dataset"}
        size = int(query.get("size", _PAGE))
        start = (int(query.get("page", "1")) - 1) * size
        return 200, {"items": records[start : start + size]}

    def delta(self, name: str, query: Mapping[str, str]) -> tuple[int, Any]:
        """What came since a token."""
        records = self._slice(name, {})
        if records is None:
            return 404, {"message": "no such dataset"}
        start = int(query.get("token", "0"))
        end = min(start + _PAGE, len(records))
        link = "next" if end < len(records) else "delta"
        return 200, {"items": records[start:end], link: f"{self.url}/delta/{name}?token={end}"}

    def write(self, method: str, name: str, key: str | None, content: Any) -> tuple[int, Any]:
        """Append, put or delete."""
        kept = self.rows.setdefault(name, [])
        if key is None:
            kept += content
            return 201, {}
        others = [row for row in kept if str(row.get("id")) != key]
        if method == "DELETE" and len(others) == len(kept):
            return 404, {}
        self.rows[name] = others if method == "DELETE" else [*others, content]
        return 200, {}

    def _slice(self, name: str, query: Mapping[str, str]) -> list[Mapping[str, Any]] | None:
        if name not in self.data:
            return None
        since, until = query.get("since", ""), query.get("until", "~")
        return [row for row in self.data[name] if since.rstrip("Z") <= str(row[self.cursor]) <= until.rstrip("Z")]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: WebApi


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        split = urlsplit(self.path)
        parts = [unquote(part) for part in split.path.strip("/").split("/")]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        api = self.server.api
        if self.headers.get("Authorization") != f"Bearer {api.token}":
            self._answer(401, {"message": "who are you?"})
        elif self.command == "GET" and parts[0] in {"items", "delta"} and len(parts) == 2:
            read = api.items if parts[0] == "items" else api.delta
            self._answer(*read(parts[1], dict(parse_qsl(split.query))))
        elif parts == [""]:
            self._answer(200, {})
        elif parts[0] == "rows" and len(parts) in {2, 3}:
            key = parts[2] if len(parts) == 3 else None
            self._answer(*api.write(self.command, parts[1], key, json.loads(body or b"null")))
        else:
            self._answer(404, {"message": "no such path"})

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
