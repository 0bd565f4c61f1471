"""Finding connectors and checking their options."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from cli_support import invoke
from projects import write
from pz.connectors.contract import Capability, Connector
from pz.connectors.registry import Registration, Registry, Side, check_options, check_schemas, coerce_options
from pz.errors import Code, ProjectError


class Sample:
    """A connector with a schema of every kind of option."""

    name: ClassVar[str] = "sample"
    contract_major: ClassVar[int] = 1
    capabilities: ClassVar[Capability] = Capability.NONE
    gives: ClassVar[str] = "nothing"

    def connection_schema(self) -> Mapping[str, Any]:
        return {
            "type": "object",
            "additionalProperties": False,
            "required": ["host"],
            "properties": {
                "host": {"type": "string", "description": "Where it is."},
                "port": {"type": "integer", "minimum": 1},
                "secure": {"type": "boolean"},
                "mode": {"enum": ["fast", "slow"]},
                "auth": {"type": "object", "additionalProperties": False, "properties": {"token": {"type": "string"}}},
            },
        }

    def dataset_schema(self) -> Mapping[str, Any]:
        return {"type": "object", "additionalProperties": False, "properties": {}}

    def output_schema(self) -> Mapping[str, Any] | None:
        return None


class Foreign(Sample):
    contract_major: ClassVar[int] = 99


class Greedy(Sample):
    def dataset_schema(self) -> Mapping[str, Any]:
        return {"type": "object", "properties": {"sync": {"type": "object"}}}


def as_connector(sample: Sample) -> Connector:
    return cast("Connector", sample)


def faults(options: Mapping[str, Any], side: Side = Side.CONNECTION) -> dict[str, str]:
    found = check_options(
        as_connector(Sample()), side, options, subject="connection 'c'", file="connections.yml", line=3
    )
    assert all(problem.code is Code.PZ0301 and problem.where == "connections.yml:3" for problem in found)
    return {problem.message: problem.advice for problem in found}


def test_all_faults_are_reported_together_and_name_the_option() -> None:
    found = faults({"prot": 1, "secure": "True", "mode": "fats", "auth": {"tokn": "s3cret"}})
    assert set(found) == {
        "connection 'c': unknown option 'prot'",
        "connection 'c': option 'host' is missing",
        "connection 'c': option 'secure' must be true or false",
        "connection 'c': option 'mode' must be one of fast, slow",
        "connection 'c': unknown option 'auth.tokn'",
    }
    assert "did you mean 'port'?" in found["connection 'c': unknown option 'prot'"]
    assert "accepted options: auth, host, mode, port, secure" in found["connection 'c': unknown option 'prot'"]
    assert found["connection 'c': option 'mode' must be one of fast, slow"] == "did you mean 'fast'?"


@pytest.mark.parametrize("value", ["True", "yes", "no"])
def test_text_for_a_boolean_says_how_to_write_one(value: str) -> None:
    assert faults({"host": "h", "secure": value}) == {
        "connection 'c': option 'secure' must be true or false": "write true or false in lower case, unquoted"
    }


def test_nothing_for_an_option_says_to_leave_it_out() -> None:
    hints = faults({"host": "h", "secure": None, "port": None}).values()
    assert set(hints) == {"leave the option out instead of giving it no value"}


def test_a_number_where_text_is_due_says_to_quote_it() -> None:
    assert "put the value in quotes" in faults({"host": 12345})["connection 'c': option 'host' must be text"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *[("5432", 5432), (5.0, 5), ("-1", -1), ("0", 0)],
        *[(kept, kept) for kept in ("05432", 5.5, "5.0", "--1", "---5", "-", "-0", "", "\u0663", "9" * 5000)],
    ],
)
def test_whole_numbers_in_other_spellings_become_integers_and_nothing_is_rounded(given: Any, kept: Any) -> None:
    assert coerce_options(Sample().connection_schema(), {"port": given})["port"] == kept


def test_a_fraction_for_an_integer_is_refused() -> None:
    assert "connection 'c': option 'port' must be a whole number" in faults({"host": "h", "port": 5.5})


def test_values_never_appear_in_messages() -> None:
    found = faults({"host": 987654, "port": "hunter2", "secure": "hunter2", "mode": "hunter2", "auth": "hunter2"})
    assert "hunter2" not in str(found)
    assert "987654" not in str(found)


def test_a_sink_without_a_schema_takes_any_option() -> None:
    assert faults({"anything": 1}, Side.WRITE) == {}


def test_a_schema_that_claims_an_engine_owned_key_is_the_connectors_defect() -> None:
    assert [problem.code for problem in check_schemas(as_connector(Greedy()))] == [Code.PZ0345]
    assert check_schemas(as_connector(Sample())) == ()


def test_an_unknown_connector_is_refused_with_a_near_miss() -> None:
    with pytest.raises(ProjectError) as caught:
        Registry.default().get("localfile")
    assert caught.value.code is Code.PZ0305
    assert "did you mean 'localfiles'?" in caught.value.problems[0].advice


def test_a_connector_for_another_contract_is_refused() -> None:
    registry = Registry({"foreign": Registration("foreign", f"{__name__}:Foreign")})
    with pytest.raises(ProjectError, match="made for contract 99") as caught:
        registry.get("foreign")
    assert caught.value.code is Code.PZ0305


def test_a_connector_whose_package_misses_a_module_says_so() -> None:
    registry = Registry({"broken": Registration("broken", "pz_no_such_module:Thing")})
    with pytest.raises(ProjectError) as caught:
        registry.get("broken")
    assert "pz_no_such_module" in caught.value.problems[0].advice


def test_a_connector_is_imported_only_when_asked_for_and_made_once() -> None:
    registry = Registry({"sample": Registration("sample", f"{__name__}:Sample")})
    assert registry.names() == ("sample",)
    assert registry.get("sample") is registry.get("sample")


def test_listing_connectors_imports_none_of_them() -> None:
    import subprocess

    code = (
        "import sys; from pz.connectors.registry import Registry; Registry.default().names();"
        "print([m for m in ('duckdb', 'pyarrow', 'jsonschema', 'pz.connectors.files.localfiles') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_installed_packages_are_searched_only_for_a_name_that_is_not_ours() -> None:
    searched: list[str] = []

    def others() -> dict[str, Registration]:
        searched.append("once")
        return {
            "theirs": Registration("theirs", f"{__name__}:Sample", "their-package"),
            "ours": Registration("ours", "no:thing"),
        }

    registry = Registry({"ours": Registration("ours", f"{__name__}:Sample")}, others)
    assert registry.get("ours")
    assert searched == []
    assert registry.registration("theirs").package == "their-package"
    assert registry.names() == ("ours", "theirs")
    assert registry.registration("ours").target == f"{__name__}:Sample"
    assert searched == ["once"]


def test_a_connector_whose_extra_is_missing_is_described_but_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pz.connectors.registry.EXTRAS", {"http": ("httpx", "no_such_module")})
    listed = invoke("connectors")
    assert listed.code == 0
    assert "http" in listed.out
    assert "warning PZ0305: connector 'http' needs no_such_module" in listed.err
    files = {
        "project.yml": 'name: p\nversion: "1"\n',
        "connections.yml": "api: { connector: http, base_url: 'http://x' }\n",
    }
    write(tmp_path, {**files, "pipelines/a.sql": "SELECT * FROM {{ source('api', 'a', path: '/a') }}\n"})
    for verb in (["validate"], ["plan"], ["run", "--all"]):
        refused = invoke("--project", str(tmp_path), *verb)
        said = refused.out + refused.err
        assert refused.code == 2, said
        assert "PZ0305: connector 'http' needs no_such_module, not installed here (connections.yml:1)" in said
        assert "pip install 'pz-engine[http]', or in a clone pip install '.[http]'" in said
