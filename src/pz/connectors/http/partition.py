"""The one partition of a dataset: pages in, batches out, with a token behind each page."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pz.connectors.contract import BatchOptions, CancelToken, DatasetSpec
from pz.connectors.http.bindings import Bindings
from pz.connectors.http.client import Client
from pz.connectors.http.crawl import Crawl, FetchedPage, file_digest, page_digest
from pz.connectors.http.origins import parse_url
from pz.connectors.http.pagination import MISSING, Position
from pz.connectors.http.reading_options import BodyFormat, ReadOptions
from pz.connectors.http.records import Columns, ContractRecords, RawRecords, Rows, conforming, file_partition
from pz.connectors.http.selection import array_of, parts_of, shallow, value_texts
from pz.connectors.http.spool import Spool
from pz.errors import Code, ConnectorError, PermanentError

if TYPE_CHECKING:
    import pyarrow as pa

    _Landed = tuple[pa.RecordBatch, Position | None]

__all__ = ["FeedPartition", "HttpPartition", "Shape", "shape_of"]

_BLOCK = 4 * 1024 * 1024
"""Bytes of a page of lines that are landed at once. Smaller pieces cost DuckDB more memory, not less."""
_MARK = b"\xef\xbb\xbf"
"""The byte order mark that some servers put in front of UTF-8."""

_GROUP_SECONDS = 0.5
"""What ends a group of pages that are landed together, if not its size: a kill loses no more than that, a failure nothing."""

_TYPES = {"decimal": "DECIMAL(38,9)"}


class Shape(Protocol):
    """How a dataset's records become batches."""

    schema: pa.Schema

    def of_array(self, text: Any) -> Rows:
        """The records of a json array."""

    def of_lines(self, text: bytes) -> Rows:
        """The records of whole lines."""


def shape_of(dataset: DatasetSpec, options: ReadOptions, subject: str) -> ContractRecords | RawRecords:
    """The contract's shape where ``columns`` are declared, else the raw one."""
    if dataset.columns:
        return ContractRecords(Columns.of(dataset.columns), subject)
    if options.cursor is None:
        return RawRecords(None, subject)
    declared = str(options.cursor_type)
    return RawRecords((options.cursor, _TYPES.get(declared, declared), options.cursor_pointer), subject)


@dataclass
class _Proof:
    """Whether the landed cursor values never fell and rose at least once: then a cut crawl has lost nothing below."""

    column: str
    ascending: bool = True
    rose: bool = False
    last: Any = None

    def see(self, batch: pa.RecordBatch) -> None:
        for value in batch.column(self.column).to_pylist():
            if value is None:
                continue
            if self.last is not None:
                self.ascending = self.ascending and value >= self.last
                self.rose = self.rose or value > self.last
            self.last = value


@dataclass
class _Group:
    """Records that are landed together: of several pages, or of a part of one. ``batch`` is set where they came as one."""

    rows: list[Any] = field(default_factory=list)
    pages: list[tuple[int, int, datetime]] = field(default_factory=list)
    batch: pa.RecordBatch | None = None
    following: Position | None = None
    size: int = 0
    begun: float = 0.0

    def add(self, rows: Rows, page: FetchedPage, size: int, following: Position | None = None) -> None:
        if not self.pages:
            self.begun = time.monotonic()
        self.rows += rows
        self.pages.append((len(rows), page.position.index, page.fetched_at))
        self.size += size
        self.following = following

    def full(self, options: BatchOptions) -> bool:
        return len(self.rows) >= options.max_rows or self.size >= options.target_bytes or self.patience <= 0

    @property
    def patience(self) -> float:
        """Seconds that what is here may still wait for more."""
        return self.begun + _GROUP_SECONDS - time.monotonic()

    def places(self, start: int, size: int) -> list[tuple[int, int, datetime]]:
        """The pages that rows from ``start`` on come from: how many of each, its number, its moment."""
        found, at, end = [], 0, start + size
        for count, number, moment in self.pages:
            here = min(at + count, end) - max(at, start)
            if here > 0:
                found.append((here, number, moment))
            at += count
        return found


class HttpPartition:
    """The partition of a full or incremental read. See `CheckpointingPartition`."""

    def __init__(self, client: Client, spool: Spool, dataset: DatasetSpec, options: ReadOptions) -> None:
        self._client = client
        self._spool = spool
        self._dataset = dataset
        self._options = options
        self._subject = f"{options.method} {dataset.connection}:{options.path.partition('?')[0]}"
        self._shape = shape_of(dataset, options, self._subject)
        self._start = options.paging.first()
        self._resumed = False
        self._token: str | None = None
        self._offered: str | None = None

    @property
    def partition_id(self) -> str:
        """The same as long as connection and entity are."""
        return f"{self._dataset.connection}.{self._dataset.entity}"

    def try_get_checkpoint(self) -> str | None:
        """The position behind the last page, once, when all rows of that page were given."""
        token, self._token = self._token, None
        if token is None or token == self._offered:
            return None
        self._offered = token
        return token

    def try_resume(self, token: str) -> bool:
        """Continue at a position; one that leads elsewhere than the connection is declined."""
        position = Position.from_token(token)
        if position is None or (position.url is not None and not self._may_ask(position.url)):
            return False
        if position.url is None and not self._options.paging.may_begin(position):
            return False
        self._start, self._resumed = position, True
        return True

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        proof = None
        if self._dataset.cursor is not None and self._options.max_pages is not None:
            proof = _Proof(self._dataset.cursor)
        with self._spool.folder() as folder, self._client.ended_by(cancel):
            crawl = Crawl(self._client, self._options, Bindings.of(self._dataset), self._subject, folder, cancel)
            if self._options.delta_param is not None and self._dataset.prior_sync_state is not None:
                crawl.token = [(self._options.delta_param, self._dataset.prior_sync_state)]
            with closing(self._batches(crawl, folder, options, cancel)) as landed:
                for batch, following in landed:
                    cancel.raise_if_set()
                    if proof is not None:
                        proof.see(batch)
                    # Ready before the batch is handed out: code behind a yield runs only at the next pull. None inside a
                    # page: a token must cover exactly the rows that were given.
                    self._token = None if following is None else following.to_token()
                    yield batch
            self._finished(crawl, proof)

    @property
    def _replayed(self) -> bool:
        return False

    # --- pages

    def _batches(
        self, crawl: Crawl, folder: Path, options: BatchOptions, cancel: CancelToken
    ) -> Generator[_Landed, None, None]:
        """The batches, each that ends a page with the position behind it."""
        with (
            closing(crawl.pages(self._start, self._replayed)) as pages,
            closing(self._groups(crawl, pages, options, cancel)) as groups,
            closing(_ahead(groups, crawl.stop)) as ready,
        ):
            for group in ready:
                yield from self._land(group, folder, options.max_rows)

    def _groups(
        self, crawl: Crawl, pages: Iterator[FetchedPage], options: BatchOptions, cancel: CancelToken
    ) -> Generator[_Group, None, None]:
        """Pages that come faster than a transaction costs are landed together; nothing waits for a slow one."""
        group = _Group()
        for done in itertools.count(1):
            if group.rows and not crawl.arrives_within(group.patience):
                yield group
                group = _Group()
            try:
                page = next(pages, None)
                if page is None:
                    break
                if page.answer.file is not None and page.document is None:
                    yield group
                    group = _Group()
                    yield from self._streamed(crawl, page, done, options, cancel)
                    continue
                with shallow(self._subject):
                    rows = self._parsed(crawl, page)
                    following = crawl.advance(page, done)
            except ConnectorError:
                yield group  # what came before stays, and its token with it
                raise
            group.add(rows, page, page.answer.size, following)
            if group.full(options):
                yield group
                group = _Group()
        yield group

    def _land(self, group: _Group, folder: Path, size: int) -> Iterator[_Landed]:
        if group.batch is not None:
            yield group.batch, group.following
            return
        batches = (
            self._batch(group.rows[start : start + size], group.places(start, size), folder)
            for start in range(0, len(group.rows), size)
        )
        yield from _ending(batches, group.following)

    def _batch(self, rows: Rows, places: list[tuple[int, int, datetime]], folder: Path) -> pa.RecordBatch:
        with shallow(self._subject):
            if isinstance(self._shape, RawRecords):
                return self._shape.batch(rows, places)
            return self._shape.batch(rows, folder)

    def _parsed(self, crawl: Crawl, page: FetchedPage) -> Rows:
        """The records of a page, after a look at what would show that the pages are not what they should be."""
        if page.document is None:
            rows = self._shape.of_lines(page.answer.body.removeprefix(_MARK))
            page.counted = len(rows)
            digest = page_digest(page.answer.body)
            if crawl.repeats(digest, page):
                page.counted = 0
                return []
            crawl.require_new(digest, page)
            return rows
        self._look(page)
        if page.document.empty:
            return []
        text = page.document.array(self._options.selector)
        rows = self._shape.of_array(text)
        page.counted = len(rows)
        paging = self._options.paging.options
        if "last_record_pointer" in paging and rows:
            page.last = array_of(text)[-1]
        if "count_pointer" in paging:
            page.counted = self._count_at(page, str(paging["count_pointer"]))
        digest = page_digest(text)
        if crawl.repeats(digest, page):
            page.counted = 0
            return []
        crawl.require_new(digest, page)
        if self._options.unique is not None:
            crawl.require_unique(value_texts(text, parts_of(self._options.unique)))
        return rows

    def _count_at(self, page: FetchedPage, pointer: str) -> int:
        found = page.at(pointer)
        if not isinstance(found, list):
            raise PermanentError(f"{self._subject}: there is no list at count_pointer", code=Code.PZ0764)
        return len(found)

    def _look(self, page: FetchedPage) -> None:
        """A place for a feed to look for its token."""

    # --- pages of lines, which need not fit in memory

    def _streamed(
        self, crawl: Crawl, page: FetchedPage, done: int, options: BatchOptions, cancel: CancelToken
    ) -> Generator[_Group, None, None]:
        """A page in pieces; only the last one carries the position behind the page, once all of it was looked at."""
        file = page.answer.file
        assert file is not None
        csv = self._options.format is BodyFormat.CSV
        last, digest = _Group(), file_digest(file)
        if not crawl.repeats(digest, page):
            for group in self._csv(page, file, options, cancel) if csv else self._lines(page, file, options):
                yield last
                last = group
        crawl.require_new(digest, page)
        file.unlink()  # durable: ok - the page was read
        last.following = crawl.advance(page, done)
        yield last

    def _csv(self, page: FetchedPage, file: Path, options: BatchOptions, cancel: CancelToken) -> Iterator[_Group]:
        columns = dict(self._dataset.columns or {})
        partition = file_partition(file, "csv", columns, self._subject, {"delimiter": self._options.delimiter})
        for batch in partition.read(replace(options, target_bytes=_BLOCK), cancel):
            page.counted += batch.num_rows
            yield _Group(batch=conforming(batch, self._shape.schema))

    def _lines(self, page: FetchedPage, file: Path, options: BatchOptions) -> Iterator[_Group]:
        for block in _blocks(file, _BLOCK):
            with shallow(self._subject):
                rows = self._shape.of_lines(block)
            page.counted += len(rows)
            group = _Group()
            group.add(rows, page, len(block))
            yield group

    # --- the end, and resuming

    def _finished(self, crawl: Crawl, proof: _Proof | None) -> None:
        if not crawl.truncated or proof is None:
            return
        if self._resumed or not (proof.ascending and proof.rose):
            raise PermanentError(
                f"{self._subject}: max_pages ended the read, and nothing proves that the rows left out are newer",
                code=Code.PZ0770,
                hint="raise max_pages, or ask the API for ascending cursor order",
            )

    def _may_ask(self, text: str) -> bool:
        url = parse_url(text)
        return url is not None and self._client.settings.origins.allows(url)


class FeedPartition(HttpPartition):
    """The single partition of a feed. See `SyncStatePartition`."""

    def __init__(self, client: Client, spool: Spool, dataset: DatasetSpec, options: ReadOptions) -> None:
        super().__init__(client, spool, dataset, options)
        self._candidate: str | None = None
        prior = dataset.prior_sync_state
        if prior is not None and options.delta_param is None:
            if parse_url(prior) is None:
                raise PermanentError(
                    f"{self._subject}: the stored token is no URL",
                    code=Code.PZ0767,
                    hint="run again with --full-refresh, which reads everything and stores a new token",
                )
            self._start = Position(url=prior)

    def try_get_sync_state(self) -> str | None:
        """The last token that a page told; None when none did, or when the crawl was cut by ``max_pages``."""
        return self._candidate

    def try_resume(self, token: str) -> bool:
        """A feed is read from its token, always as a whole."""
        return False

    @property
    def _replayed(self) -> bool:
        return self._dataset.prior_sync_state is not None

    def _look(self, page: FetchedPage) -> None:
        assert self._options.delta_pointer is not None
        found = page.at(self._options.delta_pointer)
        if found is MISSING or found is None or found == "":
            return
        if self._options.delta_param is not None:
            if isinstance(found, bool) or not isinstance(found, str | int):
                raise PermanentError(f"{self._subject}: what delta_pointer leads to is no token", code=Code.PZ0765)
            self._candidate = str(found)
            return
        url = parse_url(found) if isinstance(found, str) else None
        if url is None:
            raise PermanentError(f"{self._subject}: what delta_pointer leads to is no absolute URL", code=Code.PZ0765)
        self._client.settings.origins.require(url, f"{self._subject}: the token")
        self._candidate = str(self._client.without_key(url))

    def _finished(self, crawl: Crawl, proof: _Proof | None) -> None:
        if crawl.truncated:
            self._candidate = None


def _ahead(groups: Iterator[_Group], stop: Callable[[], None]) -> Generator[_Group, None, None]:
    """The same groups, the next one fetched and parsed in a thread while the present one is landed."""
    with ThreadPoolExecutor(1, thread_name_prefix="pz-http-pages") as pool:
        pending = pool.submit(next, groups, None)
        try:
            while (group := pending.result()) is not None:
                pending = pool.submit(next, groups, None)
                yield group
        finally:
            if not pending.done():  # nobody wants it any more
                stop()


def _ending(batches: Iterator[pa.RecordBatch], following: Position | None) -> Iterator[_Landed]:
    """All batches, the last one together with the position behind it."""
    previous: pa.RecordBatch | None = None
    for batch in batches:
        if previous is not None:
            yield previous, None
        previous = batch
    if previous is not None:
        yield previous, following


def _blocks(file: Path, size: int) -> Iterator[bytes]:
    """The file in pieces of whole lines, of about this size each (longer where a line is)."""
    rest = b""
    with file.open("rb") as content:
        first = True
        while chunk := content.read(size):
            if first:
                chunk, first = chunk.removeprefix(_MARK), False
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                yield rest + head + newline
                rest = tail
            else:
                rest += chunk
    if rest:
        yield rest
