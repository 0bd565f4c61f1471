"""`pz init --template http`: three APIs in three well-known shapes, played by the server that comes along."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

import pz
from pz.project.scaffold import create
from running import errors, run


@contextmanager
def playing(project: Path) -> Iterator[str]:
    """The template's own server on a free port, with the project pointed at it."""
    command = [sys.executable, str(project / "server.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            connections = project / "connections.yml"
            connections.write_text(connections.read_text().replace("http://127.0.0.1:8765", url))
            yield url
        finally:
            server.terminate()


def table(project: Path, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(project / "warehouse.duckdb"), read_only=True) as warehouse:
        return warehouse.execute(sql).fetchall()


def test_the_three_shapes_are_read_delivered_and_continued(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    create(root, "http")
    with playing(root) as url:
        opened = pz.open_project(root, environ={})
        assert opened.validate(connect=True) == (), "every connection has a check_path that answers"
        first = run(opened)
        assert errors(first) == {}
        assert table(root, "SELECT count(*), min(number), max(number), sum(label_count) FROM issues") == [
            (250, 1, 250, 125)
        ]
        assert table(root, "SELECT count(DISTINCT id), min(name) FROM users") == [(35, "User 1")]
        assert table(root, "SELECT count(*), sum(amount) FROM charges") == [(120, 7260.0)]
        with urllib.request.urlopen(f"{url}/hooks/customers") as answer:
            received = json.loads(answer.read())
        assert sorted(received) == [f"cus_{n}" for n in range(5)]
        assert sum(customer["charges"] for customer in received.values()) == 100
        second = run(opened)
        assert errors(second) == {}
        rows = {node.name: node.rows for node in second.nodes}
        assert rows["src_github__issues"] == 1, "only the boundary is read again"
        assert rows["src_graph__users"] == 0
        assert table(root, "SELECT count(*) FROM issues") == [(250,)]
