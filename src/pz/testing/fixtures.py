"""Fixtures of the conformance suite: for our own connectors, and found for others by entry point.

A distribution that brings a connector declares its fixture in the group ``pz.connector_fixtures`` under the connector's
name: a function from an empty directory to a `Fixture`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from pz.connectors.contract import ConnectionSpec, Connector, DatasetSpec, OutputSpec, WriteStrategy
from pz.testing.conformance import Fixture
from pz.testing.reference import Reference, ReferenceApi, ReferencePlain
from pz.testing.server import Server

__all__ = ["GROUP", "fixture_for", "fixture_names"]

GROUP = "pz.connector_fixtures"
Maker = Callable[[Path], Fixture]


def fixture_for(name: str, scratch: Path) -> Fixture | None:
    """The fixture of a connector, set up below an empty directory; None when nobody declares one."""
    maker = _makers().get(name)
    return None if maker is None else maker(scratch)


def fixture_names() -> tuple[str, ...]:
    """The connectors for which there is a fixture."""
    return tuple(sorted(_makers()))


def _makers() -> dict[str, Maker]:
    known: dict[str, Maker] = {
        "reference": reference,
        "reference_api": reference_api,
        "reference_plain": reference_plain,
    }
    for point in entry_points(group=GROUP):
        known.setdefault(point.name, point.load())
    return known


COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "at": "TIMESTAMP", "price": "DECIMAL(9,2)"}


def _server(scratch: Path) -> Server:
    server = Server(scratch / "far")
    server.create("orders", COLUMNS, keys=["id"], native=2)
    server.insert(
        "orders",
        [{"id": n, "name": f"n{n}" if n % 4 else None, "at": f"2024-01-{n + 1:02d}T12:00:00"} for n in range(20)],
    )
    return server


def _reference(connector: Connector, scratch: Path, *variants: dict[str, object]) -> Fixture:
    server = _server(scratch)
    options = {"path": "far", "password": "hunter2-secret"}
    return Fixture(
        connector=connector,
        connection=ConnectionSpec("ref", options, scratch),
        dataset=DatasetSpec("ref", "orders", variants[0]),
        rows=server.table("orders"),
        cursor="at",
        variants=tuple(DatasetSpec("ref", "orders", variant) for variant in variants[1:]),
        feed=DatasetSpec("ref", "orders", {"feed": True}),
        changes=DatasetSpec("ref", "orders", {}),
        output=lambda name: OutputSpec("ref", name, WriteStrategy.APPEND, {}),
        read_back=lambda output: server.target(output.entity),
        broken=ConnectionSpec("ref", {**options, "path": "nowhere"}, scratch),
        secrets=("hunter2-secret",),
        touched=("calls.log",),
    )


def reference(scratch: Path) -> Fixture:
    """The reference connector that is like a database."""
    return _reference(
        Reference(),
        scratch,
        {"partitions": 2, "batch_rows": 3, "checkpoints": True},
        {"partition_rows": 7, "lazy": True, "checkpoints": True},
        {"native": "whole"},
        {"native": "partition", "partitions": 2},
    )


def reference_api(scratch: Path) -> Fixture:
    """The reference connector that is like a web API."""
    return _reference(ReferenceApi(), scratch, {"batch_rows": 3})


def reference_plain(scratch: Path) -> Fixture:
    """The reference connector with the least abilities."""
    return _reference(ReferencePlain(), scratch, {"batch_rows": 3})
