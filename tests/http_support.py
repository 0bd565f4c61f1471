"""Helpers for tests of the http connector: read as the engine does, without a run around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from http_server import Api
from pz.connectors.contract import (
    BatchOptions,
    Bound,
    CancelToken,
    ConnectionSpec,
    DatasetSpec,
    OperationGate,
    ReadHints,
)
from pz.connectors.http.connector import Http
from pz.connectors.http.partition import HttpPartition
from pz.connectors.http.source import HttpSource
from pz.engine.resilience.gate import Gate, Pacer
from pz.project.model import RetryPolicy

T = TypeVar("T")
SECRET = "s3cr3t-Va1ue-9"


class CountingGate:
    """Retries like the engine, without waiting, and keeps what it was told."""

    def __init__(self, attempts: int = 3) -> None:
        policy = RetryPolicy(attempts, timedelta(milliseconds=1), timedelta(milliseconds=1))
        self._gate = Gate(Pacer(None), policy, CancelToken())
        self.labels: list[tuple[str, bool]] = []
        self.budgets: list[tuple[int, float]] = []

    def execute(self, label: str, idempotent: bool, operation: Callable[[], T], cancel: CancelToken | None = None) -> T:
        self.labels.append((label, idempotent))
        return self._gate.execute(label, idempotent, operation, cancel)

    def report_budget(self, remaining: int, reset_seconds: float) -> None:
        self.budgets.append((remaining, reset_seconds))


def connection(api: Api, **options: Any) -> ConnectionSpec:
    return ConnectionSpec("api", {"base_url": api.url, **options}, Path("/nonexistent"))


def source(api: Api, gate: OperationGate | None = None, **options: Any) -> HttpSource:
    opened = Http().open_source(connection(api, **options))
    opened.use_gate(CountingGate() if gate is None else gate)
    return opened


def dataset(
    options: Mapping[str, Any],
    columns: Mapping[str, str] | None = None,
    *,
    cursor: str | None = None,
    cursor_type: str | None = None,
    lower: Bound | None = None,
    upper: Bound | None = None,
    token: str | None = None,
) -> DatasetSpec:
    return DatasetSpec("api", "items", {"path": "/items", **options}, columns, cursor, cursor_type, lower, upper, token)


def partition(opened: HttpSource, wanted: DatasetSpec) -> HttpPartition:
    (found,) = opened.plan_read(wanted, ReadHints())
    assert isinstance(found, HttpPartition)
    return found


def batches(found: HttpPartition, max_rows: int = 1_000) -> list[pa.RecordBatch]:
    return list(found.read(BatchOptions(max_rows=max_rows), CancelToken()))


def read(
    api: Api,
    options: Mapping[str, Any],
    columns: Mapping[str, str] | None = None,
    *,
    gate: OperationGate | None = None,
    connection_options: Mapping[str, Any] | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """All rows of a dataset."""
    opened = source(api, gate, **(connection_options or {}))
    try:
        wanted = dataset(options, columns, **more)
        schema = opened.schema(wanted)
        found = batches(partition(opened, wanted))
        assert all(batch.schema.equals(schema) for batch in found)
        return [row for batch in found for row in batch.to_pylist()]
    finally:
        opened.close()


ID = {"id": "bigint"}


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]
