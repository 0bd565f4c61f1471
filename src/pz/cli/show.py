"""``pz show``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from pz.cli import complete
from pz.cli.command import Group, Invocation, verb
from pz.cli.failures import ExitCode
from pz.cli.help import Page
from pz.cli.jsontext import plain, to_json
from pz.cli.options import require_positive
from pz.cli.parameters import argument, option
from pz.cli.render.lines import counted
from pz.cli.render.table import print_data

if TYPE_CHECKING:
    import pyarrow as pa

_PAGE = Page(
    "Print rows of a pipeline.",
    """Shows a fresh preview: the pipeline and what stands above it run in a scratch database, as if for the first time.
    Nothing is delivered, no state is read or stored, and no run is left behind. With --run, the rows that an earlier run
    staged, as long as retention keeps its staging.

    A terminal shows a line a row: columns in the middle give way to dots, and long values are cut with a mark. A pipe, csv
    and json have everything.""",
    (
        ("pz show orders_enriched", "twenty rows"),
        ("pz show orders_enriched --limit 1000 --format csv > rows.csv", "for a spreadsheet"),
        ("pz show orders_enriched --run 20260710T120000000Z-ab12", "what that run saw"),
    ),
)


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


Pipeline = Annotated[str, argument("PIPELINE", help="A pipeline's name.", complete=complete.pipelines)]
Limit = Annotated[int, option("--limit", "-n", metavar="N", help="At most N rows.")]
Run = Annotated[str | None, option("--run", metavar="ID", help="Show what this run staged.", complete=complete.runs)]
FormatOption = Annotated[
    Format,
    option(
        "--format", help="table; csv (an empty cell is null, a quoted empty one the empty text); json.",
        panel="Output",
    ),
]  # fmt: skip


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "show", _PAGE, panel=panel)(show)


def show(
    cli: Invocation, pipeline: Pipeline, limit: Limit = 20, run: Run = None, form: FormatOption = Format.TABLE
) -> int:
    """Print rows."""
    require_positive("--limit", limit)
    table = cli.open().show(pipeline, limit=limit, run_id=run)
    if form is Format.JSON:
        cli.output.out.write(to_json(table.to_pylist()))
    elif form is Format.CSV:
        cli.output.out.write(csv_text(table))
    else:
        _print(cli, table)
    return ExitCode.OK


def _print(cli: Invocation, table: pa.Table) -> None:
    rows = [[cell_text(value) for value in row.values()] for row in _rows(table)]
    left_out, cut = print_data(cli.output, table.column_names, rows)
    if not cli.quiet:
        cli.output.err.line(f"note: {', '.join(_shown(table, left_out, cut))}")


def _shown(table: pa.Table, left_out: int, cut: bool) -> Iterator[str]:
    yield counted(table.num_rows, "row")
    if left_out:
        yield f"{table.num_columns - left_out} of {table.num_columns} columns"
    if cut:
        yield "long values cut"
    if left_out or cut:
        yield "all of it: --format csv or json"


def csv_text(table: pa.Table) -> str:
    """The rows as csv: null is an empty cell, the empty text a quoted one."""
    lines = [table.column_names, *([_csv_cell(value) for value in row.values()] for row in _rows(table))]
    head, *body = lines
    return "\r\n".join([",".join(_quoted(name) for name in head), *(",".join(cells) for cells in body)]) + "\r\n"


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [dict(row) for row in table.to_pylist()]


def _csv_cell(value: Any) -> str:
    return "" if value is None else _quoted(cell_text(value))


def _quoted(text: str) -> str:
    if text == "" or any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def cell_text(value: Any) -> str:
    """One value as people read it: NULL, true, ISO moments, JSON for nested values."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | tuple):
        import json

        return json.dumps(plain(value), ensure_ascii=False)
    simple = plain(value)
    return simple if isinstance(simple, str) else str(simple)
