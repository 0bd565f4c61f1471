"""A chain whose pipeline only hands rows on, between two sides that know the same format: nothing is staged.

Reading and writing overlap: blocks of the source's format, or batches where a column's type differs, go through a bounded
queue into the output's session. Attempt, mark, commit and abort are those of any other delivery.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pz.connectors.contract import (
    BatchOptions,
    CancelToken,
    Column,
    CopyBlock,
    CopyingSession,
    CopyingSource,
    DatasetSpec,
    NotCopied,
    Source,
    WriteSession,
)
from pz.engine.nodes.batches import BatchStream, reader
from pz.engine.nodes.pipeline import bound_sql
from pz.engine.nodes.sink_write import Feed, deliver_feed
from pz.graph.model import Node, PipelineNode, SinkNode, SourceNode
from pz.plan.specs import dataset_spec, output_spec, read_hints
from pz.sqltext import literal, quote
from pz.staging.fingerprint import describe

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

__all__ = ["run_through"]

DEPTH = 8
POLL = 0.1
LET_GO = 30.0
"""Seconds for a source to let go of a stream that is over. One whose server is silent is left behind, in a daemon thread."""
SHAPE, BATCHES = "__pz_shape", "__pz_batches"


def run_through(context: NodeContext, nodes: Sequence[Node]) -> tuple[int, int, int]:
    """Run the chain; returns the rows of its source, its pipeline and its sink."""
    source_node, pipeline, sink_node = nodes
    if not (
        isinstance(source_node, SourceNode) and isinstance(pipeline, PipelineNode) and isinstance(sink_node, SinkNode)
    ):
        raise TypeError("a fused chain is a source, a pipeline and a sink")
    with context.source(source_node.connection) as source, context.cursor() as cursor:
        dataset = dataset_spec(source_node)
        columns = _shape(cursor, source.schema(dataset))
        origins = _origins(context, cursor, source_node, pipeline, columns)
        output = replace(
            output_spec(sink_node),
            columns=tuple(Column(name, _type_of(columns, origin)) for name, origin in origins.items()),
            origin=context.run.record.origin,
            node=sink_node.id,
        )
        passage = _Passage(context, cursor, source_node, source, dataset, columns, origins)
        outcome = deliver_feed(context, sink_node, output, passage)
    return (outcome.rows, outcome.rows, outcome.rows)


def _shape(cursor: DuckDBPyConnection, schema: pa.Schema) -> tuple[Column, ...]:
    """What DuckDB makes of the source's columns."""
    cursor.register(SHAPE, schema.empty_table())
    try:
        return describe(cursor, SHAPE)
    finally:
        cursor.unregister(SHAPE)


def _origins(
    context: NodeContext,
    cursor: DuckDBPyConnection,
    source: SourceNode,
    pipeline: PipelineNode,
    columns: Sequence[Column],
) -> Mapping[str, str]:
    """The source's column behind each column of the pipeline, in its order.

    The pipeline is run over one row that holds the names of its columns: it only selects, so it answers with them.
    """
    named = ", ".join(f"{literal(column.name)} AS {quote(column.name)}" for column in columns)
    relation = f"(\n{bound_sql(context, pipeline)}\n)"
    view = f"staging.{quote(source.relation)}"
    cursor.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT {named}")  # durable: ok - gone again below
    try:
        row = cursor.execute(f"SELECT * FROM {relation}").fetchall()[0]
        return dict(zip((column.name for column in describe(cursor, relation)), row, strict=True))
    finally:
        cursor.execute(f"DROP VIEW {view}")  # durable: ok - it only answered a question


def _type_of(columns: Sequence[Column], name: str) -> str:
    return next(column.type for column in columns if column.name == name)


@dataclass
class _Passage(Feed):
    """The rows of the source on their way into a session."""

    context: NodeContext
    cursor: DuckDBPyConnection
    node: SourceNode
    source: Source
    dataset: DatasetSpec
    columns: Sequence[Column]
    origins: Mapping[str, str]

    def schema(self) -> pa.Schema:
        """See `Feed`."""
        import pyarrow as pa

        fields = dict(zip((column.name for column in self.columns), self.source.schema(self.dataset), strict=True))
        return pa.schema([fields[origin].with_name(name) for name, origin in self.origins.items()])

    def send(self, session: WriteSession) -> Iterator[tuple[int, int]]:
        """See `Feed`."""
        if isinstance(session, CopyingSession) and isinstance(self.source, CopyingSource):
            wanted = session.copy_columns()
            if not wanted:
                return
            stop = CancelToken(self.context.cancel)
            origins = [self.origins[column.name] for column in wanted]
            try:
                blocks = self.source.copy_out(self.dataset, origins, [column.type for column in wanted], stop)
            except NotCopied as why:
                self.context.run.note(f"output '{self.context.node.name}': {why}; rows go as batches")
            else:
                yield from self._blocks(session, blocks, stop)
                return
        yield from self._batches(session)

    def _blocks(
        self, session: CopyingSession, blocks: Iterator[CopyBlock], stop: CancelToken
    ) -> Iterator[tuple[int, int]]:
        with closing(_Ahead(blocks, stop)) as ahead:
            for block in ahead:
                session.write_copied(block)
                yield block.rows, len(block.data)

    def _batches(self, session: WriteSession) -> Iterator[tuple[int, int]]:
        engine = self.context.run.project.engine
        parts = tuple(self.source.plan_read(self.dataset, read_hints(self.node)))
        options = BatchOptions(target_bytes=engine.batch_bytes)
        selected = ", ".join(f"{quote(origin)} AS {quote(name)}" for name, origin in self.origins.items())
        with BatchStream(parts, options, self.context.cancel, engine.threads) as stream:
            # Rows are counted where they are written: source and output share one node's progress.
            self.cursor.register(BATCHES, reader(None, stream, self.source.schema(self.dataset), self.node.key))
            try:
                for batch in self.cursor.sql(f"SELECT {selected} FROM {BATCHES}").to_arrow_reader():
                    session.write_batch(batch)
                    yield batch.num_rows, batch.nbytes
            finally:
                self.cursor.unregister(BATCHES)


class _Ahead:
    """Blocks read ahead in a thread of their own; `close` ends it."""

    def __init__(self, blocks: Iterator[CopyBlock], stop: CancelToken) -> None:
        self._blocks = blocks
        self._stop = stop
        self._queue: queue.Queue[CopyBlock | BaseException | None] = queue.Queue(DEPTH)
        self._thread = threading.Thread(target=self._read, name="pz-copy", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[CopyBlock]:
        while True:
            try:
                item = self._queue.get(timeout=POLL)
            except queue.Empty:
                self._stop.raise_if_set()
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Stop reading; returns when the source has let go, or has had the time for it."""
        self._stop.cancel()
        self._thread.join(LET_GO)

    def _read(self) -> None:
        try:
            for block in self._blocks:
                self._put(block)
                self._stop.raise_if_set()
            self._put(None)
        except BaseException as failure:  # noqa: BLE001 - raised again, as it is, in the consumer's thread
            self._put(failure)
        finally:
            close = getattr(self._blocks, "close", None)
            if close is not None:
                close()

    def _put(self, item: CopyBlock | BaseException | None) -> None:
        while not self._stop.cancelled:
            try:
                self._queue.put(item, timeout=POLL)
            except queue.Full:
                continue
            return
