"""Tables: aligned columns for pipes; on terminals ruled ones that fit, without a word broken or a value cut unmarked."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from pz.cli.output import Output, printable

__all__ = ["fits", "print_data", "print_table", "text_table"]

_GAP = 2
_LEAST = 20
"""Values of data are cut to no fewer cells than this, as long as another column can be left out instead."""

Rows = Sequence[Sequence[str]]


def print_table(
    output: Output, columns: Sequence[str], rows: Rows, right: Sequence[str] = (), spare: Sequence[str] = ()
) -> tuple[str, ...]:
    """Print rows under a heading; columns named in ``right`` are aligned to the right.

    On a terminal that is too narrow, the columns named in ``spare`` are left out, first things first, and returned; then
    prose is folded between its words; and where that does not do, each row is printed as a paragraph.
    """
    clean = _clean(rows)
    if not output.live:
        output.out.write(text_table(columns, clean, right))
        return ()
    from pz.cli.render.cells import levelled

    kept, left_out = list(range(len(columns))), []
    for name in spare:
        if _whole([columns[at] for at in kept], _picked(clean, kept)):
            break
        kept.remove(columns.index(name))
        left_out.append(name)
    names, cells = [columns[at] for at in kept], _picked(clean, kept)
    least = [max(map(_longest_word, column)) for column in zip(names, *cells, strict=True)]
    widths = levelled(_widths(names, cells), _room(len(names)), least)
    if sum(widths) > _room(len(names)):
        _print_paragraphs(output, names, cells)
    else:
        _print_ruled(output, names, cells, widths, right)
    return tuple(left_out)


def print_data(output: Output, columns: Sequence[str], rows: Rows) -> tuple[int, bool]:
    """Print rows of data; return how many columns were left out, and whether any value was cut.

    Nothing is in a pipe. On a terminal one line is one row: where there is no room, columns in the middle give way to one
    of dots, and long values end in a mark.
    """
    clean = _clean(rows)
    if not output.live:
        output.out.write(text_table(columns, clean))
        return 0, False
    from pz.cli.render.cells import cut, levelled

    unicode = output.out.unicode
    kept = _from_both_ends([min(width, _LEAST) for width in _widths(columns, clean)])
    names, cells = [columns[at] for at in kept], _picked(clean, kept)
    if len(kept) < len(columns):
        middle, dots = (len(kept) + 1) // 2, "…" if unicode else "..."
        names.insert(middle, dots)
        cells = [[*row[:middle], dots, *row[middle:]] for row in cells]
    natural = _widths(names, cells)
    widths = levelled(natural, _room(len(names)), [1] * len(names))
    fitted = [[cut(cell, width, unicode) for cell, width in zip(row, widths, strict=True)] for row in (names, *cells)]
    _print_ruled(output, fitted[0], fitted[1:], widths, ())
    return len(columns) - len(kept), widths != natural


def text_table(columns: Sequence[str], rows: Rows, right: Sequence[str] = ()) -> str:
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


def fits(columns: Sequence[str], rows: Rows) -> bool:
    """Whether the table can stand on this terminal without folding a cell."""
    return _whole(columns, _clean(rows))


def _clean(rows: Rows) -> list[list[str]]:
    return [[printable(cell).replace("\n", " ") for cell in row] for row in rows]


def _picked(rows: Rows, kept: Sequence[int]) -> list[list[str]]:
    return [[row[at] for at in kept] for row in rows]


def _whole(columns: Sequence[str], rows: Rows) -> bool:
    return sum(_widths(columns, rows)) <= _room(len(columns))


def _widths(columns: Sequence[str], rows: Rows) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]


def _room(columns: int) -> int:
    """The cells of a line that are left for so many columns."""
    return shutil.get_terminal_size().columns - _GAP * (columns - 1)


def _longest_word(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split()), default=0)


def _from_both_ends(widths: Sequence[int]) -> list[int]:
    """The columns that have room, taken in turn from the left and from the right; all where all have."""
    if sum(widths) <= _room(len(widths)):
        return list(range(len(widths)))
    order = [at for pair in zip(range(len(widths)), reversed(range(len(widths))), strict=True) for at in pair]
    kept: list[int] = []
    room = _room(2) - 3
    for at in order[: len(widths)]:
        if kept and widths[at] + _GAP > room:
            break
        room -= widths[at] + (_GAP if kept else 0)
        kept.append(at)
    return sorted(kept)


def _print_ruled(
    output: Output, columns: Sequence[str], rows: Rows, widths: Sequence[int], right: Sequence[str]
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from pz.cli.render.terminal import console_for

    rule = box.SIMPLE_HEAD if output.out.unicode else box.Box(str(box.SIMPLE_HEAD).replace("─", "-"), ascii=True)
    table = Table(box=rule, show_edge=False, padding=(0, _GAP - 1, 0, 0), pad_edge=False, header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(Text(column), justify="right" if column in right else "left", width=width, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console_for(output).print(table)


def _print_paragraphs(output: Output, columns: Sequence[str], rows: Rows) -> None:
    """The first cell on a line, below it the others by name; the terminal may fold them, so that they can be copied."""
    for first, *others in rows:
        output.out.line(first)
        facts = [f"{column} {cell}" for column, cell in zip(columns[1:], others, strict=True) if cell]
        if facts:
            output.out.line(f"  {', '.join(facts)}")
