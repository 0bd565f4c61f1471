"""Who asks, how fast, and through what: auth, waiting, proxies, certificates."""

from __future__ import annotations

import base64
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pyarrow as pa
import pytest
import trustme

from http_server import Api, Asked, Reply, paged
from http_support import ID, SECRET, CountingGate, connection, ids, partition, read, source
from http_support import dataset as dataset_of
from pz.connectors.contract import BatchOptions, CancelToken, Column, ConnectionSpec, OutputSpec, WriteStrategy
from pz.connectors.http.auth import Auth, AuthSettings
from pz.connectors.http.connector import Http
from pz.connectors.http.redaction import Redactor
from pz.connectors.http.settings import Settings
from pz.connectors.http.waits import Budget, budget_of, retry_after
from pz.connectors.http.wire import Wire
from pz.errors import Cancelled, Code, ConnectorError, PermanentError, TransientError

RECORDS = [{"id": n} for n in range(25)]
PAGE = {"strategy": "page", "param": "page"}


def asked_with(auth: dict[str, Any], **more: Any) -> Asked:
    with Api() as api:
        api.on("GET", "/items", Reply.json([]))
        read(api, {}, ID, connection_options={"auth": auth, **more})
        return api.requests()[0]


def test_each_kind_of_auth_puts_its_credentials_where_they_belong() -> None:
    assert asked_with({"type": "api_key", "key": "k1", "header": "X-Key"}).headers["x-key"] == "k1"
    assert asked_with({"type": "api_key", "key": "k/1&", "param": "key"}).query == {"key": "k/1&"}
    assert asked_with({"type": "bearer", "token": "t1"}).headers["authorization"] == "Bearer t1"
    basic = asked_with({"type": "basic", "user": "ü", "password": "p:w"}).headers["authorization"]
    assert base64.b64decode(basic.removeprefix("Basic ")).decode() == "ü:p:w"
    assert "authorization" not in asked_with({"type": "none"}).headers


def test_headers_of_connection_and_dataset_are_sent_and_spelled_as_yaml_spells_them() -> None:
    with Api() as api:
        api.on("GET", "/items", Reply.json([]))
        read(api, {"headers": {"X-B": 1.5}}, ID, connection_options={"headers": {"X-A": True}})
        headers = api.requests()[0].headers
        assert (headers["x-a"], headers["x-b"], headers["user-agent"]) == ("true", "1.5", "pz-http/0.1")


def test_a_key_in_the_query_is_sent_with_every_page_and_kept_in_none() -> None:
    with Api() as api:

        def answer(asked: Asked) -> Reply:
            page = int(asked.query.get("page", "1"))
            following = f"{api.url}/items?page={page + 1}&key={asked.query['key']}" if page < 3 else None
            return Reply.json({"v": RECORDS[(page - 1) * 10 : page * 10], "next": following})

        api.route("GET", "/items", answer)
        auth = {"type": "api_key", "key": SECRET, "param": "key"}
        opened = source(api, auth=auth)
        wanted = {"items": "/v", "pagination": {"strategy": "next_url", "pointer": "/next"}}
        found = partition(opened, dataset_of(wanted, ID))
        tokens = []
        for _ in found.read(BatchOptions(max_rows=10), CancelToken()):
            tokens.append(found.try_get_checkpoint())
        opened.close()
        assert len(api.requests()) == 3
        assert all(asked.query["key"] == SECRET for asked in api.requests())
        assert tokens[0] is not None
        assert SECRET not in str(tokens)


class TokenServer:
    """Gives tokens that live for a number of requests, and a data endpoint that takes the present one."""

    def __init__(self, api: Api, lives: int = 1_000, expires_in: Any = 3600) -> None:
        self.given = 0
        self.left = 0
        self.lives = lives
        self.expires_in = expires_in
        api.route("POST", "/token", self.token)
        api.route("GET", "/items", self.items)

    def token(self, asked: Asked) -> Reply:
        self.given += 1
        self.left = self.lives
        self.last = asked
        return Reply.json(
            {"access_token": f"{SECRET}-{self.given}", "token_type": "bearer", "expires_in": self.expires_in}
        )

    def items(self, asked: Asked) -> Reply:
        fits = asked.headers.get("authorization") == f"Bearer {SECRET}-{self.given}"
        if not fits or self.left <= 0:
            return Reply.json({"error": "token expired"}, 401)
        self.left -= 1
        return paged(RECORDS, 5)(asked)


def oauth(api: Api, **more: Any) -> dict[str, Any]:
    return {
        "type": "oauth2_client_credentials",
        "token_url": f"{api.url}/token",
        "client_id": "me:1",
        "client_secret": SECRET,
        **more,
    }


def test_a_token_that_expires_in_the_middle_of_a_crawl_is_renewed_through_the_gate() -> None:
    with Api() as api:
        server, gate = TokenServer(api, lives=2), CountingGate()
        rows = read(api, {"pagination": PAGE}, ID, gate=gate, connection_options={"auth": oauth(api, scope="a b")})
        assert ids(rows) == list(range(25))
        assert server.given == 3
        assert [label for label, _ in gate.labels].count("get an access token") == 3
        assert parse_qs(server.last.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["a b"]}
        basic = base64.b64decode(server.last.headers["authorization"].removeprefix("Basic ")).decode()
        assert basic == f"me%3A1:{SECRET}"


def test_a_token_is_renewed_before_it_expires_and_shared_by_all_who_ask() -> None:
    now = [0.0]
    given: list[float] = []
    auth = Auth(AuthSettings.of(oauth_settings()), Redactor(), clock=lambda: now[0])

    def fetch(_: object) -> dict[str, Any]:
        given.append(now[0])
        return {"access_token": f"t{len(given)}", "expires_in": 100}

    assert auth.headers(fetch) == auth.headers(fetch) == {"Authorization": "Bearer t1"}
    now[0] = 89.0
    assert auth.headers(fetch) == {"Authorization": "Bearer t1"}
    now[0] = 91.0
    assert auth.headers(fetch) == {"Authorization": "Bearer t2"}
    auth.forget({"Authorization": "Bearer t1"})
    assert auth.headers(fetch) == {"Authorization": "Bearer t2"}
    auth.forget({"Authorization": "Bearer t2"})
    assert auth.headers(fetch) == {"Authorization": "Bearer t3"}


def oauth_settings() -> dict[str, Any]:
    return {"type": "oauth2_client_credentials", "token_url": "http://x/t", "client_id": "a", "client_secret": "b"}


@pytest.mark.parametrize(
    "answer",
    [
        Reply.json({"error": "invalid_client", "secret": SECRET}, 401),
        Reply.json({"error": SECRET}, 400),
        Reply.json({"token": "x"}),
        Reply.json({"access_token": 5}),
        Reply.json({"access_token": "a\nb"}),
        Reply.json({"access_token": "x", "token_type": "mac"}),
        Reply.json(["x"]),
        Reply.text("<html>", "text/html"),
        Reply(302, {"Location": "/other"}),
    ],
)
def test_a_token_endpoint_that_gives_none_is_told_without_secrets(answer: Reply) -> None:
    with Api() as api:
        TokenServer(api)
        api.on("POST", "/token", answer)
        with pytest.raises(PermanentError) as caught:
            read(api, {}, ID, connection_options={"auth": oauth(api)})
        assert caught.value.code is Code.PZ0771
        assert SECRET not in caught.value.message
        assert [asked.path for asked in api.requests()] == ["/token"]


def test_a_token_endpoint_that_hangs_or_fails_is_asked_again_and_then_given_up() -> None:
    with Api() as api:
        server = TokenServer(api)
        token = server.token
        replies = iter([Reply(503), Reply(cut=-1)])
        api.route("POST", "/token", lambda asked: next(replies, None) or token(asked))
        assert len(read(api, {"pagination": PAGE}, ID, connection_options={"auth": oauth(api)})) == 25
        api.on("POST", "/token", Reply(delay=5))
        with pytest.raises(TransientError, match="no answer in time"):
            read(
                api,
                {},
                ID,
                gate=CountingGate(1),
                connection_options={"auth": oauth(api, credentials_in="body"), "timeout_seconds": 0.2},
            )


def test_the_retries_of_a_token_and_of_the_request_that_needs_it_do_not_multiply() -> None:
    """Before, a token endpoint that was down was asked nine times for each attempt of a node."""
    with Api() as api:
        api.on("POST", "/token", Reply(503))
        with pytest.raises(TransientError, match="token endpoint: status 503"):
            read(api, {}, ID, connection_options={"auth": oauth(api)})
        assert [asked.path for asked in api.requests()] == ["/token"] * 3


@pytest.mark.parametrize("answer", [Reply(503), Reply(cut=-1)])
def test_an_append_whose_token_did_not_come_has_sent_nothing(answer: Reply) -> None:
    """Before, rows of which none was sent counted as perhaps delivered; nobody repeats the request, so the token is."""
    with Api() as api:
        api.on("POST", "/token", answer)
        sink = Http().open_sink(connection(api, auth=oauth(api)))
        sink.use_gate(CountingGate())
        columns = (Column("id", "BIGINT"),)
        spec = OutputSpec(
            "api", "rows", WriteStrategy.APPEND, {"path": "/rows"}, (), columns=columns, origin="r", node="n"
        )
        session = sink.begin_write(spec, pa.schema([("id", pa.int64())]))
        session.write_batch(pa.record_batch({"id": [1]}))
        with pytest.raises(TransientError, match="token endpoint") as failed:
            session.commit()
        assert "row(s) may be there" not in failed.value.message
        assert session.exposed_rows() == 0  # type: ignore[attr-defined]
        assert [asked.path for asked in api.requests()] == ["/token"] * 3
        session.close()
        sink.close()


def test_a_token_that_is_refused_twice_is_a_refusal() -> None:
    with Api() as api:
        server = TokenServer(api, lives=0)
        with pytest.raises(PermanentError, match="status 401"):
            read(api, {}, ID, connection_options={"auth": oauth(api)})
        assert server.given == 2


# --- waiting

DATE = {"date": "Wed, 21 Oct 2026 07:28:00 GMT"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("17", 17.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("1.5", 1.5),
        ("9" * 400, 86_400.0),
        ("Wed, 21 Oct 2026 07:29:00 GMT", 60.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        ("Wed, 21 Oct 99999 07:27:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("soon", None),
        ("", None),
        ("1e9", None),
        ("٣", None),
    ],
)
def test_retry_after_is_read_in_every_spelling_against_the_servers_own_clock(text: str, wanted: float | None) -> None:
    assert retry_after({"retry-after": text, **DATE}) == wanted


def test_retry_after_without_a_date_is_read_against_ours() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    headers = {"retry-after": format_datetime(now + timedelta(seconds=30), usegmt=True)}
    assert retry_after(headers, now=now.timestamp()) == 30.0
    assert retry_after({**headers, "date": "yesterday"}, now=now.timestamp()) == 30.0


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"}, Budget(0, 30.0)),
        ({"ratelimit-remaining": "5", "ratelimit-reset": "10"}, Budget(5, 10.0)),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1792567740", **DATE}, Budget(0, 60.0)),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1792567740000", **DATE}, None),
        ({"x-ratelimit-remaining": "0"}, None),
        ({"x-ratelimit-remaining": "none", "x-ratelimit-reset": "5"}, None),
        ({}, None),
    ],
)
def test_budgets_are_read_in_both_spellings(headers: dict[str, str], wanted: Budget | None) -> None:
    assert budget_of(headers) == wanted


def test_what_a_server_says_about_waiting_reaches_the_gate_of_the_connection() -> None:
    with Api() as api:
        api.on(
            "GET",
            "/items",
            Reply(429, {"Retry-After": "7"}),
            Reply(503, {"Retry-After": "3"}),
            Reply(500, {"Retry-After": "9"}),
            Reply.json([{"id": 1}], X_RateLimit_Remaining="4", X_RateLimit_Reset="11"),
        )
        gate = CountingGate(4)
        assert ids(read(api, {}, ID, gate=gate)) == [1]
        assert gate.budgets == [(0, 7.0), (0, 3.0), (4, 11.0)]
        api.on("GET", "/items", Reply(429, {"Retry-After": "7"}))
        with pytest.raises(TransientError) as caught:
            read(api, {}, ID)
        assert caught.value.retry_after == 7


# --- sick servers


@pytest.mark.parametrize("reply", [Reply(delay=10), Reply.json([{"id": 1}] * 50)])
def test_a_server_that_is_silent_or_drips_is_given_up_in_bounded_time(reply: Reply) -> None:

    with Api() as api:
        api.on("GET", "/items", reply if reply.delay else replace(reply, drip=0.05))
        begun = time.monotonic()
        with pytest.raises(TransientError, match="no answer in time"):
            read(api, {}, ID, gate=CountingGate(1), connection_options={"timeout_seconds": 0.3})
        assert time.monotonic() - begun < 8


def test_a_cancelled_read_does_not_wait_for_a_silent_server() -> None:
    with Api() as api:
        api.on("GET", "/items", Reply(delay=600))
        opened, cancel = source(api), CancelToken()
        found = partition(opened, dataset_of({}, ID))
        outcome: list[BaseException] = []

        def work() -> None:
            try:
                list(found.read(BatchOptions(), cancel))
            except (Cancelled, ConnectorError) as failure:
                outcome.append(failure)

        thread = threading.Thread(target=work)
        thread.start()
        while not api.requests():
            time.sleep(0.01)
        cancel.cancel()
        thread.join(60)
        assert not thread.is_alive()
        assert isinstance(outcome[0], Cancelled)
        opened.close()


def test_a_connection_that_comes_about_while_the_reader_stops_is_broken_too(tmp_path: Path) -> None:
    near, far = socket.socketpair()
    settings = Settings.of(ConnectionSpec("api", {"base_url": "http://127.0.0.1:1"}, tmp_path))
    wire = Wire(settings)
    wire.interrupt()
    with near, far:
        wire.connected(near)
        assert far.recv(1) == b""


def test_a_connection_is_checked_at_its_path_and_told_why_it_fails() -> None:
    with Api() as api:
        api.on("GET", "/", Reply(204))
        api.on("GET", "/v1/up", Reply.json({}))
        assert Http().check_connection(connection(api)).ok
        assert (
            Http().check_connection(ConnectionSpec("a", {"base_url": f"{api.url}/v1", "check_path": "/up"}, Path())).ok
        )
        refused = Http().check_connection(connection(api, check_path="/no?key=hidden"))
        assert not refused.ok
        assert "status 404" in str(refused.message)
        assert "hidden" not in str(refused.message)
        url = api.url
        bare = Http().check_connection(ConnectionSpec("a", {"base_url": f"{url}/v2"}, Path()))
        assert bare.hint == "if base_url is right, set check_path to a path of the API that answers a GET"
        assert refused.hint == "check base_url and check_path"
    gone = Http().check_connection(ConnectionSpec("a", {"base_url": url}, Path()))
    assert f"no connection to {url.removeprefix('http://')}" in str(gone.message)
    proxied = ConnectionSpec(
        "a", {"base_url": "http://example.com", "proxy": url.replace("//", "//me:secret@")}, Path()
    )
    through = str(Http().check_connection(proxied).message)
    assert f"no connection to the proxy {url.removeprefix('http://')}" in through
    assert "secret" not in through


def test_a_proxy_gets_the_request_and_its_own_credentials() -> None:
    with Api() as proxy:
        proxy.route("GET", "http://api.example.com/items", lambda asked: Reply.json([{"id": 1}]))
        proxy.route("GET", "/items", lambda asked: Reply.json([{"id": 1}]))
        options = {"base_url": "http://api.example.com", "proxy": proxy.url.replace("://", "://u:pw@")}
        assert ids(read(proxy, {}, ID, connection_options=options)) == [1]
        asked = proxy.requests()[0]
        assert asked.target.startswith("http://api.example.com/")
        assert asked.headers["proxy-authorization"] == "Basic " + base64.b64encode(b"u:pw").decode()


class Tunnel:
    """A proxy that passes bytes on after CONNECT, and keeps the heads of what it was asked; by TLS itself where that is set."""

    def __init__(self, to: int, tls: ssl.SSLContext | None = None, status: int = 200) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._to, self._tls, self._status = to, tls, status
        self.heads: list[str] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://u:pw@127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Tunnel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with (
                    suppress(OSError),
                    near if self._tls is None else self._tls.wrap_socket(near, server_side=True) as asked,
                ):
                    self._pass(asked)

    def _pass(self, near: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += near.recv(1)
        self.heads.append(head.decode())
        near.sendall(b"HTTP/1.1 %d Scripted\r\n\r\n" % self._status)
        if self._status != 200:
            return
        with socket.create_connection(("127.0.0.1", self._to)) as far:
            while True:
                held = isinstance(near, ssl.SSLSocket) and near.pending()
                for ready in [near] if held else select.select([near, far], [], [])[0]:
                    data = ready.recv(65_536)
                    if not data:
                        return
                    (far if ready is near else near).sendall(data)


@pytest.mark.parametrize("encrypted", [False, True], ids=["http", "https"])
def test_a_proxy_tunnels_what_is_encrypted_and_sees_neither_path_nor_credentials(
    tmp_path: Path, encrypted: bool
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    options = {"ca_file": str(tmp_path / "ca.pem"), "auth": {"type": "bearer", "token": SECRET}}
    paging = {"pagination": {"strategy": "page", "param": "page"}}
    with Api(tls) as api, Tunnel(api.port, tls if encrypted else None) as tunnel:
        api.route("GET", "/items", paged([{"id": n, "text": "x" * 1_000} for n in range(500)], 200))
        found = read(api, paging, ID, connection_options={**options, "proxy": tunnel.url})
        assert ids(found) == list(range(500))
        assert api.connections == 1, "one tunnel serves all pages"
        (head,) = tunnel.heads
        assert head.startswith(f"CONNECT 127.0.0.1:{api.port} HTTP/1.1\r\n")
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'u:pw').decode()}\r\n" in head
        assert SECRET not in head
        assert "items" not in head
        assert all("proxy-authorization" not in asked.headers for asked in api.requests())


def test_a_proxy_that_refuses_is_told_as_that(tmp_path: Path) -> None:
    with Api() as api, Tunnel(api.port, status=407) as tunnel:
        options = {"base_url": "https://127.0.0.1:1", "proxy": tunnel.url}
        with pytest.raises(TransientError, match="the proxy refused"):
            read(api, {}, ID, gate=CountingGate(1), connection_options=options)


def test_a_custom_authority_and_a_client_certificate_are_used(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, pem, key, cert = (tmp_path / name for name in ("ca.pem", "client.pem", "client.key", "client.crt"))
    authority.cert_pem.write_to_path(ca)
    client = authority.issue_cert("client@example.com")
    client.cert_chain_pems[0].write_to_path(cert)
    client.private_key_pem.write_to_path(key)
    client.private_key_and_cert_chain_pem.write_to_path(pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    with Api(tls) as api:
        api.on("GET", "/items", Reply.json([{"id": 1}]))
        trusting = {"ca_file": str(ca)}
        full = {**trusting, "client_cert": str(cert), "client_key": str(key)}
        assert ids(read(api, {}, ID, connection_options=full)) == [1]
        assert ids(read(api, {}, ID, connection_options={**trusting, "client_cert": str(pem)})) == [1]
        with pytest.raises(TransientError):
            read(api, {}, ID, gate=CountingGate(1), connection_options=trusting)
        with pytest.raises(TransientError, match="certificate is not trusted"):
            read(api, {}, ID, gate=CountingGate(1))
        for broken in ({"ca_file": "gone.pem"}, {**full, "client_key": str(ca)}):
            with pytest.raises(PermanentError, match="certificate or key file cannot be used"):
                read(api, {}, ID, connection_options=broken)


def test_an_error_or_a_token_that_comes_without_end_does_not_hold_up_the_read() -> None:
    """Not a page: nobody waits for the rest. Were it read to its end, this test would take hours."""
    endless = Reply(403, {"Content-Type": "text/plain"}, b"x" * 1_000_000, drip=0.05)
    with Api() as api:
        api.on("GET", "/items", endless)
        with pytest.raises(PermanentError, match="status 403"):
            read(api, {}, ID, gate=CountingGate(1), connection_options={"timeout_seconds": 0.3})
        api.on("POST", "/token", replace(endless, status=200))
        with pytest.raises(TransientError, match="token endpoint: no answer in time"):
            read(api, {}, ID, gate=CountingGate(1), connection_options={"auth": oauth(api), "timeout_seconds": 0.3})
        api.on("POST", "/token", Reply(200, {}, b'{"access_token": "' + b"x" * 1_000_000 + b'"}'))
        with pytest.raises(PermanentError, match="the answer is not json"):
            read(api, {}, ID, gate=CountingGate(1), connection_options={"auth": oauth(api)})
