"""Tables: aligned columns for pipes, ruled and folded ones for terminals."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from pz.cli.output import Output, printable

__all__ = ["fits", "print_table", "text_table"]


def print_table(
    output: Output, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """Print rows under a heading; columns named in ``right`` are aligned to the right."""
    clean = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    if output.live:
        _print_ruled(output, columns, clean, right)
    else:
        output.out.write(text_table(columns, clean, right))


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Columns padded to their widest cell and two spaces apart; never cut, whatever the width."""
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    lines = []
    for row in (columns, *rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the table can stand on this terminal without folding a cell; one cell more per column for its rules."""
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *rows, strict=True)]
    return sum(widths) + 3 * len(widths) <= shutil.get_terminal_size().columns


def _print_ruled(output: Output, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from pz.cli.render.terminal import console_for

    table = Table(box=box.SIMPLE_HEAD if output.out.unicode else box.ASCII2, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console_for(output).print(table)
