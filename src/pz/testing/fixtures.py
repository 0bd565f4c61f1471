"""Fixtures of the conformance suite: for our own connectors, and found for others by entry point.

A distribution that brings a connector declares its fixture in the group ``pz.connector_fixtures`` under the connector's
name: a function from an empty directory to a `Fixture`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from pz.connectors.contract import ConnectionSpec, Connector, DatasetSpec, OutputSpec, WriteStrategy
from pz.sqltext import quote
from pz.testing.conformance import Fixture, NotApplicable
from pz.testing.reference import Reference, ReferenceApi, ReferencePlain
from pz.testing.server import Server

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

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
        "duckdb": duckdb,
        "http": http,
        "localfiles": localfiles,
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


def localfiles(scratch: Path) -> Fixture:
    """Parquet files by a glob; the same rows as csv under a contract."""
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    from pz.connectors.files.localfiles import LocalFiles

    rows = _server(scratch).table("orders")
    data = scratch / "data"
    data.mkdir()
    for part in range(2):
        pq.write_table(rows.slice(part * 12, 12), data / f"orders-{part}.parquet")
    csv.write_csv(rows, data / "orders.csv")
    contract = {"id": "bigint", "name": "varchar", "at": "timestamp", "price": "decimal(9,2)"}
    (scratch / "file").touch()
    return Fixture(
        connector=LocalFiles(),
        connection=ConnectionSpec("files", {"root": "data"}, scratch),
        dataset=DatasetSpec("files", "orders", {"path": "orders-*.parquet", "format": "parquet"}),
        rows=rows,
        cursor="at",
        variants=(DatasetSpec("files", "orders", {"path": "orders.csv", "format": "csv"}, contract),),
        output=lambda name: OutputSpec("files", name, WriteStrategy.APPEND, {"path": name, "format": "parquet"}),
        read_back=lambda output: _parquet(data / output.entity),
        broken=ConnectionSpec("files", {"root": "file"}, scratch),
    )


def _parquet(folder: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]) if files else pa.table({})


def duckdb(scratch: Path) -> Fixture:
    """A table of a database file."""
    from pz.connectors.duckdb.connector import DuckDb

    rows = _server(scratch).table("orders")
    file = scratch / "warehouse.duckdb"
    with _database(file) as connection:
        connection.register("conformance_orders", rows)
        connection.execute("CREATE TABLE orders AS FROM conformance_orders")  # durable: ok - a scratch database
    return Fixture(
        connector=DuckDb(),
        connection=ConnectionSpec("warehouse", {"path": file.name}, scratch),
        dataset=DatasetSpec("warehouse", "orders", {}),
        rows=rows,
        cursor="at",
        output=lambda name: OutputSpec("warehouse", name, WriteStrategy.APPEND, {}),
        read_back=lambda output: _table(file, output.entity),
        broken=ConnectionSpec("warehouse", {"path": "nowhere/warehouse.duckdb"}, scratch),
    )


def http(scratch: Path) -> Fixture:
    """An API on loopback: pages of json, the same raw, a feed; rows appended in lists and merged one by one."""
    from pz.connectors.http.connector import Http
    from pz.testing.api import WebApi

    rows = _server(scratch).table("orders")
    records = [{**row, "at": row["at"].isoformat()} for row in rows.to_pylist()]
    api = WebApi({"orders": records}, "at", "hunter2-secret")
    auth = {"type": "bearer", "token": "hunter2-secret"}
    contract = {"id": "bigint", "name": "varchar", "at": "timestamp", "price": "decimal(9,2)"}
    pages = {
        "path": "/items/orders",
        "items": "/items",
        "query": {"since": "{{ watermark }}", "until": "{{ window_upper }}"},
        "pagination": {"strategy": "page", "param": "page"},
    }
    singly = {**pages, "pagination": {"strategy": "page", "param": "page", "size_param": "size", "size": 1}}
    feed = {
        "path": "/delta/orders",
        "items": "/items",
        "delta_pointer": "/delta",
        "pagination": {"strategy": "next_url", "pointer": "/next"},
    }
    return Fixture(
        connector=Http(),
        connection=ConnectionSpec("api", {"base_url": api.url, "auth": auth}, scratch),
        dataset=DatasetSpec("api", "orders", pages, contract),
        rows=rows,
        cursor="at",
        variants=(DatasetSpec("api", "orders", singly, contract),),
        feed=DatasetSpec("api", "orders", feed, contract),
        output=lambda name: OutputSpec("api", name, WriteStrategy.APPEND, {"path": f"/rows/{name}"}),
        write_options=_http_options,
        read_back=lambda output: _records(api.rows.get(output.entity, [])),
        broken=ConnectionSpec("api", {"base_url": api.url, "auth": {**auth, "token": "hunter3-secret"}}, scratch),
        secrets=("hunter2-secret", "hunter3-secret"),
        gaps={"deletes_follow_the_upserts": "on_delete: soft cannot be done"},
    )


def _http_options(output: OutputSpec) -> Mapping[str, object]:
    if output.strategy is not WriteStrategy.MERGE:
        return {"path": f"/rows/{output.entity}"}
    path = f"/rows/{output.entity}/{{key}}"
    return {"path": path, "delete_path": path}


def _records(rows: list[dict[str, object]]) -> pa.Table:
    import pyarrow as pa

    def column(values: list[object]) -> pa.Array:
        try:
            return pa.array(values)
        except OverflowError:
            return pa.array(values, pa.uint64())

    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: column([row.get(name) for row in rows]) for name in names})


def _database(file: Path) -> DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(str(file))
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET arrow_lossless_conversion = true")
    return connection


def _table(file: Path, name: str) -> pa.Table:
    import duckdb
    import pyarrow as pa

    try:
        opened = _database(file)
    except duckdb.Error as busy:  # its class differs between versions of DuckDB
        raise NotApplicable("the database file is open for writing") from busy
    with opened as connection:
        there = connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = $name", {"name": name}).fetchall()
        return connection.table(quote(name)).to_arrow_table() if there else pa.table({})


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
