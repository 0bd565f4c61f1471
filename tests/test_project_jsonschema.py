"""The editors' schemas and the loader accept the same keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from projects import MINIMAL, loaded, write
from pz.errors import Problems, ProjectError
from pz.project import keys
from pz.project.jsonschema import ConnectorSchemas, connections_schema, project_schema, sidecar_schema
from pz.project.loader import load
from pz.project.yaml_source import parse_yaml, plain_value

FULL_PROJECT = """\
name: demo
version: 1
pz: "1"
connectors: [{package: acme, version: "1.0"}]
vars: {a: 1}
engine:
  threads: 1
  batch_bytes: 1048576
  force_universal: false
  check_samples: true
  node_timeout: 5s
  duckdb: {memory_limit: 1GB, threads: 1, temp_directory: /tmp}
  breaker: {failure_threshold: 1, cool_down: 1s}
retention: {keep_last: 1}
state: {backend: local}
on_source_drift: fail
"""
FULL_CONNECTIONS = """\
lake:
  connector: localfiles
  root: data
  max_concurrency: 1
  rate_limit: {requests_per_minute: 60, burst: 1}
  retry: {max_attempts: 1, base_delay: 1s, max_delay: 2s}
  allow_unsigned_extensions: false
  entities:
    a:
      read:
        path: a.csv
        columns: {id: int}
        sync: {mode: incremental, cursor: id, initial: 0, max_window: 5, until: 9, lookback: 1, null_cursor: refuse,
               boundary: exclusive, start: from_state}
        retry: {max_attempts: 1}
      write: {strategy: merge, keys: [id], duplicates: accept, dedupe_by: t, on_delete: soft, schema_policy: additive,
              retry: {max_attempts: 1}}
    b:
      read: {sync: {mode: cdc, slot: s}}
"""
FULL_SIDECAR = """\
pipeline: p
materialization: view
tags: [a]
checks:
  - not_null: {columns: [a], sample_values: false}
  - unique: {column: a, sample_values: false}
  - row_count: {min: 1, max: 2, sample_values: true}
  - freshness: {column: a, max_age: 1d, sample_values: true}
  - freshness: {columns: [b], max_age: 1d}
  - accepted_values: {column: a, values: [1], sample_values: true}
  - accepted_values: {columns: [b], values: [1]}
  - custom_sql: {name: c, sql: select 1, sample_values: true}
  - not_null: {column: b}
  - unique: {columns: [b]}
"""
FULL = {
    "project.yml": FULL_PROJECT,
    "connections.yml": FULL_CONNECTIONS,
    "pipelines/p.sql": "select 1",
    "pipelines/configs/p.yml": FULL_SIDECAR,
}
SCHEMAS = {
    "project.yml": project_schema(),
    "connections.yml": connections_schema(),
    "pipelines/configs/p.yml": sidecar_schema(),
}

TABLES = {
    name: table
    for name, table in vars(keys).items()
    if isinstance(table, tuple) and table and all(isinstance(entry, keys.Key) for entry in table)
}


def document(text: str) -> Any:
    block = parse_yaml(text, "f.yml", Problems())
    assert block is not None
    return plain_value(block)


def valid(file: str, text: str) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMAS[file]).is_valid(document(text)))


def used_keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from used_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from used_keys(inner)


def test_the_schemas_are_schemas() -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_project_with_every_key_satisfies_loader_and_schemas(tmp_path: Path) -> None:
    loaded(tmp_path, FULL)
    for file in SCHEMAS:
        assert valid(file, FULL[file]), file


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_key_of_the_tables_is_in_that_project(name: str) -> None:
    """So the two tests together show that the loader accepts whatever a table, and hence a schema, holds."""
    used = {key for file in SCHEMAS for key in used_keys(document(FULL[file]))}
    assert set(keys.names(TABLES[name])) <= used


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("project.yml", "threads: 1\n", "thread: 1\n"),
        ("project.yml", "name: demo\n", ""),
        ("project.yml", "threads: 1\n", 'threads: "1"\n'),
        ("project.yml", "threads: 1\n", "threads: 0\n"),
        ("project.yml", "node_timeout: 5s", "node_timeout: 5"),
        ("project.yml", "cool_down: 1s", "cool: 1s"),
        ("project.yml", "keep_last: 1", "keep_last: 0"),
        ("project.yml", "{keep_last: 1}", "maybe"),
        ("project.yml", "drift: fail", "drift: explode"),
        ("project.yml", "backend: local", "backend: elsewhere"),
        ("project.yml", "1GB", "1 apple"),
        ("project.yml", "package: acme", "packages: acme"),
        ("connections.yml", "connector: localfiles\n  ", ""),
        ("connections.yml", "lake:", "la-ke:"),
        ("connections.yml", "lake:", "la__ke:"),
        ("connections.yml", "max_concurrency: 1", "max_concurrency: 0"),
        ("connections.yml", "requests_per_minute: 60", "requests: 60"),
        ("connections.yml", "mode: cdc", "mode: cdd"),
        ("connections.yml", "slot: s", "sloth: s"),
        ("connections.yml", "strategy: merge", "strategy: upsert"),
        ("connections.yml", "duplicates: accept", "duplicates: maybe"),
        ("connections.yml", "columns: {id: int}", "columns: [id]"),
        ("connections.yml", "      read:\n", "      reads:\n"),
        ("pipelines/configs/p.yml", "pipeline: p\n", ""),
        ("pipelines/configs/p.yml", "materialization: view", "materialization: tabel"),
        ("pipelines/configs/p.yml", "tags", "tag"),
        ("pipelines/configs/p.yml", "- not_null: {column: b}", "- nut_null: {column: b}"),
        ("pipelines/configs/p.yml", "name: c", "name: C"),
        ("pipelines/configs/p.yml", "max_age: 1d}", "max_age: soon}"),
        ("pipelines/configs/p.yml", "values: [1]}", "values: []}"),
    ],
)
def test_what_a_schema_refuses_the_loader_refuses(tmp_path: Path, file: str, old: str, new: str) -> None:
    changed = FULL[file].replace(old, new)
    assert changed != FULL[file]
    assert not valid(file, changed)
    with pytest.raises(ProjectError):
        loaded(tmp_path, {**FULL, file: changed})


@pytest.mark.parametrize("text", ["name: a\nversion: 1\nretention: off\n", "name: a\nversion: 1\nengine:\nvars:\n"])
def test_short_forms_satisfy_both(tmp_path: Path, text: str) -> None:
    load(write(tmp_path, {**MINIMAL, "project.yml": text}), environ={})
    assert valid("project.yml", text)


def test_a_connector_narrows_its_own_options_only() -> None:
    schema = connections_schema(
        {
            "other": ConnectorSchemas(),
            "acme": ConnectorSchemas(
                connection={
                    "type": "object",
                    "properties": {"port": {"type": "integer"}},
                    "additionalProperties": False,
                },
                read={"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False},
            ),
        }
    )
    validator = jsonschema.Draft202012Validator(schema)

    def ok(text: str) -> bool:
        return bool(validator.is_valid(document(text)))

    assert not ok("a: {connector: acm, port: 5}"), "one that is not installed"
    assert ok("a: {connector: acme, port: 5, max_concurrency: 2}")
    assert ok("a: {connector: acme, port: '${PORT}'}")
    assert ok("a: {connector: acme, entities: {e: {read: {path: x, columns: {a: int}}, write: {anything: 1}}}}")
    assert ok("a: {connector: other, prt: 5}")
    assert not ok("a: {connector: acme, prt: 5}")
    assert not ok("a: {connector: acme, port: five}")
    assert not ok("a: {connector: acme, entities: {e: {read: {pth: x}}}}")
