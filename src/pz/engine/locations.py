"""Where a project's connections are, as digests: what tells dev from prod without naming either."""

from __future__ import annotations

from pz.connectors.location import digest
from pz.connectors.registry import Registry
from pz.plan.connections import Connections
from pz.project.model import Project

__all__ = ["location_digest"]


def location_digest(project: Project, registry: Registry, connection: str) -> str:
    """The digest of one connection's location."""
    connections = Connections(project, registry)
    return digest(connections.connector(connection).location(connections.spec(connection)))
