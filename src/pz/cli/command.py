"""How a verb is declared: a function from an `Invocation` and its own parameters to an exit code.

``--project``, ``--quiet`` and ``-v`` are accepted before and after every verb; the decorators here add them to each
signature, so that a verb's module names only what is its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pz.cli.failures import ExitCode
from pz.cli.help import Page, documented, documented_group
from pz.cli.output import Output
from pz.frozen import frozen

if TYPE_CHECKING:
    from pz.api import OpenProject

__all__ = ["Invocation", "callback", "group", "verb"]

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
    typer.Option(
        "--project",
        metavar="DIR",
        help="The project directory; the current one by default.",
        rich_help_panel="Global",
        show_default=False,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print failures, warnings and the summary only.", rich_help_panel="Global"),
]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, help="Print more: starts and accounting; -vv progress too.",
        rich_help_panel="Global", show_default=False,
    ),
]  # fmt: skip
_GLOBAL = {"project": (Project, None), "quiet": (Quiet, False), "verbose": (Verbose, 0)}


def verb(app: typer.Typer, name: str, page: Page, *, panel: str | None = None) -> Callable[[Verb], Verb]:
    """Register a function as ``pz <name>``; its first parameter is the `Invocation`."""

    def register(function: Verb) -> Verb:
        app.command(name, cls=documented(page), help=page.summary, rich_help_panel=panel)(_with_globals(function))
        return function

    return register


def group(
    parent: typer.Typer, name: str, page: Page, *, panel: str | None = None, bare: Verb | None = None
) -> typer.Typer:
    """Add ``pz <name>`` as a verb with verbs below it; ``bare`` is what ``pz <name>`` alone does."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    callback(app, page, bare)
    parent.add_typer(app, name=name, rich_help_panel=panel)
    return app


def callback(app: typer.Typer, page: Page, bare: Verb | None = None) -> None:
    """Give a group its page, the global options, and what it does when no verb follows."""
    function = _with_globals(bare or _nothing, below=True)
    app.callback(cls=documented_group(page), help=page.summary, invoke_without_command=bare is not None)(function)


def _nothing(cli: Invocation) -> int:
    return ExitCode.OK


def _with_globals(function: Verb, *, below: bool = False) -> Callable[..., None]:
    """The function as typer wants it: with a context and the global options; ``below``: skipped when a verb follows."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    @wraps(function)
    def call(ctx: typer.Context, **given: Any) -> None:
        above = ctx.obj if isinstance(ctx.obj, Invocation) else Invocation()
        said = {key: given.pop(key) for key in _GLOBAL}
        ctx.obj = above.override(**said)
        if below and ctx.invoked_subcommand is not None:
            return
        raise typer.Exit(int(function(ctx.obj, **given) or ExitCode.OK))

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    extra = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for key, (annotation, default) in _GLOBAL.items()
    ]
    parameters = [context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *extra]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect.signature
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call
