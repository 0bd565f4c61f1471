"""The write side of a connection: what is sent is there, so every confirmed row is told at once.

A request that appends and gets no answer leaves the outcome unknown: nobody repeats it on his own, unless an idempotency key
makes that safe. All other requests can be repeated, because they say what shall be and not what shall be added.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import quote

from pz.connectors.contract import (
    AbortSemantics,
    CancelToken,
    NativeCopy,
    OperationGate,
    OutcomeUnknown,
    OutputSpec,
    PermanentError,
    WriteResult,
    WriteSession,
    WriteStrategy,
)
from pz.connectors.http.chunks import Chunk, Chunker, idempotency_key
from pz.connectors.http.client import Answer, Client, Request
from pz.connectors.http.encode import RowEncoder
from pz.connectors.http.fates import Refusal, Unclear, places, refusals, told
from pz.connectors.http.faults import NoAnswer, NothingSent, Refused, Unavailable
from pz.connectors.http.headers import lowered
from pz.connectors.http.paths import below
from pz.connectors.http.settings import Settings
from pz.connectors.http.writing_options import KEY, OUTPUT_SCHEMA, WriteOptions
from pz.durable import Step, step
from pz.errors import Code, ConnectorError, TransientError

if TYPE_CHECKING:
    import httpx
    import pyarrow as pa

__all__ = ["OUTPUT_SCHEMA", "HttpSink"]

Confirm = Callable[[int, Collection[int]], None]
_CONFIRM_SECONDS = 1.0
"""How long acknowledged chunks may wait to be told, where a repeated chunk does no harm: recording one costs an fsync."""

_MULTI_STATUS = 207
"""Several statuses in one answer (RFC 4918, 11.1): a success only of the request."""

_CONFIRM_EVERY = 100
"""Requests of one row after which their rows are told: a repeated one only writes what is there already."""


class HttpSink:
    """See `Sink`, `Gated`, `ChecksOutputs`, `Cancellable`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gate: OperationGate | None = None
        self._cancel = CancelToken()
        self._clients: list[Client] = []

    @property
    def abort_semantics(self) -> AbortSemantics:
        """What was sent stays."""
        return AbortSemantics.NONE

    def use_gate(self, gate: OperationGate) -> None:
        """See `Gated`."""
        self._gate = gate

    def use_cancel(self, cancel: CancelToken) -> None:
        """See `Cancellable`."""
        self._cancel = cancel

    def check_output(self, output: OutputSpec) -> None:
        """See `ChecksOutputs`: every fault of the options at once."""
        WriteOptions.of(output)

    def native_copy(self, output: OutputSpec) -> NativeCopy | None:
        """There is none."""
        return None

    def begin_write(self, output: OutputSpec, schema: pa.Schema) -> WriteSession:
        """See `Sink`. Nothing is asked before the first row."""
        options = WriteOptions.of(output)
        told_in = [output.options.get(name) for name in ("query", "headers")]
        client = Client(self._settings, self._settings.redactor(*told_in))
        if self._gate is not None:
            client.use_gate(self._gate)
        self._clients.append(client)
        kind = KeyedSession if options.keyed else ChunkedSession
        return kind(client, output, options, self._cancel)

    def close(self) -> None:
        """See `Sink`."""
        for client in self._clients:
            client.close()


class HttpSession(ABC):
    """What both kinds of session share. See `ConfirmingSession`, `DeleteApplyingSession`."""

    def __init__(self, client: Client, output: OutputSpec, options: WriteOptions, cancel: CancelToken) -> None:
        assert output.columns is not None
        self._client = client
        self._output = output
        self._options = options
        self._cancel = cancel
        self._safe = output.strategy is WriteStrategy.MERGE or options.idempotency_header is not None
        self._held = ExitStack()
        if self._safe:  # the answer to an append is waited for: without it nobody knows whether the rows are there
            self._held.enter_context(client.ended_by(cancel))
        self._encoder = RowEncoder(output.columns)
        self._held.callback(self._encoder.close)
        self._confirm: Confirm = lambda rows, accepted: None
        self._subject = f"{options.method} {output.connection}:{options.path.partition('?')[0]}"
        self._finished: str | None = None
        self._closed = False
        self._requests = 0
        self._start = 0
        self._confirmed = 0
        self._reported: int | None = None
        self._exposed = 0
        self._accepted: frozenset[int] = frozenset()

    # --- progress

    def use_confirm(self, confirm: Confirm) -> None:
        """See `ConfirmingSession`."""
        self._confirm = confirm

    def try_resume(self, acknowledged: int) -> bool:
        """See `CheckpointingSession`: always."""
        self._start = self._confirmed = self._exposed = acknowledged
        return True

    def skip(self, accepted: frozenset[int]) -> None:
        """See `ConfirmingSession`."""
        self._accepted = accepted

    def acknowledged_rows(self) -> int | None:
        """See `CheckpointingSession`."""
        if self._confirmed == self._reported:
            return None
        self._reported = self._confirmed
        return self._confirmed

    def exposed_rows(self) -> int:
        """See `ConfirmingSession`."""
        return self._exposed

    def _tell(self, rows: int, accepted: Collection[int] = ()) -> None:
        self._confirmed = rows
        self._confirm(rows, accepted)
        self._reported = rows

    # --- the order of calls

    def _enter(self, verb: str) -> None:
        if self._closed or self._finished is not None:
            raise RuntimeError(f"{verb} after {self._finished or 'close'}: a defect of the caller")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """See `WriteSession`."""
        self._enter("write_batch")
        with step(Step.SINK_WRITE):
            self._write(batch)

    def apply_deletes(self, keys: pa.RecordBatch) -> None:
        """See `DeleteApplyingSession`: one request per key; what is gone already counts as deleted."""
        self._enter("apply_deletes")
        with step(Step.SINK_WRITE):
            self._flush()
            assert self._options.delete_path is not None
            subject = f"{self._options.delete_method} {self._output.connection}:{self._options.delete_path}"
            for key in _texts(keys, self._output):
                url = self._url(self._options.delete_path, _checked_key(key, subject))
                self._send_one(
                    Request(
                        url,
                        subject,
                        self._options.delete_method,
                        self._options.headers,
                        needs_body=False,
                        absent_is_done=True,
                        label="delete a row",
                    ),
                    self._exposed,
                )

    def commit(self) -> WriteResult:
        """Send the last chunk; everything before it is there already."""
        self._enter("commit")
        self._finished = "commit"
        with step(Step.SINK_COMMIT):
            self._flush()
        return WriteResult(self._confirmed, self._requests)

    def abort(self) -> None:
        """What was sent stays."""
        self._enter("abort")
        self._finished = "abort"

    def close(self) -> None:
        """See `WriteSession`."""
        if self._closed:
            raise RuntimeError("close twice: a defect of the caller")
        self._closed = True
        self._held.close()

    @abstractmethod
    def _write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch; what is due is sent."""

    @abstractmethod
    def _flush(self) -> None:
        """Send what is left."""

    # --- requests

    def _send(self, request: Request, end: int, *, idempotent: bool) -> Answer:
        """Send rows up to the place ``end``: they may be visible from now on, unless every attempt left nothing there."""
        self._requests += 1
        before, self._exposed = self._exposed, max(self._exposed, end)
        traces: list[bool] = []

        def attempt() -> Answer:
            try:
                return self._client.once(request, repeated=idempotent)
            except BaseException as failure:  # a cancellation, too, comes while rows are under way
                traces.append(self._may_leave_rows(failure))
                raise

        try:
            return self._client.gated(request.label, idempotent, attempt)
        except ConnectorError as failure:
            if not any(traces):
                self._exposed = before
            if self._safe and isinstance(failure, TransientError):
                self._cancel.raise_if_set()  # it was the cancellation that broke the connection
            raise

    def _may_leave_rows(self, failure: BaseException) -> bool:
        """Whether rows of a request may be there after this failure: not where it never left, nor where it was refused."""
        if isinstance(failure, Refused | Unavailable):
            return failure.status >= 500 or self._options.partial is not None
        return not isinstance(failure, NothingSent)

    def _send_one(self, request: Request, end: int) -> None:
        """Send or delete one row; the status must tell that this is done."""
        if self._send(request, end, idempotent=True).status == _MULTI_STATUS:
            raise PermanentError(
                f"{request.subject}: status 207 does not tell whether the row was accepted",
                code=Code.PZ0768,
                hint="use an endpoint that takes or refuses the row by its status alone, or one for lists (`batch`) with "
                "`partial`",
            )

    def _url(self, path: str, key: str | None = None) -> httpx.URL:
        filled = path if key is None else path.replace(KEY, quote(key, safe=""))
        return below(self._client.settings.base, filled, self._options.query)


class ChunkedSession(HttpSession):
    """Appends, and merges to an endpoint that upserts lists: rows in chunks."""

    def __init__(self, client: Client, output: OutputSpec, options: WriteOptions, cancel: CancelToken) -> None:
        super().__init__(client, output, options, cancel)
        self._chunker: Chunker | None = None
        self._told_at = time.monotonic()
        self._target = self._url(options.path)

    def _write(self, batch: pa.RecordBatch) -> None:
        with closing(self._encoder.lines(batch)) as pieces:
            for lines in pieces:
                for chunk in self._chunks().add(lines):
                    self._deliver(chunk)

    def _flush(self) -> None:
        chunks = self._chunks()
        for chunk in chunks.rest():
            self._deliver(chunk)
        if chunks.reached > self._confirmed or self._confirmed != self._reported:
            self._tell(chunks.reached)  # beyond the last chunk where an earlier attempt's rows were left out

    def _chunks(self) -> Chunker:
        if self._chunker is None:
            options = self._options
            around = len(Chunk((), 0, b"\n").body(ndjson=options.ndjson, envelope=options.envelope)) - 1
            self._chunker = Chunker(options.rows, options.bytes - around, self._start, self._accepted)
        return self._chunker

    def _deliver(self, chunk: Chunk) -> None:
        try:
            self._send_chunk(chunk)
        except BaseException:  # whatever ends the delivery, a cancellation too: the accepted prefix is told first
            if self._confirmed != self._reported:
                self._tell(self._confirmed)
            raise

    def _send_chunk(self, chunk: Chunk) -> None:
        options = self._options
        body = chunk.body(ndjson=options.ndjson, envelope=options.envelope)
        kind = "application/x-ndjson" if options.ndjson else "application/json"
        headers = {"content-type": kind, **lowered(options.headers)}
        if options.idempotency_header is not None:
            headers[options.idempotency_header] = idempotency_key(self._output, chunk, body)
        request = Request(
            self._target,
            self._subject,
            options.method,
            headers,
            body,
            needs_body=options.partial is not None,
            positions=chunk.end,
            label="send rows",
        )
        try:
            answer = self._send(request, chunk.end, idempotent=self._safe)
        except NoAnswer as lost:
            if self._safe:
                raise
            raise self._unknown(f"{lost.message}; {len(chunk)} row(s) may be there or not") from lost
        except Unavailable as failure:
            if not self._safe and failure.may_have_taken:
                failure.message += (
                    f"; {len(chunk)} row(s) may be there all the same, and another attempt sends them again"
                )
            raise
        refused = self._refused(chunk, answer)
        if refused:
            self._stop(chunk, refused)
        if self._safe and time.monotonic() - self._told_at < _CONFIRM_SECONDS:
            self._confirmed = chunk.end
            return
        self._tell(chunk.end)
        self._told_at = time.monotonic()

    def _refused(self, chunk: Chunk, answer: Answer) -> list[Refusal]:
        if self._options.partial is None:
            if answer.status == _MULTI_STATUS:
                raise self._unclear("its status 207 says that each row has one of its own, and partial is not declared")
            return []
        try:
            return refusals(answer.body, self._options.partial, chunk.lines, self._client.redactor)
        except Unclear as unclear:
            raise self._unclear(str(unclear)) from None

    def _unclear(self, why: str) -> ConnectorError:
        message = f"{self._subject}: the answer does not tell which rows were accepted: {why}"
        hint = (
            "declare partial: where an answer tells the fate of each row"
            if self._options.partial is None
            else "compare partial with the API's answers"
        )
        return PermanentError(message, code=Code.PZ0768, hint=hint) if self._safe else self._unknown(message, hint)

    def _stop(self, chunk: Chunk, refused: list[Refusal]) -> None:
        """Tell what was accepted, before and behind the first refused row, and end the delivery."""
        numbers = {refusal.number for refusal in refused}
        first = chunk.offsets[min(numbers)]
        behind = [offset for number, offset in enumerate(chunk.offsets) if offset > first and number not in numbers]
        self._tell(first, behind)
        raise PermanentError(
            f"{self._subject}: the API refused {len(refused)} of {len(chunk)} row(s) of a request, "
            f"{places(chunk.offsets[number] for number in sorted(numbers))}{told(refused)}",
            code=Code.PZ0768,
        )

    def _unknown(self, message: str, first: str | None = None) -> OutcomeUnknown:
        again = (
            "`pz retry` sends these rows again, as duplicates: accept allows; idempotency_header makes it safe where "
            "the API honours it"
        )
        return OutcomeUnknown(message, code=Code.PZ0769, hint=again if first is None else f"{first}; {again}")


class KeyedSession(HttpSession):
    """Merges with a request per row: the row's key in the path, the whole row in the body."""

    def _write(self, batch: pa.RecordBatch) -> None:
        (key,) = self._output.keys
        keys = self._encoder.keys(batch, key)
        with closing(self._encoder.lines(batch)) as pieces:
            lines = chain.from_iterable(pieces)
            for place, (text, line) in enumerate(zip(keys, lines, strict=True), self._exposed):
                self._put(_checked_key(text, self._subject), line.rstrip(b"\n"), place)

    def _put(self, key: str, body: bytes, place: int) -> None:
        options = self._options
        request = Request(
            self._url(options.path, key),
            self._subject,
            options.method,
            {"content-type": "application/json", **lowered(options.headers)},
            body,
            needs_body=False,
            positions=1,
            label="send a row",
        )
        try:
            self._send_one(request, place + 1)
        except PermanentError as refused:
            refused.message += f" ({places([place])})"
            raise
        self._confirmed = place + 1
        if self._confirmed % _CONFIRM_EVERY == 0:
            self._tell(self._confirmed)

    def _flush(self) -> None:
        if self._confirmed != self._reported:
            self._tell(self._confirmed)


def _checked_key(key: str | None, subject: str) -> str:
    """A key that names one resource. Raises PermanentError for NULL, empty, and what a path would swallow."""
    if key is None or key.strip() in {"", ".", ".."}:
        raise PermanentError(
            f"{subject}: a merge key is NULL, empty or a dot, and cannot stand in a path",
            code=Code.PZ0760,
            hint="leave such rows out in the pipeline",
        )
    return key


def _texts(keys: pa.RecordBatch, output: OutputSpec) -> list[str | None]:
    from pz.connectors.files.scratch import scratch
    from pz.sqltext import quote as identifier

    (key,) = output.keys
    import pyarrow as pa

    with scratch() as connection:
        connection.register("__pz_keys", pa.Table.from_batches([keys]))
        sql = f"SELECT CAST({identifier(key)} AS VARCHAR) FROM __pz_keys"
        found: list[str | None] = connection.sql(sql).to_arrow_table().column(0).to_pylist()
    return found
