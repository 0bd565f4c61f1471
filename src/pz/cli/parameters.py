"""Options and arguments: as data in the signature of a verb's function, and as click takes them.

    Limit = Annotated[int, option("--limit", "-n", metavar="N", help="At most N rows.")]
    def show(cli: Invocation, limit: Limit = 20) -> int: ...

The annotated type says what is parsed: bool is a flag, list is what may be given several times, an enum one of its values.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import click

from pz.frozen import frozen

__all__ = ["Argument", "Option", "Parameter", "argument", "click_parameters", "option"]

Completer = Callable[[Path], Iterable[str]]
"""All that may stand here, in the project of that directory."""


@frozen
class Parameter:
    """One option, or the argument when there are no spellings. ``panel`` is its heading on the help page."""

    spellings: tuple[str, ...]
    help: str
    panel: str
    metavar: str | None = None
    count: bool = False
    complete: Completer | None = None


def option(
    *spellings: str,
    help: str,
    panel: str = "Options",
    metavar: str | None = None,
    count: bool = False,
    complete: Completer | None = None,
) -> Parameter:
    """An option; ``count`` makes the number of times it is given the value."""
    return Parameter(spellings, help, panel, metavar, count, complete)


def argument(metavar: str, *, help: str, complete: Completer | None = None) -> Parameter:
    """An argument, needed unless the function has a default for it."""
    return Parameter((), help, "Arguments", metavar, complete=complete)


class Option(click.Option):
    """An option with its heading."""

    def __init__(self, panel: str, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.panel = panel


class Argument(click.Argument):
    """An argument with its heading."""

    def __init__(self, panel: str, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.panel = panel

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        """What may be left out in brackets, which click forgets where the name is given."""
        once = str(self.metavar) if self.required else f"[{self.metavar}]"
        return [once if self.nargs == 1 else f"{once}..."]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Name and help."""
        return str(self.metavar), f"{self.help}  [required]" if self.required else str(self.help)


def click_parameters(parameters: Sequence[inspect.Parameter]) -> list[click.Parameter]:
    """What click parses, for parameters that are annotated with an `option` or an `argument`."""
    return [_made(each) for each in parameters]


def _made(parameter: inspect.Parameter) -> click.Parameter:
    assert get_origin(parameter.annotation) is Annotated
    given, said = get_args(parameter.annotation)
    kind, several = _plain(given)
    settings: dict[str, Any] = {"help": said.help, "metavar": said.metavar}
    if said.complete is not None:
        settings["shell_complete"] = _completer(said.complete)
    if issubclass(kind, StrEnum):
        settings["metavar"] = f"<{'|'.join(kind)}>"
    if kind is not bool and not said.count:
        settings |= {"type": _type(kind), "callback": _caller(kind, several)}
    if not said.spellings:
        needed = parameter.default is inspect.Parameter.empty
        return Argument(said.panel, [parameter.name], required=needed, nargs=-1 if several else 1, **settings)
    return Option(
        said.panel,
        [*said.spellings, parameter.name],
        is_flag=kind is bool,
        count=said.count,
        multiple=several,
        default=str(parameter.default) if issubclass(kind, StrEnum) else parameter.default,
        show_default=bool(parameter.default),
        **settings,
    )


def _plain(annotation: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several; ``| None`` is told by the default."""
    if get_origin(annotation) in {Union, types.UnionType}:
        [annotation] = [each for each in get_args(annotation) if each is not types.NoneType]
    return (get_args(annotation)[0], True) if get_origin(annotation) is list else (annotation, False)


def _type(kind: Any) -> click.ParamType[Any]:
    if issubclass(kind, StrEnum):
        return click.Choice([member.value for member in kind])
    return _Where(path_type=Path) if kind is Path else click.INT if kind is int else click.STRING


class _Where(click.Path):
    """A path that is not empty: an unset variable of a script would stand for the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType`."""
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


def _caller(kind: Any, several: bool) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """From what click parsed to what the verb takes: a list or None, a member of the enum."""

    def value(ctx: click.Context, parameter: click.Parameter, parsed: Any) -> Any:
        if several:
            return [kind(each) for each in parsed] or None
        return kind(parsed) if parsed is not None and issubclass(kind, StrEnum) else parsed

    return value


def _completer(complete: Completer) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def offered(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        said = [at.params.get("project") for at in (ctx, ctx.find_root())]
        root = next((Path(path) for path in said if path), Path())
        return [name for name in complete(root) if name.startswith(incomplete)]

    return offered
