"""A source of any number of partitions made in memory, which counts what is asked of it; for tests of what things cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pz.connectors.contract import (
    CONTRACT_MAJOR,
    BatchOptions,
    CancelToken,
    Capability,
    ConnectionReport,
    ConnectionSpec,
    DatasetSpec,
    NativeScan,
    Partition,
    PermanentError,
    ReadHints,
    Sink,
    Source,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BROKEN", "COUNTS", "UNSTABLE", "ManyParts", "install"]

COUNTS: Counter[str] = Counter()
"""Partitions opened since the last ``clear``."""
BROKEN: set[int] = set()
"""Partitions that fail."""
UNSTABLE: set[int] = set()
"""Partitions that change while they are read."""


def install(folder: Path) -> Path:
    """Make a directory that, on ``sys.path``, turns the connector into an installed one."""
    metadata = folder / "many_parts-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: many-parts\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pz.connectors]\nmany_parts = many_parts:ManyParts\n")
    return folder


class ManyParts:
    """``parts`` partitions that share ``rows`` rows."""

    name: ClassVar[str] = "many_parts"
    contract_major: ClassVar[int] = CONTRACT_MAJOR
    capabilities: ClassVar[Capability] = Capability.PARTITIONED_READ | Capability.STABLE_PARTITION_IDS
    gives: ClassVar[str] = "any number of partitions (for tests)"

    def connection_schema(self) -> Mapping[str, Any]:
        return {"type": "object", "additionalProperties": False, "properties": {}}

    def dataset_schema(self) -> Mapping[str, Any]:
        numbers = {"type": "integer"}
        return {"type": "object", "additionalProperties": False, "properties": {"parts": numbers, "rows": numbers}}

    def output_schema(self) -> Mapping[str, Any] | None:
        return None

    def validate(self, connection: ConnectionSpec) -> Sequence[str]:
        return []

    def location(self, connection: ConnectionSpec) -> Mapping[str, str]:
        return {}

    def check_connection(self, connection: ConnectionSpec) -> ConnectionReport:
        return ConnectionReport(True)

    def open_source(self, connection: ConnectionSpec) -> Source:
        return _Source()

    def open_sink(self, connection: ConnectionSpec) -> Sink:
        raise PermanentError("it only reads")


class _Source:
    def schema(self, dataset: DatasetSpec) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])

    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
        return None

    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterator[Partition]:
        parts, rows = int(dataset.options["parts"]), int(dataset.options["rows"])
        for number in range(parts):
            yield _Part(number, range(rows * number // parts, rows * (number + 1) // parts))

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class _Part:
    number: int
    ids: range

    @property
    def partition_id(self) -> str:
        return f"part-{self.number}"

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        COUNTS["opened"] += 1
        if self.number in BROKEN:
            raise PermanentError("this part is broken")
        ids = pa.array(self.ids, pa.int64())
        yield pa.record_batch({"id": ids, "text": ids.cast(pa.string())})

    def verify(self) -> None:
        if self.number in UNSTABLE:
            raise PermanentError("this part changed while it was read")
