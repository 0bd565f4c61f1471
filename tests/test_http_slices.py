"""Windows and watermarks in requests, feeds with their tokens, checkpoints: what a read asks for, and what it stores."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from http_server import Api, Asked, Reply, paged
from http_support import ID, batches, dataset, partition, read, source
from pz.connectors.contract import BatchOptions, Bound, CancelToken, ReadShape
from pz.connectors.http.bindings import ABSENT, Bindings, binding_faults, format_faults
from pz.connectors.http.pagination import Position
from pz.errors import Code, PermanentError, TransientError
from running import errors, project, run, statuses

STAMP = "timestamp"
RECORDS = [{"id": n} for n in range(25)]
PAGE = {"strategy": "page", "param": "page"}


def bound(text: str | None) -> Bound | None:
    """``=`` before the value includes it."""
    return None if text is None else Bound(text.removeprefix("="), text.startswith("="))


@pytest.mark.parametrize(
    ("options", "kind", "lower", "upper", "wanted"),
    [
        (
            {},
            STAMP,
            "2024-01-01T00:00:00.000000",
            "2024-01-02T00:00:00.000001",
            ("2024-01-01T00:00:00Z", "2024-01-02T00:00:01Z"),
        ),
        (
            {},
            STAMP,
            "2024-01-01T00:00:00.999999",
            "2024-01-02T00:00:00.000000",
            ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"),
        ),
        ({}, "timestamptz", "2024-01-01T00:00:00.123456789", None, ("2024-01-01T00:00:00Z", None)),
        (
            {"cursor_format": "iso_us"},
            STAMP,
            "2024-01-01T00:00:00.123456",
            "2024-01-01T00:00:00.1234561",
            ("2024-01-01T00:00:00.123456Z", "2024-01-01T00:00:00.123457Z"),
        ),
        (
            {"cursor_format": "iso_ms"},
            STAMP,
            "2024-01-01T00:00:00.1239",
            "2024-01-01T00:00:00.1231",
            ("2024-01-01T00:00:00.123Z", "2024-01-01T00:00:00.124Z"),
        ),
        (
            {"cursor_format": "date"},
            STAMP,
            "2024-01-01T23:00:00.000000",
            "2024-01-01T00:00:00.5",
            ("2024-01-01", "2024-01-02"),
        ),
        ({"cursor_format": "epoch"}, STAMP, "1970-01-01T00:00:01.5", "1969-12-31T23:59:58.5", ("1", "-1")),
        (
            {"cursor_format": "epoch_ms"},
            STAMP,
            "1970-01-01T00:00:01.0015",
            "1970-01-01T00:00:01.0015",
            ("1001", "1002"),
        ),
        (
            {"cursor_format": "%Y-%m-%d %H:%M", "cursor_zone": "Europe/Berlin"},
            STAMP,
            "2024-06-30T22:30:59",
            "2024-06-30T22:30:01",
            ("2024-07-01 00:30", "2024-07-01 00:31"),
        ),
        (
            {"cursor_format": "date", "cursor_zone": "Europe/Berlin"},
            STAMP,
            "2024-06-30T22:30:00",
            None,
            ("2024-07-01", None),
        ),
        ({}, "date", "2024-02-29", "2024-03-01", ("2024-02-29", "2024-03-01")),
        ({}, "bigint", "17", "=20", ("17", "20")),
        ({}, "decimal", "-12.50", None, ("-12.50", None)),
        ({"bounds": "exclusive"}, "bigint", "=17", "=20", ("16", "21")),
        ({"bounds": "exclusive"}, "bigint", "17", "20", ("17", "20")),
        (
            {"bounds": "exclusive"},
            STAMP,
            "=2024-01-01T00:00:00",
            "=2024-01-02T00:00:00",
            ("2023-12-31T23:59:59Z", "2024-01-02T00:00:01Z"),
        ),
        ({"bounds": "exclusive"}, "date", "=2024-03-01", None, ("2024-02-29", None)),
    ],
)
def test_a_lower_bound_is_rounded_down_and_an_upper_one_up(
    options: dict[str, Any], kind: str, lower: str | None, upper: str | None, wanted: tuple[str | None, str | None]
) -> None:
    made = Bindings.of(dataset(options, cursor="c", cursor_type=kind, lower=bound(lower), upper=bound(upper)))
    assert (made.values["watermark"], made.values["window_upper"]) == wanted


def test_a_binding_without_a_value_takes_its_parameter_and_its_key_with_it() -> None:
    made = Bindings({"watermark": "7", "window_upper": None})
    assert made.query({"since": "{{ watermark }}", "range": "{{watermark}}..{{ window_upper }}", "a": [1, True]}) == [
        ("since", "7"),
        ("a", "1"),
        ("a", "true"),
    ]
    body = {"f": {"from": "{{ watermark }}", "to": "{{ window_upper }}"}, "l": ["{{ window_upper }}", 2], "n": None}
    assert made.fill(body) == {"f": {"from": "7"}, "l": [2], "n": None}
    assert made.fill("{{ window_upper }}") is ABSENT
    assert made.path("/d/{{ watermark }}", "x") == "/d/7"
    with pytest.raises(PermanentError, match="needs window_upper"):
        made.path("/d/{{ window_upper }}", "x")


def test_unknown_and_malformed_bindings_and_formats_are_found_offline() -> None:
    for text in ("{{ now }}", "{{ watermark", "watermark }}", "{{ watermark | x }}", "{{}}"):
        assert list(binding_faults({"a": [{"b": text}]}, "query"))
    assert not list(binding_faults({"a": "{ watermark } {{ watermark }}", "b": 5}, "query"))
    for options in (
        {"cursor_format": "rfc"},
        {"cursor_format": "%d.%m"},
        {"cursor_zone": "Mars/Base"},
        {"cursor_zone": "UTC"},
    ):
        assert list(format_faults(options))
    assert not list(format_faults({"cursor_format": "%Y%m%d", "cursor_zone": "UTC"}))


CONNECTIONS = """
api:
  connector: http
  base_url: {url}
  retry: {{ max_attempts: 1 }}
lake:
  connector: localfiles
  root: out
warehouse:
  connector: duckdb
  path: warehouse.duckdb
"""

INCREMENTAL = """
INSERT INTO {{ sink('warehouse', 'events', strategy: 'merge', keys: ['id']) }}
SELECT * FROM {{ source('api', 'events', path: '/events', query: {since: '{{ watermark }}', until: '{{ window_upper }}'},
  sync: {mode: 'incremental', cursor: 'made'%s}, pagination: {strategy: 'page', param: 'page'},
  columns: {id: 'bigint', made: 'timestamp'}) }}
"""


def events(days: int) -> list[dict[str, Any]]:
    return [{"id": n, "made": f"2024-01-{n:02d}T00:00:00"} for n in range(1, days + 1)]


def test_an_incremental_read_asks_from_its_watermark_on(tmp_path: Path) -> None:
    with Api() as api:
        api.route("GET", "/events", paged(events(5), 3))
        files = {"connections.yml": CONNECTIONS.format(url=api.url), "pipelines/events.sql": INCREMENTAL % ""}
        opened = project(tmp_path, files)
        assert set(statuses(run(opened)).values()) == {"success"}
        assert "since" not in api.requests()[0].query
        api.asked.clear()
        api.route("GET", "/events", paged(events(7), 3))
        result = run(opened)
        assert set(statuses(result).values()) == {"success"}, errors(result)
        assert {asked.query["since"] for asked in api.requests()} == {"2024-01-05T00:00:00Z"}


def test_windows_are_asked_for_one_after_the_other_and_rows_outside_are_cut(tmp_path: Path) -> None:
    with Api() as api:
        api.route("GET", "/events", paged(events(9), 4))
        window = ", initial: '2024-01-01T00:00:00', max_window: '3d', until: '2024-01-08T00:00:00'"
        files = {"connections.yml": CONNECTIONS.format(url=api.url), "pipelines/events.sql": INCREMENTAL % window}
        opened = project(tmp_path, files)
        seen = []
        for _ in range(3):
            api.asked.clear()
            result = run(opened)
            assert set(statuses(result).values()) == {"success"}, errors(result)
            query = api.requests()[0].query
            seen.append((query["since"][:10], query["until"][:10]))
        assert seen == [("2024-01-01", "2024-01-04"), ("2024-01-04", "2024-01-07"), ("2024-01-07", "2024-01-08")]


# --- feeds

FEED = """
INSERT INTO {{ sink('warehouse', 'users', strategy: 'merge', keys: ['id']) }}
SELECT * FROM {{ source('api', 'users', path: '/users/delta', items: '/value', delta_pointer: '/@odata.deltaLink',
  pagination: {strategy: 'next_url', pointer: '/@odata.nextLink'}, columns: {id: 'bigint', name: 'varchar'}) }}
"""


class Feed:
    """A delta feed: pages of two, then a delta link; ``expired`` answers 410 to every token."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.log: list[dict[str, Any]] = [{"id": n, "name": f"n{n}"} for n in range(5)]
        self.expired = False

    def answer(self, asked: Asked) -> Reply:
        if "token" in asked.query and self.expired:
            return Reply.json({"error": "resync"}, 410)
        start = int(asked.query.get("skip", asked.query.get("token", "0")))
        end = min(start + 2, len(self.log))
        page: dict[str, Any] = {"value": self.log[start:end]}
        if end < len(self.log):
            page["@odata.nextLink"] = f"{self.api.url}/users/delta?skip={end}"
        else:
            page["@odata.deltaLink"] = f"{self.api.url}/users/delta?token={end}"
        return Reply.json(page)


def test_a_feed_is_read_from_its_token_on_and_an_expired_token_is_named_for_what_it_is(tmp_path: Path) -> None:
    with Api() as api:
        feed = Feed(api)
        api.route("GET", "/users/delta", feed.answer)
        files = {"connections.yml": CONNECTIONS.format(url=api.url), "pipelines/users.sql": FEED}
        opened = project(tmp_path, files)
        assert set(statuses(run(opened)).values()) == {"success"}
        api.asked.clear()
        feed.log.append({"id": 2, "name": "changed"})
        assert set(statuses(run(opened)).values()) == {"success"}
        assert [asked.target for asked in api.requests()] == ["/users/delta?token=5"]
        feed.expired = True
        failed = run(opened)
        (told,) = errors(failed).values() or ("",)
        assert told.startswith("PZ0767")
        assert "expired" in told
        again = run(opened, full_refresh=True)
        assert set(statuses(again).values()) == {"success"}, errors(again)
        feed.expired = False
        api.asked.clear()
        assert set(statuses(run(opened)).values()) == {"success"}
        assert [asked.target for asked in api.requests()] == ["/users/delta?token=6"]


def feed_dataset(api: Api, token: str | None = None, **more: Any) -> Any:
    options = {
        "path": "/users/delta",
        "items": "/value",
        "delta_pointer": "/@odata.deltaLink",
        "pagination": {"strategy": "next_url", "pointer": "/@odata.nextLink"},
        **more,
    }
    return dataset(options, {"id": "bigint"}, token=token)


def feed_token(api: Api, wanted: Any) -> tuple[list[int], str | None]:
    opened = source(api)
    try:
        assert opened.natural_read_shape(wanted) is ReadShape.FEED
        found = partition(opened, wanted)
        read_rows = [row["id"] for batch in batches(found) for row in batch.to_pylist()]
        return read_rows, found.try_get_sync_state()  # type: ignore[attr-defined]
    finally:
        opened.close()


def test_the_token_is_the_last_one_that_a_page_told_and_none_where_the_crawl_was_cut() -> None:
    with Api() as api:
        api.route("GET", "/users/delta", Feed(api).answer)
        assert feed_token(api, feed_dataset(api)) == ([0, 1, 2, 3, 4], f"{api.url}/users/delta?token=5")
        assert feed_token(api, feed_dataset(api, max_pages=2)) == ([0, 1, 2, 3], None)
        api.on("GET", "/users/delta", Reply.json({"value": [{"id": 1}]}))
        assert feed_token(api, feed_dataset(api)) == ([1], None)


@pytest.mark.parametrize(
    ("token", "code"),
    [("not a url", Code.PZ0767), ("http://127.0.0.1:1/x?t=1", Code.PZ0763), ("ftp://127.0.0.1/", Code.PZ0767)],
)
def test_a_stored_token_that_leads_elsewhere_is_refused(token: str, code: Code) -> None:
    with Api() as api:
        api.route("GET", "/users/delta", Feed(api).answer)
        with pytest.raises(PermanentError) as caught:
            feed_token(api, feed_dataset(api, token))
        assert caught.value.code is code
        assert not api.requests()


def test_a_token_that_is_no_url_goes_into_its_parameter_on_every_page() -> None:
    """As calendars do: pages by pageToken, at the end a nextSyncToken that the next crawl sends along."""

    def answer(asked: Asked) -> Reply:
        at = int(asked.query.get("pageToken", asked.query.get("syncToken", "0")))
        if at > 5:
            return Reply(410)
        end = min(at + 2, 5)
        more = {"nextPageToken": str(end)} if end < 5 else {"nextSyncToken": str(end)}
        return Reply.json({"items": [{"id": n} for n in range(at, end)], **more})

    options = {
        "path": "/users/delta",
        "items": "/items",
        "query": {"showDeleted": True},
        "delta_pointer": "/nextSyncToken",
        "delta_param": "syncToken",
        "pagination": {"strategy": "cursor", "pointer": "/nextPageToken", "param": "pageToken"},
    }
    with Api() as api:
        api.route("GET", "/users/delta", answer)
        assert feed_token(api, dataset(options, ID)) == ([0, 1, 2, 3, 4], "5")
        api.asked.clear()
        assert feed_token(api, dataset(options, ID, token="3")) == ([3, 4], "5")
        assert [asked.query["syncToken"] for asked in api.requests()] == ["3"]
        api.asked.clear()
        assert feed_token(api, dataset(options, ID, token="1")) == ([1, 2, 3, 4], "5")
        assert [asked.query for asked in api.requests()] == [
            {"showDeleted": "true", "syncToken": "1"},
            {"showDeleted": "true", "pageToken": "3", "syncToken": "1"},
        ]
        with pytest.raises(PermanentError) as caught:
            feed_token(api, dataset(options, ID, token="9"))
        assert caught.value.code is Code.PZ0767


@pytest.mark.parametrize("told", ["relative", "http://elsewhere.example.com/d", 5])
def test_a_delta_link_that_is_no_url_of_ours_is_refused(told: Any) -> None:
    with Api() as api:
        api.on("GET", "/users/delta", Reply.json({"value": [{"id": 1}], "@odata.deltaLink": told}))
        with pytest.raises(PermanentError):
            feed_token(api, feed_dataset(api))


def test_410_without_a_stored_token_is_an_ordinary_refusal() -> None:
    with Api() as api:
        api.on("GET", "/users/delta", Reply(410))
        with pytest.raises(PermanentError) as caught:
            feed_token(api, feed_dataset(api))
        assert caught.value.code is Code.PZ0761


# --- checkpoints


def test_a_token_stands_behind_each_page_once_and_nothing_is_read_twice_behind_it() -> None:
    with Api() as api:
        api.route("GET", "/items", paged(RECORDS, 10))
        opened = source(api)
        found = partition(opened, dataset({"pagination": PAGE}, ID))
        seen: list[tuple[list[int], str | None]] = []
        for batch in found.read(BatchOptions(max_rows=4), CancelToken()):
            seen.append((batch.column("id").to_pylist(), found.try_get_checkpoint()))
            assert found.try_get_checkpoint() is None
        opened.close()
        offered = [index for index, (_, token) in enumerate(seen) if token is not None]
        assert offered == [2, 5, 7]
        for index in offered:
            token = seen[index][1]
            assert token is not None
            again = source(api)
            rest = partition(again, dataset({"pagination": PAGE}, ID))
            assert rest.try_resume(token)
            got = [row for batch in batches(rest) for row in batch.column("id").to_pylist()]
            before = [row for part, _ in seen[: index + 1] for row in part]
            assert before + got == list(range(25))
            again.close()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "5",
        "[]",
        "null",
        "{}",
        '{"v": 2}',
        '{"v": 1, "index": "a"}',
        '{"v": 1, "zzz": 1}',
        json.dumps({"v": 1, "index": 1, "url": "http://127.0.0.1:1/x"}),
        json.dumps({"v": 1, "index": 1, "url": "no url"}),
        json.dumps({"v": 1, "index": 1, "value": "abc"}),
        json.dumps({"v": 1, "index": 1, "value": "2", "last": "no digest"}),
        "[" * 100_000,
    ],
)
def test_a_token_that_means_nothing_here_is_declined(token: str) -> None:
    with Api() as api:
        opened = source(api)
        assert partition(opened, dataset({"pagination": PAGE}, ID)).try_resume(token) is False
        opened.close()


def test_a_position_survives_as_text() -> None:
    place = Position(3, "http://x/y?z=ü", None, 17, 25, "0a" * 16)
    assert Position.from_token(place.to_token()) == place


def test_the_total_is_kept_over_a_resume() -> None:
    def answer(asked: Asked) -> Reply:
        page = int(asked.query["page"])
        return Reply.json({"items": RECORDS[(page - 1) * 10 : page * 10], "total": 25})

    options = {"items": "/items", "pagination": {**PAGE, "total_pointer": "/total"}}
    with Api() as api:
        api.route("GET", "/items", answer)
        opened = source(api)
        found = partition(opened, dataset(options, ID))
        stream = found.read(BatchOptions(max_rows=10), CancelToken())
        next(stream)
        token = found.try_get_checkpoint()
        stream.close()  # type: ignore[attr-defined]
        assert token is not None
        rest = partition(opened, dataset(options, ID))
        assert rest.try_resume(token)
        assert sum(batch.num_rows for batch in batches(rest)) == 15
        opened.close()


@pytest.mark.parametrize("format_", ["json", "ndjson"])
def test_a_page_that_comes_again_is_seen_over_a_resume(format_: str) -> None:
    """Before, the first page behind the resume was taken whatever it held: with a told number of pages, into the output."""

    def answer(asked: Asked) -> Reply:
        page = min(int(asked.query["page"]), 2)
        records = RECORDS[(page - 1) * 10 : page * 10]
        if format_ == "ndjson":
            return Reply.text("".join(json.dumps(record) + "\n" for record in records), "application/x-ndjson")
        return Reply.json({"items": records, "pages": 3})

    told = {"items": "/items", "pagination": {**PAGE, "total_pages_pointer": "/pages"}}
    options = {"pagination": PAGE, "format": "ndjson"} if format_ == "ndjson" else told
    with Api() as api:
        api.route("GET", "/items", answer)
        opened = source(api)
        stream = partition(opened, dataset(options, ID))
        read_so_far = stream.read(BatchOptions(max_rows=10), CancelToken())
        tokens: list[str | None] = []
        with pytest.raises(PermanentError, match="brings the records of an earlier one"):
            tokens.extend(stream.try_get_checkpoint() for _ in read_so_far)
        assert tokens[-1] is not None
        rest = partition(opened, dataset(options, ID))
        assert rest.try_resume(tokens[-1])
        with pytest.raises(PermanentError, match="brings the records of an earlier one"):
            batches(rest)
        again = partition(opened, dataset({**options, "allow_repeated_pages": True}, ID))
        assert again.try_resume(tokens[-1])
        if format_ == "json":
            assert sum(batch.num_rows for batch in batches(again)) == 10
        opened.close()


def test_a_crawl_that_is_given_up_leaves_no_file_and_no_thread_and_can_be_begun_again(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with Api() as api:
        api.route("GET", "/items", paged(RECORDS, 5))
        opened = source(api)
        opened.use_spool(tmp_path / "spool")
        found = partition(opened, dataset({"pagination": PAGE}, ID))
        for size in (1, 5):
            stream = found.read(BatchOptions(max_rows=size), CancelToken())
            next(stream)
            stream.close()  # type: ignore[attr-defined]
            assert not list(tmp_path.iterdir())
        assert len([row for batch in batches(found) for row in batch.to_pylist()]) == 25
        opened.close()
    assert not [name for name in {t.name for t in threading.enumerate()} - before if name.startswith("pz-http")]


def test_the_first_failing_page_leaves_the_pages_before_it(tmp_path: Path) -> None:
    with Api() as api:
        whole = paged(RECORDS, 10)
        api.route("GET", "/items", lambda asked: Reply(500) if asked.query["page"] == "3" else whole(asked))
        opened = source(api)
        found = partition(opened, dataset({"pagination": PAGE}, ID))
        got: list[int] = []
        with pytest.raises(TransientError):
            got += (
                row for batch in found.read(BatchOptions(), CancelToken()) for row in batch.column("id").to_pylist()
            )
        assert got == list(range(20))
        opened.close()


def test_pages_that_come_fast_are_landed_together_and_a_failure_keeps_them_all() -> None:
    whole = paged(RECORDS, 5)
    with Api() as api:
        api.route("GET", "/items", lambda asked: Reply(500) if asked.query["page"] == "4" else whole(asked))
        opened = source(api)
        found = partition(opened, dataset({"pagination": PAGE}, ID))
        stream = found.read(BatchOptions(), CancelToken())
        got: list[list[int]] = []
        with pytest.raises(TransientError):
            got += (batch.column("id").to_pylist() for batch in stream)
        assert [row for part in got for row in part] == list(range(15))
        token = found.try_get_checkpoint()
        assert token is not None
        api.route("GET", "/items", whole)
        rest = partition(opened, dataset({"pagination": PAGE}, ID))
        assert rest.try_resume(token)
        assert [row for batch in batches(rest) for row in batch.column("id").to_pylist()] == list(range(15, 25))
        opened.close()


def test_a_failure_inside_a_page_offers_no_token_for_half_of_it() -> None:
    rows = [*({"id": n} for n in range(8)), {"id": 9_000}]
    with Api() as api:
        api.route("GET", "/items", lambda asked: Reply.json(rows if asked.query["page"] == "2" else RECORDS[:4]))
        opened = source(api)
        found = partition(opened, dataset({"pagination": PAGE}, {"id": "tinyint"}))
        seen: list[tuple[int, bool]] = []
        with pytest.raises(PermanentError):
            seen += (
                (batch.num_rows, found.try_get_checkpoint() is not None)
                for batch in found.read(BatchOptions(max_rows=4), CancelToken())
            )
        assert seen == [(4, True), (4, False), (4, False)][: len(seen)]
        opened.close()


def test_raw_rows_know_their_page_also_where_pages_are_landed_together() -> None:
    with Api() as api:
        api.route("GET", "/items", paged(RECORDS, 10))
        rows = read(api, {"pagination": PAGE})
        assert [row["pz_page"] for row in rows] == [0] * 10 + [1] * 10 + [2] * 5
        opened = source(api)
        small = batches(partition(opened, dataset({"pagination": PAGE})), max_rows=4)
        assert [n for batch in small for n in batch.column("pz_page").to_pylist()] == [0] * 10 + [1] * 10 + [2] * 5
        opened.close()


def test_small_pages_of_lines_are_landed_together_and_large_ones_in_pieces() -> None:
    wide = [{"id": n, "note": "x" * 1_500_000} for n in range(6)]
    with Api() as api:

        def answer(asked: Asked) -> Reply:
            at = int(asked.query["page"])
            page: Any = [(), RECORDS[:3], RECORDS[3:6], wide, RECORDS[6:8], ()][at]
            return Reply.text("".join(json.dumps(record) + "\n" for record in page), "application/x-ndjson")

        api.route("GET", "/items", answer)
        opened = source(api)
        found = partition(opened, dataset({"pagination": PAGE, "format": "ndjson"}, ID))
        seen = [
            (batch.column("id").to_pylist(), found.try_get_checkpoint())
            for batch in found.read(BatchOptions(), CancelToken())
        ]
        assert [ids for ids, _ in seen] == [[0, 1, 2, 3, 4, 5], [0, 1], [2, 3, 4], [5], [6, 7]]
        assert [token is not None for _, token in seen] == [True, False, False, True, False]
        opened.close()


@pytest.mark.parametrize("format_", ["ndjson", "csv"])
@pytest.mark.parametrize("wide", [1, 300_000])
def test_a_page_of_lines_that_comes_again_is_refused(format_: str, wide: int) -> None:
    text = "id,note\n" if format_ == "csv" else ""
    for n in range(5):
        note = "x" * wide
        text += f"{n},{note}\n" if format_ == "csv" else json.dumps({"id": n, "note": note}) + "\n"
    with Api() as api:
        api.on("GET", "/items", Reply.text(text, "text/csv" if format_ == "csv" else "application/x-ndjson"))
        opened = source(api)
        found = partition(opened, dataset({"pagination": PAGE, "format": format_}, {**ID, "note": "varchar"}))
        with pytest.raises(PermanentError, match="brings the records of an earlier one"):
            batches(found)
        opened.close()
