"""Tier 3 of validation: what the project says to connectors, checked offline against what each of them publishes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pz.connectors.contract import Capability, Connector
from pz.connectors.deletes import LIMIT
from pz.connectors.localpath import os_refusals
from pz.connectors.options import Side, check_options
from pz.connectors.registry import Registry
from pz.errors import Code, ConnectorError, Problem, ProjectError
from pz.graph.model import Graph, SinkNode, SourceNode
from pz.plan.specs import connection_spec
from pz.project.model import ConnectionDecl, ConnectorRequirement, Project

__all__ = ["check_configuration"]


def check_configuration(project: Project, graph: Graph, registry: Registry) -> tuple[Problem, ...]:
    """All faults of connections, read options and write options: PZ0301, PZ0305, PZ0339, PZ0345."""
    found: list[Problem] = list(_requirements(project))
    usable: set[str] = set()
    for connection in project.connections.values():
        problems = tuple(_connection(project, connection, registry))
        found.extend(problems)
        if not any(problem.code is Code.PZ0305 for problem in problems):
            usable.add(connection.name)
    for node in graph.nodes:
        if isinstance(node, SourceNode | SinkNode) and node.connection in usable:
            found.extend(_entity(project, node, registry))
    return tuple(found)


def _requirements(project: Project) -> Iterator[Problem]:
    """Distributions that the project names and that are absent or of another version; the reference's own are built in."""
    for required in project.connectors:
        if required.package.lower().startswith(_BUILT_IN):
            continue
        fault = _requirement_fault(required)
        if fault is not None:
            wanted = required.package if required.version is None else f"{required.package}=={required.version}"
            place = required.location
            file, line = (place.file, place.line) if place else (None, None)
            message = f"package '{required.package}', which `connectors` names, {fault}"
            yield Problem(Code.PZ0305, message, file, line, hint=f"pip install {wanted}, or correct the entry")


def _requirement_fault(required: ConnectorRequirement) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    from packaging.version import InvalidVersion, Version

    try:
        installed = version(required.package)
    except PackageNotFoundError:
        return "is not installed"
    try:
        fits = required.version is None or Version(installed) == Version(required.version)
    except InvalidVersion:
        return f"is asked for in a version that is none: '{required.version}'; write one exact version"
    return None if fits else f"is installed in version {installed}, not {required.version}"


_BUILT_IN = "pz.connector."


def _connection(project: Project, connection: ConnectionDecl, registry: Registry) -> Iterable[Problem]:
    file, line = (connection.location.file, connection.location.line) if connection.location else (None, None)
    try:
        connector = registry.get(connection.connector)
    except ProjectError as refused:
        yield from (problem.at(file, line) for problem in refused.problems)
        return
    lacking = registry.lacks(connection.connector)
    if lacking is not None:
        yield lacking.at(file, line)
    subject = f"connection '{connection.name}'"
    problems = check_options(connector, Side.CONNECTION, connection.options, subject=subject, file=file, line=line)
    yield from problems
    if not problems and lacking is None:
        try:
            with os_refusals():
                faults = tuple(connector.validate(connection_spec(project, connection.name)))
        except ConnectorError as failure:
            yield Problem(failure.code or Code.PZ0301, f"{subject}: {failure.message}", file, line, failure.hint)
        else:
            yield from (Problem(Code.PZ0301, f"{subject}: {fault}", file, line) for fault in faults)


def _entity(project: Project, node: SourceNode | SinkNode, registry: Registry) -> Iterable[Problem]:
    connector = registry.get(project.connections[node.connection].connector)
    side, decl = (Side.READ, node.read) if isinstance(node, SourceNode) else (Side.WRITE, node.write)
    options, where = decl.options, decl.location or node.location
    file, line = (where.file, where.line) if where else (None, None)
    subject = f"{'dataset' if side is Side.READ else 'output'} '{node.connection}.{node.entity}'"
    if side is Side.WRITE and LIMIT in options and not _takes_limit(connector):
        able = ", ".join(registry.able(Capability.SNAPSHOT_DELETES))
        message = f"{subject}: connector '{connector.name}' cannot remove what a snapshot does not hold ({LIMIT})"
        yield Problem(Code.PZ0339, message, file, line, f"drop {LIMIT}, or write by a connector that can: {able}")
        options = {name: value for name, value in options.items() if name != LIMIT}
    yield from check_options(connector, side, options, subject=subject, file=file, line=line, lines=decl.lines)


def _takes_limit(connector: Connector) -> bool:
    schema = connector.output_schema()
    return schema is None or LIMIT in schema.get("properties", {})
