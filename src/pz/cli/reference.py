"""The reference of the command line as Markdown, made of the same pages that ``--help`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from click import Command, Context, Group

from pz.cli.help import Page, grouped_options
from pz.cli.main import build

__all__ = ["markdown"]


def markdown() -> str:
    """Every verb with its options, examples and exit codes; sections in the order of ``pz --help``."""
    sections = []
    for command, context, depth in _walk(build(), "pz", None, 2):
        sections.append("\n\n".join(_section(command, context, depth)))
    return "\n\n".join(sections) + "\n"


def _walk(command: Command, name: str, parent: Context | None, depth: int) -> Iterator[tuple[Command, Context, int]]:
    context = Context(command, info_name=name, parent=parent)
    yield command, context, depth
    if isinstance(command, Group):
        for below in command.list_commands(context):
            made = command.get_command(context, below)
            if made is not None and not made.hidden:
                yield from _walk(made, below, context, min(depth + 1, 4) if parent else depth)


def _section(command: Command, context: Context, depth: int) -> Iterator[str]:
    page: Page = getattr(command, "page", Page(""))
    yield f"{'#' * depth} {context.command_path}"
    yield page.summary
    yield f"```\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    yield from (" ".join(block.split()) for block in page.about.split("\n\n") if block.strip())
    for title, rows in grouped_options(command, context).items():
        if title == "Global" and context.parent is not None:
            continue
        yield _table((title, "meaning"), rows)
    if page.examples:
        yield _table(("example", "what it does"), page.examples)
    yield _table(("exit code", "when"), [(str(code), meaning) for code, meaning in page.exits])


def _table(heading: tuple[str, str], rows: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> str:
    lines = [f"| {heading[0]} | {heading[1]} |", "|---|---|"]
    lines += [f"| `{_piped(left)}` | {_piped(right)} |" for left, right in rows]
    return "\n".join(lines)


def _piped(text: str) -> str:
    """A bar inside a cell would end it."""
    return text.replace("|", "\\|")
