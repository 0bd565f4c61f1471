"""A project's connections, opened: the one place where a name becomes a connector, its spec, a source or a sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pz.connectors.contract import ConnectionSpec, Connector, LocatesConnections, Sink, Source
from pz.connectors.registry import Registry
from pz.frozen import frozen
from pz.graph.model import Graph
from pz.plan.specs import connection_spec
from pz.project.model import Project

__all__ = ["Connections"]


@frozen(slots=False)
class Connections:
    """The connections of a project. ``graph`` tells which of them are written to (None: take it that all are)."""

    project: Project
    registry: Registry
    graph: Graph | None = None

    def connector(self, name: str) -> Connector:
        """The connector behind a connection. Raises ProjectError PZ0305 when it is not installed."""
        return self.registry.get(self.project.connections[name].connector)

    def spec(self, name: str) -> ConnectionSpec:
        """What the connector is told about a connection."""
        return connection_spec(self.project, name, written=self._is_written(name))

    def _is_written(self, name: str) -> bool:
        """Whether an output writes through this connection, or through another one that leads to the same place."""
        if self.graph is None:
            return True
        targets = {sink.connection for sink in self.graph.sinks()}
        if name in targets:
            return True
        kind, place = self.project.connections[name].connector, self._place(name)
        return any(self.project.connections[t].connector == kind and self._place(t) == place for t in targets)

    def _place(self, name: str) -> str | Mapping[str, str]:
        connector, spec = self.connector(name), connection_spec(self.project, name)
        return connector.place_of(spec) if isinstance(connector, LocatesConnections) else connector.location(spec)

    @contextmanager
    def source(self, name: str) -> Iterator[Source]:
        """The read side, closed when the block ends. Raises ConnectorError."""
        source = self.connector(name).open_source(self.spec(name))
        try:
            yield source
        finally:
            source.close()

    @contextmanager
    def sink(self, name: str) -> Iterator[Sink]:
        """The write side, closed when the block ends. Raises ConnectorError."""
        sink = self.connector(name).open_sink(self.spec(name))
        try:
            yield sink
        finally:
            sink.close()
