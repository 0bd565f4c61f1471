"""The reference connectors: every capability of the contract, over a `Server` that a test scripts.

Three connectors over one implementation, because a connector's capabilities hold for both directions and some exclude
each other:

    reference        like a database: partitions with stable ids, checkpoints, bounds, change capture; one transaction per
                     write with a mark, deletes, partial updates
    reference_api    like a web API: a feed with tokens, calls through the gate; rows visible as they are sent, acknowledged
                     counts, abort cleans up nothing
    reference_plain  the least that a connector can be

They are not entry points of the distribution. Hand them to ``Registry.with_connector``, or put `distribution_path` on the
Python path of a process: it holds the metadata that makes them installed connectors there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pz.connectors.contract import (
    CONTRACT_MAJOR,
    Capability,
    ConnectionReport,
    ConnectionSpec,
    PermanentError,
)
from pz.errors import ConnectorError
from pz.testing.reference_sink import OUTPUT_SCHEMA, ReferenceSink
from pz.testing.reference_source import DATASET_SCHEMA, DatabaseSource, FeedSource, ReferenceSource
from pz.testing.server import Server

__all__ = ["CONNECTORS", "Reference", "ReferenceApi", "ReferencePlain", "distribution_path", "server_of"]

_CONNECTION_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {"type": "string", "description": "Directory in which the far side lives."},
        "password": {"type": "string", "description": "A secret that no message may ever show."},
        "transactional": {"type": "boolean", "description": "Whether a write becomes visible as a whole."},
        "abort": {"enum": ["discards_all", "best_effort", "none"], "description": "What an abort leaves behind."},
        "settle": {"enum": ["works", "unavailable"], "description": "Whether marks can be looked up."},
    },
}


def distribution_path() -> Path:
    """The directory that, on ``sys.path`` or ``PYTHONPATH``, makes the reference connectors installed ones."""
    return Path(__file__).with_name("installed")


def server_of(connection: ConnectionSpec) -> Server:
    """The far side of a connection; a relative path lies in the project."""
    return Server(connection.base_dir / str(connection.options["path"]))


class ReferencePlain:
    """A connector with the least abilities: one anonymous partition, everything by append or replace."""

    name: ClassVar[str] = "reference_plain"
    contract_major: ClassVar[int] = CONTRACT_MAJOR
    capabilities: ClassVar[Capability] = Capability.REPLACE_WRITES | Capability.TRANSACTIONAL
    gives: ClassVar[str] = "a scripted far side with the least abilities (for tests)"

    def connection_schema(self) -> Mapping[str, Any]:
        """See `Connector`."""
        return _CONNECTION_SCHEMA

    def dataset_schema(self) -> Mapping[str, Any]:
        """See `Connector`."""
        return DATASET_SCHEMA

    def output_schema(self) -> Mapping[str, Any] | None:
        """See `Connector`."""
        return OUTPUT_SCHEMA

    def validate(self, connection: ConnectionSpec) -> Sequence[str]:
        """Discarding everything needs a transaction."""
        options = connection.options
        if options.get("transactional") is False and options.get("abort") == "discards_all":
            return ["abort: discards_all needs transactional: true"]
        return []

    def location(self, connection: ConnectionSpec) -> Mapping[str, str]:
        """The directory as the project spells it, so that moving the project does not change the place."""
        return {"path": str(connection.options.get("path", ""))}

    def check_connection(self, connection: ConnectionSpec) -> ConnectionReport:
        """Whether the directory holds a far side already."""
        place = connection.base_dir / str(connection.options["path"])
        if not (place / "data.sqlite").is_file():
            return ConnectionReport(False, "no far side lives at path")
        try:
            with Server(place).script.call("check", "*"):
                return ConnectionReport(True)
        except ConnectorError as failure:
            return ConnectionReport(False, failure.message)

    def open_source(self, connection: ConnectionSpec) -> ReferenceSource:
        """See `Connector`."""
        server = _existing(connection)
        with server.script.call("open_source", "*"):
            return ReferenceSource(server, self.capabilities)

    def open_sink(self, connection: ConnectionSpec) -> ReferenceSink:
        """See `Connector`."""
        server = _existing(connection)
        with server.script.call("open_sink", "*"):
            return ReferenceSink(server, connection.options, self.capabilities)


def _existing(connection: ConnectionSpec) -> Server:
    place = connection.base_dir / str(connection.options["path"])
    if not place.is_dir():
        raise PermanentError("no far side lives at path", hint="create it with pz.testing.server.Server")
    return Server(place)


class Reference(ReferencePlain):
    """Like a database."""

    name: ClassVar[str] = "reference"
    capabilities: ClassVar[Capability] = (
        Capability.COLUMN_PRUNING
        | Capability.PREDICATE_PUSHDOWN
        | Capability.PARTITIONED_READ
        | Capability.NATIVE_SCAN
        | Capability.NATIVE_COPY
        | Capability.MERGE_WRITES
        | Capability.REPLACE_WRITES
        | Capability.TRANSACTIONAL
        | Capability.BOUNDED_WINDOW
        | Capability.INCLUSIVE_WATERMARK_BOUND
        | Capability.COLUMN_PARTITIONED_WRITES
        | Capability.STREAMING_PARTITIONS
        | Capability.STABLE_PARTITION_IDS
        | Capability.CHECKPOINTABLE_READS
        | Capability.CHANGE_CAPTURE
        | Capability.APPLY_DELETES
        | Capability.SNAPSHOT_DELETES
        | Capability.PARTIAL_UPDATES
        | Capability.TEXT_LENGTH_STATS
    )
    gives: ClassVar[str] = "a scripted far side that behaves like a database (for tests)"

    def open_source(self, connection: ConnectionSpec) -> DatabaseSource:
        """See `Connector`."""
        server = _existing(connection)
        with server.script.call("open_source", "*"):
            return DatabaseSource(server, self.capabilities)


class ReferenceApi(ReferencePlain):
    """Like a web API: what was sent stays."""

    name: ClassVar[str] = "reference_api"
    capabilities: ClassVar[Capability] = (
        Capability.COLUMN_PRUNING
        | Capability.MERGE_WRITES
        | Capability.REPLACE_WRITES
        | Capability.BOUNDED_WINDOW
        | Capability.SYNC_STATE
        | Capability.GATED_OPERATIONS
        | Capability.CHECKPOINTABLE_WRITES
        | Capability.APPLY_DELETES
    )
    gives: ClassVar[str] = "a scripted far side that behaves like a web API (for tests)"

    def open_source(self, connection: ConnectionSpec) -> FeedSource:
        """See `Connector`."""
        server = _existing(connection)
        with server.script.call("open_source", "*"):
            return FeedSource(server, self.capabilities)

    def open_sink(self, connection: ConnectionSpec) -> ReferenceSink:
        """Not transactional and without clean-up unless the connection says otherwise."""
        server = _existing(connection)
        with server.script.call("open_sink", "*"):
            options = {"transactional": False, "abort": "none", **connection.options}
            return ReferenceSink(server, options, self.capabilities)


CONNECTORS: tuple[type[ReferencePlain], ...] = (Reference, ReferenceApi, ReferencePlain)
"""The reference connectors, for ``Registry.with_connector``."""
