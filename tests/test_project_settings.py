"""``project.yml``: defaults, bounds, and where each fault points."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from projects import loaded, places, refused
from pz.errors import ProjectError
from pz.project.model import Breaker, ConnectorRequirement, DriftPolicy, DuckDbSettings, EngineSettings, Project
from pz.project.settings import parse_vars_option

HEAD = "name: demo\nversion: 1.10\n"


def project(tmp_path: Path, body: str, **options: object) -> Project:
    return loaded(tmp_path, {"project.yml": HEAD + body}, **options).project


def test_a_minimal_project_has_the_documented_defaults(tmp_path: Path) -> None:
    result = project(tmp_path, "")
    assert (result.name, result.version, result.keep_last) == ("demo", "1.10", 10)
    assert result.engine == EngineSettings()
    assert (result.vars, result.connections, result.pipelines) == ({}, {}, {})
    assert result.on_source_drift is DriftPolicy.IGNORE


def test_every_key_is_read(tmp_path: Path) -> None:
    body = """\
pz: 1.2
connectors:
  - package: acme
    version: "1.10"
vars: {day: 2024-01-31, n: 3, f: true, list: [1, a], nothing: }
engine:
  threads: 2
  batch_bytes: 1048576
  force_universal: true
  check_samples: false
  node_timeout: 5m
  duckdb: {memory_limit: 4GB, threads: 3, temp_directory: /tmp/x}
  breaker: {failure_threshold: 5, cool_down: 30s}
retention: {keep_last: 3}
state: {backend: local}
on_source_drift: warn
"""
    result = project(tmp_path, body)
    assert result.engine == EngineSettings(
        threads=2,
        batch_bytes=1048576,
        force_universal=True,
        check_samples=False,
        node_timeout=timedelta(minutes=5),
        duckdb=DuckDbSettings("4GB", 3, "/tmp/x"),
        breaker=Breaker(5, timedelta(seconds=30)),
    )
    assert result.vars == {"day": "2024-01-31", "n": 3, "f": True, "list": [1, "a"], "nothing": ""}
    (required,) = result.connectors
    assert isinstance(required, ConnectorRequirement)
    assert (required.package, required.version) == ("acme", "1.10")
    assert (result.keep_last, result.on_source_drift) == (3, DriftPolicy.WARN)


@pytest.mark.parametrize("size", ["4GB", "512MiB", "1.5gb", "50%", "4 GB", "4000000000", "1000B"])
def test_a_memory_limit_is_kept_as_written(tmp_path: Path, size: str) -> None:
    assert project(tmp_path, f"engine:\n  duckdb:\n    memory_limit: {size}\n").engine.duckdb.memory_limit == size


@pytest.mark.parametrize("off", ["off", "Off", "no", "NO", "false", "False"])
def test_retention_can_be_off(tmp_path: Path, off: str) -> None:
    assert project(tmp_path, f"retention: {off}\n").keep_last is None


@pytest.mark.parametrize(
    ("body", "code", "line", "hint"),
    [
        ("engin: {}", "PZ0101", 3, "did you mean 'engine'?"),
        ("engine: 5", "PZ0120", 3, ""),
        ("engine:\n  threads: 0", "PZ0120", 4, ""),
        ('engine:\n  threads: "4"', "PZ0120", 4, "without quotes"),
        ("engine:\n  threads: true", "PZ0120", 4, ""),
        ("engine:\n  threds: 4", "PZ0120", 4, "did you mean 'threads'?"),
        ("engine:\n  batch_bytes: 10", "PZ0120", 4, ""),
        ("engine:\n  batch_bytes: 536870913", "PZ0120", 4, ""),
        ("engine:\n  check_samples: True", "PZ0120", 4, "write true or false"),
        ("engine:\n  check_samples: null", "PZ0120", 4, "leave the key out"),
        ("engine:\n  node_timeout: 5", "PZ0120", 4, "30s"),
        ("engine:\n  node_timeout: 0s", "PZ0120", 4, "30s"),
        ("engine:\n  node_timeout: 99999999999999d", "PZ0120", 4, "30s"),
        ("engine:\n  duckdb:\n    memory_limit: 4 apples", "PZ0120", 5, "4GB"),
        ("engine:\n  duckdb:\n    memory_limit: 0GB", "PZ0120", 5, "4GB"),
        ("engine:\n  duckdb:\n    memory_limit: 5iB", "PZ0120", 5, "4GB"),
        ("engine:\n  duckdb:\n    memory_limit: -1", "PZ0120", 5, "4GB"),
        ("engine:\n  duckdb:\n    thread: 4", "PZ0120", 5, "did you mean 'threads'?"),
        ("engine:\n  breaker:\n    failure_threshold: 4", "PZ0120", 4, "add cool_down"),
        ("engine:\n  breaker:\n    cool_down: 4s", "PZ0120", 4, "add failure_threshold"),
        ("engine:\n  breaker:", "PZ0120", 4, "drop it"),
        ("retention: 5", "PZ0123", 3, "keep_last"),
        ("retention: {keep_last: 0}", "PZ0123", 3, ""),
        ("retention: {}", "PZ0123", 3, "keep_last"),
        ("retention: [1]", "PZ0123", 3, ""),
        ("state: {backend: sqlserver}", "PZ0124", 3, "'local'"),
        ("state: {schema: pz}", "PZ0124", 3, "backend"),
        ("on_source_drift: fial", "PZ0126", 3, "did you mean 'fail'?"),
        ("vars: [1]", "PZ0102", 3, "name: value"),
        ("connectors: acme", "PZ0101", 3, ""),
        ("connectors:\n  - acme", "PZ0101", 4, "package"),
        ("connectors:\n  - package: acme\n    version: 1.10", "PZ0101", 5, 'version: "1.10"'),
        ("connectors:\n  - version: '1'", "PZ0101", 4, "package"),
        ("connectors:\n  - package: a\n    vesion: '1'", "PZ0101", 5, "did you mean 'version'?"),
        ("name: again", "PZ0101", 3, "keep one"),
    ],
)
def test_faults_have_code_line_and_hint(tmp_path: Path, body: str, code: str, line: int, hint: str) -> None:
    (problem,) = refused(tmp_path, {"project.yml": f"{HEAD}{body}\n"})
    assert (problem.code, problem.file, problem.line) == (code, "project.yml", line)
    assert hint in problem.advice


@pytest.mark.parametrize("text", ["", "version: 1\n", "name:\nversion: 1\n", "name: [1]\nversion: 1\n"])
def test_name_and_version_are_required(tmp_path: Path, text: str) -> None:
    problems = refused(tmp_path, {"project.yml": text})
    assert {problem.code for problem in problems} == {"PZ0101"}


def test_vars_from_the_caller_win_by_name(tmp_path: Path) -> None:
    assert project(tmp_path, "vars: {a: 1, b: 2}\n", vars_override={"b": 3, "c": 4}).vars == {"a": 1, "b": 3, "c": 4}


@pytest.mark.parametrize("text", ["", "{", "[1]", "5", "{'a': 1}", '{"a": NaN}', "[" * 100_000])
def test_vars_on_the_command_line_must_be_a_json_object(text: str) -> None:
    with pytest.raises(ProjectError) as caught:
        parse_vars_option(text)
    assert caught.value.code == "PZ0102"


def test_all_faults_of_a_file_come_together(tmp_path: Path) -> None:
    body = "engine:\n  threads: 0\n  node_timeout: x\nretention: 0\non_source_drift: x\nextra: 1\n"
    problems = refused(tmp_path, {"project.yml": HEAD + body})
    assert places(problems) == [
        ("PZ0120", "project.yml:4"),
        ("PZ0120", "project.yml:5"),
        ("PZ0123", "project.yml:6"),
        ("PZ0126", "project.yml:7"),
        ("PZ0101", "project.yml:8"),
    ]
