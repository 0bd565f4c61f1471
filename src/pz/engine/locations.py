"""Where a project's connections are, as digests: what tells dev from prod without naming either."""

from __future__ import annotations

from collections.abc import Mapping

from pz.connectors.location import digest
from pz.connectors.registry import Registry
from pz.plan.specs import connection_spec
from pz.project.model import Project

__all__ = ["location_digest", "location_digests"]


def location_digest(project: Project, registry: Registry, connection: str) -> str:
    """The digest of one connection's location."""
    connector = registry.get(project.connections[connection].connector)
    return digest(connector.location(connection_spec(project, connection)))


def location_digests(project: Project, registry: Registry, connections: frozenset[str]) -> Mapping[str, str]:
    """Digests of several connections, by name."""
    return {name: location_digest(project, registry, name) for name in sorted(connections)}
