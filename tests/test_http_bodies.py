"""Response bodies: formats, gzip in every form, and a cut that is never taken for the end."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from http_server import Api, Reply
from http_support import ID, CountingGate, ids, read
from pz.connectors.http.bodies import decoded
from pz.errors import Code, ConnectorError, PermanentError, TransientError

RECORDS = [{"id": n, "text": f"text {n} " * 3} for n in range(500)]
LINES = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)
CSV = "id,text\n" + "".join(f'{r["id"]},"{r["text"]}"\n' for r in RECORDS)
COLUMNS = {"id": "bigint", "text": "varchar"}


def plain(format_: str) -> Reply:
    if format_ == "json":
        return Reply.json(RECORDS)
    if format_ == "ndjson":
        return Reply(200, {"Content-Type": "application/x-ndjson"}, LINES)
    return Reply.text(CSV, "text/csv; charset=utf-8")


def two_members(body: bytes) -> bytes:
    """A gzip of two members: the client library drops the second."""
    return gzip.compress(body[: len(body) // 2]) + gzip.compress(body[len(body) // 2 :])


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("format_", ["json", "ndjson", "csv"])
def test_every_format_is_read_plain_and_under_one_and_two_layers_of_gzip(format_: str, framing: str) -> None:
    reply = replace(plain(format_), framing=framing)
    file = replace(reply, body=gzip.compress(reply.body), headers={"Content-Type": "application/gzip"})
    with Api() as api:
        for served, options in (
            (reply, {}),
            (reply.gzipped(), {}),
            (replace(reply.gzipped(), body=two_members(reply.body)), {}),
            (file, {"compression": "gzip"}),
            (replace(file, body=two_members(reply.body) + b"\0" * 512), {"compression": "gzip"}),
            (file.gzipped(), {"compression": "gzip"}),
        ):
            api.on("GET", "/items", served)
            assert read(api, {"format": format_, **options}, COLUMNS) == RECORDS


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format_", ["json", "ndjson", "csv"])
def test_a_cut_body_is_asked_for_again_and_never_taken_for_whole(
    format_: str, packed: bool, framing: str, reset: bool
) -> None:
    whole = plain(format_)
    served = replace(whole.gzipped() if packed else whole, framing=framing)
    size = len(served.body)
    for cut in (0, 1, 17, size // 2, size - 1):
        broken = replace(served, cut=cut, reset=reset)
        for attempts in (1, 3):
            with Api() as api:
                api.on("GET", "/items", broken, replace(whole, framing="length"))
                _judge(api, format_, broken, attempts)


def _judge(api: Api, format_: str, broken: Reply, attempts: int) -> None:
    gate = CountingGate(attempts)
    if broken.framing == "close" and format_ != "json":
        with pytest.raises(ConnectorError) as caught:
            read(api, {"format": format_}, COLUMNS, gate=gate)
        assert caught.value.code in {Code.PZ0765, Code.PZ0762}
    elif attempts == 1:
        with pytest.raises(TransientError):
            read(api, {"format": format_}, COLUMNS, gate=gate)
    else:
        assert read(api, {"format": format_}, COLUMNS, gate=gate) == RECORDS
        assert len(api.requests()) == 2


def test_what_only_a_closing_connection_ends_is_refused_unless_allowed() -> None:
    with Api() as api:
        for format_ in ("ndjson", "csv"):
            for reply in (plain(format_), plain(format_).gzipped()):
                api.on("GET", "/items", replace(reply, framing="close"))
                with pytest.raises(PermanentError) as caught:
                    read(api, {"format": format_}, COLUMNS)
                assert caught.value.code is Code.PZ0765
                assert "allow_close_delimited" in (caught.value.hint or "")
                options = {"format": format_, "allow_close_delimited": True}
                assert read(api, options, COLUMNS) == RECORDS
        api.on("GET", "/items", replace(plain("json"), framing="close"))
        assert read(api, {}, COLUMNS) == RECORDS


def test_204_and_no_lines_are_empty_pages() -> None:
    with Api() as api:
        for format_ in ("json", "ndjson", "csv"):
            api.on("GET", "/items", Reply(204))
            assert read(api, {"format": format_}, ID) == []
        for format_ in ("ndjson", "csv"):
            api.on("GET", "/items", Reply(200))
            assert read(api, {"format": format_}, ID) == []


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply.text("<html>log in</html>", "text/html"), "is text/html, not json"),
        (Reply.text("<a/>", "application/xml"), "is application/xml"),
        (Reply.text('[{"id": 1}', "application/json"), "not valid json"),
        (Reply.text('{"a": }', "application/json"), "not valid json"),
        (Reply(200, {"Content-Encoding": "br"}, b"x"), "encoded as br; only gzip and deflate were asked for"),
        (Reply(200, {"Content-Encoding": "gzip"}, b"not gzip at all"), "not valid gzip"),
        (Reply(200, {"Content-Encoding": "gzip"}, gzip.compress(b"[]") + b"rest"), "not valid gzip"),
        (Reply(200, {"Content-Encoding": "gzip"}, gzip.compress(b"[]") + b"\0\0rest"), "something behind its gzip"),
        (Reply.text("[]", "application/json; charset=unicode_escape"), "charset of the response is not known"),
        (Reply.text("[]", "application/json; charset=idna"), "charset of the response is not known"),
        (Reply(200, {"Content-Encoding": "s3cret"}, b"x"), "encoded as something else"),
        (Reply.text("[3]", "application/json"), "record is not a json object"),
        (Reply.text("3", "application/json"), "neither a list nor an object"),
        (Reply(200, {}, b'[{"id": 1, "text": "\xff"}]'), "not valid json"),
    ],
)
def test_what_is_not_declared_is_refused_without_values(reply: Reply, told: str) -> None:
    with Api() as api:
        api.on("GET", "/items", reply)
        with pytest.raises(PermanentError) as caught:
            read(api, {}, COLUMNS)
        assert told in caught.value.message
        assert caught.value.code in {Code.PZ0765, Code.PZ0766}
        assert len(api.requests()) == 1


def test_a_body_larger_than_allowed_is_refused_also_when_it_is_small_on_the_wire() -> None:
    bomb = Reply(200, {"Content-Type": "application/json"}, b'[{"id": 1}' + b" " * (2 * 2**20) + b"]").gzipped()
    assert len(bomb.body) < 20_000
    with Api() as api:
        api.on("GET", "/items", bomb)
        with pytest.raises(PermanentError, match="max_response_mb allows"):
            read(api, {}, ID, connection_options={"max_response_mb": 1})
        assert ids(read(api, {}, ID, connection_options={"max_response_mb": 3})) == [1]


def test_a_content_type_may_be_wrong_where_that_is_known() -> None:
    with Api() as api:
        api.on("GET", "/items", Reply.text('[{"id": 1}]', "text/html"))
        assert ids(read(api, {"check_content_type": False}, ID)) == [1]


def test_a_byte_order_mark_is_no_content() -> None:
    with Api() as api:
        for format_, body in (("json", b'[{"id": 1}]'), ("ndjson", b'{"id": 1}\n'), ("csv", b"id\n1\n")):
            api.on("GET", "/items", Reply(200, {}, b"\xef\xbb\xbf" + body))
            assert ids(read(api, {"format": format_}, ID)) == [1]


def test_gzip_is_undone_whatever_the_pieces_and_never_bigger_than_its_step() -> None:
    body = b"".join(b"%d," % n for n in range(300_000)) + b"x" * 5_000_000
    packed = two_members(body)
    for size in (1, 7, 65_536, len(packed)):
        if size == 1:
            packed_here, wanted = two_members(body[:5_000]), body[:5_000]
        else:
            packed_here, wanted = packed, body
        pieces = [packed_here[at : at + size] for at in range(0, len(packed_here), size)]
        found = list(decoded(pieces, ["gzip"], lambda _: None))
        assert b"".join(found) == wanted
        assert max(map(len, found)) <= 2**20


def test_csv_with_another_delimiter_is_read_by_the_header_and_refused_where_it_does_not_fit() -> None:
    with Api() as api:
        api.on("GET", "/items", Reply.text("b;id\nx;1\n", "text/csv"))
        assert read(api, {"format": "csv", "delimiter": ";"}, {"id": "bigint"}) == [{"id": 1}]
        api.on("GET", "/items", Reply.text("id\nsecret-value\n", "text/csv"))
        with pytest.raises(PermanentError) as caught:
            read(api, {"format": "csv"}, ID)
        assert "secret-value" not in caught.value.message
        api.on("GET", "/items", Reply.json({"error": "x"}))
        with pytest.raises(PermanentError, match="not csv"):
            read(api, {"format": "csv"}, ID)


def test_lines_are_read_in_pieces_and_a_line_longer_than_a_piece_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pz.connectors.http.partition._BLOCK", 64)
    long = {"id": 1, "text": "y" * 500}
    lines: list[dict[str, Any]] = [{"id": 0, "text": "a"}, long, {"id": 2, "text": "b"}]
    body = "\n\n".join(json.dumps(line) for line in lines)
    with Api() as api:
        for end in ("", "\n", "\r\n"):
            api.on("GET", "/items", Reply.text(body + end, "application/x-ndjson"))
            assert read(api, {"format": "ndjson"}, COLUMNS) == lines
        api.on("GET", "/items", Reply.text("[1]\n", "application/x-ndjson"))
        with pytest.raises(PermanentError, match="not a json object"):
            read(api, {"format": "ndjson"}, COLUMNS)


def bare(body: bytes) -> bytes:
    """Deflate without the wrapping that the standard asks for."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize("pack", [zlib.compress, bare])
@pytest.mark.parametrize("format_", ["json", "ndjson", "csv"])
def test_deflate_is_undone_whether_wrapped_or_bare(format_: str, pack: Any) -> None:
    reply = plain(format_)
    with Api() as api:
        for body, coding in (
            (pack(reply.body), "deflate"),
            (pack(gzip.compress(reply.body)), "gzip, deflate"),
            (gzip.compress(pack(reply.body)), "Deflate, X-Gzip"),
        ):
            headers = {**reply.headers, "Content-Encoding": coding}
            api.on("GET", "/items", replace(reply, body=body, headers=headers))
            assert read(api, {"format": format_}, COLUMNS) == RECORDS
        assert api.requests()[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("pack", [zlib.compress, bare])
@pytest.mark.parametrize("format_", ["json", "ndjson"])
def test_a_deflate_stream_that_is_cut_is_asked_for_again(format_: str, pack: Any, framing: str) -> None:
    reply = plain(format_)
    whole = replace(reply, body=pack(reply.body), headers={**reply.headers, "Content-Encoding": "deflate"})
    with Api() as api:
        for kept in (1, 2, 50, len(whole.body) - 1):  # nothing at all is an empty page
            short = replace(whole, body=whole.body[:kept], framing=framing)
            api.on("GET", "/items", short, whole)
            options = {"format": format_, "allow_close_delimited": True} if format_ == "ndjson" else {}
            assert read(api, options, COLUMNS, gate=CountingGate()) == RECORDS


def test_what_stands_behind_a_deflate_stream_is_refused_however_it_is_split() -> None:
    packed = zlib.compress(b"[]" * 600_000) + b"x"
    for size in (1, 7, 1_000, len(packed)):
        pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
        with pytest.raises(PermanentError, match="behind its deflate stream"):
            list(decoded(pieces, ["deflate"], lambda _: None))
    with pytest.raises(PermanentError, match="not valid deflate"):
        list(decoded([b"\xff" * 100], ["deflate"], lambda _: None))


WORDS = [{"id": 1, "text": "Grüße, 5 €"}, {"id": 2, "text": "naïve"}]


@pytest.mark.parametrize("charset", ["iso-8859-15", "Windows-1252", "UTF-16", "utf-16-le", '"utf-8"', "utf-32"])
@pytest.mark.parametrize("format_", ["json", "ndjson", "csv"])
def test_a_response_in_another_charset_is_read_as_text(format_: str, charset: str) -> None:
    if format_ == "csv":
        text = "id,text\n" + "".join(f'{w["id"]},"{w["text"]}"\n' for w in WORDS)
    else:
        lines = [json.dumps(word, ensure_ascii=False) for word in WORDS]
        text = "\n".join(lines) + "\n" if format_ == "ndjson" else f"[{','.join(lines)}]"
    kind = {"json": "application/json", "ndjson": "application/x-ndjson", "csv": "text/csv"}[format_]
    reply = Reply(200, {"Content-Type": f"{kind}; header=present; Charset={charset}"}, text.encode(charset.strip('"')))
    with Api() as api:
        for served in (reply, reply.gzipped(), replace(reply, framing="chunked")):
            api.on("GET", "/items", served)
            assert read(api, {"format": format_}, COLUMNS) == WORDS


@pytest.mark.parametrize(
    ("charset", "body", "told"),
    [
        ("klingon", b"[]", "the charset of the response is not known"),
        ("base64", b"[]", "the charset of the response is not known"),
        ("utf-16", b"[\x00]", "not text in the charset"),
        ("euc-jp", b'["\xff\xff"]', "not text in the charset"),
        ("utf-8", b'[{"id": 1, "text": "\xe4"}]', "not valid json"),
    ],
)
def test_a_charset_that_is_unknown_or_untrue_is_refused_with_a_code(charset: str, body: bytes, told: str) -> None:
    with Api() as api:
        api.on("GET", "/items", Reply(200, {"Content-Type": f"application/json; charset={charset}"}, body))
        with pytest.raises(PermanentError, match=told) as caught:
            read(api, {}, COLUMNS)
        assert caught.value.code == Code.PZ0765
        assert caught.value.message.startswith("GET api:/items: ")


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(200, {"Content-Type": "application/json"}), "empty, which is no json"),
        (Reply(200, {"Content-Type": "application/json"}, b" \n", framing="chunked"), "empty, which is no json"),
        (Reply(200, {"Content-Type": "application/json"}, framing="close"), "cut off, or is not json"),
        (Reply(202), "status 202: the answer is not ready yet"),
        (Reply(206, {"Content-Range": "bytes 0-1/9"}, b"[]"), "status 206: a part of the response came"),
    ],
)
def test_a_success_without_what_was_asked_for_is_no_empty_page(reply: Reply, told: str) -> None:
    """An empty page would end a crawl by page numbers, and nobody would miss the rest."""
    whole = Reply.json(RECORDS[:2])
    with Api() as api:
        api.route("GET", "/items", lambda asked: reply if asked.query["page"] == "2" else whole)
        with pytest.raises(ConnectorError, match=told):
            read(api, {"pagination": {"strategy": "page", "param": "page"}}, COLUMNS)


def test_an_empty_body_is_an_empty_page_where_that_is_declared() -> None:
    with Api() as api:
        for reply in (Reply(200), Reply(200, {"Content-Encoding": "gzip"}), Reply(body=b" \n")):
            api.on("GET", "/items", reply)
            assert read(api, {"items": "/data", "items_missing": "empty"}, COLUMNS) == []


@pytest.mark.parametrize("options", [{}, {"items": "/d"}, {"items": "$.d"}, {"format": "ndjson"}])
@pytest.mark.parametrize("columns", [None, {"a": "varchar"}, {"a": "varchar[]"}])
@pytest.mark.parametrize("framing", ["length", "close"])
def test_what_is_nested_too_deeply_is_told_as_that(options: Any, columns: Any, framing: str) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    body = b'{"a":' + deep + b"}\n" if not options.get("items") else b'{"d":[{"a":' + deep + b"}]}"
    with Api() as api:
        api.on("GET", "/items", Reply(200, {"Content-Type": "application/json"}, body, framing=framing))
        more = {"allow_close_delimited": True} if options.get("format") else {}
        with pytest.raises(PermanentError, match="nested too deeply") as caught:
            read(api, {**options, **more}, columns)
        assert caught.value.code == Code.PZ0765


@pytest.mark.parametrize("text", [b'"\xff"', b'"\\ud800"', b"NaN"])
@pytest.mark.parametrize("way", ["record", "nested", "path", "cursor", "last record", "raw", "unique"])
def test_what_is_no_json_is_told_as_that_wherever_it_stands(text: bytes, way: str) -> None:
    """Bytes that are no UTF-8, half a surrogate pair, and a number that json has not: some were internal errors."""
    cursor: dict[str, Any] = {"strategy": "cursor", "param": "c", "pointer": "/next"}
    last: dict[str, Any] = {"strategy": "cursor", "param": "c", "last_record_pointer": "/t", "more_pointer": "/more"}
    ways: dict[str, dict[str, Any]] = {
        "path": {"items": "$.items[*]"},
        "cursor": {"items": "/items", "pagination": cursor},
        "last record": {"items": "/items", "pagination": last},
        "unique": {"items": "/items", "unique": "/t"},
    }
    options = ways.get(way, {"items": "/items"})
    value = b'{"x":' + text + b"}" if way == "nested" else text
    if way == "cursor":
        body = b'{"items":[{"id":1}],"next":' + text + b"}"
    else:
        body = b'{"more":true,"items":[{"id":1,"t":' + value + b"}]}"
    columns = None if way == "raw" else {"id": "bigint"} if way == "last record" else {"id": "bigint", "t": "varchar"}
    with Api() as api:
        api.on("GET", "/items", Reply(200, {"Content-Type": "application/json"}, body))
        with pytest.raises(PermanentError, match=r"GET api:/items: .*(json|UTF-8)") as caught:
            read(api, options, columns)
        assert caught.value.code == Code.PZ0765
