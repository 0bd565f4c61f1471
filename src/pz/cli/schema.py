"""``pz schema``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pz.cli import complete
from pz.cli.command import Group, Invocation, group, verb
from pz.cli.connectors import usable
from pz.cli.failures import ExitCode, print_problems
from pz.cli.help import Page
from pz.cli.jsontext import to_json
from pz.cli.parameters import argument
from pz.errors import Code, Problem, StateError

if TYPE_CHECKING:
    from pz.project.jsonschema import ConnectorSchemas
    from pz.runs.history import RunEntry
    from pz.state.schemas import Observed

_PAGE = Page(
    "Accept changed source columns; print JSON Schemas for editors.",
    """Where `on_source_drift` is warn or fail, the columns of each source are compared with the accepted ones. accept makes what
    the last run saw the accepted ones. project, connections and sidecar print what an editor needs to check and complete
    the YAML files.""",
    (
        ("pz schema accept crm.orders", "the new columns of one dataset are right"),
        ("pz schema project > project.schema.json", "for an editor"),
    ),
)
_ACCEPT = Page(
    "Make the columns that the last run saw the accepted ones.",
    """Works on what the last run recorded, without touching a source. Without a name: every dataset with recorded columns.""",
    (("pz schema accept", "all that changed"), ("pz schema accept crm.orders crm.items", "two datasets")),
)
_FILES = {
    "project": "project.yml",
    "connections": "connections.yml",
    "sidecar": "pipelines/configs/*.yml",
}
_OWN = "; connectors' own options are part of it where they apply"

Keys = Annotated[
    list[str] | None,
    argument("CONNECTION.ENTITY", help="Datasets; all by default.", complete=complete.datasets),
]


def register(app: Group, panel: str) -> None:
    """Add the verbs."""
    below = group(app, "schema", _PAGE, panel=panel)
    verb(below, "accept", _ACCEPT)(accept)
    for name, files in _FILES.items():
        verb(below, name, _print_page(name, files))(_printer(name))


def _print_page(name: str, files: str) -> Page:
    return Page(
        f"Print the JSON Schema of {files}.",
        f"""Editors that speak YAML take it to check and complete{_OWN if name == "connections" else ""}. Name it in the
        file's first line: # yaml-language-server: $schema=<path, seen from the file>.""",
        ((f"pz schema {name} > {name}.schema.json", "keep it in a file"),),
    )


def _printer(name: str) -> Callable[[Invocation], int]:
    def print_schema(cli: Invocation) -> int:
        broken: list[Problem] = []
        cli.output.out.write(to_json(_schema(name, broken)))
        print_problems(broken, cli.output)
        return ExitCode.OK

    return print_schema


def _schema(name: str, broken: list[Problem]) -> Mapping[str, Any]:
    from pz.project import jsonschema

    if name == "project":
        return jsonschema.project_schema()
    if name == "sidecar":
        return jsonschema.sidecar_schema()
    return jsonschema.connections_schema(_connector_schemas(broken))


def _connector_schemas(broken: list[Problem]) -> dict[str, ConnectorSchemas]:
    """What each connector that loads says about its options; of the others the name alone."""
    from pz.connectors.registry import Registry
    from pz.project.jsonschema import ConnectorSchemas

    return dict.fromkeys(Registry.default().names(), ConnectorSchemas()) | {
        name: ConnectorSchemas(made.connection_schema(), made.dataset_schema(), made.output_schema())
        for _, name, made in usable(broken)
    }


def accept(cli: Invocation, keys: Keys = None) -> int:
    """Accept observed columns."""
    from pz.runs.history import latest
    from pz.state import schemas

    state_dir: Path = cli.open().root / ".pz"
    last = latest(state_dir)
    if last is None or last.results is None:
        raise StateError(Problem(Code.PZ0127, "there is no run with recorded columns"))
    store = schemas.schema_store(state_dir)
    changed = schemas.accept(store, _observed(last), keys or (), last.run_id)
    if not cli.quiet:
        cli.output.out.line(f"accepted: {', '.join(changed)}" if changed else "nothing to accept")
    return ExitCode.OK


def _observed(run: RunEntry) -> dict[str, Observed]:
    from pz.state.schemas import observed_from_json

    nodes = () if run.results is None else run.results.nodes
    seen = [node.observed_schema for node in nodes if node.observed_schema is not None]
    return {str(content["dataset"]): observed_from_json(content) for content in seen}
