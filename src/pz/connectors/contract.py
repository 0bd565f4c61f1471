"""The connector contract: what a source or a sink promises, and what the engine may therefore do.

A connector is found through the entry-point group ``pz.connectors``, opened once per node and closed exactly once. It
gets explicit specs, never the project. What every connector must have is small (`Connector`, `Source`, `Partition`,
`Sink`, `WriteSession`); every further ability is a protocol of its own, announced by a `Capability` flag:

    capability              protocol
    StablePartitionIds      IdentifiedPartition      a stable id per partition: finished ones are never read again
    (partition fragment)    NativePartition          one partition as a DuckDB fragment
    (live fragment)         LiveScanningSource       a DuckDB fragment for which the live system must be asked
    (pinned plans)          RestoringSource          rebuild the partitions of an earlier plan from their specs
    CheckpointableReads     CheckpointingPartition   resume inside a partition
    SyncState               SyncStatePartition       an opaque token that the next run replays
    ChangeCapture           ChangeCapturePartition   change rows with operation, position and time
    (with a log position)   CapturingSource, SnapshotPartition   told what is durable; says how it stands, lets go
    (in pieces)             PiecewiseSnapshot        a snapshot that goes on where an attempt broke off
    (plan)                  NamesCaptures            by what name, so that two datasets share it only if they say so
    CheckpointableWrites    CheckpointingSession     acknowledged row counts, resume behind them
    (in pieces)             ConfirmingSession        the same, told piece by piece, single rows behind a refused one too
    ApplyDeletes            DeleteApplyingSession    deletes of a cdc-fed merge
    SnapshotDeletes         RetainingSession         a merge that also removes what the snapshot does not hold
    PartialUpdates          PartialUpdateSession     updates that leave some columns alone
    (probe)                 ProbingSource, ProbingSink   what only the live system knows
    (read shape)            NaturalReadShape         full or feed
    GatedOperations         Gated                    remote calls go through the engine's gate
    (in doubt)              SettlingSink             look for the mark of an earlier attempt
    (in doubt)              MarkedSession, RecallingSink   say before the commit by what it can be recognised later
    (same format)           CopyingSource, CopyingSink, CopyingSession   rows pass from one to the other as they are
    (changing files)        VerifiablePartition      the partition is still what was planned
    (native errors)         ExplainingErrors         DuckDB's error told in the connector's words
    (same process)          SharesDatabase           works inside the run's DuckDB instead of opening a file twice
    (options)               ChecksDatasets, ChecksOutputs   options that cannot work together are refused while planning
    (one writer)            LocatesOutputs           tells when two outputs are one and the same
    (one opening)           LocatesConnections       tells when two connections lead to one and the same
    (an order)              SeesOutputs              tells when a dataset is what an output writes
    (one place)             LocatesDatasets          tells where a dataset lies that does not lie where its name says
    (one place)             LocatesTargets           the same of an output
    (bytes on disk)         SpoolsToDisk             bytes that it puts aside lie in the run's folder
    (cancellation)          Cancellable              ends a call that waits for a silent far side
    (log)                   LogsMessages             tells the operator what is no error but worth knowing

Connectors never retry and never sleep: the engine owns retries, pacing and the breaker. They raise `TransientError`,
`PermanentError` or `OutcomeUnknown`; a message is published verbatim, so it must not contain a secret or a row value.

Commit XOR abort: exactly one of them is called on a session. Once commit has been entered, abort is forbidden, also when
commit failed: its outcome is unknown. ``close`` with neither called acts as an abort.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from enum import Flag, StrEnum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from pz.errors import Cancelled, ConnectorError, OutcomeUnknown, PermanentError, TransientError
from pz.frozen import frozen

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = [
    "CONTRACT_MAJOR",
    "AbortSemantics",
    "BatchOptions",
    "Bound",
    "CancelToken",
    "Cancelled",
    "Cancellable",
    "Capability",
    "CaptureStatus",
    "CapturingSource",
    "ChangeCapturePartition",
    "ChecksDatasets",
    "ChecksOutputs",
    "CheckpointingPartition",
    "CheckpointingSession",
    "Column",
    "ConfirmingSession",
    "ConnectionReport",
    "ConnectionSpec",
    "Connector",
    "ConnectorError",
    "CopyBlock",
    "CopyingSession",
    "CopyingSink",
    "CopyingSource",
    "DatasetSpec",
    "DeleteApplyingSession",
    "ExplainingErrors",
    "Gated",
    "IdentifiedPartition",
    "LiveScanningSource",
    "LocatesConnections",
    "LocatesDatasets",
    "LocatesTargets",
    "LocatesOutputs",
    "SeesChanges",
    "SeesOutputs",
    "LogsMessages",
    "MarkedSession",
    "NamesCaptures",
    "NativeCopy",
    "NativePartition",
    "NativeScan",
    "NaturalReadShape",
    "NotCopied",
    "OnDelete",
    "OperationGate",
    "OutcomeUnknown",
    "OutputProbe",
    "OutputSpec",
    "PartialUpdateSession",
    "Partition",
    "PermanentError",
    "PiecewiseSnapshot",
    "PinnedPartition",
    "ProbingSink",
    "ProbingSource",
    "ReadHints",
    "ReadShape",
    "RecallingSink",
    "RestoringSource",
    "RetainingSession",
    "SchemaPolicy",
    "Settlement",
    "SettlingSink",
    "SharesDatabase",
    "Sink",
    "Slice",
    "SnapshotPartition",
    "Source",
    "SourceProbe",
    "SpoolsToDisk",
    "SyncStatePartition",
    "TransientError",
    "VerifiablePartition",
    "WriteAttempt",
    "WriteResult",
    "WriteSession",
    "WriteStrategy",
    "find_column",
]

CONTRACT_MAJOR = 1
"""A connector whose ``contract_major`` differs is refused by the registry."""

Option = Any
"""An option value as the project spells it: text, int, float, bool, list or mapping."""

T = TypeVar("T")


class Capability(Flag):
    """What a connector can do, for both directions. The planner reads it; it never tries things out."""

    NONE = 0
    COLUMN_PRUNING = auto()
    PREDICATE_PUSHDOWN = auto()
    PARTITIONED_READ = auto()
    NATIVE_SCAN = auto()
    NATIVE_COPY = auto()
    MERGE_WRITES = auto()
    REPLACE_WRITES = auto()
    TRANSACTIONAL = auto()
    BOUNDED_WINDOW = auto()
    INCLUSIVE_WATERMARK_BOUND = auto()
    PATH_TEMPLATING = auto()
    COLUMN_PARTITIONED_WRITES = auto()
    STREAMING_PARTITIONS = auto()
    SYNC_STATE = auto()
    GATED_OPERATIONS = auto()
    STABLE_PARTITION_IDS = auto()
    CHECKPOINTABLE_READS = auto()
    CHECKPOINTABLE_WRITES = auto()
    CHANGE_CAPTURE = auto()
    APPLY_DELETES = auto()
    SNAPSHOT_DELETES = auto()
    PARTIAL_UPDATES = auto()
    TEXT_LENGTH_STATS = auto()


class ReadShape(StrEnum):
    """How a dataset is read; every dataset has exactly one shape in a plan."""

    FULL = "full"
    FEED = "feed"
    INCREMENTAL = "incremental"
    CDC = "cdc"


class WriteStrategy(StrEnum):
    """How an output is written."""

    APPEND = "append"
    REPLACE = "replace"
    MERGE = "merge"


class OnDelete(StrEnum):
    """What a cdc-fed merge does with the deletes of its source."""

    DELETE = "delete"
    SOFT = "soft"
    IGNORE = "ignore"


class SchemaPolicy(StrEnum):
    """What a sink may do to an existing target whose columns differ."""

    FAIL_ON_CHANGE = "fail_on_change"
    ADDITIVE = "additive"
    EVOLVE = "evolve"


class AbortSemantics(StrEnum):
    """What an aborted session leaves behind. Declared, not probed."""

    DISCARDS_ALL = "discards_all"
    BEST_EFFORT = "best_effort"
    NONE = "none"


class CancelToken:
    """Tells work that it should stop. Checked between batches; `raise_if_set` is the usual form."""

    def __init__(self, parent: CancelToken | None = None) -> None:
        self._event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        if parent is not None:
            parent.on_cancel(self.cancel)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to stop."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Ask to stop; callbacks run once, in this thread, each of them also where another one raises."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
            self._event.set()
        with ExitStack() as calls:
            for callback in reversed(callbacks):
                calls.callback(callback)

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run ``callback`` when cancelled (at once if it already is): the place for `interrupt()`.

        Returns a function that forgets the callback again; calling it twice is harmless.
        """
        with self._lock:
            fire = self._event.is_set()
            if not fire:
                self._callbacks.append(callback)
        if fire:
            callback()
        return lambda: self._forget(callback)

    def _forget(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks = [kept for kept in self._callbacks if kept is not callback]

    def wait(self, seconds: float) -> bool:
        """Sleep up to ``seconds``; True when cancelled meanwhile."""
        return self._event.wait(seconds)

    def raise_if_set(self) -> None:
        """Raise `Cancelled` if somebody asked to stop."""
        if self._event.is_set():
            raise Cancelled


@frozen
class Column:
    """A column name and its DuckDB type, spelled as DuckDB prints it."""

    name: str
    type: str


def find_column(columns: Iterable[Column], name: str) -> Column | None:
    """The column of that name, found as SQL finds it: case does not tell columns apart."""
    return next((column for column in columns if column.name.lower() == name.lower()), None)


@frozen
class ConnectionSpec:
    """A place and its credentials: the connection's own options, ``${VAR}`` already substituted.

    ``base_dir`` is the project directory; relative paths in options resolve against it, never against the working
    directory. ``written`` says whether the project also writes to this connection: a source whose place takes either
    readers or one writer opens it for reading alone only if not.
    """

    name: str
    options: Mapping[str, Option]
    base_dir: Path
    written: bool = True


@frozen
class Bound:
    """One end of a slice: a canonical cursor value and whether the value itself belongs to the slice.

    Canonical text: plain digits for int, bigint and decimal; ``yyyy-MM-dd``; ``yyyy-MM-ddTHH:mm:ss.ffffff`` (UTC).
    """

    value: str
    inclusive: bool


@frozen
class DatasetSpec:
    """What to read. ``columns`` is the declared contract (name -> DuckDB type), None when there is none.

    The cursor's name is set on every incremental dataset, also on the first run: gate a predicate on the *bound*.
    Honouring ``lower`` is optional (the engine cuts what was over-read); honouring ``upper`` is what `BOUNDED_WINDOW`
    means.
    """

    connection: str
    entity: str
    options: Mapping[str, Option]
    columns: Mapping[str, str] | None = None
    cursor: str | None = None
    cursor_type: str | None = None
    lower: Bound | None = None
    upper: Bound | None = None
    prior_sync_state: str | None = None
    change_capture: bool = False
    slot: str | None = None


@frozen
class ReadHints:
    """Optimisations; the engine applies again what was not pushed. ``predicate`` is DuckDB SQL of the engine's making."""

    columns: tuple[str, ...] | None = None
    predicate: str | None = None
    limit: int | None = None


@frozen
class BatchOptions:
    """Size targets of a record batch."""

    target_bytes: int = 32 * 1024 * 1024
    max_rows: int = 122_880


@frozen
class WriteAttempt:
    """Which attempt at which write this is; on every session write, absent on native copies.

    ``node`` is the output's content-addressed id, ``run`` the run, ``ordinal`` the attempt within the run from 1,
    ``origin`` the run that began the chain of retries, ``prior`` the earlier attempts of the chain whose outcome is
    unknown, as ``(run, ordinal)``. A sink that can look for its mark does so for ``prior``.
    """

    node: str
    run: str
    ordinal: int
    origin: str
    prior: tuple[tuple[str, int], ...] = ()


@frozen
class Slice:
    """The identity of what is delivered: origin run, output node and the fingerprint of the drained relation."""

    project: str
    origin: str
    node: str
    fingerprint: str

    @property
    def mark(self) -> str:
        """The text that stands for the slice in a ledger at the destination."""
        return f"{self.origin}:{self.node}:{self.fingerprint}"

    @classmethod
    def of_mark(cls, project: str, mark: str) -> Slice | None:
        """The inverse of `mark`; None for a text that is no mark of a slice."""
        parts = mark.split(":", 2)
        return cls(project, *parts) if len(parts) == 3 else None


@frozen
class OutputSpec:
    """What to write. ``columns`` is the relation to be written, None while planning, when it is not known yet.

    ``origin`` and ``node`` are set for every execution (also native copies) so that file names can be deterministic;
    they are placeholders while planning.
    """

    connection: str
    entity: str
    strategy: WriteStrategy
    options: Mapping[str, Option]
    keys: tuple[str, ...] = ()
    dedupe_by: str | None = None
    on_delete: OnDelete | None = None
    schema_policy: SchemaPolicy = SchemaPolicy.FAIL_ON_CHANGE
    columns: tuple[Column, ...] | None = None
    origin: str = "plan"
    node: str = "0" * 16
    attempt: WriteAttempt | None = None
    slice: Slice | None = None
    max_text_lengths: Mapping[str, int] = field(default_factory=dict)


@frozen
class NativeScan:
    """A read that DuckDB does itself.

    ``relation`` can stand behind FROM. ``setup`` statements (extensions, secrets, attaches) run once per run and
    distinct text. ``mechanism`` is a short label for plan reasons: no path, no SQL, no secret. ``schema_inferred``
    turns the inference warnings on. ``verify``, where given, is called after the rows were read and before they count: it
    raises when what was read is not what was planned (a file that changed, a compressed file that is cut off).
    ``before`` are statements of the same transaction that come first, and ``interrupt`` ends a wait that DuckDB's own
    interrupt does not reach; it returns at once, may come too late or twice, and raises nothing.
    ``from_text`` says that texts come in full, as out of a text file or from a server: staging them as they are then takes
    about as much disk as they took there, and to look for a better way to hold them would take a quarter of the load's time.
    Where that is so of some columns only, ``full_texts`` is a query for their names.
    """

    relation: str
    mechanism: str
    setup: tuple[str, ...] = ()
    schema_inferred: bool = False
    sniffer: str | None = None
    from_text: bool = False
    full_texts: str | None = None
    verify: Callable[[], None] | None = field(default=None, compare=False)
    before: tuple[str, ...] = ()
    interrupt: Callable[[], None] | None = field(default=None, compare=False)


@frozen
class NativeCopy:
    """A write that DuckDB does itself.

    ``statements`` run in order in one transaction; each may contain ``{relation}``, which the engine replaces (with
    ``str.replace``: the SQL may hold other braces) by the FROM-able relation to write. ``setup`` runs before, outside of
    it. ``directories`` are created just before. ``moves`` are (temporary, final) files that the engine promotes after
    success and removes after failure; those of a write without rows are removed, too, unless ``promotes_empty``. ``stale``
    are leftovers of dead attempts at the same output; the engine, which holds the output's lock, removes them first.
    ``databases`` are the DuckDB files that the statements write to: the engine makes one that is missing, and flushes their
    directories after the commit, since DuckDB flushes the content of its log file and not its name. ``landed``: the rows of
    this very slice that an earlier attempt left with its mark; the engine then runs nothing. ``counted`` are statements that
    come last in the transaction; in them ``{rows}`` is the number of rows moved.
    """

    statements: tuple[str, ...]
    mechanism: str
    setup: tuple[str, ...] = ()
    moves: tuple[tuple[Path, Path], ...] = ()
    directories: tuple[Path, ...] = ()
    stale: tuple[Path, ...] = ()
    databases: tuple[Path, ...] = ()
    landed: int | None = None
    promotes_empty: bool = True
    counted: tuple[str, ...] = ()


@frozen
class SourceProbe:
    """What only the live source knows; anything may be None when it cannot be told cheaply.

    ``upper`` is the highest cursor value at the moment of asking (canonical text), ``null_cursors`` the number of rows
    without one.
    """

    columns: tuple[Column, ...] | None = None
    rows: int | None = None
    bytes: int | None = None
    upper: str | None = None
    null_cursors: int | None = None
    partitions: int | None = None


@frozen
class OutputProbe:
    """Whether the target exists and, if so, its columns."""

    exists: bool
    columns: tuple[Column, ...] | None = None


@frozen
class WriteResult:
    """What a commit made durable, including a resumed prefix."""

    rows: int
    batches: int


@frozen
class ConnectionReport:
    """The answer of a connection check; ``hint`` is what to do about a no."""

    ok: bool
    message: str | None = None
    hint: str | None = None


class OperationGate(Protocol):
    """The engine's gate for remote calls: pacing, per-operation retries, the budget that the server reports."""

    def execute(self, label: str, idempotent: bool, operation: Callable[[], T], cancel: CancelToken | None = None) -> T:
        """Run one remote call. ``label`` is static text, never a URL or a value. Idempotent calls are retried here.

        ``cancel`` ends the waits in here when nobody wants the answer any more; it is a child of a token that the engine
        gave (`CancelToken(parent)`), so that it hears of the run's end, too. Raises `Cancelled` then.
        """
        ...

    def report_budget(self, remaining: int, reset_seconds: float) -> None:
        """Tell what the server said is left; at 0 the next paced call waits until the reset (capped)."""
        ...


@runtime_checkable
class Partition(Protocol):
    """One slice of a read. The union of all partitions of a plan is one full read."""

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """Yield batches; each belongs to the engine once yielded. Check ``cancel`` between batches."""
        ...


@runtime_checkable
class IdentifiedPartition(Partition, Protocol):
    """A partition with a non-empty id, unique in its plan and the same when planned again. Never logged."""

    @property
    def partition_id(self) -> str:
        """The stable id."""
        ...


@runtime_checkable
class NativePartition(Partition, Protocol):
    """A partition that DuckDB can read itself."""

    def native_scan(self) -> NativeScan | None:
        """The fragment for this partition alone, or None for the batch path."""
        ...


@runtime_checkable
class VerifiablePartition(Partition, Protocol):
    """A partition that can tell whether it is still what was planned."""

    def verify(self) -> None:
        """Raise when it is not. Called after its rows were read natively, before they count; `read` does it itself."""
        ...


@runtime_checkable
class ExplainingErrors(Protocol):
    """A source or sink that can say what an error of its native statements means."""

    def explain(self, error: Exception) -> ConnectorError | None:
        """The same error without SQL and row values, typed for the retry loop; None when there is nothing to add."""
        ...


@runtime_checkable
class PinnedPartition(IdentifiedPartition, Protocol):
    """A partition whose spec can be stored and given to `RestoringSource.restore_partition` by a later retry."""

    @property
    def spec(self) -> str:
        """Opaque text from which the source can rebuild exactly this partition."""
        ...


@runtime_checkable
class CheckpointingPartition(IdentifiedPartition, Protocol):
    """A partition that can be continued from an opaque token."""

    def try_get_checkpoint(self) -> str | None:
        """A token that covers exactly the rows yielded so far, or None. Asked only when those rows are durable."""
        ...

    def try_resume(self, token: str) -> bool:
        """Called before `read`: True means only later rows will be yielded; False means from the start. Never raises."""
        ...


@runtime_checkable
class SyncStatePartition(Partition, Protocol):
    """The single partition of a feed."""

    def try_get_sync_state(self) -> str | None:
        """The token for the next run; asked once, after `read` ended cleanly. None leaves the stored token alone."""
        ...


@runtime_checkable
class ChangeCapturePartition(SyncStatePartition, Protocol):
    """The single partition of a cdc read: rows start with ``_pz_op``, ``_pz_lsn``, ``_pz_changed_at``.

    A fourth column ``_pz_unchanged`` (a list of names, or NULL) may follow: columns whose value did not come because it had
    not changed. They hold NULL then, and the sink must leave them alone.
    """

    def key_columns(self) -> tuple[str, ...] | None:
        """The table's keys, known after `read`; None when there are none."""
        ...


@runtime_checkable
class SnapshotPartition(ChangeCapturePartition, Protocol):
    """A cdc read that may be one of the whole table."""

    def is_snapshot(self) -> bool:
        """Whether `read` yields the whole table, so that what is not among its rows does not exist."""
        ...

    def position(self) -> str | None:
        """Where the read has come to, for people; never the token. Known after `read`."""
        ...


@runtime_checkable
class PiecewiseSnapshot(SnapshotPartition, Protocol):
    """A cdc read whose snapshot comes in pieces: those that have landed need not be read again while it lives.

    The engine keeps it over the attempts of a node, longer than the source that it came from, and then closes it.
    """

    def pieces(self, cancel: CancelToken) -> Sequence[Partition]:
        """Take the snapshot: partitions that together are the whole table. Keys, token and position are known then."""
        ...

    def is_alive(self) -> bool:
        """Whether the pieces still show the same moment. Raises nothing."""
        ...

    def close(self) -> None:
        """Let go of the snapshot; of one that was never taken, too."""
        ...


@frozen
class CaptureStatus:
    """How a captured dataset stands at its source. ``position`` names what is captured from, ``stored`` is for people."""

    position: str
    stored: str | None
    retained_bytes: int | None
    healthy: bool
    details: tuple[str, ...] = ()


@runtime_checkable
class CapturingSource(Protocol):
    """A source that keeps changes until they are durable elsewhere. Datasets carry their stored token, None without one."""

    def acknowledge(self, datasets: Sequence[DatasetSpec]) -> None:
        """All captured datasets of the connection with what is durable now. What several of them share moves to the least."""
        ...

    def capture_status(self, dataset: DatasetSpec) -> CaptureStatus:
        """How it stands. Raises nothing but what keeps it from answering at all."""
        ...

    def drop_capture(self, dataset: DatasetSpec) -> str:
        """Let go of what is kept for the dataset, and say what was done. What is gone already is fine."""
        ...


@runtime_checkable
class NamesCaptures(Protocol):
    """A capturing source that can tell, offline, where what it keeps for a dataset is kept."""

    def capture_name(self, dataset: DatasetSpec) -> str:
        """In words, for a message. Equal for two datasets means that they would share it: only a declared slot may be."""
        ...


class Source(Protocol):
    """The read side of an open connection."""

    def schema(self, dataset: DatasetSpec) -> pa.Schema:
        """The schema that batches will carry."""
        ...

    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
        """A fragment for the whole dataset, or None. Cheap, offline, free of effects: also called while planning.

        Raises PermanentError to refuse the dataset.
        """
        ...

    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        """The partitions of one full read; more than one needs `PARTITIONED_READ`."""
        ...

    def close(self) -> None:
        """Release everything; called exactly once."""
        ...


@runtime_checkable
class LiveScanningSource(Protocol):
    """A source whose fragments depend on what only the live system knows. Its `native_scan` is not asked.

    Where there is no fragment, the same rows come as batches. A connector with stable partition ids is asked for whole
    datasets in fused chains alone, else each partition (`NativePartition`).
    """

    def scan_mechanism(self, dataset: DatasetSpec, hints: ReadHints) -> str | None:
        """What plans call the fragment, None where there will be none. Cheap, offline, free of effects."""
        ...

    def live_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
        """The fragment for the whole dataset, asked when its node runs."""
        ...


@runtime_checkable
class NaturalReadShape(Protocol):
    """A source that says what ``sync: auto`` means for a dataset. Offline. Absent means full."""

    def natural_read_shape(self, dataset: DatasetSpec) -> ReadShape:
        """Full or feed."""
        ...


@runtime_checkable
class RestoringSource(Protocol):
    """A source that can rebuild the partitions of an earlier plan."""

    def restore_partition(self, dataset: DatasetSpec, hints: ReadHints, spec: str) -> Partition:
        """The partition that once gave ``spec``. Raises PermanentError when it no longer exists as it was."""
        ...


@runtime_checkable
class SeesChanges(Protocol):
    """A source that can tell from a stored spec, without waiting for anybody, that what was read is another now."""

    def changed_since(self, spec: str) -> str | None:
        """What has changed since ``spec`` was made, as a clause (``file 'a.csv' changed since``); None if none is known."""
        ...


@runtime_checkable
class ProbingSource(Protocol):
    """A source that can be asked, online, before the first row."""

    def probe(self, dataset: DatasetSpec) -> SourceProbe:
        """What the live system knows. Raises PermanentError to refuse (say, a type that cannot be held)."""
        ...


@runtime_checkable
class WriteSession(Protocol):
    """One write of one output."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch; it dies when the call returns."""
        ...

    def commit(self) -> WriteResult:
        """Make everything visible, atomically where the destination allows. At most once."""
        ...

    def abort(self) -> None:
        """Undo what the abort semantics promise. At most once, never after commit was entered."""
        ...

    def close(self) -> None:
        """Release local resources. Called exactly once, last."""
        ...


@runtime_checkable
class CheckpointingSession(WriteSession, Protocol):
    """A session that knows what the destination has confirmed."""

    def acknowledged_rows(self) -> int | None:
        """Rows durably confirmed, a resumed prefix included; None when unchanged since the last answer."""
        ...

    def try_resume(self, acknowledged: int) -> bool:
        """Called before the first batch: True means that the prefix will not be sent again."""
        ...


@runtime_checkable
class ConfirmingSession(CheckpointingSession, Protocol):
    """A checkpointing session that confirms in pieces smaller than a batch, and may confirm rows behind a refused one.

    The engine calls `use_confirm` and `skip` before the first batch, after `try_resume`.
    """

    def use_confirm(self, confirm: Callable[[int, Collection[int]], None]) -> None:
        """Call ``confirm(rows, accepted)`` after each piece: the confirmed prefix, and confirmed offsets behind its end."""
        ...

    def skip(self, accepted: frozenset[int]) -> None:
        """Offsets that were confirmed behind a prefix by an earlier attempt: count them, and do not send them again."""
        ...

    def exposed_rows(self) -> int:
        """At most how many rows may be visible by now, the resumed prefix included."""
        ...


@runtime_checkable
class DeleteApplyingSession(WriteSession, Protocol):
    """A session that can delete by key, after the upserts, in the same transaction."""

    def apply_deletes(self, keys: pa.RecordBatch) -> None:
        """Delete or mark the rows with these keys (columns in declared key order)."""
        ...


@runtime_checkable
class RetainingSession(WriteSession, Protocol):
    """A merge that can also remove (or mark) every row of the target whose key is not among those named.

    Rows that were there before the write go up to the share that the option ``snapshot_delete_limit`` names, by default
    a half: more is refused with PZ0749 and nothing changed. `pz.connectors.deletes` has the option, the refusal and SQL.
    """

    def retain_only(self, keys: pa.RecordBatch) -> None:
        """Keys to keep, batch by batch, at least one batch; applied with the commit, after upserts and deletes."""
        ...


@runtime_checkable
class PartialUpdateSession(WriteSession, Protocol):
    """A session that can update some columns of existing rows and leave the others alone."""

    def apply_partial(self, batch: pa.RecordBatch, unchanged: Sequence[str]) -> None:
        """Update rows by key; columns named in ``unchanged`` keep what the target has."""
        ...


@runtime_checkable
class MarkedSession(WriteSession, Protocol):
    """A session whose commit can be recognised later by something that is known before it, say a transaction number."""

    def prepare(self) -> str | None:
        """Do everything but the commit. Called right before it, at most once; what it returns is made durable first.

        None where nothing is needed: the write leaves a mark with its data, or may simply run again.
        """
        ...


class Sink(Protocol):
    """The write side of an open connection."""

    @property
    def abort_semantics(self) -> AbortSemantics:
        """What an abort leaves behind."""
        ...

    def native_copy(self, output: OutputSpec) -> NativeCopy | None:
        """Statements that write the output, or None. Cheap, offline, free of effects: also called while planning."""
        ...

    def begin_write(self, output: OutputSpec, schema: pa.Schema) -> WriteSession:
        """Open a session."""
        ...

    def close(self) -> None:
        """Release everything; called exactly once."""
        ...


@runtime_checkable
class ProbingSink(Protocol):
    """A sink that can be asked about its target before anything moves."""

    def probe_output(self, output: OutputSpec) -> OutputProbe:
        """What is there. Raises PermanentError to refuse."""
        ...


class NotCopied(Exception):
    """Rows cannot come in the format and types that a session takes; the message says which column. They come as batches."""


@frozen
class CopyBlock:
    """Bytes of a stream of rows in some format; rows may be cut by its ends. ``rows`` is how many were counted in it."""

    data: bytes | bytearray
    rows: int


@runtime_checkable
class CopyingSource(Protocol):
    """A source whose whole reads can come as bytes that some sinks take as they are."""

    def copy_format(self, dataset: DatasetSpec) -> str | None:
        """The name of the format, or None. Offline, free of effects: asked while planning."""
        ...

    def copy_out(
        self, dataset: DatasetSpec, columns: Sequence[str], types: Sequence[str], cancel: CancelToken
    ) -> Iterator[CopyBlock]:
        """All rows, these columns in this order, each in the type that `CopyingSession.copy_columns` gave it.

        Raises NotCopied, before anything is read, when a column cannot come so. All that was held for the read is let
        go when the iterator ends or is closed.
        """
        ...


@runtime_checkable
class CopyingSink(Protocol):
    """A sink whose sessions take rows in a format of some sources as they are."""

    def copy_format(self, output: OutputSpec) -> str | None:
        """The name of the format, or None. Offline, free of effects: asked while planning."""
        ...


@runtime_checkable
class CopyingSession(WriteSession, Protocol):
    """A session that takes either batches or blocks."""

    def copy_columns(self) -> tuple[Column, ...]:
        """The columns that are written, in order, each with the destination's type in words that its format's sources know.

        None at all when no rows are wanted, because an earlier attempt has landed them.
        """
        ...

    def write_copied(self, block: CopyBlock) -> None:
        """Take a block; it dies when the call returns."""
        ...


class Settlement(StrEnum):
    """What a look at the destination found about an earlier attempt."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not_committed"
    UNKNOWN = "unknown"


@runtime_checkable
class SettlingSink(Protocol):
    """A sink that leaves a mark with its data and can find it again."""

    def settle(self, output: OutputSpec, run: str, ordinal: int) -> Settlement:
        """Whether the attempt ``(run, ordinal)`` on this output has committed."""
        ...


@runtime_checkable
class RecallingSink(Protocol):
    """A sink that can tell what became of the commit that a `MarkedSession` described."""

    def recall(self, output: OutputSpec, mark: str) -> Settlement:
        """Unknown for a mark that is not of its making."""
        ...


@runtime_checkable
class Gated(Protocol):
    """A source or sink whose remote calls go through the gate; called once, right after opening."""

    def use_gate(self, gate: OperationGate) -> None:
        """Keep the gate."""
        ...


@runtime_checkable
class ChecksDatasets(Protocol):
    """A source that can tell, offline, that a dataset's options cannot work together."""

    def check_dataset(self, dataset: DatasetSpec) -> None:
        """Raise PermanentError with every fault. Called while planning; free of effects."""
        ...


@runtime_checkable
class ChecksOutputs(Protocol):
    """A sink that can tell, offline, that an output's options cannot work together."""

    def check_output(self, output: OutputSpec) -> None:
        """Raise PermanentError with every fault. Called while planning; free of effects."""
        ...


@runtime_checkable
class LocatesOutputs(Protocol):
    """A sink that can tell, offline, whether two outputs are one thing under two names, also over two connections."""

    def place_of(self, output: OutputSpec) -> str | None:
        """The same text for outputs of this connector that write one thing, None where no write can meet another. Not shown.

        Raises PermanentError for an output that cannot be. Called while planning; free of effects.
        """
        ...


@runtime_checkable
class SeesOutputs(Protocol):
    """A source that can tell, offline, whether a dataset reads what an output of the same connector writes."""

    def reads_output(self, dataset: DatasetSpec, connection: ConnectionSpec, output: OutputSpec) -> bool:
        """``connection`` is the output's. Raises PermanentError for an output that cannot be. Free of effects."""
        ...


@runtime_checkable
class LocatesConnections(Protocol):
    """A connector that can tell, offline, whether two connections lead to one thing that is opened once for both.

    Absent means that they do where `Connector.location` is the same.
    """

    def place_of(self, connection: ConnectionSpec) -> str:
        """The same text for connections that lead to one thing, links followed. Not shown."""
        ...


@runtime_checkable
class LocatesDatasets(Protocol):
    """A connector whose datasets say by an option where they lie: state that was earned at one place is not used at another.

    Absent means that a dataset's name says it, as a table's does.
    """

    def dataset_location(self, dataset: DatasetSpec) -> Mapping[str, str]:
        """What says where it lies below `Connector.location`, as the project spells it; never a secret.

        Asked of all datasets of a project, whatever is run, so their options may be wrong: raises nothing.
        """
        ...


@runtime_checkable
class LocatesTargets(Protocol):
    """A connector whose outputs say by an option where they lie: what one place was given is not there at another.

    Absent means that an output's name says it, as a table's does.
    """

    def target_location(self, output: OutputSpec) -> Mapping[str, str]:
        """What says where it lies below `Connector.location`, as the project spells it; never a secret.

        Asked of all outputs of a project, whatever is run, so their options may be wrong: raises nothing.
        """
        ...


@runtime_checkable
class SpoolsToDisk(Protocol):
    """A source or sink that puts bytes aside while it works. Called once, right after opening, wherever there is a run."""

    def use_spool(self, directory: Path) -> None:
        """Put them below this directory, which need not exist, and take them away again."""
        ...


@runtime_checkable
class Cancellable(Protocol):
    """A source or sink whose calls may wait for long. Called once, right after opening, wherever there is a run.

    Also for its probe. A read hears of it by the token of `Partition.read`.
    """

    def use_cancel(self, cancel: CancelToken) -> None:
        """Once it is set, end what waits, by raising `Cancelled`, as far as the outcome stays known."""
        ...


@runtime_checkable
class LogsMessages(Protocol):
    """A source or sink with something to tell the operator. Called once, right after opening, wherever there is a run."""

    def use_log(self, log: Callable[[str], None]) -> None:
        """Call ``log`` with a sentence that holds no secret and no row value; equal ones are told once per run."""
        ...


@runtime_checkable
class SharesDatabase(Protocol):
    """A source or sink that is itself a DuckDB database: one process can open such a file only once.

    Called once, right after opening, wherever a run's DuckDB exists. Without it the connector opens the place itself.
    """

    def use_database(self, open_cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        """Keep the way to a cursor of the run's DuckDB; each cursor is closed by the connector."""
        ...


class Connector(Protocol):
    """What an entry point of the group ``pz.connectors`` names: a class without constructor arguments."""

    name: ClassVar[str]
    contract_major: ClassVar[int]
    capabilities: ClassVar[Capability]
    gives: ClassVar[str]
    """One line for `pz connectors`: what it connects to."""

    def connection_schema(self) -> Mapping[str, Any]:
        """JSON Schema (2020-12) of the connection's own options; never a key that the engine owns."""
        ...

    def dataset_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the read options."""
        ...

    def output_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the write options; None leaves them unchecked."""
        ...

    def validate(self, connection: ConnectionSpec) -> Sequence[str]:
        """Cross-field faults of the connection, all of them; offline; never raises for bad options."""
        ...

    def location(self, connection: ConnectionSpec) -> Mapping[str, str]:
        """What says *where* the connection is (host, port, database, root, bucket, base_url, path); never a secret."""
        ...

    def check_connection(self, connection: ConnectionSpec) -> ConnectionReport:
        """Try it, online."""
        ...

    def open_source(self, connection: ConnectionSpec) -> Source:
        """The read side. Raises PermanentError when the connector cannot read."""
        ...

    def open_sink(self, connection: ConnectionSpec) -> Sink:
        """The write side. Raises PermanentError when the connector cannot write."""
        ...
