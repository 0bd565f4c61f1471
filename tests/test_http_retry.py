"""Cut connections and `pz retry`, end to end: what is effectively-once stays so, and an append loses nothing."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import children
import pz
from http_server import Api, Asked, Reply, paged
from pz.connectors.http.pagination import Position
from pz.errors import ProjectError
from pz.staging.session import StagingSession
from running import errors, project, rows, run, statuses

RECORDS = [{"id": n, "name": f"n{n}"} for n in range(25)]

CONNECTIONS = """
api:
  connector: http
  base_url: {url}/v1
  retry: {{ max_attempts: 1 }}
  timeout_seconds: 2
files:
  connector: localfiles
  root: data
lake:
  connector: localfiles
  root: out
"""

READ = """
INSERT INTO {{ sink('lake', 'items', strategy: 'replace', format: 'parquet') }}
SELECT id, name FROM {{ source('api', 'items', path: '/items', pagination: {strategy: 'page', param: 'page'},
  columns: {id: 'bigint', name: 'varchar'}) }}
"""

CUTS = {
    "before": Reply(cut=-1),
    "before, reset": Reply(cut=-1, reset=True),
    "in the middle": Reply(
        headers={"Content-Type": "application/json"}, body=b'[{"id": 0, "name": "n0"}, ' * 20, cut=40
    ),
    "no answer": Reply(delay=3),
    "refused": Reply(503),
}


def reading(root: Path, api: Api) -> pz.OpenProject:
    return project(root, {"connections.yml": CONNECTIONS.format(url=api.url), "pipelines/items.sql": READ})


@pytest.mark.parametrize("cut", list(CUTS))
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_source_that_breaks_is_continued_at_the_page_where_it_broke(tmp_path: Path, cut: str, at: int) -> None:
    whole = paged(RECORDS, 10)
    broken = {at}

    def answer(asked: Asked) -> Reply:
        page = int(asked.query["page"])
        return CUTS[cut] if page in broken else whole(asked)

    with Api() as api:
        api.route("GET", "/v1/items", answer)
        opened = reading(tmp_path, api)
        first = run(opened)
        assert "failed" in statuses(first).values(), statuses(first)
        assert not list((tmp_path / "out").rglob("*.parquet"))
        broken.clear()
        second = opened.retry()
        assert set(statuses(second).values()) == {"success"}, errors(second)
        assert rows(tmp_path / "out/items/*.parquet") == sorted(((n, f"n{n}") for n in range(25)), key=repr)
        assert [int(a.query["page"]) for a in api.requests()] == [*range(1, at + 1), *range(at, 5)]


RAW = """
INSERT INTO {{ sink('lake', 'items', strategy: 'replace', format: 'parquet') }}
SELECT CAST(payload ->> 'id' AS BIGINT) AS id, payload ->> 'name' AS name, pz_page
FROM {{ source('api', 'items', path: '/items', pagination: {strategy: 'page', param: 'page'}) }}
"""
COMMAND = "import sys; from pz.cli.main import main; main(sys.argv[1:])"


def pages_covered(root: Path) -> int:
    """Pages that the stored token of the last run says are staged."""
    (staging,) = (root / ".pz" / "runs").glob("*/staging.duckdb")
    with StagingSession.open_read_only(staging.parent) as session, session.cursor() as cursor:
        ((token,),) = cursor.execute("SELECT token FROM pz_meta.partition_checkpoints").fetchall()
    position = Position.from_token(token)
    assert position is not None
    return position.index


@pytest.mark.parametrize("landing", ["typed", "raw"])
@pytest.mark.parametrize("again", ["retry", "run"])
@pytest.mark.parametrize(
    "point", ["write_checkpoint.after:2", "write_checkpoint.before:2", "complete_partition.before"]
)
def test_a_crawl_that_is_killed_asks_again_only_for_pages_that_no_token_covers(
    tmp_path: Path, landing: str, again: str, point: str
) -> None:
    """Pages 3 and 5 are late, so that what came before them is landed without them; the kill comes at the second token."""
    whole = paged(RECORDS, 4)
    late = {"3", "5"}

    def answer(asked: Asked) -> Reply:
        return replace(whole(asked), delay=1.0 if asked.query["page"] in late else 0)

    with Api() as api:
        api.route("GET", "/v1/items", answer)
        sql = RAW if landing == "raw" else READ
        project(tmp_path, {"connections.yml": CONNECTIONS.format(url=api.url), "pipelines/items.sql": sql})
        assert children.run(COMMAND, "run", "--project", tmp_path, failpoint=f"{point}=kill") == -signal.SIGKILL
        before = len(api.requests())
        covered = pages_covered(tmp_path)
        assert 1 <= covered < 8
        late.clear()
        assert children.run(COMMAND, again, "--project", tmp_path) == 0
        asked = [int(request.query["page"]) for request in api.requests()[before:]]
        assert asked == list(range(1 if again == "run" else covered + 1, 9))
        found = rows(tmp_path / "out/items/*.parquet")
        assert [row[:2] for row in found] == sorted(((n, f"n{n}") for n in range(25)), key=repr)
        if landing == "raw":
            assert {row[0]: row[2] for row in found} == {n: n // 4 for n in range(25)}


class Destination:
    """An API that keeps rows; ``honours`` takes each idempotency key once."""

    def __init__(self, honours: bool = False) -> None:
        self.rows: list[int] = []
        self.keys: set[str] = set()
        self.honours = honours
        self.breaks: dict[int, str] = {}
        self.count = 0

    def append(self, asked: Asked) -> Reply:
        self.count += 1
        how = self.breaks.pop(self.count, "")
        if how == "before":
            return Reply(cut=-1)
        key = asked.headers.get("idempotency-key", "")
        if not (self.honours and key in self.keys):
            self.rows += [row["id"] for row in asked.json()]
        self.keys.add(key)
        if how == "after":
            return Reply(cut=-1)
        if how == "middle":
            return Reply(200, body=b"x" * 500, cut=20)
        return Reply(500) if how == "status" else Reply(200)

    def put(self, asked: Asked) -> Reply:
        self.count += 1
        how = self.breaks.pop(self.count, "")
        if how == "before":
            return Reply(cut=-1)
        self.rows.append(asked.json()["id"])
        return Reply(cut=-1) if how in {"after", "middle"} else Reply(500 if how == "status" else 200)


def writing(root: Path, api: Api, options: str) -> pz.OpenProject:
    sql = f"""
    INSERT INTO {{{{ sink('api', 'rows', {options}) }}}}
    SELECT id, 'n' || id AS name FROM {{{{ source('files', 'ids') }}}}
    """
    return project(
        root,
        {
            "connections.yml": CONNECTIONS.format(url=api.url),
            "pipelines/rows.sql": sql,
            "data/ids.csv": "id\n" + "".join(f"{n}\n" for n in range(25)),
        },
    )


@pytest.mark.parametrize("how", ["before", "middle", "after", "status"])
@pytest.mark.parametrize("at", [1, 3])
def test_an_append_that_breaks_loses_nothing_and_repeats_one_chunk_at_most(tmp_path: Path, how: str, at: int) -> None:
    with Api() as api:
        destination = Destination()
        destination.breaks = {at: how}
        api.route("POST", "/v1/rows", destination.append)
        opened = writing(tmp_path, api, "strategy: 'append', path: '/rows', rows_per_request: 10")
        first = run(opened)
        if how == "middle":  # the status of a success had come: what is cut behind it does not matter
            assert statuses(first)["api.rows"] == "success"
            assert destination.rows == list(range(25))
            return
        assert statuses(first)["api.rows"] == "failed"
        block = next(node for node in first.nodes if node.name == "api.rows").delivery
        assert block is not None
        assert block["abort_semantics"] == "none"
        assert block["rows_visible"] == min(at * 10, 25)
        second = opened.retry()
        assert set(statuses(second).values()) == {"success"}, errors(second)
        counts = Counter(destination.rows)
        assert sorted(counts) == list(range(25))
        twice = [row for row, count in counts.items() if count > 1]
        assert twice == ([] if how == "before" else list(range((at - 1) * 10, min(at * 10, 25))))


RUN = "import sys, pz; pz.open_project(sys.argv[1], environ={}).run(everything=True)"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_append_that_is_killed_loses_nothing_and_repeats_one_chunk_at_most(tmp_path: Path, moment: str) -> None:
    with Api() as api:
        destination = Destination()
        api.route("POST", "/v1/rows", destination.append)
        opened = writing(tmp_path, api, "strategy: 'append', path: '/rows', rows_per_request: 5")
        assert children.run(RUN, tmp_path, failpoint=f"record_delivery.{moment}:3=kill") == -signal.SIGKILL
        assert destination.rows == list(range(10)), "killed where the second chunk is recorded"
        result = opened.retry()
        assert set(statuses(result).values()) == {"success"}, errors(result)
        counts = Counter(destination.rows)
        assert sorted(counts) == list(range(25))
        twice = [row for row, count in counts.items() if count > 1]
        assert twice == ([5, 6, 7, 8, 9] if moment == "before" else [])


@pytest.mark.parametrize("how", ["before", "after", "status"])
def test_an_append_with_an_honoured_key_is_effectively_once_within_the_chain_and_two_runs_are_two_loads(
    tmp_path: Path, how: str
) -> None:
    with Api() as api:
        destination = Destination(honours=True)
        destination.breaks = {2: how, 3: how}
        api.route("POST", "/v1/rows", destination.append)
        opened = writing(
            tmp_path,
            api,
            "strategy: 'append', path: '/rows', rows_per_request: 10, idempotency_header: 'Idempotency-Key'",
        )
        assert statuses(run(opened))["api.rows"] == "failed"
        for _ in range(3):
            result = opened.retry()
            if statuses(result)["api.rows"] == "success":
                break
        assert sorted(destination.rows) == list(range(25))
        assert statuses(run(opened))["api.rows"] == "success"
        assert sorted(destination.rows) == sorted([*range(25), *range(25)])


@pytest.mark.parametrize("how", ["before", "after", "status"])
def test_a_merge_that_breaks_is_finished_and_every_row_is_there(tmp_path: Path, how: str) -> None:
    with Api() as api:
        destination = Destination()
        destination.breaks = {7: how}
        api.route("PUT", "/v1/rows/*", destination.put)
        opened = writing(tmp_path, api, "strategy: 'merge', keys: ['id'], path: '/rows/{key}'")
        assert statuses(run(opened))["api.rows"] == "failed"
        second = opened.retry()
        assert set(statuses(second).values()) == {"success"}, errors(second)
        assert set(destination.rows) == set(range(25))
        assert destination.count == 26


def test_refused_rows_fail_the_node_and_the_retry_sends_only_them_and_what_follows(tmp_path: Path) -> None:
    refused = {13, 15}
    taken: list[int] = []

    def answer(asked: Asked) -> Reply:
        found: list[dict[str, Any]] = []
        for row in asked.json():
            bad = row["id"] in refused
            found.append({"status": 422 if bad else 201, "error": "unknown customer" if bad else None})
            if not bad:
                taken.append(row["id"])
        return Reply.json({"results": found})

    with Api() as api:
        api.route("POST", "/v1/rows", answer)
        partial = "partial: {items: '/results', status: '/status', reason: '/error'}"
        opened = writing(tmp_path, api, f"strategy: 'append', path: '/rows', rows_per_request: 10, {partial}")
        first = run(opened)
        assert "PZ0768" in errors(first)["api.rows"]
        assert (
            "refused 2 of 10 row(s) of a request, rows 14, 16 of the sorted output: unknown customer"
            in errors(first)["api.rows"]
        )
        again = opened.retry()
        assert "refused 2 of" in errors(again)["api.rows"]
        refused.clear()
        third = opened.retry()
        assert set(statuses(third).values()) == {"success"}, errors(third)
    assert sorted(taken) == list(range(25))


def test_a_replace_is_refused_while_planning(tmp_path: Path) -> None:
    with Api() as api:
        opened = writing(tmp_path, api, "strategy: 'replace', path: '/rows'")
        with pytest.raises(ProjectError) as caught:
            run(opened)
    assert caught.value.code == "PZ0324"


def test_options_that_cannot_work_together_are_refused_while_planning(tmp_path: Path) -> None:
    with Api() as api:
        opened = writing(tmp_path, api, "strategy: 'append', path: '/rows/{key}', envelope: 'x', body_format: 'ndjson'")
        with pytest.raises(ProjectError) as caught:
            run(opened)
        assert caught.value.code == "PZ0760"
        assert "envelope" in str(caught.value)
        assert "{key}" in str(caught.value)
        assert not api.requests()
