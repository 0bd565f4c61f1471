"""DuckDB's reader of PostgreSQL: where its extension is installed, and for columns that it does not change.

The server runs the statement that would be run for batches, through ``postgres_query``: one binary COPY, which DuckDB decodes.
So neither DuckDB's memory of the server's catalogue nor its own translation of types and filters has a part in it. What it
would change without a word (NaN in a decimal, a moment beyond its range) is looked for by the server while it reads: there
a text that is no number is cast to one, and the error carries the column's place.
"""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pz.connectors.contract import NativeScan
from pz.connectors.postgres.connect import Server
from pz.connectors.postgres.types import Fix, ReadColumn
from pz.errors import ConnectorError
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    from pz.connectors.postgres.relation import Relation

__all__ = ["MARK", "MECHANISM", "scan_of", "scannable"]

MECHANISM = "DuckDB's postgres_scanner, or batches where a column needs them"
WHEEL = "duckdb_extension_postgres_scanner"
MARK = "pz-unfit-"

_AS_THEY_ARE = frozenset(
    {
        "BOOLEAN",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "VARCHAR",
        "BLOB",
        "DATE",
        "TIME",
        "UUID",
    }
)
_OPTIONS = "TYPE postgres, READ_ONLY"
_IN_SECRET = {"host": "HOST", "port": "PORT", "dbname": "DATABASE", "user": "USER", "password": "PASSWORD"}
LAST_MOMENT = "294247-01-10 04:00:54.775806"
"""One microsecond later is DuckDB's infinity, and then come moments before Christ."""

# A wait that DuckDB's interrupt does not reach: the statement is known by the comment that it begins with.
CANCEL = """
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND strpos(query, %s) > 0
"""


def scannable() -> Path | None:
    """The installed extension for this DuckDB; nothing is downloaded."""
    import duckdb

    return _installed(duckdb.__version__)


@cache
def _installed(version: str) -> Path | None:
    from importlib.util import find_spec

    wheel = find_spec(WHEEL)
    folders = wheel.submodule_search_locations if wheel else None
    for folder in folders or ():
        for found in sorted(Path(folder).glob(f"extensions/v{version}/postgres_scanner.duckdb_extension")):
            return found
    return None


def scan_of(
    server: Server, relation: Relation, columns: Sequence[ReadColumn], conditions: Sequence[str]
) -> NativeScan | None:
    """The fragment that reads these columns under these conditions; None where batches it must be."""
    extension = scannable()
    sent = [_sent(relation, column) for column in columns]
    if extension is None or not relation.unicode or any(expression is None for expression in sent):
        return None
    token = f"pz {uuid.uuid4().hex}"
    selected = ", ".join(f"{found} AS {quote(column.name)}" for found, column in zip(sent, columns, strict=True))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    statement = f"/* {token} */ SELECT {selected} FROM {relation.source}{where}"
    place = _Place.of(server)
    typed = ", ".join(f"CAST({quote(c.name)} AS {c.duckdb}) AS {quote(c.name)}" for c in columns)
    return NativeScan(
        relation=f"(SELECT {typed} FROM postgres_query({literal(place.alias)}, {literal(statement)}))",
        mechanism=MECHANISM,
        setup=(
            f"LOAD {literal(str(extension))}",
            "SET GLOBAL pg_experimental_filter_pushdown = false",
            *place.setup,
        ),
        from_text=True,
        interrupt=lambda: _interrupt(server, token),
    )


@frozen
class _Place:
    """The server under a name of its own in DuckDB, its password in a secret: what a name is attached to can be seen."""

    alias: str
    setup: tuple[str, str]

    @classmethod
    def of(cls, server: Server) -> _Place:
        from psycopg.conninfo import make_conninfo

        parameters = server.parameters()
        given = {name: str(parameters.pop(key)) for key, name in _IN_SECRET.items() if key in parameters}
        told: dict[str, str | int] = {**parameters, "options": server.startup_options()}
        open_ = make_conninfo("", **told)
        named = repr((open_, sorted((name, value) for name, value in given.items() if name != "PASSWORD")))
        alias = f"__pz_pg_{hashlib.sha256(named.encode()).hexdigest()[:12]}"
        hidden = ", ".join(f"{name} {literal(value)}" for name, value in given.items())
        secret = f"CREATE OR REPLACE TEMPORARY SECRET {alias} (TYPE postgres, {hidden})"
        return cls(alias, (secret, f"ATTACH IF NOT EXISTS {literal(open_)} AS {alias} ({_OPTIONS}, SECRET {alias})"))


def _sent(relation: Relation, column: ReadColumn) -> str | None:
    """What is selected for a column, of the type that DuckDB decodes as it was; None where there is no such thing."""
    attribute, expression = relation.attribute(column.name), column.expression
    place = relation.columns.index(column)
    if column.guard is not None or attribute is None:
        return None
    if attribute.type.storage.name == "bpchar" and not expression.endswith("::text"):
        return None  # the blanks at its end would go
    if column.duckdb in _AS_THEY_ARE:
        return expression
    if column.duckdb.startswith("TIMESTAMP"):
        late = f"{expression} > '{LAST_MOMENT}' AND {expression} <> 'infinity'"
        return _guarded(expression, late, "timestamptz" if "ZONE" in column.duckdb else "timestamp", place)
    if column.duckdb == "INTERVAL":
        return _guarded(expression, f"NOT isfinite({expression})", "interval", place)
    found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", column.duckdb)
    if found is None:
        return None
    precision, scale = int(found[1]), int(found[2])
    unfit = f"{expression} = 'NaN'"
    if column.fix is not Fix.UNITS:  # its digits are not declared
        unfit += f" OR min_scale({expression}) > {scale} OR abs({expression}) >= 1e{precision - scale}"
    return _guarded(expression, unfit, f"numeric({precision},{scale})", place)


def _guarded(expression: str, unfit: str, kind: str, place: int) -> str:
    # The text depends on the row, or the server would cast it while it plans.
    refusal = f"('{MARK}{place}' || left({expression}::text, 0))::{kind}"
    return f"CASE WHEN {unfit} THEN {refusal} ELSE {expression}::{kind} END"


def _interrupt(server: Server, token: str) -> None:
    """Cancel the statement from a thread of its own: whoever cancels does not wait for a server."""

    def cancel() -> None:
        with suppress(ConnectorError), server.control() as connection:  # a server that is gone waits for nobody
            connection.execute(CANCEL, [token])

    threading.Thread(target=cancel, name="pz-postgres-cancel", daemon=True).start()
