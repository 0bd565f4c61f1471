"""A crawl: page after page, the next one fetched while the present one is turned into rows.

What ends a crawl early, or would go round for ever, is an error here: a URL asked twice, a page that comes again, more
pages than anybody has. A page that fails is fetched again alone, inside the gate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from pz.connectors.contract import CancelToken
from pz.connectors.http.bindings import Bindings
from pz.connectors.http.bodies import Framing
from pz.connectors.http.client import Answer, Client, Request
from pz.connectors.http.faults import Refused
from pz.connectors.http.headers import lowered, spelled
from pz.connectors.http.origins import joined, parse_url
from pz.connectors.http.pagination import CEILING, MISSING, Position
from pz.connectors.http.paths import below
from pz.connectors.http.reading_options import BodyFormat, ReadOptions
from pz.connectors.http.selection import Document, parts_of, shallow
from pz.connectors.http.waits import retry_after
from pz.errors import Code, ConnectorError, PermanentError, TransientError

if TYPE_CHECKING:
    pass

__all__ = ["Crawl", "FetchedPage"]

_HTML = ("text/html", "application/xhtml")
_JSON = ("application/json", "text/json")
_BODILESS = (204, 205)
_NO_SUCH_PAGE = (400, 404, 410, 416, 422)
_WHOLE = 1024 * 1024
"""Bytes up to which a page is not worth a file; json lines are parsed as a whole then, like json, and landed with others."""


@dataclass
class FetchedPage:
    """A page as it came, and what was found in it so far. See `pagination.Page`."""

    position: Position
    answer: Answer
    fetched_at: datetime
    subject: str = ""
    document: Document | None = None
    counted: int = 0
    last: Any = None
    digest: bytes | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The response's headers, in lower case."""
        return self.answer.headers

    @property
    def count(self) -> int:
        """Records of the page; known once it was parsed."""
        return self.counted

    def at(self, pointer: str) -> Any:
        """The value in the body, MISSING when there is none."""
        return MISSING if self.document is None or self.document.empty else self.document.at(parts_of(pointer))

    def last_at(self, pointer: str) -> Any:
        """The value in the last record; MISSING when there is none."""
        return MISSING if self.last is None else Document(bytes(self.last), self.subject).at(parts_of(pointer))


class Crawl:
    """One read of one dataset, from a position to the end."""

    def __init__(
        self,
        client: Client,
        options: ReadOptions,
        bindings: Bindings,
        subject: str,
        folder: Path,
        cancel: CancelToken,
    ) -> None:
        self._client = client
        self._cancel = CancelToken(cancel)
        self._options = options
        self._bindings = bindings
        self._subject = subject
        self._folder = folder
        self._asked: set[bytes] = set()
        self._seen: set[bytes] = set()
        self._known: set[int] = set()
        self.token: list[tuple[str, str]] = []
        """The parameter that carries a feed's token, where it is no URL."""

        self.truncated = False
        """Whether ``max_pages`` ended the crawl with more pages to come."""

    def pages(self, start: Position, replayed: bool) -> Generator[FetchedPage, None, None]:
        """Fetch the pages; the caller parses each one and then says `advance`, before it asks for the next.

        ``replayed`` says that ``start`` is a token that an earlier run stored.
        """
        if start.last is not None:
            self._seen.add(bytes.fromhex(start.last))
        self._next: Position | None = start
        self._pending: Future[FetchedPage] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pz-http")
        try:
            while self._next is not None:
                self._cancel.raise_if_set()
                page = self._take(self._next, replayed)
                if page is None:
                    return
                yield page
        finally:
            if self._pending is not None:
                self.stop()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """Nobody wants a further page: end what is waited for, be it an answer or the time to ask again."""
        self._cancel.cancel()
        self._client.interrupt()

    def advance(self, page: FetchedPage, done: int) -> Position | None:
        """Decide what follows a parsed page, and begin to fetch it. ``done`` are the pages of this attempt so far."""
        following = self._options.paging.after(page.position, page, self._subject)
        ended = self._options.max_pages is not None and done >= self._options.max_pages
        if following is not None and ended and not self._options.paging.stops_at(following):
            self.truncated = True
            following = None
        if following is not None and following.index >= CEILING and self._options.max_pages is None:
            raise PermanentError(
                f"{self._subject}: {CEILING} pages and no end",
                code=Code.PZ0764,
                hint="set max_pages if there are really that many",
            )
        if following is not None:
            following = self._absolute(following, page)
            if page.digest is not None:
                following = replace(following, last=page.digest.hex())
        self._next = following
        if following is not None:
            self._pending = self._submit(following)
        return following

    def arrives_within(self, seconds: float) -> bool:
        """Wait this long for the page that is being fetched; False when it is not there by then."""
        return self._pending is None or bool(wait([self._pending], seconds).done)

    def require_new(self, digest: bytes, page: FetchedPage) -> None:
        """Raise PermanentError PZ0764 when a page with these records was there before."""
        if page.count == 0 or self._options.may_repeat:
            return
        if digest in self._seen:
            raise self._not_advancing("a page brings the records of an earlier one")
        self._seen.add(digest)
        page.digest = digest

    def repeats(self, digest: bytes, page: FetchedPage) -> bool:
        """Whether a page brings the last one again where that says that there is none behind it."""
        return self._options.paging.stops_at(page.position) and digest in self._seen

    def require_unique(self, identities: list[bytes | None]) -> None:
        """Raise PermanentError PZ0764 for a record that was there before, or that has no identity."""
        if None in identities:
            raise PermanentError(f"{self._subject}: a record has no value at unique", code=Code.PZ0764)
        before = len(self._known)
        self._known.update(map(hash, identities))
        if len(self._known) - before != len(identities):
            raise PermanentError(
                f"{self._subject}: a record came a second time",
                code=Code.PZ0764,
                hint="records moved between the pages while they were read, and others may be missing; page by a cursor "
                "that does not move, or run again",
            )

    # --- fetching

    def _submit(self, position: Position) -> Future[FetchedPage]:
        request = self._request(position)
        mark = _digest(f"{request.method} {request.url}\n".encode(), request.content or b"")
        if mark in self._asked:
            raise self._not_advancing("the next page is one that was read already")
        self._asked.add(mark)
        return self._pool.submit(self._fetch, position, request)

    def _take(self, position: Position, replayed: bool) -> FetchedPage | None:
        """The page at a position; None where the API refuses one that was asked for only to see that there is none."""
        pending = self._pending or self._submit(position)
        self._pending = pending
        try:
            return pending.result()
        except ConnectorError as failure:
            self._cancel.raise_if_set()
            if replayed and isinstance(failure, Refused) and failure.status == 410:
                raise self._expired() from failure
            if not (position.doubted and isinstance(failure, Refused) and failure.status in _NO_SUCH_PAGE):
                raise
            other = self._options.paging.undoubted(position)
        finally:
            self._pending = None
        return None if other is None else self._take(other, replayed)

    def _fetch(self, position: Position, request: Request) -> FetchedPage:
        file = self._folder / f"page-{position.index}"
        return self._client.fetch(request, file, lambda answer: self._received(position, answer), cancel=self._cancel)

    def _received(self, position: Position, answer: Answer) -> FetchedPage:
        """A whole page of the right kind. Runs inside the gated call, so that a cut page is asked for again."""
        answer = self._opened(answer)
        page = FetchedPage(position, answer, datetime.now(UTC), self._subject)
        self._check_status(answer)
        self._check_type(answer)
        if self._options.format is BodyFormat.JSON:
            page.document = Document(answer.body, self._subject)
            self._check_end(answer, page.document)
        return page

    def _opened(self, answer: Answer) -> Answer:
        """The answer with its body in memory where it is parsed as a whole, else as it lies on disk."""
        most = {BodyFormat.JSON: answer.size, BodyFormat.NDJSON: _WHOLE, BodyFormat.CSV: 0}[self._options.format]
        if answer.file is None or answer.size > most:
            return answer
        body = answer.file.read_bytes()
        answer.file.unlink()  # durable: ok - the page is in memory now
        return replace(answer, file=None, body=body)

    def _check_status(self, answer: Answer) -> None:
        """Successes that do not bring what was asked for."""
        if answer.status == 206:
            raise PermanentError(
                f"{self._subject}: status 206: a part of the response came, and the whole was asked for",
                code=Code.PZ0765,
            )
        if answer.status == 202 and answer.size == 0:
            raise TransientError(
                f"{self._subject}: status 202: the answer is not ready yet",
                retry_after=retry_after(answer.headers),
                code=Code.PZ0762,
            )

    def _check_end(self, answer: Answer, document: Document) -> None:
        """No body is an empty page only where the status says so: elsewhere a page may have been lost."""
        import msgspec

        if document.empty and answer.framing is not Framing.CLOSE:
            if answer.status in _BODILESS or self._options.selector.may_be_missing:
                return
            raise PermanentError(
                f"{self._subject}: the response is empty, which is no json",
                code=Code.PZ0765,
                hint="items_missing: empty takes it for a page without records",
            )
        if answer.framing is not Framing.CLOSE:
            return
        try:
            with shallow(self._subject):
                document.check()
        except msgspec.DecodeError as error:
            raise TransientError(
                f"{self._subject}: the response was cut off, or is not json", code=Code.PZ0765
            ) from error

    def _check_type(self, answer: Answer) -> None:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not self._options.checks_type or answer.size == 0:
            return
        expects_json = self._options.format is not BodyFormat.CSV
        wrong = kind.startswith(_HTML) or (expects_json and kind in {"application/xml", "text/xml", "text/csv"})
        wrong = wrong or (not expects_json and (kind in _JSON or kind.endswith("+json")))
        if wrong:
            raise PermanentError(
                f"{self._subject}: the response is {kind}, not {self._options.format}",
                code=Code.PZ0765,
                hint="a login page? check auth and path; check_content_type: false takes it as it is",
            )

    # --- requests

    def _request(self, position: Position) -> Request:
        options = self._options
        headers = {"accept": _accept(options.format), **lowered(options.headers)}
        if position.url is not None:
            url = parse_url(position.url)
            assert url is not None
            return self._shaped(Request(url, self._subject, headers=headers))
        parameters = options.paging.parameters(position)
        query = self._bindings.query(options.query)
        if not options.paging.in_body:
            query = [(name, value) for name, value in query if name not in parameters]
            query += [(name, spelled(value)) for name, value in parameters.items()]
        query += self.token
        path = self._bindings.path(options.path, self._subject)
        url = below(self._client.settings.base, path, query)
        if options.body is None:
            return self._shaped(Request(url, self._subject, options.method, headers))
        body = self._bindings.fill(options.body)
        if options.paging.in_body and isinstance(body, dict):
            body = {**body, **parameters}
        content, kind = _encoded(body, form=options.form)
        return self._shaped(Request(url, self._subject, options.method, {"content-type": kind, **headers}, content))

    def _shaped(self, request: Request) -> Request:
        held = 0 if self._options.format is BodyFormat.CSV else _WHOLE
        return replace(request, layers=self._options.layers, whole=self._options.whole, held=held, label="fetch a page")

    def _absolute(self, position: Position, page: FetchedPage) -> Position:
        """A next URL made absolute against the page that named it, checked, and without the key."""
        if position.url is None:
            return position
        url = joined(page.answer.url, position.url)
        if url is None:
            raise PermanentError(f"{self._subject}: the next page is at no http URL", code=Code.PZ0764)
        self._client.settings.origins.require(url, f"{self._subject}: the next page")
        return replace(position, url=str(self._client.without_key(url)))

    def _not_advancing(self, what: str) -> PermanentError:
        return PermanentError(
            f"{self._subject}: the pagination does not advance: {what}",
            code=Code.PZ0764,
            hint="compare pagination with the API's documentation; a page past the last one may repeat it: "
            "stop_on_short_page ends before that",
        )

    def _expired(self) -> PermanentError:
        return PermanentError(
            f"{self._subject}: the stored token has expired (status 410)",
            code=Code.PZ0767,
            hint="run again with --full-refresh, which reads everything and stores a new token",
        )


def page_digest(text: Any) -> bytes:
    """What tells whether two pages hold the same records."""
    return _digest(text)


def file_digest(file: Path) -> bytes:
    """The same of a page on disk."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()[:16]


def _digest(*parts: Any) -> bytes:
    made = hashlib.sha256()  # the one that processors have instructions for
    for part in parts:
        made.update(part)
    return made.digest()[:16]


def _accept(format_: BodyFormat) -> str:
    wanted = {
        BodyFormat.JSON: "application/json",
        BodyFormat.NDJSON: "application/x-ndjson, application/jsonl;q=0.9, application/json;q=0.8",
        BodyFormat.CSV: "text/csv",
    }
    return f"{wanted[format_]}, */*;q=0.5"


def _encoded(body: object, *, form: bool) -> tuple[bytes, str]:
    if form:
        assert isinstance(body, dict)
        pairs = [
            (name, spelled(item))
            for name, value in body.items()
            for item in (value if isinstance(value, list) else [value])
        ]
        return urlencode(pairs).encode(), "application/x-www-form-urlencoded"
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(), "application/json"
