"""Every option of the http connector and its misuse: by the schema, or by the check behind it; and examples that run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from http_server import Api, Asked, Reply
from http_support import connection, dataset, source
from pz.connectors.contract import ConnectionSpec
from pz.connectors.http.connector import Http
from pz.connectors.options import Side, check_options
from pz.errors import Code, PermanentError

HTTP = Http()
BASE = {"base_url": "https://api.example.com/v1"}


def by_schema(side: Side, options: Mapping[str, Any]) -> list[str]:
    return [problem.message for problem in check_options(HTTP, side, options, subject="x")]


# --- the connection

BAD_CONNECTIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "option 'base_url' is missing"),
    ({"base_url": 5}, "must be text"),
    ({"base_url": "ftp://x"}, "base_url must be an absolute http or https URL"),
    ({"base_url": "/relative"}, "base_url must be an absolute"),
    ({"base_url": "https://u:p@x"}, "without user and password"),
    ({"base_url": "https://x?y=1"}, "cannot hold a query"),
    ({"base_url": "https://x#f"}, "cannot hold a query or a fragment"),
    ({**BASE, "auth": {"type": "digest"}}, "auth.type"),
    ({**BASE, "auth": {}}, "auth.type"),
    ({**BASE, "auth": {"type": "api_key", "key": "k"}}, "exactly one of header and param"),
    ({**BASE, "auth": {"type": "api_key", "key": "k", "header": "A", "param": "b"}}, "exactly one of header and param"),
    ({**BASE, "auth": {"type": "api_key", "header": "A"}}, "api_key needs key"),
    ({**BASE, "auth": {"type": "bearer"}}, "bearer needs token"),
    ({**BASE, "auth": {"type": "bearer", "token": "t", "user": "u"}}, "bearer has no user"),
    ({**BASE, "auth": {"type": "basic", "user": "a"}}, "basic needs password"),
    ({**BASE, "auth": {"type": "basic", "user": "a:b", "password": "c"}}, "cannot hold a colon"),
    ({**BASE, "auth": {"type": "oauth2_client_credentials", "client_id": "a"}}, "needs client_secret"),
    (
        {
            **BASE,
            "auth": {
                "type": "oauth2_client_credentials",
                "client_id": "a",
                "client_secret": "b",
                "token_url": "/token",
            },
        },
        "token_url must be an absolute",
    ),
    ({**BASE, "auth": {"type": "none", "tokn": "x"}}, "unknown option 'auth.tokn'"),
    ({**BASE, "headers": {"a b": "x"}}, "is no header name"),
    ({**BASE, "headers": {"Host": "x"}}, "is set by the connector"),
    ({**BASE, "headers": {"X": "a\r\nB: c"}}, "printable ASCII"),
    ({**BASE, "headers": {"X": "ü"}}, "printable ASCII"),
    ({**BASE, "headers": {"X": ["a"]}}, "headers.X"),
    (
        {**BASE, "headers": {"authorization": "x"}, "auth": {"type": "bearer", "token": "t"}},
        "Authorization is set by auth",
    ),
    ({**BASE, "auth": {"type": "bearer", "token": "a\nb"}}, "token must be printable ASCII"),
    ({**BASE, "auth": {"type": "api_key", "key": "\u00fc", "header": "X-Key"}}, "key must be printable ASCII"),
    ({**BASE, "auth": {"type": "api_key", "key": "k", "header": "a b"}}, "is no header name"),
    ({**BASE, "auth": {"type": "api_key", "key": "k", "header": "Host"}}, "is set by the connector"),
    ({**BASE, "base_url": "http://a b"}, "base_url must be an absolute"),
    ({**BASE, "base_url": "http://a..b"}, "base_url must be an absolute"),
    ({**BASE, "base_url": f"http://{'a' * 70}.example.com"}, "base_url must be an absolute"),
    ({**BASE, "base_url": "http://h:99999"}, "base_url must be an absolute"),
    ({**BASE, "check_path": "/a#b"}, "check_path cannot hold #"),
    ({**BASE, "timeout_seconds": 0}, "timeout_seconds"),
    ({**BASE, "timeout_seconds": 3601}, "at most 3600"),
    ({**BASE, "max_response_mb": 4097}, "at most 4096"),
    ({**BASE, "max_response_mb": 0}, "at least 1"),
    ({**BASE, "allow_hosts": ["https://x"]}, "bare host names"),
    ({**BASE, "allow_hosts": ["x:80"]}, "bare host names"),
    ({**BASE, "allow_hosts": "x"}, "allow_hosts"),
    ({**BASE, "proxy": "socks"}, "proxy must be an http or https URL"),
    ({**BASE, "client_key": "k.pem"}, "client_key needs client_cert"),
    ({**BASE, "bas_url": "x"}, "unknown option 'bas_url'"),
]


@pytest.mark.parametrize(("options", "told"), BAD_CONNECTIONS)
def test_a_misused_connection_is_told(options: dict[str, Any], told: str) -> None:
    found = [*by_schema(Side.CONNECTION, options), *HTTP.validate(ConnectionSpec("api", options, Path()))]
    assert any(told in message for message in found), found


def test_a_misused_connection_cannot_be_opened() -> None:
    with pytest.raises(PermanentError) as caught:
        HTTP.open_source(ConnectionSpec("api", {"base_url": "x", "client_key": "k"}, Path()))
    assert caught.value.code is Code.PZ0760
    assert caught.value.message.count(";") == 1


def test_every_option_of_a_connection_together_is_fine() -> None:
    options = {
        **BASE,
        "auth": {
            "type": "oauth2_client_credentials",
            "token_url": "https://login.example.com/token",
            "client_id": "a",
            "client_secret": "b",
            "scope": "read",
            "audience": "api",
            "credentials_in": "body",
        },
        "headers": {"Accept-Language": "en", "X-Level": 3, "X-Flag": True},
        "check_path": "/status",
        "timeout_seconds": 1.5,
        "max_response_mb": 512,
        "allow_hosts": ["cdn.example.com"],
        "proxy": "http://u:p@proxy.example.com:3128",
        "ca_file": "ca.pem",
        "client_cert": "c.pem",
        "client_key": "k.pem",
        "client_key_password": "x",
    }
    assert by_schema(Side.CONNECTION, options) == []
    assert list(HTTP.validate(ConnectionSpec("api", options, Path()))) == []
    schema = HTTP.connection_schema()["properties"]
    assert set(options) == set(schema)


def test_the_location_is_the_base_url_whatever_its_last_slash() -> None:
    places = {
        str(HTTP.location(ConnectionSpec("api", {**BASE, "base_url": url}, Path())))
        for url in ("https://h/v1", "https://h/v1/", "https://h/v1//")
    }
    assert places == {"{'base_url': 'https://h/v1'}"}


# --- datasets

PAGE = {"strategy": "page", "param": "page"}
CONTRACT = {"id": "bigint", "at": "timestamp"}

BAD_DATASETS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"path": "items"}, {}, "path"),
    ({"path": "/a/../b"}, {}, "cannot hold the segments"),
    ({"path": "/a#b"}, {}, "path cannot hold #"),
    ({"path": "/a\r\nX: y"}, {}, "control characters"),
    ({"headers": {"X": "a\nb"}}, {}, "printable ASCII"),
    ({"headers": {"Transfer-Encoding": "chunked"}}, {}, "is set by the connector"),
    ({"method": "PUT"}, {}, "method"),
    ({"body": {}}, {}, "body goes with method: POST"),
    ({"method": "POST", "body": [1], "body_format": "form"}, {}, "form takes a mapping"),
    ({"body_format": "json"}, {}, "body_format goes with body"),
    ({"query": {"a": {"b": 1}}}, {}, "query.a is a text"),
    ({"query": {"a": "{{ since }}"}}, {}, "unknown binding since"),
    ({"path": "/x/{{ watermark"}, {}, "malformed binding"),
    ({"headers": {"a": []}}, {}, "headers.a"),
    ({"format": "xml"}, {}, "format"),
    ({"compression": "zstd"}, {}, "compression"),
    ({"delimiter": ";"}, {}, "delimiter goes with format: csv"),
    ({"format": "csv", "delimiter": ";;"}, {}, "delimiter"),
    ({"format": "csv"}, {}, "csv needs columns"),
    ({"format": "ndjson", "items": "/a"}, {}, "items goes with format: json"),
    ({"allow_close_delimited": True}, {}, "json tells its own end"),
    ({"items": "data"}, {}, "option 'items' must begin with / or $"),
    ({"items": "$.["}, {}, "no valid JSONPath"),
    ({"items": "/a", "parents": {"x": "/id"}}, {}, "parents needs a JSONPath"),
    ({"items": "$.a[*]", "parents": {"x": "id"}}, {}, "parents.x is a pointer"),
    ({"items_missing": "skip"}, {}, "items_missing"),
    ({"cursor": "at"}, {}, "cursor and cursor_type go together"),
    ({"cursor_pointer": "/at"}, {}, "cursor_pointer goes with cursor"),
    ({"cursor": "pz_x", "cursor_type": "bigint"}, {}, "raw landing has such a column"),
    ({"cursor": "payload", "cursor_type": "bigint"}, {}, "raw landing has such a column"),
    ({"cursor": "at", "cursor_type": "text"}, {}, "cursor_type"),
    ({"cursor": "at", "cursor_type": "date"}, {"columns": CONTRACT}, "cursor goes with raw landing"),
    ({}, {"columns": CONTRACT, "cursor": "seen"}, "cursor 'seen' is not in columns"),
    ({}, {"cursor": "at"}, "needs columns, or cursor and cursor_type"),
    ({"cursor": "at", "cursor_type": "date"}, {"cursor": "seen"}, "they must be the same"),
    ({"cursor_order": "asc"}, {}, "cursor_order goes with cursor or columns"),
    ({"cursor_format": "rfc3339"}, {}, "cursor_format is one of"),
    ({"cursor_zone": "Nowhere/City", "cursor_format": "date"}, {}, "cursor_zone is a zone name"),
    ({"bounds": "open"}, {}, "bounds"),
    ({"delta_pointer": "delta"}, {}, "delta_pointer begins with /"),
    ({"delta_pointer": "/d"}, {"columns": CONTRACT, "cursor": "at"}, "it has no cursor"),
    ({"delta_param": "t"}, {}, "delta_param goes with delta_pointer"),
    ({"max_pages": 0}, {}, "max_pages"),
    ({"unique": "id"}, {}, "unique"),
    ({"pages": 1}, {}, "unknown option 'pages'"),
    ({"pagination": {"strategy": "scroll"}}, {}, "pagination.strategy"),
    ({"pagination": {}}, {}, "pagination.strategy"),
    ({"pagination": {"strategy": "none", "param": "x"}}, {}, "none has no param"),
    ({"pagination": {"strategy": "page"}}, {}, "page needs param"),
    ({"pagination": {"strategy": "offset", "param": "o"}}, {}, "offset needs size"),
    ({"pagination": {"strategy": "cursor", "param": "c"}}, {}, "exactly one of pointer, header"),
    (
        {"pagination": {"strategy": "cursor", "param": "c", "pointer": "/a", "header": "b"}},
        {},
        "exactly one of pointer",
    ),
    ({"pagination": {"strategy": "cursor", "param": "c", "last_record_pointer": "/id"}}, {}, "needs more_pointer"),
    ({"pagination": {"strategy": "next_url"}}, {}, "next_url needs pointer"),
    ({"pagination": {"strategy": "link_header", "start": 0}}, {}, "link_header has no start"),
    ({"pagination": {**PAGE, "size_param": "n"}}, {}, "size_param needs size"),
    ({"pagination": {**PAGE, "size": 5}}, {}, "size needs size_param"),
    ({"pagination": {**PAGE, "stop_on_short_page": True}}, {}, "stop_on_short_page needs size"),
    ({"pagination": {**PAGE, "allow_short_pages": True}}, {}, "allow_short_pages needs size"),
    (
        {"pagination": {"strategy": "offset", "param": "o", "size": 5, "more_pointer": "/m"}, "items": "$.a[*].b[*]"},
        {},
        "offset with a JSONPath in items needs count_pointer",
    ),
    ({"pagination": {**PAGE, "total_pointer": "/t", "total_header": "T"}}, {}, "exclude each other"),
    ({"pagination": {**PAGE, "total_pointer": "t"}}, {}, "pagination.total_pointer"),
    ({"pagination": {**PAGE, "in": "body"}}, {}, "in: body needs method: POST"),
    ({"pagination": {**PAGE, "more_pointer": "/m"}, "format": "ndjson"}, {}, "pointers need format: json"),
    ({"pagination": {"strategy": "link_header"}, "method": "POST"}, {}, "does not go with method: POST"),
    ({"pagination": PAGE, "items": "$.a[*].b[*]"}, {}, "nothing tells an empty page"),
    ({"pagination": {**PAGE, "start": -1}}, {}, "pagination.start"),
]


def test_a_fault_of_an_option_is_told_at_its_line() -> None:
    given, lines = {"path": "users", "items": "data"}, {"path": 7, "items": None}
    found = check_options(Http(), Side.READ, given, subject="x", file="connections.yml", line=5, lines=lines)
    assert [problem.where for problem in found] == ["connections.yml", "connections.yml:7"]


def test_what_begins_wrongly_is_told_at_once() -> None:
    assert by_schema(Side.READ, {"path": "users", "items": "data"}) == [
        "x: option 'items' must begin with / or $",
        "x: option 'path' must begin with /",
    ]


@pytest.mark.parametrize(("options", "more", "told"), BAD_DATASETS)
def test_a_misused_dataset_is_told(options: dict[str, Any], more: dict[str, Any], told: str) -> None:
    whole = {"path": "/items", **options}
    found = by_schema(Side.READ, whole)
    with Api() as api:
        opened = source(api)
        try:
            if not found:
                with pytest.raises(PermanentError) as caught:
                    opened.check_dataset(dataset(whole, **more))
                assert caught.value.code is Code.PZ0760
                found = [caught.value.message]
        finally:
            opened.close()
        assert not api.requests()
    assert any(told in message for message in found), found


def test_all_faults_of_a_dataset_are_told_at_once() -> None:
    with Api() as api:
        opened = source(api)
        with pytest.raises(PermanentError) as caught:
            opened.check_dataset(dataset({"path": "x", "body": {}, "delimiter": ";", "cursor_format": "?"}))
        assert caught.value.message.count(";") >= 3
        opened.close()


# --- the schemas


def every_property(schema: Mapping[str, Any], at: str = "") -> list[tuple[str, Mapping[str, Any]]]:
    found = []
    for name, part in schema.get("properties", {}).items():
        found.append((f"{at}{name}", part))
        found += every_property(part, f"{at}{name}.")
    return found


SCHEMAS = {"connection": HTTP.connection_schema(), "read": HTTP.dataset_schema(), "write": HTTP.output_schema() or {}}


@pytest.mark.parametrize("side", list(SCHEMAS))
def test_every_option_is_described_and_closed_and_its_examples_fit(side: str) -> None:
    schema = SCHEMAS[side]
    Draft202012Validator.check_schema(dict(schema))
    assert schema["additionalProperties"] is False
    for name, part in every_property(schema):
        assert part.get("description") or name in {"auth.type", "pagination.strategy"}, name
        if part.get("type") == "object" and "properties" in part:
            assert part["additionalProperties"] is False, name
        for example in part.get("examples", []):
            Draft202012Validator(dict(part)).validate(example)


PAGED = [{"id": n} for n in range(5)]


def api_of_the_examples(asked: Asked) -> Reply:
    """Understands every example of pagination."""
    query = asked.query
    size = int(query.get("per_page", query.get("limit", 2)))
    if "page" in query:
        start = (int(query["page"]) - 1) * size
    else:
        start = int(query.get("offset", query.get("cursor", query.get("skip", "0"))))
    end = start + size
    body: dict[str, Any] = {"items": PAGED[start:end], "total": 5}
    headers = {}
    if end < 5:
        body |= {"next_cursor": str(end), "@odata.nextLink": f"?skip={end}"}
        headers["Link"] = f'<?skip={end}>; rel="next"'
    return Reply.json(body, 200, **headers)


@pytest.mark.parametrize("example", HTTP.dataset_schema()["properties"]["pagination"]["examples"])
def test_the_examples_of_pagination_run(example: dict[str, Any]) -> None:
    from http_support import ID, ids, read

    with Api() as api:
        api.route("GET", "/items", api_of_the_examples)
        options = {"items": "/items", "pagination": example}
        assert ids(read(api, options, ID)) == list(range(5))


def test_a_connection_of_the_tests_is_one_that_the_schema_allows() -> None:
    with Api() as api:
        assert by_schema(Side.CONNECTION, connection(api).options) == []
