"""``pz plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pz.cli.command import Group, Invocation, verb
from pz.cli.failures import ExitCode, print_problems
from pz.cli.help import Page
from pz.cli.jsontext import to_json
from pz.cli.options import All, AsJson, Flows, Select
from pz.cli.output import printable
from pz.cli.parameters import option
from pz.cli.render.lines import human_bytes
from pz.cli.render.table import fits, print_table

if TYPE_CHECKING:
    from pz.plan.model import Budget, Plan, PlannedNode
    from pz.project.model import RetryPolicy

_PAGE = Page(
    "Say what a run would do, how each row moves and what is guaranteed.",
    """Prints a row per node: the way its rows move and why, the partitions, the retry policy, and for every sink the guarantee
    that follows from its source's read shape and its write strategy, with the condition under which it holds. Below stand
    the memory that a run may take, DuckDB's limit included, and its staging disk. The plan is also written to
    .pz/target/plan.json.

    The plan is offline. --connect adds what only the live systems know: types, sizes, targets. It also looks at the stored
    state: what the next run would be refused for, or warn of, is told here.""",
    (
        ("pz plan", "the whole project"),
        ("pz plan orders_enriched", "the flow of one node"),
        ("pz plan --connect", "ask the live systems as well"),
        ("pz plan --json", "for programs"),
    ),
)

Connect = Annotated[
    bool,
    option("--connect", help="Ask the live systems for types, sizes and targets.", panel="Execution"),
]


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "plan", _PAGE, panel=panel)(plan)


def plan(
    cli: Invocation,
    flows: Flows = None,
    select: Select = None,
    everything: All = False,
    connect: Connect = False,
    as_json: AsJson = False,
) -> int:
    """Print the plan."""
    made = cli.open().plan(*(flows or ()), select=select, everything=everything, connect=connect)
    if as_json:
        from pz.plan.artifact import plan_to_json

        cli.output.out.write(to_json(plan_to_json(made)))
    else:
        _print(cli, made)
    print_problems(made.warnings, cli.output, quiet=cli.quiet)
    return ExitCode.OK


def _print(cli: Invocation, made: Plan) -> None:
    # What is guaranteed stands before what may be long: whatever cuts the line off leaves it.
    columns = ("node", "kind", "way", "guarantee", "partitions", "retry", "reason")
    rows = [_row(node) for node in made.nodes]
    if cli.output.live and not fits(columns, rows):
        for row in rows:
            cli.output.out.write(_stacked(row))
    else:
        print_table(cli.output, columns, rows, right=("partitions",))
    for line in budget_lines(made.budget):
        cli.output.out.line(line)
    if not cli.quiet:
        for note in made.notes:
            cli.output.out.line(f"note: {note}")


def _row(node: PlannedNode) -> tuple[str, ...]:
    return (
        node.name,
        node.kind.value,
        node.way.value,
        guarantee_text(node),
        "" if node.partitions is None else str(node.partitions),
        retry_text(node.retry),
        node.reason,
    )


def _stacked(row: tuple[str, ...]) -> str:
    """One node on a narrow terminal: what it is, then why and what is guaranteed, indented."""
    name, kind, way, guarantee, partitions, retry, reason = map(printable, row)
    facts = [way, f"{partitions} partitions" if partitions else "", f"retry {retry}" if retry else ""]
    lines = [f"{name} [{kind}]", "  " + ", ".join(filter(None, facts)), f"  {reason}"]
    return "\n".join([*lines, f"  {guarantee}"] if guarantee else lines) + "\n"


def retry_text(policy: RetryPolicy | None) -> str:
    """``3x 1s..30s``: attempts, first and longest delay; empty for a node that is never tried again."""
    if policy is None:
        return ""
    return f"{policy.max_attempts}x {policy.base_delay.total_seconds():g}s..{policy.max_delay.total_seconds():g}s"


def guarantee_text(node: PlannedNode) -> str:
    """``guarantee=<level> (<condition>)``; per dataset where the datasets above a sink differ."""
    edges = {dataset: str(guarantee) for dataset, guarantee in (node.guarantees or {}).items()}
    if not edges:
        return ""
    if len(set(edges.values())) == 1:
        return f"guarantee={next(iter(edges.values()))}"
    return "; ".join(f"{dataset}: guarantee={text}" for dataset, text in edges.items())


def budget_lines(budget: Budget) -> list[str]:
    """The promise about memory and disk, in two lines."""
    parts = f"duckdb {human_bytes(budget.duckdb)} + channels {human_bytes(budget.channels)}"
    memory = f"memory: {human_bytes(budget.total)} = {parts} + overhead {human_bytes(budget.overhead)}"
    disk = "not known offline" if budget.staging_disk is None else human_bytes(budget.staging_disk)
    return [memory, f"staging disk: {disk}"]
