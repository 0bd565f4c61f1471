"""Pagination: every strategy, every way to the end, and what is refused instead of ending early or never."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from http_server import Api, Asked, Handler, Reply, paged
from http_support import ID, batches, dataset, ids, partition, read, source
from pz.connectors.http.pagination import Position, next_link
from pz.errors import Code, PermanentError

RECORDS = [{"id": n} for n in range(25)]
PAGE = {"strategy": "page", "param": "page"}


def refused(api: Api, options: dict[str, Any], **more: Any) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        read(api, options, ID, **more)
    return caught.value


def test_without_pagination_one_page_is_read() -> None:
    with Api() as api:
        api.on("GET", "/items", Reply.json(RECORDS))
        assert ids(read(api, {}, ID)) == list(range(25))
        assert len(api.requests()) == 1


def test_page_numbers_go_on_to_an_empty_page_and_carry_the_size() -> None:
    with Api() as api:
        api.route("GET", "/items", paged(RECORDS, 10))
        paging = {**PAGE, "size_param": "per_page", "size": 10}
        assert ids(read(api, {"pagination": paging, "query": {"state": "all"}}, ID)) == list(range(25))
        assert [a.query for a in api.requests()] == [
            {"state": "all", "per_page": "10", "page": str(n)} for n in (1, 2, 3, 4)
        ]


def test_an_api_that_repeats_its_last_page_is_refused_unless_a_short_page_is_the_end() -> None:
    def repeating(asked: Asked) -> Reply:
        page = min(int(asked.query["page"]), 3)
        return Reply.json(RECORDS[(page - 1) * 10 : page * 10])

    with Api() as api:
        api.route("GET", "/items", repeating)
        assert refused(api, {"pagination": PAGE}).code is Code.PZ0764
        short = {**PAGE, "size_param": "n", "size": 10, "stop_on_short_page": True}
        assert ids(read(api, {"pagination": short}, ID)) == list(range(25))


def test_offsets_advance_by_what_came_and_a_total_saves_the_last_request() -> None:
    def answer(asked: Asked) -> Reply:
        at, size = int(asked.query["offset"]), int(asked.query["limit"])
        return Reply.json({"items": RECORDS[at : at + size], "total": 25, "count": "25"}, X_Total="25")

    paging = {"strategy": "offset", "param": "offset", "size_param": "limit", "size": 10}
    with Api() as api:
        api.route("GET", "/items", answer)
        assert ids(read(api, {"pagination": paging, "items": "/items"}, ID)) == list(range(25))
        assert [a.query["offset"] for a in api.requests()] == ["0", "10", "20", "25"]
        for told in ({"total_pointer": "/total"}, {"total_header": "X-Total"}, {"total_pointer": "/count"}):
            before = len(api.requests())
            assert len(read(api, {"pagination": {**paging, **told}, "items": "/items"}, ID)) == 25
            assert len(api.requests()) - before == 3


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize(
    ("gives", "told"),
    [
        (7, "more records follow a page that has fewer than size (10), so some may have been stepped over"),
        (15, "a page has 15 records and size is 10, so the next one would repeat some"),
    ],
)
def test_an_api_that_gives_pages_of_another_size_is_refused_where_offsets_would_miss_its_records(
    gives: int, told: str, start: int
) -> None:
    """Before, 25 records became 20 without a word, or 40."""

    def answer(asked: Asked) -> Reply:
        at = int(asked.query["offset"])
        return Reply.json(RECORDS[at : at + gives])

    paging = {"strategy": "offset", "param": "offset", "size_param": "limit", "size": 10, "start": start}
    with Api() as api:
        api.route("GET", "/items", answer)
        error = refused(api, {"pagination": paging})
        assert error.code is Code.PZ0764
        assert told in error.message


def test_a_crawl_that_resumes_behind_a_short_page_begins_anew_where_it_could_not_see_a_repeated_record() -> None:
    def answer(asked: Asked) -> Reply:
        at = int(asked.query["offset"])
        return Reply.json({"items": RECORDS[at : at + 7], "total": 25})

    paging = {"strategy": "offset", "param": "offset", "size_param": "limit", "size": 10}
    for told, begins in ({"unique": "/id"}, 0), ({"total_pointer": "/total"}, 7):
        options = {"items": "/items", **told} if "unique" in told else {"items": "/items"}
        paged_by = paging if "unique" in told else {**paging, **told}
        # A token of a version that went on by size, and stepped over three records.
        stepped = Position(1, None, "10", 7, 25)
        behind = Position(1, None, "7", 7, 25 if begins else None, short=True)
        with Api() as api, closing(source(api)) as opened:
            api.route("GET", "/items", answer)
            found = partition(opened, dataset({**options, "pagination": paged_by}, ID))
            assert not found.try_resume(stepped.to_token())
            assert found.try_resume(behind.to_token()) is (begins > 0)
            assert ids([row for batch in batches(found) for row in batch.to_pylist()]) == list(range(begins, 25))


def test_an_api_that_filters_its_pages_may_have_short_ones() -> None:
    paging = {"strategy": "offset", "param": "offset", "size": 10, "allow_short_pages": True}

    def answer(asked: Asked) -> Reply:
        at = int(asked.query["offset"])
        return Reply.json([record for record in RECORDS[at : at + 10] if record["id"] % 3])

    with Api() as api:
        api.route("GET", "/items", answer)
        assert ids(read(api, {"pagination": paging}, ID)) == [n for n in range(25) if n % 3]
        assert "more records follow" in refused(api, {"pagination": {**paging, "allow_short_pages": False}}).message


def test_a_page_of_nested_records_is_counted_by_its_list() -> None:
    """Three records to a list entry: more records than size, and none is stepped over."""

    def answer(asked: Asked) -> Reply:
        at = int(asked.query["offset"])
        orders = [{"lines": [{"id": 3 * n + k} for k in range(3)]} for n in range(25)][at : at + 10]
        return Reply.json({"orders": orders, "more": at + 10 < 25})

    paging = {"strategy": "offset", "param": "offset", "size": 10}
    with Api() as api:
        api.route("GET", "/items", answer)
        for told in ({"count_pointer": "/orders"}, {"more_pointer": "/more", "allow_short_pages": True}):
            options = {"pagination": {**paging, **told}, "items": "$.orders[*].lines[*]"}
            assert ids(read(api, options, ID)) == list(range(75))


@pytest.mark.parametrize(
    ("totals", "sizes", "told"),
    [
        ([25, 25, 25], [10, 10, 0], "with 20 records, but the API told of 25"),
        ([25, 20, 20], [10, 10, 0], "went from 25 to 20"),
        ([25, None, 25], [10, 10, 5], "missing or no whole number"),
        ([25, 25, 25], [10, 10, 10], "with 30 records, but the API told of 25"),
    ],
)
def test_a_total_that_is_not_kept_is_an_error(totals: list[Any], sizes: list[int], told: str) -> None:
    pages = [
        Reply.json({"items": [{"id": 100 * n + i} for i in range(size)], "total": total})
        for n, (total, size) in enumerate(zip(totals, sizes, strict=True))
    ]
    with Api() as api:
        api.on("GET", "/items", *pages)
        error = refused(api, {"pagination": {**PAGE, "total_pointer": "/total"}, "items": "/items"})
        assert error.code is Code.PZ0764
        assert told in error.message


def test_a_number_of_pages_is_believed_and_an_empty_page_before_it_is_not() -> None:
    paging = {**PAGE, "total_pages_pointer": "/pages"}
    with Api() as api:
        api.route("GET", "/items", paged(RECORDS, 10, pages=3))
        assert len(read(api, {"pagination": paging, "items": "/items"}, ID)) == 25
        assert len(api.requests()) == 3
        api.route("GET", "/items", paged(RECORDS, 10, pages=5))
        assert (
            "is empty, but the API says that more pages follow"
            in refused(api, {"pagination": paging, "items": "/items"}).message
        )


def test_a_cursor_in_the_body_crosses_empty_pages_and_ends_where_it_is_missing_null_or_empty() -> None:
    for end in ({}, {"next": None}, {"next": ""}):
        pages: dict[str | None, dict[str, Any]] = {
            None: {"items": [{"id": 1}], "next": "a b&c"},
            "a b&c": {"items": [], "next": "second"},
            "second": {"items": [{"id": 2}], **end},
        }
        with Api() as api:
            api.route("GET", "/items", _by_cursor(pages))
            paging = {"strategy": "cursor", "pointer": "/next", "param": "cursor"}
            assert ids(read(api, {"pagination": paging, "items": "/items"}, ID)) == [1, 2]


def _by_cursor(pages: dict[str | None, dict[str, Any]]) -> Handler:
    return lambda asked: Reply.json(pages[asked.query.get("cursor")])


def _in_order(order: list[int]) -> Handler:
    return lambda asked: Reply.json([{"id": order[int(asked.query["page"]) - 1], "p": asked.query["page"]}])


def test_a_cursor_may_stand_in_a_header_or_in_the_last_record() -> None:
    def by_header(asked: Asked) -> Reply:
        at = int(asked.query.get("after", "0"))
        more = {"X-Next": str(at + 10)} if at + 10 < 25 else {}
        return Reply(200, {"Content-Type": "application/json", **more}, json.dumps(RECORDS[at : at + 10]).encode())

    def by_record(asked: Asked) -> Reply:
        at = int(asked.query.get("starting_after", "-1")) + 1
        return Reply.json({"data": RECORDS[at : at + 10], "has_more": at + 10 < 25})

    with Api() as api:
        api.route("GET", "/items", by_header)
        header = {"strategy": "cursor", "header": "X-Next", "param": "after"}
        assert ids(read(api, {"pagination": header}, ID)) == list(range(25))
        api.route("GET", "/items", by_record)
        record = {
            "strategy": "cursor",
            "last_record_pointer": "/id",
            "more_pointer": "/has_more",
            "param": "starting_after",
        }
        assert ids(read(api, {"pagination": record, "items": "/data"}, ID)) == list(range(25))


def test_a_flag_that_is_missing_or_leads_nowhere_is_an_error() -> None:
    paging = {"strategy": "cursor", "pointer": "/next", "param": "cursor", "more_pointer": "/more"}
    options = {"pagination": paging, "items": "/items"}
    with Api() as api:
        for body, told in (
            ({"items": [{"id": 1}], "next": "x"}, "flag at more_pointer is missing"),
            ({"items": [{"id": 1}], "next": "x", "more": "yes"}, "neither true nor false"),
            ({"items": [{"id": 1}], "more": True}, "there is a next page, but not where"),
            ({"items": [{"id": 1}], "more": True, "next": 1.5}, "neither text nor a whole number"),
        ):
            api.on("GET", "/items", Reply.json(body))
            assert told in refused(api, options).message


def test_a_cycle_of_cursors_and_a_next_page_that_was_there_are_refused() -> None:
    def cycle(asked: Asked) -> Reply:
        following = {"": "c1", "c1": "c2", "c2": "c1"}[asked.query.get("cursor", "")]
        return Reply.json({"items": [{"id": len(api.requests())}], "next": following, "more": True})

    with Api() as api:
        api.route("GET", "/items", cycle)
        paging = {"strategy": "cursor", "pointer": "/next", "param": "cursor"}
        error = refused(api, {"pagination": paging, "items": "/items"})
        assert error.code is Code.PZ0764
        assert len(api.requests()) == 3


def test_link_headers_and_next_urls_are_followed_relative_and_absolute() -> None:
    def by_link(asked: Asked) -> Reply:
        page = int(asked.query.get("page", "1"))
        links = [f'<{api.url}/items?page=1>; rel="first"']
        if page < 3:
            target = f"/items?page={page + 1}&x=1" if page == 1 else f"{api.url}/items?page={page + 1}"
            links.append(f'<{target}>; title="a, b"; rel=\'x\'; rel="prev NEXT"')
        return Reply.json(RECORDS[(page - 1) * 10 : page * 10], Link=", ".join(links))

    def by_body(asked: Asked) -> Reply:
        page = int(asked.query.get("page", "1"))
        return Reply.json(
            {"v": RECORDS[(page - 1) * 10 : page * 10], "a/b": {"~n": f"?page={page + 1}"} if page < 3 else {}}
        )

    with Api() as api:
        api.route("GET", "/items", by_link)
        options = {"pagination": {"strategy": "link_header"}, "query": {"state": "all"}}
        assert ids(read(api, options, ID)) == list(range(25))
        assert [a.query for a in api.requests()] == [{"state": "all"}, {"page": "2", "x": "1"}, {"page": "3"}]
        api.route("GET", "/items", by_body)
        paging = {"strategy": "next_url", "pointer": "/a~1b/~0n"}
        assert ids(read(api, {"pagination": paging, "items": "/v"}, ID)) == list(range(25))


def test_links_are_parsed_as_the_standard_says() -> None:
    assert next_link("<a>; rel=next") == "a"
    assert next_link('<a>; rel="prev"; x="<b>; rel=next", <c?d=1,2>; rel="last next"') == "c?d=1,2"
    assert next_link(", , <a>; rel=next ,") == "a"
    assert next_link("<p>; rel=prev, , <a>; rel=next") == "a"
    assert next_link("<a>;rel='next'") == "a"
    assert next_link('<a>; title="say \\"<b>; rel=next\\", twice"; rel=last, <c> ; ; REL = "Next"') == "c"
    for none in ("", " , ", "<a>", "<a>; rel=next2", "<a>; rel", "<a>; rel=prev,"):
        assert next_link(none) is None


BROKEN_LINKS = (
    "a; rel=next",
    "<a; rel=next",
    "x <a>; rel=next",
    '<a>; rel="next',
    "<>; rel=next",
    "<a>; rel=prev <b>",
    "<xxx",
)


@pytest.mark.parametrize("broken", BROKEN_LINKS)
def test_a_link_header_that_cannot_be_read_is_no_end(broken: str) -> None:
    with pytest.raises(ValueError, match="link"):
        next_link(broken)
    with Api() as api:
        api.on("GET", "/items", Reply.json(RECORDS[:10], link=broken))
        failure = refused(api, {"pagination": {"strategy": "link_header"}})
    assert failure.code is Code.PZ0764
    assert "cannot be read" in failure.message


def test_pages_of_a_post_carry_their_parameters_in_query_or_body() -> None:
    def answer(asked: Asked) -> Reply:
        page = int(asked.json().get("page", asked.query.get("page", 1)))
        return Reply.json(RECORDS[(page - 1) * 10 : page * 10])

    with Api() as api:
        api.route("POST", "/items", answer)
        options = {"method": "POST", "body": {"filter": {"a": 1.5, "b": True}}, "pagination": {**PAGE, "in": "body"}}
        assert ids(read(api, options, ID)) == list(range(25))
        assert api.requests()[1].json() == {"filter": {"a": 1.5, "b": True}, "page": 2}
        assert ids(read(api, {"method": "POST", "body": {}, "pagination": PAGE}, ID)) == list(range(25))


def test_more_pages_than_the_ceiling_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pz.connectors.http.crawl.CEILING", 5)
    with Api() as api:
        api.route("GET", "/items", lambda asked: Reply.json([{"id": int(asked.query["page"])}]))
        error = refused(api, {"pagination": PAGE})
        assert "5 pages and no end" in error.message
        assert len(api.requests()) == 5
        assert ids(read(api, {"pagination": PAGE, "max_pages": 7}, ID)) == list(range(1, 8))


def test_max_pages_of_an_incremental_read_needs_proof_of_ascending_order() -> None:
    orders = {"rising": [1, 2, 3, 4], "equal": [1, 1, 1, 1], "falling": [1, 3, 2, 4]}
    for name, order in orders.items():
        with Api() as api:
            api.route("GET", "/items", _in_order(order))
            options = {"pagination": PAGE, "max_pages": 3}
            if name == "rising":
                assert ids(read(api, options, ID, cursor="id", cursor_type="bigint")) == [1, 2, 3]
            else:
                assert refused(api, options, cursor="id", cursor_type="bigint").code is Code.PZ0770
            assert len(read(api, options, ID)) == 3


@pytest.mark.parametrize("kind", ["next", "redirect", "scheme", "userinfo"])
def test_a_page_elsewhere_is_refused_before_a_credential_leaves(kind: str) -> None:
    with Api() as api, Api() as other:
        other.on("GET", "/items", Reply.json([]))
        elsewhere = {
            "next": f"{other.url}/items",
            "redirect": f"{other.url}/items",
            "scheme": api.url.replace("http:", "https:") + "/items?p=2",
            "userinfo": f"http://u:p@127.0.0.1:{api.port}/items?p=2",
        }[kind]
        if kind == "redirect":
            api.on("GET", "/items", Reply(302, {"Location": elsewhere}))
        else:
            api.on("GET", "/items", Reply.json({"items": [{"id": 1}], "next": elsewhere}))
        options = {"pagination": {"strategy": "next_url", "pointer": "/next"}, "items": "/items"}
        auth = {"type": "bearer", "token": "very-secret"}
        error = refused(api, options, connection_options={"auth": auth})
        assert error.code in {Code.PZ0763, Code.PZ0764}
        assert "items" not in error.message.partition("points to")[2]
        assert not other.requests()


def test_a_path_with_letters_beyond_ascii_is_asked_for_below_a_base_that_has_some() -> None:
    with Api() as api:
        api.route("GET", "/*", lambda asked: Reply.json([{"id": 1}]))
        assert ids(read(api, {"path": "/\u00fc x"}, ID, connection_options={"base_url": f"{api.url}/a%2Fb/%20c"})) == [
            1
        ]
        assert api.requests()[0].target == "/a%2Fb/%20c/%C3%BC%20x"


def test_a_next_url_that_differs_in_its_fragment_alone_is_no_advance() -> None:
    """Empty pages have nothing else to be known by."""
    number = iter(range(10_000))
    with Api() as api:
        api.route("GET", "/items", lambda asked: Reply.json({"r": [], "n": f"/items#{next(number)}"}))
        options = {"items": "/r", "pagination": {"strategy": "next_url", "pointer": "/n"}}
        assert "does not advance" in refused(api, options).message
        assert len(api.requests()) == 1


def test_redirects_are_followed_within_the_origin_up_to_five() -> None:
    with Api() as api:
        for n in range(6):
            api.on("GET", f"/r{n}", Reply([301, 302, 303, 307, 308, 302][n], {"Location": f"r{n + 1}"}))
        api.on("GET", "/r6", Reply.json([{"id": 7}]))
        assert ids(read(api, {"path": "/r1"}, ID)) == [7]
        assert "more than 5 redirects" in refused(api, {"path": "/r0"}).message
        api.on("GET", "/r6", Reply(302))
        assert "without a Location" in refused(api, {"path": "/r3"}).message


def test_a_listed_host_may_be_followed_with_credentials() -> None:
    with Api() as api:
        local = f"http://localhost:{api.port}/items?p=2"
        api.route(
            "GET",
            "/items",
            lambda asked: Reply.json({"items": [{"id": len(api.requests())}], "next": None if asked.query else local}),
        )
        options = {"pagination": {"strategy": "next_url", "pointer": "/next"}, "items": "/items"}
        assert refused(api, options).code is Code.PZ0763
        rows = read(api, options, ID, connection_options={"allow_hosts": ["localhost"]})
        assert len(rows) == 2
