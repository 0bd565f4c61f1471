"""How a verb is declared: a function from an `Invocation` and its own parameters to an exit code.

``--project``, ``--quiet`` and ``-v`` are accepted before and after every verb; the decorators here add them to each
signature, so that a verb's module names only what is its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from pz.cli.failures import ExitCode
from pz.cli.help import DocumentedCommand, Page
from pz.cli.help import DocumentedGroup as Group
from pz.cli.output import Output
from pz.cli.parameters import click_parameters, option
from pz.frozen import frozen

if TYPE_CHECKING:
    from pz.api import OpenProject

__all__ = ["Group", "Invocation", "group", "parameters_of", "performing", "verb"]

Verb = Callable[..., int | None]


def _open_project(path: Path) -> OpenProject:
    """Open a project; the import of the API waits until a verb needs it."""
    from pz.api import open_project

    return open_project(path)


@frozen(slots=False)
class Invocation:
    """What the global options of one call say. ``verbosity``: -1 quiet, 0 normal, 1 ``-v``, 2 ``-vv``.

    ``opener`` makes a `pz.api.OpenProject` of a directory; tests put their own there.
    """

    project: Path = Path()
    verbosity: int = 0
    output: Output = field(default_factory=Output.of_process)
    opener: Callable[[Path], OpenProject] = _open_project

    def open(self) -> OpenProject:
        """The project that the verb is about."""
        return self.opener(self.project)

    @property
    def quiet(self) -> bool:
        """Whether notes and successes stay unprinted."""
        return self.verbosity < 0

    def override(self, project: Path | None, quiet: bool, verbose: int) -> Invocation:
        """The same with what was said nearer to the verb."""
        said = self if project is None else replace(self, project=project)
        if quiet:
            return replace(said, verbosity=-1)
        return replace(said, verbosity=min(verbose, 2)) if verbose else said


Project = Annotated[
    Path | None,
    option("--project", metavar="DIR", help="The project directory; the current one by default.", panel="Global"),
]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print failures, warnings and the summary only.", panel="Global")]
Verbose = Annotated[
    int,
    option("-v", "--verbose", count=True, help="Print more: starts and accounting; -vv progress too.", panel="Global"),
]
_GLOBAL = {"project": (Project, None), "quiet": (Quiet, False), "verbose": (Verbose, 0)}


def verb(parent: Group, name: str, page: Page, *, panel: str | None = None) -> Callable[[Verb], Verb]:
    """Register a function as ``pz <name>``; its first parameter is the `Invocation`."""

    def register(function: Verb) -> Verb:
        parent.add_command(
            DocumentedCommand(page, panel, name=name, params=parameters_of(function), callback=performing(function))
        )
        return function

    return register


def group(parent: Group, name: str, page: Page, *, panel: str | None = None, bare: Verb | None = None) -> Group:
    """Add ``pz <name>`` as a verb with verbs below it; ``bare`` is what ``pz <name>`` alone does."""
    function = bare or _nothing
    made = Group(
        page,
        panel,
        name=name,
        params=parameters_of(function),
        callback=performing(function),
        invoke_without_command=bare is not None,
    )
    parent.add_command(made)
    return made


def _nothing(cli: Invocation) -> int:
    return ExitCode.OK


def parameters_of(function: Verb) -> list[click.Parameter]:
    """What click parses for a verb: its own parameters and the global options."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    everywhere = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for key, (annotation, default) in _GLOBAL.items()
    ]
    return click_parameters([*own, *everywhere])


def performing(function: Verb) -> Callable[..., None]:
    """The function as click calls it; one of a group is skipped when a verb follows."""

    @click.pass_context
    def call(ctx: click.Context, /, **given: Any) -> None:
        above = ctx.obj if isinstance(ctx.obj, Invocation) else Invocation()
        said = {key: given.pop(key) for key in _GLOBAL}
        ctx.obj = above.override(**said)
        if ctx.invoked_subcommand is None:
            ctx.exit(int(function(ctx.obj, **given) or ExitCode.OK))

    return call
