"""``pz connectors``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pz.cli import complete
from pz.cli.command import Group, Invocation, group, verb
from pz.cli.failures import ExitCode, print_problems
from pz.cli.help import ALWAYS_EXITS, Page
from pz.cli.jsontext import to_json
from pz.cli.options import AsJson, usage_error
from pz.cli.output import printable
from pz.cli.parameters import argument
from pz.cli.render.table import print_table
from pz.errors import Problem, ProjectError, Severity

if TYPE_CHECKING:
    from pz.connectors.contract import Connector
    from pz.connectors.registry import Registry

_PAGE = Page(
    "List the installed connectors and what they can do.",
    """Connectors come with pz or with other distributions, by the entry-point group pz.connectors. One that cannot be loaded is
    named with the reason and does not hide the others.""",
    (
        ("pz connectors", "what is installed"),
        ("pz connectors schema duckdb", "the options of one"),
        ("pz connectors test duckdb", "does it keep the contract?"),
    ),
)
_TEST = Page(
    "Put a connector through the conformance suite.",
    """Runs every check of the connector contract against the fixture that the connector declares (entry-point group
    pz.connector_fixtures) and prints one line a check. For authors of connectors, and for anybody who wants to know. One
    whose far side is a server of its own may declare none; `pz validate --connect` tries the connections of a project.""",
    (("pz connectors test duckdb", "one line a check, failures with their reason"),),
    (ALWAYS_EXITS[0], (1, "at least one check failed"), *ALWAYS_EXITS[1:]),
)
_SCHEMA = Page(
    "Print the JSON Schema of a connector's options.",
    "Prints three schemas: of the connection, of what is read, and of what is written.",
    (("pz connectors schema localfiles", "what may stand in connections.yml"),),
)

Name = Annotated[str, argument("NAME", help="The connector's name.", complete=complete.connectors)]


def register(app: Group, panel: str) -> None:
    """Add the verbs."""
    below = group(app, "connectors", _PAGE, panel=panel, bare=connectors)
    verb(below, "test", _TEST)(conformance)
    verb(below, "schema", _SCHEMA)(schema)


def connectors(cli: Invocation, as_json: AsJson = False) -> int:
    """List connectors."""
    broken: list[Problem] = []
    facts = []
    for registry, name, made in usable(broken):
        facts.append(_facts(registry, name, made))
        lacking = registry.lacks(name)
        if lacking is not None:
            broken.append(replace(lacking, severity=Severity.WARNING))
    if as_json:
        cli.output.out.write(to_json(facts))
    else:
        rows = [(f["name"], f["gives"], f["package"] or "pz", ", ".join(f["capabilities"])) for f in facts]
        print_table(cli.output, ("connector", "gives", "from", "capabilities"), rows)
    print_problems(broken, cli.output)
    return ExitCode.OK


def usable(broken: list[Problem]) -> Iterator[tuple[Registry, str, Connector]]:
    """The connectors that load; what is wrong with the others goes into ``broken`` as warnings."""
    from pz.connectors.registry import Registry

    registry = Registry.default()
    for name in registry.names():
        try:
            yield registry, name, registry.get(name)
        except ProjectError as failure:
            broken.extend(replace(problem, severity=Severity.WARNING) for problem in failure.problems)


def _facts(registry: Registry, name: str, made: Connector) -> dict[str, Any]:
    return {
        "name": name,
        "gives": made.gives,
        "package": registry.registration(name).package,
        "capabilities": [str(flag.name).lower() for flag in made.capabilities],
    }


def conformance(cli: Invocation, name: Name) -> int:
    """Run the conformance suite."""
    from pz.connectors.registry import Registry
    from pz.testing.conformance import run_conformance
    from pz.testing.fixtures import GROUP, fixture_for, fixture_names

    with tempfile.TemporaryDirectory(prefix="pz-conformance-") as scratch:
        fixture = fixture_for(name, Path(scratch))
        if fixture is None:
            Registry.default().get(name)
            known = ", ".join(fixture_names())
            raise usage_error(
                f"connector '{name}' declares no fixture to test it with, so this verb cannot tell anything about it",
                f"your own connections are tried by `pz validate --connect`; there are fixtures for: {known} (the author of a "
                f"connector declares one in the entry-point group {GROUP})",
            )
        report = run_conformance(fixture)
    cli.output.out.write(printable(report.render()) + "\n")
    return ExitCode.OK if report.ok else ExitCode.NODE_FAILED


def schema(cli: Invocation, name: Name) -> int:
    """Print option schemas."""
    from pz.connectors.registry import Registry

    made = Registry.default().get(name)
    schemas = {"connection": made.connection_schema(), "read": made.dataset_schema(), "write": made.output_schema()}
    cli.output.out.write(to_json(schemas))
    return ExitCode.OK
