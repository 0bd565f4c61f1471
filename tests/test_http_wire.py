"""What a server may do on the wire to keep its clients waiting, and how long they do."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from http_server import Api, Asked, Reply, paged
from http_support import ID, CountingGate, ids, read
from pz.connectors.contract import CancelToken, ConnectionSpec
from pz.connectors.http.settings import Settings
from pz.connectors.http.wire import Wire
from pz.engine.resilience.gate import Gate, Pacer
from pz.errors import Code, PermanentError, TransientError
from pz.project.model import RetryPolicy

ENDLESS = b"x" * 90_000
RECORDS = Reply.json([{"id": 1}])

# Were one of these answers read to its end, a test would take more than an hour: each byte comes in time.
DRIPS = {
    "status line": Reply(200, {}, b"[]", head_drip=0.05),
    "header": replace(RECORDS, headers={"X-Long": ENDLESS.decode()}, head_drip=0.05),
    "body": replace(RECORDS, body=b" " * 90_000, drip=0.05),
    "chunk extension": Reply(200, {"Transfer-Encoding": "chunked"}, b"1;" + ENDLESS, framing="close", drip=0.05),
    "trailer": Reply(
        200, {"Transfer-Encoding": "chunked"}, b"2\r\n[]\r\n0\r\nX: " + ENDLESS, framing="close", drip=0.05
    ),
    "redirect": Reply(302, {"X-Long": ENDLESS.decode(), "Location": "/items"}, head_drip=0.05),
    "token": Reply(200, {"X-Long": ENDLESS.decode()}, head_drip=0.05),
}


@pytest.mark.parametrize("kind", DRIPS)
def test_a_server_that_drips_is_given_up(kind: str) -> None:
    auth = {
        "auth": {
            "type": "oauth2_client_credentials",
            "client_id": "me",
            "client_secret": "mine",
        }
    }
    with Api() as api:
        api.on("GET", "/items", DRIPS[kind])
        api.on("POST", "/token", DRIPS[kind])
        options: dict[str, object] = {"timeout_seconds": 0.3}
        if kind == "token":
            auth["auth"]["token_url"] = f"{api.url}/token"
            options |= auth
        with pytest.raises(TransientError, match="no answer in time"):
            read(api, {}, ID, gate=CountingGate(1), connection_options=options)


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"Content-Length": "abc"}, {"X": "y" * 200_000}])
def test_what_is_no_http_is_told_as_such(headers: dict[str, str]) -> None:
    with Api() as api:
        api.on("GET", "/items", Reply(200, headers, b"[]", framing="close"))
        with pytest.raises(TransientError, match="the answer is not valid HTTP"):
            read(api, {}, ID, gate=CountingGate(1))


def test_endless_interim_answers_are_no_answer() -> None:
    with Api() as api:
        api.on("GET", "/items", Reply(103, {}, b"HTTP/1.1 103 More\r\n\r\n" * 9_000, framing="close", drip=0.005))
        with pytest.raises(TransientError, match="no answer in time"):
            read(api, {}, ID, gate=CountingGate(1), connection_options={"timeout_seconds": 0.3})


def test_a_slow_answer_within_the_least_speed_is_read() -> None:
    """It takes longer than `timeout_seconds` as a whole, which limits the head and each wait."""
    body = b'[{"id":1}' + b" " * 20_000 + b"]"
    with Api() as api:
        api.on("GET", "/items", replace(RECORDS, body=body, drip=0.15, drip_size=2_000))
        assert ids(read(api, {}, ID, gate=CountingGate(1), connection_options={"timeout_seconds": 1})) == [1]


@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_a_server_that_does_not_take_what_is_sent_is_given_up(pause: float, tmp_path: Path) -> None:
    """Without a pause it reads nothing at all; with one a byte now and then."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while pause and not stopped.wait(pause) and connection.recv(1):
                    pass
                stopped.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = Settings.of(ConnectionSpec("api", {"base_url": url, "timeout_seconds": 0.3}, tmp_path))
        wire = Wire(settings)
        try:
            import httpcore

            with (
                pytest.raises(httpcore.WriteTimeout),
                wire.exchange("POST", settings.base, {"x-y": "z"}, b"x" * 64_000_000),
            ):
                pass
        finally:
            stopped.set()
            thread.join()
            wire.close()


@pytest.mark.parametrize("location", ["http://[::1", "http://:99999/", "mailto:x@y", "http://u:p@h/"])
def test_a_location_that_is_no_url_is_told_as_such(location: str) -> None:
    with Api() as api:
        api.on("GET", "/items", Reply(302, {"Location": location}))
        with pytest.raises(PermanentError, match="a redirect to no http URL") as caught:
            read(api, {}, ID, gate=CountingGate(1))
        assert caught.value.code is Code.PZ0763


def test_a_page_that_nobody_wants_any_more_is_not_waited_for() -> None:
    """The second page would be asked for again in an hour; what is wrong with the first one is told now."""
    hour = timedelta(hours=1)
    gate = Gate(Pacer(None), RetryPolicy(5, hour, hour), CancelToken())
    with Api() as api:
        api.on("GET", "/items", Reply.json([{"day": "no day"}], Link='</two>; rel="next"'))
        api.on("GET", "/two", Reply(503))
        with pytest.raises(PermanentError, match="column 'day'"):
            read(api, {"pagination": {"strategy": "link_header"}}, {"day": "date"}, gate=gate)
        assert len(api.requests("/two")) == 1


def test_cookies_of_the_server_come_back_to_it_and_go_nowhere_else() -> None:
    """Gateways bind a crawl to one of their servers by a cookie."""

    def answer(asked: Asked) -> Reply:
        following = {"/items": "/two", "/two": other}.get(asked.path, "")
        return Reply.json({"r": [{"id": 1}], "n": following}, Set_Cookie=f"at={asked.path[1:]}; Path=/; HttpOnly")

    with Api() as api, Api() as elsewhere:
        other = elsewhere.url.replace("127.0.0.1", "localhost") + "/three"
        api.route("GET", "/items", answer)
        api.route("GET", "/two", answer)
        elsewhere.on("GET", "/three", Reply.json({"r": [{"id": 2}], "n": None}))
        options = {
            "items": "/r",
            "pagination": {"strategy": "next_url", "pointer": "/n"},
            "allow_repeated_pages": True,
        }
        assert ids(read(api, options, ID, connection_options={"allow_hosts": ["localhost"]})) == [1, 1, 2]
        assert [asked.headers.get("cookie") for asked in api.requests()] == [None, "at=items"]
        assert "cookie" not in elsewhere.requests()[0].headers


def test_a_header_is_sent_once_whatever_the_case_of_its_name() -> None:
    with Api() as api:
        api.on("GET", "/items", RECORDS)
        read(api, {"headers": {"ACCEPT": "text/x"}}, ID, connection_options={"headers": {"accept": "text/y"}})
        assert api.requests()[0].headers["accept"] == "text/x"


def test_a_connection_that_the_server_ended_is_not_asked_again() -> None:
    with Api() as api:
        whole = paged([{"id": n} for n in range(25)], 5)

        def ends(asked: Asked) -> Reply:
            reply = whole(asked)
            return replace(reply, cut=len(reply.body))

        api.route("GET", "/items", ends)
        assert ids(read(api, {"pagination": {"strategy": "page", "param": "page"}}, ID)) == list(range(25))
        assert api.connections >= 6


def test_a_connection_is_asked_again_as_long_as_it_is_good() -> None:
    with Api() as api:
        api.route("GET", "/items", paged([{"id": n} for n in range(25)], 5))
        read(api, {"pagination": {"strategy": "page", "param": "page"}}, ID, gate=CountingGate(1))
        assert (api.connections, len(api.requests())) == (1, 6)
