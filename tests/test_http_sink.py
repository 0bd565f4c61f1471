"""Writing to HTTP APIs: chunks, keys, deletes, idempotency, partial success, and what is refused."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from http_server import Api, Asked, Reply
from http_support import SECRET, CountingGate, connection
from pz.connectors.contract import (
    CancelToken,
    Column,
    ConfirmingSession,
    OnDelete,
    OutputSpec,
    WriteResult,
    WriteStrategy,
)
from pz.connectors.http.connector import Http
from pz.connectors.http.sink import HttpSession, HttpSink
from pz.errors import Cancelled, Code, ConnectorError, OutcomeUnknown, PermanentError, TransientError

APPEND, MERGE, REPLACE = WriteStrategy.APPEND, WriteStrategy.MERGE, WriteStrategy.REPLACE
COLUMNS = (Column("id", "BIGINT"), Column("name", "VARCHAR"))
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def batch(start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"id": list(range(start, end)), "name": [f"n{n}" for n in range(start, end)]}, SCHEMA)


def output(
    strategy: WriteStrategy = APPEND,
    options: Mapping[str, Any] | None = None,
    *,
    keys: tuple[str, ...] = (),
    on_delete: OnDelete | None = None,
    columns: tuple[Column, ...] = COLUMNS,
) -> OutputSpec:
    path = "/rows/{key}" if strategy is MERGE and not (options or {}).get("batch") else "/rows"
    keys = keys or (("id",) if strategy is MERGE else ())
    return OutputSpec(
        "api",
        "rows",
        strategy,
        {"path": path, **(options or {})},
        keys,
        on_delete=on_delete,
        columns=columns,
        origin="run-1",
        node="a" * 16,
    )


OPENED: list[HttpSink] = []


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def sink(api: Api, gate: CountingGate | None = None, **options: Any) -> HttpSink:
    opened = Http().open_sink(connection(api, **options))
    opened.use_gate(gate or CountingGate())
    OPENED.append(opened)
    return opened


class Ledger:
    def __init__(self) -> None:
        self.rows = 0
        self.accepted: set[int] = set()
        self.calls = 0

    def confirm(self, rows: int, accepted: Collection[int]) -> None:
        assert rows >= self.rows
        self.rows, self.calls = rows, self.calls + 1
        self.accepted |= set(accepted)


def begin(api: Api, wanted: OutputSpec, ledger: Ledger | None = None, gate: CountingGate | None = None) -> HttpSession:
    session = sink(api, gate).begin_write(wanted, SCHEMA)
    assert isinstance(session, HttpSession)
    assert isinstance(session, ConfirmingSession)
    if ledger is not None:
        if ledger.rows:
            assert session.try_resume(ledger.rows)
        session.use_confirm(ledger.confirm)
        session.skip(frozenset(ledger.accepted))
    return session


def send(api: Api, wanted: OutputSpec, *batches: pa.RecordBatch, ledger: Ledger | None = None) -> WriteResult:
    session = begin(api, wanted, ledger)
    try:
        for part in batches:
            session.write_batch(part)
        return session.commit()
    finally:
        session.close()


def received(api: Api) -> list[list[int]]:
    return [[row["id"] for row in asked.json()] for asked in api.requests()]


def test_chunks_are_cut_by_rows_across_batches_and_confirmed_one_by_one() -> None:
    with Api() as api:
        api.on("POST", "/rows", Reply(201))
        ledger = Ledger()
        result = send(
            api, output(options={"rows_per_request": 4}), batch(0, 3), batch(3, 10), batch(10, 11), ledger=ledger
        )
        assert result == WriteResult(11, 3)
        assert received(api) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
        assert (ledger.rows, ledger.calls) == (11, 3)
        assert {asked.headers["content-type"] for asked in api.requests()} == {"application/json"}


def test_chunks_are_cut_by_bytes_and_a_row_that_is_larger_goes_alone() -> None:
    names = ["x" * 300, "y" * 300, "z" * 5000, "a", "b"]
    rows = pa.record_batch({"id": range(5), "name": names}, SCHEMA)
    with Api() as api:
        api.on("POST", "/rows", Reply(200))
        send(api, output(options={"max_request_kb": 1}), rows)
        assert received(api) == [[0, 1], [2], [3, 4]]


@pytest.mark.parametrize("options", [{}, {"envelope": "items"}, {"body_format": "ndjson"}], ids=str)
def test_a_request_is_never_larger_than_declared_whatever_stands_around_its_rows(options: dict[str, Any]) -> None:
    """Rows of 64 bytes with their comma: 16 of them alone are a KiB."""
    rows = pa.record_batch({"id": range(10, 58), "name": ["x" * (64 - len('{"id":10,"name":""}') - 1)] * 48}, SCHEMA)
    with Api() as api:
        api.on("POST", "/rows", Reply(200))
        send(api, output(options={"max_request_kb": 1, **options}), rows)
        sizes = [len(asked.body) for asked in api.requests()]
    assert max(sizes) <= 1024
    assert len(sizes) == (3 if "body_format" in options else 4)


def test_lines_and_envelopes_hold_the_same_rows() -> None:
    with Api() as api:
        api.on("POST", "/rows", Reply(200))
        send(api, output(options={"body_format": "ndjson", "rows_per_request": 2}), batch(0, 3))
        send(api, output(options={"envelope": "records"}), batch(0, 3))
        lines, last, enveloped = api.requests()
        assert lines.body == b'{"id":0,"name":"n0"}\n{"id":1,"name":"n1"}\n'
        assert last.body == b'{"id":2,"name":"n2"}\n'
        assert lines.headers["content-type"] == "application/x-ndjson"
        assert enveloped.json() == {"records": [{"id": n, "name": f"n{n}"} for n in range(3)]}


def test_a_path_is_percent_encoded_where_that_is_needed_and_a_content_type_may_be_declared() -> None:
    options = {
        "path": "/\u00fc b/%2F?a[b]=\u00e9&c=d e",
        "query": {"x": "1&2"},
        "headers": {"content-type": "application/x-own"},
    }
    with Api() as api:
        api.route("POST", "/*", lambda asked: Reply(200))
        send(api, output(options=options), batch(0, 1))
        (asked,) = api.requests()
        assert asked.target == "/%C3%BC%20b/%2F?a%5Bb%5D=%C3%A9&c=d%20e&x=1%262"
        assert asked.headers["content-type"] == "application/x-own"


def test_values_are_spelled_as_json_files_spell_them() -> None:
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'; SET arrow_lossless_conversion = true")
        table = db.sql(
            "SELECT 9007199254740993::BIGINT AS i, 'nan'::DOUBLE AS f, 1.10::DECIMAL(9,2) AS d, "
            "12345678901234567.125::DECIMAL(38,3) AS w, TIMESTAMPTZ '2024-01-01 00:00:00+02' AS z, DATE '2024-02-29' AS day, "
            "TIMESTAMP '2024-01-01 10:00:00.5' AS t, [1, NULL] AS l, {'a': 'q\n\"'} AS s, NULL::INTEGER AS n, true AS b, "
            "'line' || chr(8232) || chr(0) || 'end' AS x"
        ).to_arrow_table()
        db.register("sent", table)
        columns = tuple(Column(str(row[0]), str(row[1])) for row in db.execute("DESCRIBE FROM sent").fetchall())
    with Api() as api:
        api.on("POST", "/rows", Reply(200))
        send(api, output(columns=columns), table.to_batches()[0])
        assert api.requests()[0].json() == [
            {
                "i": 9007199254740993,
                "f": None,
                "d": 1.1,
                "w": "12345678901234567.125",
                "z": "2023-12-31T22:00:00.000000Z",
                "day": "2024-02-29",
                "t": "2024-01-01T10:00:00.500000",
                "l": [1, None],
                "s": {"a": 'q\n"'},
                "n": None,
                "b": True,
                "x": "line\u2028\x00end",
            }
        ]


def test_a_merge_puts_each_row_at_its_key_and_escapes_it() -> None:
    with Api() as api:
        api.route("PUT", "/rows/*", lambda asked: Reply(204))
        rows = pa.record_batch({"id": [1, 2, 3], "name": ["a/b?c", "ü #%", "1;2"]}, SCHEMA)
        assert send(api, output(MERGE, keys=("name",)), rows) == WriteResult(3, 3)
        assert [asked.target for asked in api.requests()] == ["/rows/a%2Fb%3Fc", "/rows/%C3%BC%20%23%25", "/rows/1%3B2"]
        assert api.requests()[0].json() == {"id": 1, "name": "a/b?c"}
        for bad in ("..", ".", "", " ", None):
            rows = pa.record_batch({"id": [1], "name": [bad]}, SCHEMA)
            with pytest.raises(PermanentError, match="merge key is NULL, empty or a dot"):
                send(api, output(MERGE, keys=("name",)), rows)
        assert len(api.requests()) == 3


@pytest.mark.parametrize("method", ["put", "patch", "post"])
def test_a_merge_is_repeated_by_the_gate_and_its_rows_are_told(method: str) -> None:
    with Api() as api:
        api.on(method.upper(), "/rows/0", Reply(503), Reply(cut=-1), Reply(200))
        api.route(method.upper(), "/rows/*", lambda asked: Reply(200))
        ledger = Ledger()
        send(api, output(MERGE, {"method": method}), batch(0, 150), ledger=ledger)
        assert len(api.requests("/rows/0")) == 3
        assert (ledger.rows, ledger.calls) == (150, 2)


def test_a_merge_may_go_in_chunks_where_the_api_upserts_lists() -> None:
    with Api() as api:
        api.on("POST", "/rows", Reply(cut=-1), Reply(200))
        gate = CountingGate()
        session = begin(api, output(MERGE, {"batch": True, "rows_per_request": 2}, keys=("id", "name")), gate=gate)
        session.write_batch(batch(0, 3))
        session.commit()
        assert received(api) == [[0, 1], [0, 1], [2]]
        assert set(gate.labels) == {("send rows", True)}


def test_an_append_without_an_answer_is_unknown_and_is_not_repeated() -> None:
    for broken in (Reply(cut=-1), Reply(cut=-1, reset=True), Reply(200, delay=5)):
        with Api() as api:
            api.on("POST", "/rows", Reply(200), broken)
            ledger, gate = Ledger(), CountingGate()
            session = sink(api, gate, timeout_seconds=0.3).begin_write(output(options={"rows_per_request": 2}), SCHEMA)
            assert isinstance(session, HttpSession)
            session.use_confirm(ledger.confirm)
            with pytest.raises(OutcomeUnknown) as caught:
                session.write_batch(batch(0, 6))
            assert caught.value.code is Code.PZ0769
            assert "2 row(s) may be there or not" in caught.value.message
            assert (ledger.rows, session.exposed_rows()) == (2, 4)
            assert len(api.requests()) == 2
            assert gate.labels == [("send rows", False)] * 2
            session.abort()
            session.close()


@pytest.mark.parametrize(
    ("answers", "visible"),
    [
        ([Reply(422)], 2),
        ([Reply(429), Reply(422)], 2),
        ([Reply(500), Reply(422)], 4),
        ([Reply(501)], 4),
    ],
)
@pytest.mark.parametrize("strategy", [APPEND, MERGE])
def test_a_refused_chunk_counts_as_visible_only_where_an_attempt_at_it_may_have_left_rows(
    strategy: WriteStrategy, answers: list[Reply], visible: int
) -> None:
    with Api() as api:
        api.on("POST", "/rows", Reply(200), *answers)
        opened = sink(api, CountingGate())
        session = opened.begin_write(
            output(strategy, {"rows_per_request": 2, "batch": True} if strategy is MERGE else {"rows_per_request": 2}),
            SCHEMA,
        )
        with pytest.raises(ConnectorError):
            session.write_batch(batch(0, 6))
        assert isinstance(session, HttpSession)
        assert session.exposed_rows() == visible


def test_a_row_that_is_refused_by_itself_is_not_visible() -> None:
    with Api() as api:
        api.on("PUT", "/rows/1", Reply(422))
        api.route("PUT", "/rows/*", lambda asked: Reply(200))
        session = sink(api).begin_write(output(MERGE, {}), SCHEMA)
        with pytest.raises(PermanentError):
            session.write_batch(batch(0, 6))
        assert isinstance(session, HttpSession)
        assert session.exposed_rows() == 1


def test_a_refused_chunk_is_told_with_the_row_that_the_api_names() -> None:
    with Api() as api:
        api.on("POST", "/rows", Reply(200), Reply(422, {}, b'{"error":"row 30 bad"}'))
        with pytest.raises(PermanentError) as caught:
            send(api, output(options={"rows_per_request": 20}), batch(0, 40))
        assert 'the server says: {"error":"row 30 bad"}' in caught.value.message


def test_a_success_whose_answer_is_cut_is_a_success() -> None:
    with Api() as api:
        api.on("POST", "/rows", Reply(200, body=b"x" * 1000, cut=10))
        assert send(api, output(), batch(0, 3)).rows == 3
        assert len(api.requests()) == 1


def test_a_server_that_was_never_reached_is_no_unknown_outcome() -> None:
    with Api() as api:
        url = api.url
    with pytest.raises(TransientError) as caught:
        send_to(url)
    assert caught.value.code is Code.PZ0762


def send_to(url: str) -> None:
    from pz.connectors.contract import ConnectionSpec

    opened = Http().open_sink(ConnectionSpec("api", {"base_url": url}, Path()))
    OPENED.append(opened)
    session = opened.begin_write(output(), SCHEMA)
    try:
        session.write_batch(batch(0, 1))
        session.commit()
    finally:
        session.close()


def test_an_idempotency_key_is_made_of_run_output_place_and_body_and_makes_repeating_safe() -> None:
    options = {"rows_per_request": 2, "idempotency_header": "Idempotency-Key"}
    with Api() as api:
        api.on("POST", "/rows", Reply(200), Reply(cut=-1), Reply(200))
        send(api, output(options=options), batch(0, 3))
        first, lost, again = api.requests()
        keys = [asked.headers["idempotency-key"] for asked in (first, lost, again)]
        assert keys[0] == f"run-1-{'a' * 16}-0-{hashlib.sha256(first.body).hexdigest()}"
        assert keys[1] == keys[2] == f"run-1-{'a' * 16}-2-{hashlib.sha256(again.body).hexdigest()}"


def test_a_resumed_delivery_cuts_the_same_chunks() -> None:
    options = {"rows_per_request": 3, "idempotency_header": "X-Key"}
    with Api() as api, Api() as other:
        api.on("POST", "/rows", Reply(200))
        other.on("POST", "/rows", Reply(200), Reply(200), Reply(500))
        send(api, output(options=options), batch(0, 11))
        ledger = Ledger()
        session = begin(other, output(options=options), ledger, CountingGate(1))
        with pytest.raises(TransientError):
            session.write_batch(batch(0, 11))
        session.abort()
        session.close()
        assert ledger.rows == 6
        other.on("POST", "/rows", Reply(200))
        assert send(other, output(options=options), batch(6, 8), batch(8, 11), ledger=ledger).rows == 11
        wanted = [(asked.headers["x-key"], asked.body) for asked in api.requests()]
        found = [(asked.headers["x-key"], asked.body) for asked in other.requests()]
        assert found == [*wanted[:3], *wanted[2:]]


PARTIAL = {"items": "/results", "status": "/status", "reason": "/message"}


def fates(statuses: Mapping[int, int], reason: str = "too long") -> Any:
    """Refuse the rows with these ids."""

    def answer(asked: Asked) -> Reply:
        rows = asked.json()
        return Reply.json(
            {
                "results": [
                    {"status": statuses.get(row["id"], 200), "message": f"{reason}: {row['name']} {SECRET}"}
                    for row in rows
                ]
            },
            207,
        )

    return answer


def test_partial_success_ends_before_the_first_refused_row_and_no_accepted_one_is_sent_again() -> None:
    options = {"rows_per_request": 5, "partial": PARTIAL}
    with Api() as api:
        api.route("POST", "/rows", fates({6: 422, 8: 409}))
        ledger = Ledger()
        session = begin(api, output(options=options), ledger)
        with pytest.raises(PermanentError) as caught:
            session.write_batch(batch(0, 12))
        session.abort()
        session.close()
        assert caught.value.code is Code.PZ0768
        assert "refused 2 of 5 row(s)" in caught.value.message
        assert "too long" in caught.value.message
        assert "n6" not in caught.value.message
        assert (ledger.rows, ledger.accepted) == (6, {7, 9})
        api.route("POST", "/rows", fates({}))
        assert send(api, output(options=options), batch(6, 12), ledger=ledger).rows == 12
        assert received(api) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [6, 8, 10, 11]]
        assert ledger.rows == 12


def test_a_chunk_behind_refused_rows_counts_those_that_are_left_out() -> None:
    options = {"rows_per_request": 3, "partial": PARTIAL}
    with Api() as api:
        api.route("POST", "/rows", fates({0: 400}))
        ledger = Ledger()
        session = begin(api, output(options=options), ledger)
        with pytest.raises(PermanentError):
            session.write_batch(batch(0, 3))
        session.abort()
        session.close()
        assert (ledger.rows, ledger.accepted) == (0, {1, 2})
        api.route("POST", "/rows", fates({0: 400}))
        session = begin(api, output(options=options), ledger)
        session.write_batch(batch(0, 3))
        with pytest.raises(PermanentError, match="refused 1 of 1"):
            session.commit()
        session.close()
        api.route("POST", "/rows", fates({}))
        assert send(api, output(options=options), batch(0, 3), ledger=ledger).rows == 3
        assert received(api) == [[0, 1, 2], [0], [0]]


@pytest.mark.parametrize(
    ("partial", "answer", "refused"),
    [
        ({"items": "/r", "ok": "/ok"}, {"r": [{"ok": True}, {"ok": False}, {"ok": True}]}, [1]),
        ({"items": "/r", "error": "/e"}, {"r": [{}, {"e": None}, {"e": "bad"}]}, [2]),
        ({"items": "/r", "status": "/s", "index": "/i"}, {"r": [{"i": 1, "s": "500"}]}, [1]),
        ({"items": "/errors", "error": "/e", "index": "/i"}, {"errors": []}, []),
    ],
)
def test_every_way_of_telling_fates_is_understood(partial: dict[str, str], answer: Any, refused: list[int]) -> None:
    with Api() as api:
        api.on("POST", "/rows", Reply.json(answer))
        ledger = Ledger()
        if not refused:
            assert send(api, output(options={"partial": partial}), batch(0, 3), ledger=ledger).rows == 3
            return
        with pytest.raises(PermanentError, match=f"refused {len(refused)} of 3"):
            send(api, output(options={"partial": partial}), batch(0, 3), ledger=ledger)
        assert ledger.rows == refused[0]


@pytest.mark.parametrize(
    "answer",
    [
        Reply.json({"results": [{"status": 200}]}),
        Reply.json({"results": 5}),
        Reply.json({}),
        Reply.json({"results": [{"status": 200}, {"status": "x"}, {}]}),
        Reply(204),
        Reply.text("<html>", "text/html"),
    ],
)
def test_an_answer_that_does_not_tell_every_fate_is_no_success(answer: Reply) -> None:
    with Api() as api:
        api.on("POST", "/rows", answer)
        ledger = Ledger()
        with pytest.raises(OutcomeUnknown, match="does not tell which rows were accepted"):
            send(api, output(options={"partial": PARTIAL}), batch(0, 3), ledger=ledger)
        assert ledger.rows == 0
        safe = {"partial": PARTIAL, "idempotency_header": "X-Key"}
        with pytest.raises(PermanentError, match="does not tell"):
            send(api, output(options=safe), batch(0, 3))


def test_an_answer_of_many_statuses_is_no_success_unless_it_is_declared_how_to_read_them() -> None:
    """Before, rows that the API had refused one by one counted as delivered."""
    keys = pa.record_batch({"id": [7]}, pa.schema([("id", pa.int64())]))
    with Api() as api:
        for method, path in (("POST", "/rows"), ("PUT", "/rows/*"), ("DELETE", "/rows/*")):
            api.on(method, path, Reply.json({"results": [{"status": 201}, {"status": 422}, {"status": 201}]}, 207))
        ledger = Ledger()
        with pytest.raises(OutcomeUnknown, match="status 207 says that each row has one of its own") as unknown:
            send(api, output(), batch(0, 3), ledger=ledger)
        assert str(unknown.value.hint).startswith("declare partial: ")
        with pytest.raises(PermanentError, match="status 207 says") as caught:
            send(api, output(options={"idempotency_header": "X-Key"}), batch(0, 3), ledger=ledger)
        assert caught.value.code is Code.PZ0768
        assert str(caught.value.hint).startswith("declare partial: ")
        with pytest.raises(PermanentError, match=r"PUT api:/rows/\{key\}: status 207 does not tell") as single:
            send(api, output(MERGE), batch(0, 3), ledger=ledger)
        assert "`partial`" in str(single.value.hint)
        session = begin(api, output(MERGE, {"delete_path": "/rows/{key}"}))
        with pytest.raises(PermanentError, match=r"DELETE api:/rows/\{key\}: status 207 does not tell"):
            session.apply_deletes(keys)
        session.close()
        assert ledger.rows == 0
        with pytest.raises(PermanentError, match="refused 1 of 3"):
            send(api, output(options={"partial": PARTIAL}), batch(0, 3), ledger=ledger)
        assert (ledger.rows, ledger.accepted) == (1, {2})


def test_deletes_follow_the_rows_and_what_is_gone_is_deleted() -> None:
    options = {"delete_path": "/rows/{key}"}
    with Api() as api:
        api.route("PUT", "/rows/*", lambda asked: Reply(200))
        api.on("DELETE", "/rows/7", Reply(204))
        api.on("DELETE", "/rows/8", Reply(404))
        api.on("DELETE", "/rows/9", Reply(503), Reply(cut=-1), Reply(410))
        session = begin(api, output(MERGE, options, on_delete=OnDelete.DELETE))
        session.write_batch(batch(0, 2))
        session.apply_deletes(pa.record_batch({"id": [7, 8, 9]}, pa.schema([("id", pa.int64())])))
        assert session.commit().rows == 2
        session.close()
        assert [(a.method, a.path) for a in api.requests()][:4] == [
            ("PUT", "/rows/0"),
            ("PUT", "/rows/1"),
            ("DELETE", "/rows/7"),
            ("DELETE", "/rows/8"),
        ]
        assert len(api.requests("/rows/9")) == 3


@pytest.mark.parametrize("status", [300, 302, 400, 401, 403, 404, 409, 413, 422])
def test_a_refused_request_is_permanent_with_words_but_without_rows(status: int) -> None:
    with Api() as api:
        words = json.dumps({"error": "name n1 is taken", "token": SECRET, "n": 12345})
        api.on("POST", "/rows", Reply(status, {"Location": f"{api.url}/x"}, words.encode()))
        with pytest.raises(PermanentError) as caught:
            send(api, output(), batch(0, 3))
        message = caught.value.message
        assert f"status {status}" in message
        assert "is taken" in message
        for secret in ("n1", SECRET, "12345"):
            assert secret not in message
        assert len(api.requests()) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_status_that_may_pass_is_transient_and_tells_how_long_to_wait(status: int) -> None:
    with Api() as api:
        api.on("POST", "/rows", Reply(status, {"Retry-After": "17"}))
        with pytest.raises(TransientError) as caught:
            send(api, output(), batch(0, 3))
        assert caught.value.retry_after == 17


def faults(wanted: OutputSpec) -> str:
    with Api() as api, pytest.raises(ConnectorError) as caught:
        sink(api).check_output(wanted)
    assert caught.value.code in {Code.PZ0760, Code.PZ0324}
    return caught.value.message


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (output(REPLACE), "nothing replaces"),
        (output(options={"path": "/x/{key}"}), "{key} goes with a merge"),
        (output(options={"path": "rows"}), "path begins with /"),
        (output(options={"path": "/a/../b"}), "cannot hold the segments"),
        (output(options={"path": "/a/{id}"}), "no placeholder but {key}"),
        (output(options={"path": "/a#b"}), "path cannot hold #"),
        (output(options={"headers": {"Content-Length": 5}}), "is set by the connector"),
        (output(options={"headers": {"a b": "x"}}), "is no header name"),
        (output(options={"idempotency_header": "a b"}), "is no header name"),
        (output(options={"idempotency_header": "Host"}), "is set by the connector"),
        (output(options={"idempotency_header": "Content-Type"}), "says something else already"),
        (output(options={"idempotency_header": "x-k", "headers": {"X-K": "1"}}), "says something else already"),
        (output(MERGE, {"path": "/x"}), "needs {key} in path, or batch: true"),
        (output(MERGE, keys=("id", "name")), "exactly one key"),
        (output(MERGE, {"rows_per_request": 5}), "rows_per_request goes with chunks"),
        (output(MERGE, {"idempotency_header": "K"}), "idempotency_header goes with chunks"),
        (output(options={"batch": True}), "batch goes with strategy: merge"),
        (output(options={"envelope": "x", "body_format": "ndjson"}), "envelope goes with json_array"),
        (output(MERGE, on_delete=OnDelete.SOFT), "on_delete: soft cannot be done"),
        (output(MERGE, on_delete=OnDelete.DELETE), "on_delete: delete needs delete_path"),
        (output(options={"delete_path": "/x/{key}"}), "delete_path goes with strategy: merge"),
        (output(MERGE, {"delete_path": "/x"}), "delete_path needs {key}"),
        (output(MERGE, {"delete_method": "post"}), "delete_method goes with delete_path"),
        (output(options={"partial": {"items": "/r"}}), "exactly one of status, ok and error"),
        (output(options={"partial": {"items": "/r", "ok": "/a", "error": "/b"}}), "exactly one of"),
    ],
)
def test_options_that_cannot_work_together_are_told(wanted: OutputSpec, told: str) -> None:
    assert told in faults(wanted)


def test_all_faults_of_an_output_are_told_at_once() -> None:
    message = faults(output(MERGE, {"path": "/x", "delete_method": "post", "batch": False}, keys=("a", "b")))
    assert message.count(";") == 2


def test_an_answer_without_end_behind_the_status_of_a_success_does_not_hold_up_the_delivery() -> None:
    """Were it read to its end, this test would take hours."""
    with Api() as api:
        api.on("POST", "/rows", Reply(200, {}, b"x" * 1_000_000, drip=0.05))
        session = sink(api, timeout_seconds=0.3).begin_write(output(), SCHEMA)
        session.write_batch(batch(0, 3))
        assert session.commit().rows == 3
        session.close()


@pytest.mark.parametrize("kind", ["merge", "append with a key", "deletes"])
def test_a_cancelled_delivery_that_can_be_repeated_does_not_wait_for_a_silent_server(kind: str) -> None:
    keyed = {"rows_per_request": 2, "idempotency_header": "X-Key"}
    wanted = output(options=keyed) if kind == "append with a key" else output(MERGE, {"delete_path": "/rows/{key}"})
    with Api() as api:
        for method in ("POST", "PUT", "DELETE"):
            api.route(method, "/*", lambda asked: Reply(200, delay=3600 if len(api.requests()) == 2 else 0))
        opened, cancel, ledger = sink(api), CancelToken(), Ledger()
        opened.use_cancel(cancel)
        session = opened.begin_write(wanted, SCHEMA)
        assert isinstance(session, HttpSession)
        session.use_confirm(ledger.confirm)
        keys = pa.record_batch({"id": [7, 8]}, pa.schema([("id", pa.int64())]))
        if kind == "deletes":
            session.write_batch(batch(0, 1))

        def stop() -> None:
            while len(api.requests()) < 2:
                time.sleep(0.01)
            cancel.cancel()

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(Cancelled):
            session.apply_deletes(keys) if kind == "deletes" else session.write_batch(batch(0, 6))
        thread.join()
        session.abort()
        session.close()
        assert len(api.requests()) == 2
        assert ledger.rows == {"merge": 0, "append with a key": 2, "deletes": 1}[kind]


def test_a_cancelled_append_waits_for_the_answer_that_tells_whether_its_rows_are_there() -> None:
    with Api() as api:
        opened, cancel, ledger = sink(api), CancelToken(), Ledger()
        opened.use_cancel(cancel)

        def answer(asked: Asked) -> Reply:
            cancel.cancel()
            return Reply(200, delay=0.3)

        api.route("POST", "/rows", answer)
        session = opened.begin_write(output(), SCHEMA)
        assert isinstance(session, HttpSession)
        session.use_confirm(ledger.confirm)
        session.write_batch(batch(0, 500))
        assert ledger.rows == 500
        session.abort()
        session.close()


def test_refused_rows_are_told_by_their_place_in_the_delivery_and_never_by_what_they_hold() -> None:
    with Api() as api:
        api.route("POST", "/rows", fates({4: 422, 5: 422}))
        two = output(options={"partial": PARTIAL, "rows_per_request": 3})
        with pytest.raises(
            PermanentError, match=r"refused 2 of 3 .* rows 5, 6 of the sorted output: too long"
        ) as refused:
            send(api, two, batch(0, 9))
        assert "n4" not in refused.value.message
        many = output(options={"partial": PARTIAL})
        api.route("POST", "/rows", fates(dict.fromkeys(range(1, 14), 422)))
        with pytest.raises(PermanentError, match="rows 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more of the sorted output"):
            send(api, many, batch(0, 20))
        api.on("PUT", "/rows/*", Reply(204))
        api.on("PUT", "/rows/7", Reply.json({"error": "n7 is no name"}, 422))
        with pytest.raises(PermanentError, match="status 422") as single:
            send(api, output(MERGE), batch(0, 9))
        assert single.value.message.endswith("(row 8 of the sorted output)")
        assert "n7" not in single.value.message
