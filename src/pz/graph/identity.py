"""Node ids: 16 lower-case hex digits over what a node does and over its parents' ids, a Merkle tree.

So an edit anywhere changes the id of everything below it, and nothing is reused or carried forward that was made by
other SQL. Hashed is canonical JSON: keys sorted, no whitespace, exact numbers.

    SourceLoad   connection, entity, read options, columns, sync block (with the bounds that SQL declares)
    Pipeline     name, materialisation, SQL with its sentinels, inlined ephemeral SQL, parents
    Check        the check without sample_values, parent
    SinkWrite    connection, entity, write options, strategy, keys, on_delete, duplicates, schema_policy, dedupe_by, parent

Left out on purpose: credentials, hosts, retry, limits, tags, pushdown, file and line, the consent `start: from_state`, blanks and
comments of SQL.
The sentinels of watermark(), run_id and run_started_at stand for themselves, so a run's own constants do not change an id
from run to run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from pz.graph.model import NodeKind, SqlBound
from pz.project.model import CheckDecl, Materialization, ReadDecl, SyncDecl, WriteDecl
from pz.project.sqlscan import without_blanks

__all__ = ["NotCanonical", "canonical_json", "check_id", "pipeline_id", "sink_id", "source_id"]

_ID_DIGITS = 16


class NotCanonical(ValueError):
    """A value has no lossless canonical form; ``path`` names the option, never the value."""

    def __init__(self, path: str) -> None:
        super().__init__(f"option '{path}' has a value without an exact form")
        self.path = path


def canonical_json(value: Mapping[str, Any]) -> str:
    """Return the one spelling of a mapping that equal mappings share. Raises `NotCanonical`."""
    return json.dumps(_canonical(value, ""), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def source_id(connection: str, entity: str, read: ReadDecl, bounds: Iterable[SqlBound] = ()) -> str:
    """The id of a source load."""
    content: dict[str, Any] = {
        "connection": connection,
        "entity": entity,
        "options": dict(read.options),
        "columns": None if read.columns is None else [list(column) for column in read.columns.items()],
        "sync": _sync(read.sync),
        "bounds": [[bound.floor, bound.inclusive, bound.expression] for bound in bounds],
    }
    return _node_id(NodeKind.SOURCE_LOAD, content, ())


def pipeline_id(
    name: str, materialization: Materialization, sql: str, inlined: Mapping[str, str], parents: Iterable[str]
) -> str:
    """The id of a pipeline. ``sql`` is its own text, ``inlined`` the text of the ephemeral pipelines in it."""
    bodies = {inner: without_blanks(body) for inner, body in inlined.items()}
    content = {"name": name, "materialization": materialization, "sql": without_blanks(sql), "inlined": bodies}
    return _node_id(NodeKind.PIPELINE, content, parents)


def check_id(check: CheckDecl, parent: str) -> str:
    """The id of a check."""
    left_out = {"location", "sample_values"}
    content = {f.name: getattr(check, f.name) for f in fields(check) if f.name not in left_out}
    return _node_id(NodeKind.CHECK, content, (parent,))


def sink_id(connection: str, entity: str, write: WriteDecl, parent: str) -> str:
    """The id of a sink write."""
    left_out = {"location", "lines", "retry"}
    content = {f.name: getattr(write, f.name) for f in fields(write) if f.name not in left_out}
    return _node_id(NodeKind.SINK_WRITE, {"connection": connection, "entity": entity, **content}, (parent,))


def _node_id(kind: NodeKind, content: Mapping[str, Any], parents: Iterable[str]) -> str:
    text = canonical_json({"kind": kind, "content": content, "parents": sorted(parents)})
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_DIGITS]


def _sync(sync: SyncDecl) -> dict[str, Any]:
    """The block as it acts: an omitted one and an explicit ``auto`` are the same.

    ``start`` is consent to go on from stored state, which changes nothing of what is read: it may be taken away again.
    """
    content = {f.name: getattr(sync, f.name) for f in fields(sync) if f.name not in {"location", "explicit"}}
    return {**content, "start": None}


def _canonical(value: object, path: str) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Decimal) and value.is_finite():
        return {"decimal": str(value)}
    if isinstance(value, timedelta):
        return {"microseconds": value // timedelta(microseconds=1)}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _canonical(inner, _below(path, key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner, path) for inner in value]
    raise NotCanonical(path)


def _below(path: str, key: str) -> str:
    outer = path.removeprefix("content").removeprefix(".options").lstrip(".")
    return f"{outer}.{key}" if outer else key
