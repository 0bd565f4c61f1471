"""``pz init``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from pz.cli.command import Group, Invocation, verb
from pz.cli.failures import ExitCode
from pz.cli.help import Page
from pz.cli.parameters import argument, option
from pz.cli.render.table import print_table
from pz.errors import Code, Problem, ProjectError

_PAGE = Page(
    "Make a new project from a template.",
    """Fills a new or empty directory with a project that runs as it is. Nothing that exists is overwritten.""",
    (
        ("pz init demo", "the smallest project"),
        ("pz init demo --template sample", "real flights: staging, checks, an aggregate, three outputs"),
        ("pz init --list-templates", "what there is"),
    ),
)

Name = Annotated[
    str | None,
    argument("NAME", help="The directory to make, and the project's name."),
]


def _templates(root: Path) -> list[str]:
    from pz.project.scaffold import templates

    return [info.name for info in templates()]


Template = Annotated[
    str, option("--template", "-t", metavar="TEMPLATE", help="What to start from.", complete=_templates)
]
ListTemplates = Annotated[bool, option("--list-templates", help="List the templates and do nothing else.")]


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "init", _PAGE, panel=panel)(init)


def init(
    cli: Invocation, name: Name = None, template: Template = "minimal", list_templates: ListTemplates = False
) -> int:
    """Make a project."""
    from pz.project.scaffold import create, templates

    if (name is None) != list_templates:
        message = "both a name and --list-templates" if list_templates else "a name for the project is missing"
        raise ProjectError(Problem(Code.PZ0132, message, hint="Give a name or --list-templates"))
    if name is None:
        print_table(cli.output, ("template", "what it shows"), [(info.name, info.summary) for info in templates()])
        return ExitCode.OK
    target = cli.project / name
    written = create(target, template)
    if not cli.quiet:
        first = next(info.first for info in templates() if info.name == template)
        _tell(cli, target, written, first)
    return ExitCode.OK


def _tell(cli: Invocation, target: Path, written: list[Path], first: str | None) -> None:
    cli.output.out.line(f"created {target} ({len(written)} files)")
    begin = f"cd {shlex.quote(str(target))}"
    cli.output.out.line(f"next: {begin}; {first} & pz run --all" if first else f"next: {begin} && pz run --all")
