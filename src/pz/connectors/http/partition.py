"""The one partition of a dataset: pages in, batches out, with a token behind each page."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pz.connectors.contract import BatchOptions, CancelToken, DatasetSpec
from pz.connectors.http.bindings import Bindings
from pz.connectors.http.client import Client
from pz.connectors.http.crawl import Crawl, FetchedPage, page_digest
from pz.connectors.http.origins import parse_url
from pz.connectors.http.pagination import MISSING, Position, Strategy
from pz.connectors.http.reading_options import BodyFormat, ReadOptions
from pz.connectors.http.records import Columns, ContractRecords, RawRecords, Rows, conforming, file_partition
from pz.connectors.http.selection import array_of, parts_of, value_texts
from pz.connectors.http.spool import Spool
from pz.errors import Code, ConnectorError, PermanentError

if TYPE_CHECKING:
    import pyarrow as pa

    _Landed = tuple[pa.RecordBatch, Position | None]

__all__ = ["FeedPartition", "HttpPartition", "Shape", "shape_of"]

_BLOCK = 4 * 1024 * 1024
_TOKEN_SHARE = 4
"""A token is offered when this many times what the last one cost has passed."""

_GROUP_ROWS, _GROUP_SECONDS = 50_000, 0.25
"""What ends a group of pages that are landed together: a kill loses no more than that, a failure nothing."""

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
    """Pages that are landed together."""

    rows: list[Any] = field(default_factory=list)
    pages: list[tuple[int, int, datetime]] = field(default_factory=list)
    following: Position | None = None
    begun: float = field(default_factory=time.monotonic)

    def add(self, rows: Rows, page: FetchedPage, following: Position | None) -> None:
        self.rows += rows
        self.pages.append((len(rows), page.position.index, page.fetched_at))
        self.following = following

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
        self._latest: str | None = None
        self._priced: str | None = None
        self._taken_at = 0.0
        self._cost = 0.0

    @property
    def partition_id(self) -> str:
        """The same as long as connection and entity are."""
        return f"{self._dataset.connection}.{self._dataset.entity}"

    def try_get_checkpoint(self) -> str | None:
        """The position behind the last page, once, when all rows of that page were given."""
        token, self._token = self._token, None
        if token is None or token == self._offered:
            return None
        self._offered, self._taken_at = token, time.monotonic()
        return token

    def try_resume(self, token: str) -> bool:
        """Continue at a position; one that leads elsewhere than the connection is declined."""
        position = Position.from_token(token)
        if position is None or (position.url is not None and not self._may_ask(position.url)):
            return False
        if position.url is None and not self._fits(position):
            return False
        self._start, self._resumed = position, True
        return True

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        proof = None
        if self._dataset.cursor is not None and self._options.max_pages is not None:
            proof = _Proof(self._dataset.cursor)
        with self._spool.folder() as folder, self._client.ended_by(cancel):
            crawl = Crawl(self._client, self._options, Bindings.of(self._dataset), self._subject, folder)
            if self._options.delta_param is not None and self._dataset.prior_sync_state is not None:
                crawl.token = [(self._options.delta_param, self._dataset.prior_sync_state)]
            with closing(self._batches(crawl, folder, options, cancel)) as landed:
                batch: pa.RecordBatch | None = None
                try:
                    for batch, following in landed:
                        cancel.raise_if_set()
                        if proof is not None:
                            proof.see(batch)
                        yield self._with_token(batch, following)
                        self._price()
                except ConnectorError:
                    if batch is not None and self._latest is not None and self._latest != self._offered:
                        self._token = self._latest
                        yield batch.slice(0, 0)  # only to have the token asked for
                    raise
            self._finished(crawl, proof)

    @property
    def _replayed(self) -> bool:
        return False

    # --- tokens

    def _with_token(self, batch: pa.RecordBatch, following: Position | None) -> pa.RecordBatch:
        """Have the token ready before the batch is handed out: code behind a yield runs only at the next pull.

        Storing a token costs the engine a transaction over all rows since the last one. Where that takes longer than
        reading, it is offered less often; a failure offers it in any case.
        """
        # None inside a page: a token must cover exactly the rows that were given.
        self._latest = None if following is None else following.to_token()
        due = time.monotonic() - self._taken_at >= _TOKEN_SHARE * self._cost
        self._token = self._latest if due else None
        return batch

    def _price(self) -> None:
        """How long the engine took to store the token, if it took one."""
        if self._offered == self._latest and self._priced != self._offered:
            self._cost, self._priced = time.monotonic() - self._taken_at, self._offered

    # --- pages

    def _batches(
        self, crawl: Crawl, folder: Path, options: BatchOptions, cancel: CancelToken
    ) -> Generator[_Landed, None, None]:
        """The batches, each that ends a page with the position behind it."""
        with closing(crawl.pages(self._start, cancel, self._replayed)) as pages:
            if self._options.format is BodyFormat.JSON:
                yield from self._grouped(crawl, pages, folder, options.max_rows)
                return
            for done, page in enumerate(pages, 1):
                end = functools.partial(self._streamed_end, crawl, page, done)
                yield from _ending(self._streamed(page, folder, options, cancel), end)

    def _grouped(self, crawl: Crawl, pages: Iterator[FetchedPage], folder: Path, size: int) -> Iterator[_Landed]:
        """Pages that come faster than a transaction costs are landed together; a slow page is landed by itself."""
        group = _Group()
        for done in itertools.count(1):
            try:
                page = next(pages, None)
                if page is None:
                    break
                rows = self._parsed(crawl, page)
                following = crawl.advance(page, done)
            except ConnectorError:
                yield from self._land(group, folder, size)  # what came before stays, and its token with it
                raise
            group.add(rows, page, following)
            if len(group.rows) >= min(size, _GROUP_ROWS) or time.monotonic() - group.begun >= _GROUP_SECONDS:
                yield from self._land(group, folder, size)
                group = _Group()
        yield from self._land(group, folder, size)

    def _land(self, group: _Group, folder: Path, size: int) -> Iterator[_Landed]:
        batches = (
            self._batch(group.rows[start : start + size], group.places(start, size), folder)
            for start in range(0, len(group.rows), size)
        )
        yield from _ending(batches, lambda: group.following)

    def _batch(self, rows: Rows, places: list[tuple[int, int, datetime]], folder: Path) -> pa.RecordBatch:
        if isinstance(self._shape, RawRecords):
            return self._shape.batch(rows, places)
        return self._shape.batch(rows, folder)

    def _parsed(self, crawl: Crawl, page: FetchedPage) -> Rows:
        """The records of a page, after a look at what would show that the pages are not what they should be."""
        assert page.document is not None
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
        crawl.require_new(page_digest(text), page)
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

    # --- pages of lines, which are never in memory as a whole

    def _streamed(
        self, page: FetchedPage, folder: Path, options: BatchOptions, cancel: CancelToken
    ) -> Iterator[pa.RecordBatch]:
        assert page.answer.file is not None
        if page.answer.size == 0:
            return
        if self._options.format is BodyFormat.CSV:
            columns = dict(self._dataset.columns or {})
            given = {"delimiter": self._options.delimiter}
            partition = file_partition(page.answer.file, "csv", columns, self._subject, given)
            for batch in partition.read(options, cancel):
                page.counted += batch.num_rows
                yield conforming(batch, self._shape.schema)
            return
        for block in _blocks(page.answer.file):
            rows = self._shape.of_lines(block)
            page.counted += len(rows)
            for start in range(0, len(rows), options.max_rows):
                part = rows[start : start + options.max_rows]
                yield self._batch(part, [(len(part), page.position.index, page.fetched_at)], folder)

    def _streamed_end(self, crawl: Crawl, page: FetchedPage, done: int) -> Position | None:
        assert page.answer.file is not None
        page.answer.file.unlink()  # durable: ok - the page was read
        return crawl.advance(page, done)

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

    def _fits(self, position: Position) -> bool:
        """Whether a position without a URL is one of this strategy."""
        kind = self._options.paging.strategy
        if kind in {Strategy.PAGE, Strategy.OFFSET}:
            return position.value is not None and position.value.isascii() and position.value.isdigit()
        return kind is Strategy.CURSOR and position.value is not None


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


def _ending(batches: Iterator[pa.RecordBatch], end: Callable[[], Position | None]) -> Iterator[_Landed]:
    """All batches, the last one together with what ``end`` gives; ``end`` is called also when there is no batch."""
    previous: pa.RecordBatch | None = None
    for batch in batches:
        if previous is not None:
            yield previous, None
        previous = batch
    following = end()
    if previous is not None:
        yield previous, following


def _blocks(file: Path) -> Iterator[bytes]:
    """The file in pieces of whole lines, of a few MiB each (longer where a line is)."""
    rest = b""
    with file.open("rb") as content:
        first = True
        while chunk := content.read(_BLOCK):
            if first:
                chunk, first = chunk.removeprefix(b"\xef\xbb\xbf"), False
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                yield rest + head + newline
                rest = tail
            else:
                rest += chunk
    if rest:
        yield rest
