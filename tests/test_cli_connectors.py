"""`pz connectors` and the schemas for editors."""

from __future__ import annotations

import json

import pytest

from cli_support import invoke


@pytest.mark.parametrize("name", ["project", "connections", "sidecar"])
def test_the_schema_of_each_file_is_json_schema(name: str) -> None:
    got = invoke("schema", name)
    assert got.code == 0
    assert json.loads(got.out)["$schema"].startswith("https://json-schema.org/")


def test_connectors_are_listed_with_what_they_can_do() -> None:
    listed = json.loads(invoke("connectors", "--json").out)
    assert all(set(entry) == {"name", "gives", "package", "capabilities"} for entry in listed)
    assert invoke("connectors").out.split()[:4] == ["connector", "gives", "from", "capabilities"]


@pytest.mark.parametrize("verb", ["schema", "test"])
def test_an_unknown_connector_has_its_code_and_a_near_miss(verb: str) -> None:
    got = invoke("connectors", verb, "dukdb")
    assert got.code == 2
    assert got.err.startswith("error PZ0305: connector 'dukdb' is not installed")
    assert "did you mean 'duckdb'?" in got.err


def test_the_conformance_suite_prints_one_line_a_check() -> None:
    got = invoke("connectors", "test", "reference")
    assert got.code == 0
    assert got.out.startswith("connector reference\n")
    assert " passed " in got.out
