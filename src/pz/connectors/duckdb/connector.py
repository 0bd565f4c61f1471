"""The connector ``duckdb``: tables of a DuckDB database file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pz.connectors.contract import (
    CONTRACT_MAJOR,
    Capability,
    ConnectionReport,
    ConnectionSpec,
    ConnectorError,
)
from pz.connectors.deletes import LIMIT, LIMIT_SCHEMA
from pz.connectors.duckdb.place import Place
from pz.connectors.duckdb.reading import DuckDbSource
from pz.connectors.duckdb.writing import DuckDbSink
from pz.connectors.localpath import real_path, spelled_path

__all__ = ["DuckDb"]

_CONNECTION_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "description": "The database file, relative to the project; not inside `.pz/`. A write creates it.",
            "examples": ["warehouse.duckdb"],
        }
    },
}

_NO_OPTIONS: Mapping[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}
_OUTPUT_SCHEMA: Mapping[str, Any] = {**_NO_OPTIONS, "properties": {LIMIT: LIMIT_SCHEMA}}


class DuckDb:
    """Reads and writes a DuckDB database file. The entity is ``table`` or ``schema.table``."""

    name: ClassVar[str] = "duckdb"
    contract_major: ClassVar[int] = CONTRACT_MAJOR
    capabilities: ClassVar[Capability] = (
        Capability.NATIVE_SCAN
        | Capability.NATIVE_COPY
        | Capability.REPLACE_WRITES
        | Capability.MERGE_WRITES
        | Capability.TRANSACTIONAL
        | Capability.BOUNDED_WINDOW
        | Capability.INCLUSIVE_WATERMARK_BOUND
        | Capability.COLUMN_PRUNING
        | Capability.PREDICATE_PUSHDOWN
        | Capability.APPLY_DELETES
        | Capability.SNAPSHOT_DELETES
    )
    gives: ClassVar[str] = "tables of a DuckDB database file"

    def connection_schema(self) -> Mapping[str, Any]:
        """The option ``path``."""
        return _CONNECTION_SCHEMA

    def dataset_schema(self) -> Mapping[str, Any]:
        """No options."""
        return _NO_OPTIONS

    def output_schema(self) -> Mapping[str, Any]:
        """What a snapshot may remove."""
        return _OUTPUT_SCHEMA

    def validate(self, connection: ConnectionSpec) -> Sequence[str]:
        """The file may not lie inside ``.pz/``, which belongs to pz."""
        if not isinstance(connection.options.get("path"), str):
            return ()
        own = real_path(connection.base_dir / ".pz")
        try:
            inside = Place.of(connection).path.is_relative_to(own)
        except ConnectorError as error:
            return (error.message,)
        return ("the path lies inside .pz/, which belongs to pz",) if inside else ()

    def location(self, connection: ConnectionSpec) -> Mapping[str, str]:
        """The path as the project spells it."""
        return {"path": spelled_path(str(connection.options.get("path", "")))}

    def place_of(self, connection: ConnectionSpec) -> str:
        """The file, which a run attaches once, whatever connections lead to it."""
        return str(Place.of(connection).path)

    def check_connection(self, connection: ConnectionSpec) -> ConnectionReport:
        """Attach the file, or say that a write will create it."""
        place = Place.of(connection)
        if not place.path.exists():
            if not place.path.parent.is_dir():
                return ConnectionReport(False, "the directory of the file does not exist")
            return ConnectionReport(True, "the file does not exist yet; a write creates it")
        try:
            with place.cursor(None):
                return ConnectionReport(True)
        except ConnectorError as error:
            return ConnectionReport(False, error.message, error.hint)

    def open_source(self, connection: ConnectionSpec) -> DuckDbSource:
        """The read side."""
        return DuckDbSource(Place.of(connection))

    def open_sink(self, connection: ConnectionSpec) -> DuckDbSink:
        """The write side."""
        return DuckDbSink(Place.of(connection))
