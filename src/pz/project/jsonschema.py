"""JSON Schemas of the project's YAML files, for editors that complete and check while one types.

They are printed from the same tables that the loader reads by (`pz.project.keys`), so the two cannot disagree about
keys. A schema is a help, not the judge: references to environment variables, near misses, DuckDB types and everything
that spans keys or files are checked by loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pz.frozen import frozen
from pz.project.keys import CONNECTION, ENTITY, PROJECT, READ, SIDECAR, WRITE, block, names

__all__ = ["ConnectorSchemas", "connections_schema", "project_schema", "sidecar_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@frozen
class ConnectorSchemas:
    """The JSON Schemas that a connector publishes for its own options; None leaves that side open."""

    connection: Mapping[str, Any] | None = None
    read: Mapping[str, Any] | None = None
    write: Mapping[str, Any] | None = None


def project_schema() -> dict[str, Any]:
    """The schema of ``project.yml``."""
    return {"$schema": _DIALECT, "title": "pz project", **block(PROJECT)}


def sidecar_schema() -> dict[str, Any]:
    """The schema of ``pipelines/configs/*.yml``."""
    return {"$schema": _DIALECT, "title": "pz pipeline settings", **block(SIDECAR)}


def connections_schema(connectors: Mapping[str, ConnectorSchemas] | None = None) -> dict[str, Any]:
    """The schema of ``connections.yml``.

    ``connectors`` (by name) are those that are installed, built in or by an entry point: a connection uses one of them,
    and its options are narrowed to what that one publishes. Without any, every name is taken.
    """
    connection = block(CONNECTION, open_ended=True)
    if connectors:
        named = connection["properties"]["connector"]
        connection["properties"]["connector"] = {**named, "enum": sorted(connectors)}
    narrowed = [
        {"if": _uses(name), "then": _connection_with(schemas)} for name, schemas in sorted((connectors or {}).items())
    ]
    if narrowed:
        connection["allOf"] = narrowed
    return {
        "$schema": _DIALECT,
        "title": "pz connections",
        "type": "object",
        "propertyNames": {"pattern": "^(?!.*__)[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": connection,
    }


def _uses(connector: str) -> dict[str, Any]:
    return {"properties": {"connector": {"const": connector}}, "required": ["connector"]}


def _connection_with(schemas: ConnectorSchemas) -> dict[str, Any]:
    """What a connector says about its own options, beside the engine's keys at each place."""
    narrowed = _beside(schemas.connection, names(CONNECTION))
    sides = {
        side: _beside(schema, names(keys))
        for side, schema, keys in (("read", schemas.read, READ), ("write", schemas.write, WRITE))
        if schema is not None
    }
    if sides:
        entity = {
            "type": ["object", "null"],
            "properties": {side: sides[side] for side in names(ENTITY) if side in sides},
        }
        entities = {"type": ["object", "null"], "additionalProperties": entity}
        narrowed["properties"] = {**narrowed.get("properties", {}), "entities": entities}
    return narrowed


def _beside(schema: Mapping[str, Any] | None, engine_keys: tuple[str, ...]) -> dict[str, Any]:
    """A connector's schema with the engine's keys allowed; values may be ``${VAR}`` text whatever their type."""
    if schema is None:
        return {}
    own = {key: _or_reference(value) for key, value in schema.get("properties", {}).items()}
    merged = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "type")}
    merged["properties"] = {**dict.fromkeys(engine_keys, True), **own}
    return {**merged, "type": ["object", "null"]}


def _or_reference(schema: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"}]}
