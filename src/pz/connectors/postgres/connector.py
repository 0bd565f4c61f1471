"""The entry point: schemas, offline checks, and the two sides of a connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pz.connectors.contract import (
    CONTRACT_MAJOR,
    Capability,
    ConnectionReport,
    ConnectionSpec,
)
from pz.connectors.postgres.connect import CONNECTION_SCHEMA, Server, connection_faults
from pz.connectors.postgres.sink import OUTPUT_SCHEMA, PostgresSink
from pz.connectors.postgres.source import DATASET_SCHEMA, PostgresSource
from pz.errors import ConnectorError

__all__ = ["Postgres"]


class Postgres:
    """PostgreSQL 14 and later."""

    name: ClassVar[str] = "postgres"
    contract_major: ClassVar[int] = CONTRACT_MAJOR
    capabilities: ClassVar[Capability] = (
        Capability.COLUMN_PRUNING
        | Capability.PREDICATE_PUSHDOWN
        | Capability.PARTITIONED_READ
        | Capability.STABLE_PARTITION_IDS
        | Capability.BOUNDED_WINDOW
        | Capability.INCLUSIVE_WATERMARK_BOUND
        | Capability.MERGE_WRITES
        | Capability.REPLACE_WRITES
        | Capability.TRANSACTIONAL
        | Capability.APPLY_DELETES
        | Capability.SNAPSHOT_DELETES
        | Capability.PARTIAL_UPDATES
        | Capability.CHANGE_CAPTURE
    )
    gives: ClassVar[str] = "tables and queries of a PostgreSQL server; tables to write to"

    def connection_schema(self) -> Mapping[str, Any]:
        """See `Connector`."""
        return CONNECTION_SCHEMA

    def dataset_schema(self) -> Mapping[str, Any]:
        """See `Connector`."""
        return DATASET_SCHEMA

    def output_schema(self) -> Mapping[str, Any] | None:
        """See `Connector`."""
        return OUTPUT_SCHEMA

    def validate(self, connection: ConnectionSpec) -> Sequence[str]:
        """The files and the mode of TLS."""
        return list(connection_faults(connection))

    def location(self, connection: ConnectionSpec) -> Mapping[str, str]:
        """Host, port and database."""
        options = connection.options
        return {
            "host": str(options.get("host", "")),
            "port": str(options.get("port", 5432)),
            "database": str(options.get("database", "")),
        }

    def check_connection(self, connection: ConnectionSpec) -> ConnectionReport:
        """Log in and ask for the version."""
        try:
            with Server.of(connection).control() as opened:
                version = opened.info.server_version
        except ConnectorError as failure:
            return ConnectionReport(False, failure.message, failure.hint)
        if version < 140_000:
            return ConnectionReport(False, f"PostgreSQL {version // 10_000} is too old; 14 or later is needed")
        return ConnectionReport(True, f"PostgreSQL {version // 10_000}.{version % 10_000}")

    def open_source(self, connection: ConnectionSpec) -> PostgresSource:
        """See `Connector`. Connects when something is asked."""
        return PostgresSource(Server.of(connection))

    def open_sink(self, connection: ConnectionSpec) -> PostgresSink:
        """See `Connector`. Connects when a session is opened."""
        return PostgresSink(Server.of(connection))
