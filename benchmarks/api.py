"""A server that answers at once from memory: pages of json records, and a sink that takes what comes.

python -m benchmarks.api <pages> <records a page>      prints its URL, ends with its standard input
"""

from __future__ import annotations

import json
import socket
import sys
import threading


def page(number: int, size: int) -> bytes:
    """The response for a page, from 1."""
    start = (number - 1) * size
    records = [
        {
            "id": start + n,
            "name": f"record {start + n}",
            "email": f"user{n}@example.com",
            "amount": (start + n) / 8,
            "active": n % 3 == 0,
            "created_at": f"2024-01-01T{n // 60 % 24:02d}:{n % 60:02d}:00Z",
            "note": None,
        }
        for n in range(size)
    ]
    return response(json.dumps({"data": records, "total": 0}).encode())


def response(body: bytes) -> bytes:
    """A whole response."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def serve(connection: socket.socket, pages: list[bytes], empty: bytes) -> None:
    """Answer the requests of one connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    waiting = b""
    while True:
        while b"\r\n\r\n" not in waiting:
            data = connection.recv(1 << 20)
            if not data:
                return
            waiting += data
        head, _, waiting = waiting.partition(b"\r\n\r\n")
        lower = head.lower()
        left = int(lower.partition(b"content-length:")[2].split(b"\r\n")[0]) if b"content-length:" in lower else 0
        left -= len(waiting)
        waiting = b"" if left >= 0 else waiting[left:]
        while left > 0:
            left -= len(connection.recv(min(left, 1 << 20)))
        number = head.split(b" ", 2)[1].partition(b"page=")[2]
        found = pages[int(number) - 1] if number and int(number) <= len(pages) else empty
        connection.sendall(found)


def main(count: int, size: int) -> None:
    """Serve until the standard input ends."""
    pages = [page(number, size) for number in range(1, count + 1)]
    empty = response(b'{"data": []}')
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, pages, empty), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
