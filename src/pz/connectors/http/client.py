"""One request, one answer: origin rule, redirects by hand, credentials, statuses, waiting, a check of the end.

Every call goes through the engine's gate, which paces and (where it is safe) repeats it. A body goes to a file of the run
before anybody parses it, so a cut answer costs one request and nothing that was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from pz.connectors.contract import CancelToken, OperationGate
from pz.connectors.http import bodies
from pz.connectors.http.auth import Auth, TokenRequest
from pz.connectors.http.bodies import Framing
from pz.connectors.http.faults import NothingSent, network_errors, status_error
from pz.connectors.http.headers import lowered
from pz.connectors.http.origins import joined
from pz.connectors.http.redaction import Redactor, without_values
from pz.connectors.http.settings import Settings
from pz.connectors.http.waits import budget_of, retry_after
from pz.connectors.http.wire import Response, Wire
from pz.errors import Code, ConnectorError, PermanentError, TransientError
from pz.frozen import frozen

if TYPE_CHECKING:
    import httpx

__all__ = ["Answer", "Client", "Request"]

T = TypeVar("T")
USER_AGENT = "pz-http/0.1"
MAX_HOPS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT = 64 * 1024
"""Bytes that are looked at of a body that is no page: of an error, an access token."""

_USUAL = {
    "user-agent": USER_AGENT,
    "accept": "application/json, */*;q=0.5",
    "accept-encoding": "gzip, deflate",
}


@frozen(slots=False)
class Request:
    """What to ask. ``subject`` is how messages call it: never a query, never a URL that a server chose.

    ``layers`` is how many layers of gzip the body has beside the content coding, ``whole`` whether the body tells its own
    end (json does; the lines of csv and ndjson do not). ``needs_body`` is whether anything but the status of a success
    counts, ``absent_is_done`` whether 404 and 410 are successes (what was to be deleted is gone). ``held`` is the size up to
    which a body that could go to a file is held in memory. ``positions`` is how many rows a server may number in its words.
    """

    url: httpx.URL
    subject: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    layers: int = 0
    whole: bool = True
    needs_body: bool = True
    absent_is_done: bool = False
    held: int = 0
    positions: int = 0
    label: str = "request"


@frozen(slots=False)
class Answer:
    """A success: its status, its headers (lower case), its body (in ``file`` if that is set), and how its end was known."""

    status: int
    headers: Mapping[str, str]
    url: httpx.URL
    file: Path | None
    body: bytes
    size: int
    framing: str


class Client:
    """The connections of one opened source or sink. Thread-safe. Call `close` once."""

    def __init__(self, settings: Settings, redactor: Redactor) -> None:
        self.settings = settings
        self.redactor = redactor
        self._auth = Auth(settings.auth, redactor)
        self._gate: OperationGate | None = None
        self._wire = Wire(settings)

    def use_gate(self, gate: OperationGate) -> None:
        """Send every call through this gate from now on."""
        self._gate = gate

    def gated(self, label: str, idempotent: bool, operation: Callable[[], T], cancel: CancelToken | None = None) -> T:
        """Run a call through the gate, if there is one."""
        return operation() if self._gate is None else self._gate.execute(label, idempotent, operation, cancel)

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()

    @contextmanager
    def ended_by(self, cancel: CancelToken) -> Iterator[None]:
        """While the body runs, a cancellation breaks the connections, so that no call waits for a silent server."""
        forget = cancel.on_cancel(self.interrupt)
        try:
            yield
        finally:
            forget()
            self._wire.reopen()

    def interrupt(self) -> None:
        """Break every connection: calls under way fail, and none is begun any more, until `ended_by` is left."""
        self._wire.interrupt()

    # --- calls

    def fetch(
        self,
        request: Request,
        spool: Path | None,
        read: Callable[[Answer], T],
        *,
        idempotent: bool = True,
        cancel: CancelToken | None = None,
    ) -> T:
        """Get an answer that is a success, and what ``read`` makes of it. The body goes to the file ``spool``, if there is
        one, before ``read`` looks at it.

        ``read`` runs inside the gated call: what it raises as transient is asked for again.

        Raises:
            TransientError: network, timeouts, transient statuses, cut bodies (after the gate's retries).
            PermanentError: all else.
        """
        return self.gated(
            request.label, idempotent, lambda: read(self.once(request, spool, cancel, repeated=idempotent)), cancel
        )

    def once(
        self, request: Request, spool: Path | None = None, cancel: CancelToken | None = None, *, repeated: bool
    ) -> Answer:
        """`fetch` as one attempt of a call that is gated already; ``repeated`` is whether it may be made again."""

        def token(asked: TokenRequest) -> Mapping[str, Any]:
            return self._fetch_token(asked, cancel, repeated)

        headers = self._auth.headers(token)
        answer = self._follow(request, headers, spool, may_renew=self._auth.renewable)
        if answer is None:  # the API refused the token: it expired early or was revoked
            self._auth.forget(headers)
            answer = self._follow(request, self._auth.headers(token), spool, may_renew=False)
        assert answer is not None
        return answer

    def _follow(
        self, request: Request, auth: Mapping[str, str], spool: Path | None, *, may_renew: bool
    ) -> Answer | None:
        for _ in range(MAX_HOPS + 1):
            found = self._exchange(request, auth, spool, may_renew=may_renew)
            if not isinstance(found, Request):
                return found
            request = found
        raise PermanentError(f"{request.subject}: more than {MAX_HOPS} redirects", code=Code.PZ0763)

    def _exchange(
        self, request: Request, auth: Mapping[str, str], spool: Path | None, *, may_renew: bool
    ) -> Answer | Request | None:
        self.settings.origins.require(request.url, request.subject)
        headers = {**_USUAL, **lowered(self.settings.headers), **lowered(request.headers), **lowered(auth)}
        url = self._with_key(request.url)
        with (
            self._faults(request.subject, url),
            self._wire.exchange(request.method, url, headers, request.content) as response,
        ):
            self._report(response)
            if response.status == 401 and may_renew:
                return None
            if response.status in _REDIRECTS and request.method == "GET":
                return self._redirected(request, response.headers)
            if request.absent_is_done and response.status in (404, 410):
                return Answer(response.status, response.headers, request.url, None, b"", 0, Framing.LENGTH)
            if not 200 <= response.status < 300:
                raise self._refused(request, response)
            return self._received(request, response, spool)

    def _faults(self, subject: str, url: httpx.URL) -> AbstractContextManager[None]:
        """What the network raises, in our words; the host that is connected to is the proxy's, if there is one."""
        return network_errors(subject, self.settings.peer(url))

    def _redirected(self, request: Request, headers: Mapping[str, str]) -> Request:
        location = headers.get("location", "")
        if not location:
            raise PermanentError(f"{request.subject}: a redirect without a Location", code=Code.PZ0763)
        target = joined(request.url, location)
        if target is None:
            raise PermanentError(f"{request.subject}: a redirect to no http URL", code=Code.PZ0763)
        self.settings.origins.require(target, f"{request.subject}: a redirect")
        return replace(request, url=target)

    def _refused(self, request: Request, response: Response) -> ConnectorError:
        body = b""
        with suppress(Exception):
            body = _beginning(response.pieces, bodies.encodings_of(response.headers))
        return status_error(request.subject, response.status, response.headers, self._excerpt(request, body))

    def _excerpt(self, request: Request, body: bytes) -> str:
        """The server's words; of an answer to rows that we sent, without anything that stood in those rows."""
        if request.content is None:
            return self.redactor.excerpt(body)
        return without_values(self.redactor.line(body), request.content, request.positions)

    def _received(self, request: Request, response: Response, spool: Path | None) -> Answer:
        headers = response.headers
        framing = bodies.framing_of(response.status, headers)
        if not request.needs_body:
            with suppress(Exception):  # the status is the answer; a short rest is read to keep the connection
                _beginning(response.pieces, [])
            return Answer(response.status, headers, request.url, None, b"", 0, framing)
        if framing is Framing.CLOSE and not request.whole:
            raise PermanentError(
                f"{request.subject}: the end of the response is not marked, so a cut could not be seen",
                code=Code.PZ0765,
                hint="use json, or set allow_close_delimited: true to take the risk",
            )
        with _named(request.subject):
            codings = [*bodies.encodings_of(headers), *["gzip"] * request.layers]
            charset = bodies.charset_of(headers)
            pieces = bodies.transcoded(bodies.decoded(response.pieces, codings, self._check_size), charset)
            body, more = (b"".join(pieces), False) if spool is None else _held(pieces, request.held)
            if spool is None or not more:
                return Answer(response.status, headers, request.url, None, body, len(body), framing)
            size = _write(spool, chain([body], pieces))
            return Answer(response.status, headers, request.url, spool, b"", size, framing)

    def _check_size(self, size: int) -> None:
        if size > self.settings.max_bytes:
            raise bodies.too_large(self.settings.max_bytes)

    # --- waiting, tokens, connections

    def _report(self, response: Response) -> None:
        """Tell the gate, and so every node of the connection, what the server said about its budget."""
        if self._gate is None:
            return
        asked = retry_after(response.headers) if response.status in (429, 503) else None
        if asked is not None:
            self._gate.report_budget(0, asked)
            return
        budget = budget_of(response.headers)
        if budget is not None:
            self._gate.report_budget(budget.remaining, budget.reset_seconds)

    def _fetch_token(self, request: TokenRequest, cancel: CancelToken | None, repeated: bool) -> Mapping[str, Any]:
        """Ask for an access token, as a gated call of its own. Redirects are not followed: the secret stays here.

        Within a request that is ``repeated``, the token is asked for once each time: retries of both would multiply.
        """

        def once() -> Mapping[str, Any]:
            try:
                return self._token_once(request)
            except TransientError as failure:  # whatever became of it: the request that needs the token has not begun
                raise NothingSent(
                    failure.message, retry_after=failure.retry_after, code=failure.code, hint=failure.hint
                ) from failure

        return self.gated("get an access token", not repeated, once, cancel)

    def _token_once(self, request: TokenRequest) -> Mapping[str, Any]:
        import httpx

        subject = f"connection '{self.settings.name}': token endpoint"
        form = urlencode(request.form).encode()
        headers = {**_USUAL, **lowered(request.headers), "content-type": "application/x-www-form-urlencoded"}
        url = httpx.URL(request.url)
        with self._faults(subject, url), self._wire.exchange("POST", url, headers, form) as response:
            if response.status != 200:
                failure = status_error(subject, response.status, response.headers, "")
                if isinstance(failure, PermanentError):
                    raise PermanentError(failure.message, code=Code.PZ0771, hint="check auth of the connection")
                raise failure
            try:
                with _named(subject):
                    content = _beginning(response.pieces, bodies.encodings_of(response.headers))
                answer = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise PermanentError(f"{subject}: the answer is not json", code=Code.PZ0771) from error
        if not isinstance(answer, dict):
            raise PermanentError(f"{subject}: the answer is not a json object", code=Code.PZ0771)
        return answer

    def _with_key(self, url: httpx.URL) -> httpx.URL:
        key = self._auth.param
        return url if key is None else url.copy_set_param(*key)

    def without_key(self, url: httpx.URL) -> httpx.URL:
        """A URL fit to be kept: the parameter that carries the key is taken out."""
        name = self.settings.auth.param
        return url if name is None or name not in url.params else url.copy_remove_param(name)


@contextmanager
def _named(subject: str) -> Iterator[None]:
    """Put what was asked for in front of what is said about the body."""
    try:
        yield
    except (PermanentError, TransientError) as failure:
        failure.message = f"{subject}: {failure.message}"
        raise


def _beginning(pieces: Iterator[bytes], codings: list[str]) -> bytes:
    """As much of a body as anybody looks at where it is no page: a server may send one without end."""
    body = b""
    for piece in bodies.decoded(pieces, codings, lambda _: None):
        body += piece
        if len(body) >= _KEPT:
            break
    return body


def _held(pieces: Iterator[bytes], most: int) -> tuple[bytes, bool]:
    """A body of up to ``most`` bytes, or its beginning, and whether it is to go to a file with what is still to come."""
    found, size = [], 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size > most:
            break
    return b"".join(found), size > most or most == 0


def _write(file: Path, pieces: Iterable[bytes]) -> int:
    size = 0
    with file.open("wb") as out:  # durable: ok - a page lives no longer than its reader
        for piece in pieces:
            size += out.write(piece)
    return size
