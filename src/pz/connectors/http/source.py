"""The read side of a connection."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pz.connectors.contract import (
    DatasetSpec,
    NativeScan,
    OperationGate,
    Partition,
    ReadHints,
    ReadShape,
)
from pz.connectors.http.client import Client
from pz.connectors.http.partition import FeedPartition, HttpPartition, shape_of
from pz.connectors.http.reading_options import ReadOptions
from pz.connectors.http.settings import Settings
from pz.connectors.http.spool import Spool

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["HttpSource"]


class HttpSource:
    """See `Source`, `Gated`, `NaturalReadShape`, `SpoolsToDisk`, `ChecksDatasets`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spool = Spool()
        self._gate: OperationGate | None = None
        self._clients: list[Client] = []

    def use_gate(self, gate: OperationGate) -> None:
        """See `Gated`."""
        self._gate = gate

    def use_spool(self, directory: Path) -> None:
        """See `SpoolsToDisk`."""
        self._spool.use(directory)

    def check_dataset(self, dataset: DatasetSpec) -> None:
        """See `ChecksDatasets`: every fault of the options at once."""
        ReadOptions.of(dataset)

    def natural_read_shape(self, dataset: DatasetSpec) -> ReadShape:
        """A feed where the dataset tells where its token is."""
        return ReadShape.FEED if "delta_pointer" in dataset.options else ReadShape.FULL

    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
        """There is none."""
        return None

    def schema(self, dataset: DatasetSpec) -> pa.Schema:
        """See `Source`."""
        return shape_of(dataset, ReadOptions.of(dataset), dataset.entity).schema

    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> Iterable[Partition]:
        """One partition: nobody knows where the second page is before the first was read."""
        options = ReadOptions.of(dataset)
        kind = FeedPartition if options.delta_pointer is not None else HttpPartition
        return [kind(self._opened(dataset), self._spool, dataset, options)]

    def close(self) -> None:
        """See `Source`."""
        for client in self._clients:
            client.close()

    def _opened(self, dataset: DatasetSpec) -> Client:
        """A client whose messages show nothing of this dataset's query, body and headers."""
        options = dataset.options
        told = [options.get(name) for name in ("query", "body", "headers")]
        client = Client(self._settings, self._settings.redactor(*told))
        if self._gate is not None:
            client.use_gate(self._gate)
        self._clients.append(client)
        return client
