"""Connectors that break a rule of the contract or lack an ability, for tests of what a user is then told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pz.connectors.contract import (
    BatchOptions,
    CancelToken,
    Capability,
    ConnectionSpec,
    DatasetSpec,
    NativeScan,
    Partition,
    ReadHints,
)
from pz.connectors.files.localfiles import LocalFiles
from pz.testing.reference import Reference, ReferencePlain
from pz.testing.reference_source import DatabaseSource, ReferenceSource

if TYPE_CHECKING:
    import pyarrow as pa

ENTRY_POINTS = """\
[pz.connectors]
native_only = bad_connectors:NativeOnly
claims_a_key = bad_connectors:ClaimsAKey
loose_checkpoints = bad_connectors:LooseCheckpoints
two_logs = bad_connectors:TwoLogs
foreign_changes = bad_connectors:ForeignChanges
no_replace = bad_connectors:NoReplace
bad_setup = bad_connectors:BadSetup
keyless_deletes = bad_connectors:KeylessDeletes
"""


def install(folder: Path) -> Path:
    """Make a directory that, on ``sys.path``, turns the connectors of this module into installed ones."""
    metadata = folder / "bad_connectors-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-connectors\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


class NativeOnly(LocalFiles):
    """Reads by DuckDB or not at all."""

    name: ClassVar[str] = "native_only"
    capabilities: ClassVar[Capability] = LocalFiles.capabilities | Capability.SYNC_STATE | Capability.CHANGE_CAPTURE
    reads_batches: ClassVar[bool] = False


class ClaimsAKey(LocalFiles):
    """Publishes an option that belongs to the engine."""

    name: ClassVar[str] = "claims_a_key"

    def dataset_schema(self) -> Mapping[str, Any]:
        return {"type": "object", "properties": {"sync": {"type": "string"}}}


class LooseCheckpoints(ReferencePlain):
    """Promises checkpoints without the stable ids that they hang on."""

    name: ClassVar[str] = "loose_checkpoints"
    capabilities: ClassVar[Capability] = ReferencePlain.capabilities | Capability.CHECKPOINTABLE_READS


class NoReplace(ReferencePlain):
    """Can append, and nothing else."""

    name: ClassVar[str] = "no_replace"
    capabilities: ClassVar[Capability] = Capability.TRANSACTIONAL


class _TwoLogs(DatabaseSource):
    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        return [*super().plan_read(dataset, hints)] * 2


class TwoLogs(Reference):
    """Plans a cdc read in two partitions."""

    name: ClassVar[str] = "two_logs"

    def open_source(self, connection: ConnectionSpec) -> DatabaseSource:
        return _TwoLogs(super().open_source(connection)._server, self.capabilities)


class _Changes:
    """Delegates to a change partition, with other rows or other keys."""

    def __init__(self, below: Any) -> None:
        self._below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def try_get_sync_state(self) -> str | None:
        state: str | None = self._below.try_get_sync_state()
        return state

    def key_columns(self) -> tuple[str, ...] | None:
        keys: tuple[str, ...] | None = self._below.key_columns()
        return keys

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        yield from self._below.read(options, cancel)


class _UnknownOperations(_Changes):
    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in self._below.read(options, cancel):
            columns = [pa.array(["upsert"] * batch.num_rows), *batch.columns[1:]]
            yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class _ForeignChanges(DatabaseSource):
    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        found: list[Any] = [_UnknownOperations(part) for part in super().plan_read(dataset, hints)]
        return found


class ForeignChanges(Reference):
    """Its change rows say what no change row may say."""

    name: ClassVar[str] = "foreign_changes"

    def open_source(self, connection: ConnectionSpec) -> ReferenceSource:  # type: ignore[override]
        return _ForeignChanges(super().open_source(connection)._server, self.capabilities)


class _NullKeys(_Changes):
    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in self._below.read(options, cancel):
            at = batch.schema.get_field_index("id")
            columns = list(batch.columns)
            gone = pc.equal(columns[0], "delete")
            columns[at] = pc.if_else(gone, pa.scalar(None, columns[at].type), columns[at])
            yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class _KeylessDeletes(DatabaseSource):
    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        found: list[Any] = [_NullKeys(part) for part in super().plan_read(dataset, hints)]
        return found


class KeylessDeletes(Reference):
    """Its deletes say nothing about which row is gone."""

    name: ClassVar[str] = "keyless_deletes"

    def open_source(self, connection: ConnectionSpec) -> ReferenceSource:  # type: ignore[override]
        return _KeylessDeletes(super().open_source(connection)._server, self.capabilities)


class _BadSetup(DatabaseSource):
    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan:
        return NativeScan("range(3) t(id)", "a scan", setup=("LOAD 'no_such_extension'",))


class BadSetup(Reference):
    """Needs of DuckDB what it does not have."""

    name: ClassVar[str] = "bad_setup"

    def open_source(self, connection: ConnectionSpec) -> DatabaseSource:
        return _BadSetup(super().open_source(connection)._server, self.capabilities)
