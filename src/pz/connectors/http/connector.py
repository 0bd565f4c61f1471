"""The entry point: schemas, offline checks, and the two sides of a connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pz.connectors.contract import CONTRACT_MAJOR, Capability, ConnectionReport, ConnectionSpec, DatasetSpec
from pz.connectors.http.client import Client, Request
from pz.connectors.http.faults import Refused
from pz.connectors.http.paths import below
from pz.connectors.http.reading_options import DATASET_SCHEMA
from pz.connectors.http.settings import CONNECTION_SCHEMA, Settings, connection_faults
from pz.connectors.http.sink import OUTPUT_SCHEMA, HttpSink
from pz.connectors.http.source import HttpSource
from pz.errors import ConnectorError

__all__ = ["Http"]


def _advice(failure: ConnectorError, connection: ConnectionSpec) -> str | None:
    """What to do about a failed check: many an API has nothing at its base URL, or nothing that answers a GET."""
    if not isinstance(failure, Refused) or failure.status in (401, 403):
        return failure.hint
    if "check_path" in connection.options:
        return "check base_url and check_path"
    return "if base_url is right, set check_path to a path of the API that answers a GET"


class Http:
    """APIs over HTTP."""

    name: ClassVar[str] = "http"
    contract_major: ClassVar[int] = CONTRACT_MAJOR
    capabilities: ClassVar[Capability] = (
        Capability.BOUNDED_WINDOW
        | Capability.SYNC_STATE
        | Capability.GATED_OPERATIONS
        | Capability.STABLE_PARTITION_IDS
        | Capability.CHECKPOINTABLE_READS
        | Capability.MERGE_WRITES
        | Capability.CHECKPOINTABLE_WRITES
        | Capability.APPLY_DELETES
    )
    gives: ClassVar[str] = "records of HTTP APIs, page by page; rows sent to them in chunks or one by one"

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
        """URLs, the auth block, headers, hosts."""
        return connection_faults(connection.options)

    def location(self, connection: ConnectionSpec) -> Mapping[str, str]:
        """The base URL."""
        return {"base_url": str(connection.options.get("base_url", "")).rstrip("/")}

    def dataset_location(self, dataset: DatasetSpec) -> Mapping[str, str]:
        """The path of the resource, without its query."""
        return {"path": str(dataset.options.get("path", "")).partition("?")[0].strip("/")}

    def check_connection(self, connection: ConnectionSpec) -> ConnectionReport:
        """GET the base URL or ``check_path``; any 2xx is a yes."""
        try:
            settings = Settings.of(connection)
            client = Client(settings, settings.redactor())
            try:
                path = (settings.check_path or "").removeprefix("/")
                request = Request(
                    below(settings.base, path),
                    f"GET {connection.name}:/{path.partition('?')[0]}",
                    label="check the connection",
                )
                client.fetch(request, None, lambda answer: answer.status)
            finally:
                client.close()
        except ConnectorError as failure:
            return ConnectionReport(False, failure.message, _advice(failure, connection))
        return ConnectionReport(True)

    def open_source(self, connection: ConnectionSpec) -> HttpSource:
        """See `Connector`. Connects when something is asked."""
        return HttpSource(Settings.of(connection))

    def open_sink(self, connection: ConnectionSpec) -> HttpSink:
        """See `Connector`. Connects when something is sent."""
        return HttpSink(Settings.of(connection))
