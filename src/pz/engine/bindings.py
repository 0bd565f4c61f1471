"""Where each dataset's state is earned in this project: the source's location and the locations of the outputs below."""

from __future__ import annotations

from collections.abc import Mapping

from pz.connectors.contract import LocatesDatasets, LocatesTargets, ReadShape
from pz.connectors.location import digest as digest_of
from pz.connectors.registry import Registry
from pz.engine.locations import location_digest
from pz.graph.model import Graph, SinkNode, SourceNode
from pz.plan.connections import Connections
from pz.plan.specs import dataset_spec, output_spec
from pz.project.model import Project
from pz.state.advancement import outputs_below
from pz.state.entries import Binding

__all__ = ["bindings_of"]

# A dataset that declares nothing keeps state only where its connector makes it a feed.
_SHAPES = {ReadShape.CDC: ReadShape.CDC.value, None: ReadShape.FEED.value, ReadShape.INCREMENTAL: ""}


def bindings_of(project: Project, graph: Graph, registry: Registry) -> Mapping[str, Binding]:
    """The binding of every dataset, by node id."""
    digests: dict[str, str] = {}

    def digest(connection: str) -> str:
        if connection not in digests:
            digests[connection] = location_digest(project, registry, connection)
        return digests[connection]

    def binding(source: SourceNode) -> Binding:
        below = outputs_below(graph, source)
        paths = {sink.name: _target_digest(project, registry, sink) for sink in below}
        return Binding(
            digest(source.connection),
            {sink.name: digest(sink.connection) for sink in below},
            _dataset_digest(project, registry, source),
            _SHAPES[source.declared_shape],
            source.read.sync.slot or "",
            {name: path for name, path in paths.items() if path},
            {sink.name: sink.id for sink in below},
        )

    return {source.id: binding(source) for source in graph.sources()}


def _dataset_digest(project: Project, registry: Registry, source: SourceNode) -> str:
    connector = Connections(project, registry).connector(source.connection)
    if not isinstance(connector, LocatesDatasets):
        return ""
    return digest_of(connector.dataset_location(dataset_spec(source)))


def _target_digest(project: Project, registry: Registry, sink: SinkNode) -> str:
    connector = Connections(project, registry).connector(sink.connection)
    return digest_of(connector.target_location(output_spec(sink))) if isinstance(connector, LocatesTargets) else ""
