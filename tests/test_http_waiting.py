"""What an operator sees while an API makes a run wait or try again: on the console and in the event stream."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from http_server import Api, Asked, Reply, paged
from running import project

RECORDS = [{"id": n} for n in range(25)]
CONNECTIONS = """
api:
  connector: http
  base_url: {url}
  retry: {{ max_attempts: 3, base_delay: 1ms, max_delay: {delay} }}
lake:
  connector: localfiles
  root: out
files:
  connector: localfiles
  entities:
    ids:
      read: {{ path: ids.csv, format: csv, columns: {{ id: bigint }} }}
"""
READ = """
INSERT INTO {{ sink('lake', 'items', strategy: 'replace', format: 'parquet') }}
SELECT id FROM {{ source('api', 'items', path: '/items', pagination: {strategy: 'page', param: 'page'},
  columns: {id: 'bigint'}) }}
"""
APPEND = """
INSERT INTO {{ sink('api', 'rows', strategy: 'append', path: '/rows', rows_per_request: 10) }}
SELECT id FROM {{ source('files', 'ids') }}
"""


@dataclass
class Seen:
    """What a `pz run` said."""

    code: int
    out: str
    err: str

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in map(json.loads, self.out.splitlines()) if event["event"] == name]


def pz_run(root: Path, url: str, sql: str, *arguments: str, delay: str = "30s") -> Seen:
    connections = CONNECTIONS.format(url=url, delay=delay)
    files = {"connections.yml": connections, "pipelines/moved.sql": sql}
    project(root, {**files, "ids.csv": "id\n" + "".join(f"{n}\n" for n in range(25))})
    command = [str(Path(sys.executable).with_name("pz")), "run", "--project", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return Seen(done.returncode, done.stdout, done.stderr)


def once(answer: Reply, then: Callable[[Asked], Reply]) -> Callable[[Asked], Reply]:
    """This answer first, and from then on what the handler gives."""
    waiting = [answer]
    return lambda asked: waiting.pop() if waiting else then(asked)


def test_a_long_wait_that_the_server_asks_for_is_told_once(tmp_path: Path) -> None:
    first = Reply.json(RECORDS[:10], 200, **{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "4"})
    with Api() as api:
        api.route("GET", "/items", once(first, paged(RECORDS, 10)))
        seen = pz_run(tmp_path, api.url, READ, "--log-format", "json")
    assert seen.code == 0, seen.err
    (told,) = seen.events("connection_waiting")
    assert (told["connection"], told["reason"]) == ("api", "server")
    assert 3_000 <= told["waitMs"] <= 4_000
    assert seen.err.count("note: connection 'api': the next operation waits 4 s, because the server asked for it") == 1


def test_what_is_left_of_a_wait_behind_the_delay_of_a_retry_is_told(tmp_path: Path) -> None:
    """The delay before another attempt is capped by the policy; the server's word is not."""
    with Api() as api:
        api.route("GET", "/items", once(Reply(429, {"Retry-After": "5"}), paged(RECORDS, 10)))
        seen = pz_run(tmp_path, api.url, READ, "--log-format", "json", delay="1s")
    assert seen.code == 0, seen.err
    (again,) = seen.events("retry_scheduled")
    (told,) = seen.events("connection_waiting")
    assert again["delayMs"] == 1_000
    assert 3_000 <= told["waitMs"] <= 4_000


def test_a_short_wait_is_not_told(tmp_path: Path) -> None:
    with Api() as api:
        api.route("GET", "/items", once(Reply(503, {"Retry-After": "1"}), paged(RECORDS, 10)))
        seen = pz_run(tmp_path, api.url, READ, "--log-format", "json")
    assert seen.code == 0, seen.err
    assert seen.events("connection_waiting") == []
    (again,) = seen.events("retry_scheduled")
    assert (again["operation"], again["attempt"], again["maxAttempts"], again["delayMs"]) == (
        "fetch a page",
        1,
        3,
        1000,
    )


def test_each_try_of_a_call_is_told_on_the_console(tmp_path: Path) -> None:
    with Api() as api:
        api.route("GET", "/items", once(Reply(503), paged(RECORDS, 10)))
        seen = pz_run(tmp_path, api.url, READ)
    assert seen.code == 0, seen.err
    told = "note: src_api__items: fetch a page: attempt 1 of 3 failed, next in 1 ms: GET api:/items: status 503"
    assert (seen.out + seen.err).count(told) == 1


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_rows_that_may_be_sent_twice_are_told_before_they_are(tmp_path: Path, status: int) -> None:
    taken: list[int] = []

    def takes(asked: Asked) -> Reply:
        taken.extend(row["id"] for row in asked.json())
        return Reply(status if len(taken) == 20 else 200)

    with Api() as api:
        api.route("POST", "/rows", takes)
        seen = pz_run(tmp_path, api.url, APPEND, "--log-format", "json")
    assert seen.code == 0, seen.err
    assert sorted(taken) == sorted([*range(25), *range(10, 20)]), "what may have been taken is sent again, and no more"
    (again,) = seen.events("retry_scheduled")
    assert "operation" not in again, "the node is tried again: the call itself is made once"
    warned = "10 row(s) may be there all the same, and another attempt sends them again"
    assert (warned in again["reason"]) == (status >= 500)
    assert (warned in seen.err) == (status >= 500)
