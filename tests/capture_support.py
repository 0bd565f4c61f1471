"""A captured table of a test's database and a project that merges it into another schema of the same database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pz
from postgres_server import Database
from running import project

SELECT = "SELECT * FROM {{ source('src', 'orders') }}"


def captured(database: Database, columns: str = "id int PRIMARY KEY, name text, big text", *more: str) -> None:
    """Make table ``orders`` with its publication and the schema ``copy``."""
    database.run(
        f"CREATE TABLE orders ({columns})",
        "CREATE PUBLICATION pz_src FOR TABLE orders",
        "CREATE SCHEMA copy",
        *more,
    )


def replica(
    root: Path,
    database: Database,
    *,
    on_delete: str = "delete",
    select: str = SELECT,
    source: Mapping[str, Any] | None = None,
    sync: Mapping[str, Any] | None = None,
    write: str = "",
    read: Mapping[str, Any] | None = None,
) -> pz.OpenProject:
    """A project that keeps ``copy.orders`` like ``orders``; connection options of the source may go through a proxy."""
    orders = {"read": {"sync": {"mode": "cdc", **(sync or {})}, **(read or {})}}
    connections = {
        "src": {
            "connector": "postgres",
            **(source or database.options),
            "retry": {"max_attempts": 1},
            "entities": {"orders": orders},
        },
        "dst": {"connector": "postgres", **database.options, "retry": {"max_attempts": 1}},
    }
    sink = f"{{{{ sink('dst', 'copy.orders', strategy: 'merge', keys: ['id'], on_delete: '{on_delete}'{write}) }}}}"
    files = {"connections.yml": json.dumps(connections), "pipelines/orders.sql": f"INSERT INTO {sink} {select}"}
    return project(root, files)


def differences(database: Database, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
    """Rows that source and copy do not share, each with the side that has it; empty when they are equal."""
    query = """
        (SELECT 'missing' AS side, * FROM (SELECT {c} FROM orders EXCEPT ALL SELECT {c} FROM copy.orders WHERE {w}) a)
        UNION ALL
        (SELECT 'extra' AS side, * FROM (SELECT {c} FROM copy.orders WHERE {w} EXCEPT ALL SELECT {c} FROM orders) b)
    """
    return database.rows(query.format(c=columns, w=where))


def slot(database: Database, name: str = "pz_src_orders") -> dict[str, Any]:
    """What the server says about the slot; empty when there is none."""
    found = database.rows(
        "SELECT confirmed_flush_lsn::text, active, wal_status, pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) "
        f"FROM pg_replication_slots WHERE slot_name = '{name}'"
    )
    return dict(zip(("confirmed", "active", "status", "behind"), found[0], strict=True)) if found else {}


def token(root: Path, key: str = "src.orders") -> str | None:
    """The stored token."""
    path = root / ".pz/state/sync-state.json"
    return json.loads(path.read_text())["tokens"].get(key, {}).get("token") if path.exists() else None
