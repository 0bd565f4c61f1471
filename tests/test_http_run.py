"""HTTP sources end to end: `pz run` against a real server on loopback."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pz
from http_server import Api, Asked, Reply, paged
from pz.staging.part_writer import PartWriter
from running import errors, project, rows, run, statuses

RECORDS = [{"id": n, "name": f"n{n}", "made": f"2024-01-{n + 1:02d}T00:00:00Z", "price": n / 4} for n in range(25)]

CONNECTIONS = """
api:
  connector: http
  base_url: {url}/v1
  retry: {{ max_attempts: 3, base_delay: 1ms }}
lake:
  connector: localfiles
  root: out
"""

PIPELINE = """
INSERT INTO {{ sink('lake', 'items', strategy: 'replace', format: 'parquet') }}
SELECT id, name, made::timestamp AS made, price FROM {{ source('api', 'items', path: '/items',
  pagination: {strategy: 'page', param: 'page'},
  columns: {id: 'bigint', name: 'varchar', made: 'timestamptz', price: 'double'}) }}
"""


def api_project(root: Path, api: Api, pipeline: str = PIPELINE) -> pz.OpenProject:
    return project(root, {"connections.yml": CONNECTIONS.format(url=api.url), "pipelines/items.sql": pipeline})


def test_pages_land_in_staging_and_arrive_at_the_output(tmp_path: Path) -> None:
    with Api() as api:
        api.route("GET", "/v1/items", paged(RECORDS, 10))
        result = run(api_project(tmp_path, api))
    assert set(statuses(result).values()) == {"success"}, errors(result)
    assert [row[:2] for row in rows(tmp_path / "out/items/*.parquet")] == sorted(
        ((n, f"n{n}") for n in range(25)), key=repr
    )
    assert [asked.query["page"] for asked in api.requests()] == ["1", "2", "3", "4"]
    assert not list(tmp_path.rglob("spool"))


def test_a_page_that_is_cut_is_fetched_again_alone(tmp_path: Path) -> None:
    with Api() as api:
        whole = paged(RECORDS, 10)
        cuts = {"2": 1, "3": 1}

        def answer(asked: Asked) -> Reply:
            page = asked.query["page"]
            if cuts.get(page):
                cuts[page] -= 1
                return Reply(body=whole(asked).body, headers={"Content-Type": "application/json"}, cut=50)
            return whole(asked)

        api.route("GET", "/v1/items", answer)
        result = run(api_project(tmp_path, api))
    assert set(statuses(result).values()) == {"success"}, errors(result)
    assert len(rows(tmp_path / "out/items/*.parquet")) == 25
    assert [asked.query["page"] for asked in api.requests()] == ["1", "2", "2", "3", "3", "4"]


TWO = """
INSERT INTO {{ sink('lake', '%s', strategy: 'replace', format: 'parquet') }}
SELECT id FROM {{ source('api', '%s', path: '/%s', pagination: {strategy: 'page', param: 'page'}, columns: {id: 'bigint'}) }}
"""


def test_a_wait_that_the_server_asks_for_holds_for_all_nodes_of_the_connection(tmp_path: Path) -> None:
    refused, back = threading.Event(), threading.Event()

    def slow_down(asked: Asked) -> Reply:
        if not refused.is_set():
            refused.set()
            return Reply(429, {"Retry-After": "1"})
        back.set()
        return Reply.json([])

    def other(asked: Asked) -> Reply:
        """Pages without end until the first node has come back, so one of them is asked for within its wait."""
        refused.wait(120)
        time.sleep(0.02)  # else thousands of pages go by before the first node has read its answer
        return Reply.json([] if back.is_set() else [{"id": int(asked.query["page"])}])

    with Api() as api:
        api.route("GET", "/v1/one", slow_down)
        api.route("GET", "/v1/two", other)
        files = {f"pipelines/{name}.sql": TWO % (name, name, name) for name in ("one", "two")}
        connections = CONNECTIONS.format(url=api.url).replace("max_attempts: 3", "max_attempts: 3, max_delay: 1ms")
        result = run(project(tmp_path, {"connections.yml": connections, **files}))
    assert set(statuses(result).values()) == {"success"}, errors(result)
    waited = {node.name: node.ops["throttle_wait_ms"] for node in result.nodes if node.ops is not None}
    assert waited["src_api__one"] > 0
    assert waited["src_api__two"] > 0


def test_a_disk_that_is_full_ends_the_crawl_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when somebody lets go of the failure: the reader's threads and files go with it."""
    whole = PartWriter.append
    calls: list[int] = []

    def append(self: PartWriter, batch: pa.RecordBatch) -> int:
        calls.append(threading.active_count())
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(self, batch)

    with Api() as api:
        api.route("GET", "/v1/items", lambda asked: Reply.json([{"id": int(asked.query["page"])}]))
        opened = api_project(tmp_path, api)
        monkeypatch.setattr("pz.staging.part_writer.PartWriter.append", append)
        kept: list[BaseException] = []
        monkeypatch.setattr("pz.engine.nodes.partitions._Work._failure", lambda self, total: _keep(self, kept))
        result = run(opened)
        assert "failed" in statuses(result).values(), statuses(result)
        assert kept
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("pz-http")]


def _keep(work: Any, kept: list[BaseException]) -> BaseException:
    kept += work.failures
    failure: BaseException = work.failures[0]
    return failure
