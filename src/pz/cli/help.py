"""Help that reads like documentation: one page per verb, as data, printed by ``--help`` and by the CLI reference alike."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

from click import Command, Context, Group, HelpFormatter, Parameter

from pz.frozen import frozen

__all__ = [
    "ALWAYS_EXITS",
    "RUN_EXITS",
    "DocumentedCommand",
    "DocumentedGroup",
    "Page",
    "grouped_options",
]

ALWAYS_EXITS = (
    (0, "done"),
    (2, "refused: the project, the command line or the state does not allow it; nothing was changed"),
    (3, "unexpected failure; PZ_DEBUG=1 adds the stack"),
)
RUN_EXITS = (
    (0, "every node succeeded"),
    (1, "at least one node failed, or some state could not be stored; `pz retry` continues"),
    (2, "refused before anything moved; also where a system could not be reached by then: run again"),
    (3, "unexpected failure, or stopped by a signal with no node failed"),
    (130, "ended at once by a second signal (128 + its number)"),
)


@frozen
class Page:
    """What the help of a verb says besides its parameters. ``examples`` are (command, what it does)."""

    summary: str
    about: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    exits: tuple[tuple[int, str], ...] = ALWAYS_EXITS


class _Documented(Command):
    """How help is asked for, whatever context a command is looked at in."""

    def get_help_option_names(self, ctx: Context) -> list[str]:
        """Both spellings, everywhere."""
        return ["-h", "--help"]


class DocumentedCommand(_Documented):
    """A verb with a `Page`, listed under ``panel``."""

    def __init__(self, page: Page, panel: str | None, **settings: Any) -> None:
        super().__init__(help=page.summary, **settings)
        self.page, self.panel = page, panel

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the whole page."""
        formatter.write(_help_text(self, self.page, ctx, formatter.width))


class DocumentedGroup(_Documented, Group):
    """A verb with verbs below it."""

    def __init__(self, page: Page, panel: str | None, **settings: Any) -> None:
        super().__init__(
            help=page.summary,
            no_args_is_help=False,
            subcommand_metavar="COMMAND [ARGS]...",
            **settings,
        )
        self.page, self.panel = page, panel

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the whole page, the list of verbs included."""
        formatter.write(_help_text(self, self.page, ctx, formatter.width))

    def list_commands(self, ctx: Context) -> list[str]:
        """The verbs as they were declared; click would sort them."""
        return list(self.commands)


def grouped_options(command: Command, ctx: Context) -> dict[str, list[tuple[str, str]]]:
    """The parameters as (spelling, help) under their headings, in the order of declaration."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            groups.setdefault(_heading(param), []).append((record[0], record[1].strip()))
    if "Global" in groups:
        groups["Global"] = groups.pop("Global")
    return groups


def _heading(param: Parameter) -> str:
    """What click adds by itself, ``--help``, is global."""
    return str(getattr(param, "panel", "Global"))


def _help_text(command: Command, page: Page, ctx: Context, width: int) -> str:
    pieces = [f"{_strong('Usage:')} {ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}", page.summary]
    pieces += [textwrap.fill(paragraph, width, break_on_hyphens=False) for paragraph in _paragraphs(page.about)]
    if isinstance(command, Group):
        pieces += [_section(title, verbs, width) for title, verbs in _verbs(command, ctx).items()]
    pieces += [_section(title, rows, width) for title, rows in grouped_options(command, ctx).items()]
    if page.examples:
        pieces.append(_section("Examples", page.examples, width))
    if page.exits:
        pieces.append(_section("Exit codes", [(str(code), meaning) for code, meaning in page.exits], width))
    return "\n\n".join(pieces) + "\n"


def _paragraphs(text: str) -> list[str]:
    return [" ".join(block.split()) for block in text.split("\n\n") if block.strip()]


def _verbs(group: Group, ctx: Context) -> dict[str, list[tuple[str, str]]]:
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is not None and not command.hidden:
            summary = getattr(command, "page", Page("")).summary
            panels.setdefault(getattr(command, "panel", None) or "Verbs", []).append((name, summary))
    return panels


def _section(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    """A heading and an aligned two-column list; a long left side gets a line of its own."""
    rows = list(rows)
    column = min(max(len(left) for left, _ in rows), 28) + 4
    lines = [_strong(f"{title}:")]
    for left, right in rows:
        wrapped = textwrap.wrap(right, max(width - column, 24), break_on_hyphens=False) or [""]
        if len(left) + 4 > column:
            lines.append(f"  {left}")
        else:
            lines.append(f"  {left:<{column - 2}}{wrapped.pop(0)}".rstrip())
        lines += [" " * column + line for line in wrapped]
    return "\n".join(lines)


def _strong(text: str) -> str:
    plain = not sys.stdout or not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[1m{text}\x1b[0m"
