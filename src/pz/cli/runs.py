"""``pz runs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pz.cli import complete
from pz.cli.command import Group, Invocation, group, verb
from pz.cli.failures import ExitCode, print_problems
from pz.cli.help import Page
from pz.cli.jsontext import to_json
from pz.cli.options import AsJson, require_positive, usage_error
from pz.cli.output import printable
from pz.cli.parameters import argument, option
from pz.cli.render.lines import counted
from pz.cli.render.table import print_table
from pz.graph.model import NodeKind

if TYPE_CHECKING:
    from pz.runs.history import RunEntry
    from pz.runs.model import NodeResult

_PAGE = Page(
    "List past runs, newest first.",
    """Reads the run directories of the project. A run whose process is gone without a final status is listed as dead; `pz retry`
    continues it when it is the last one. One that was stopped in order (Ctrl-C) is listed as fatal (cancelled).""",
    (
        ("pz runs", "the last twenty"),
        ("pz runs --limit 5 --json", "for programs"),
        ("pz runs show 20260710T120000000Z-ab12", "every node of one run"),
    ),
)
_SHOW = Page(
    "Print every node of a run.",
    """Prints status, rows and time of each node, and the errors of the failed ones. Without an id: the last run.""",
    (
        ("pz runs show", "the last run"),
        ("pz runs show 20260710T120000000Z-ab12 --json", "its results as JSON"),
    ),
)

Limit = Annotated[int, option("--limit", "-n", metavar="N", help="At most N runs.", panel="Output")]
RunId = Annotated[str | None, argument("ID", help="The run's id.", complete=complete.runs)]


def register(app: Group, panel: str) -> None:
    """Add the verbs."""
    below = group(app, "runs", _PAGE, panel=panel, bare=runs)
    verb(below, "show", _SHOW)(show)


def runs(cli: Invocation, limit: Limit = 20, as_json: AsJson = False) -> int:
    """List runs."""
    require_positive("--limit", limit)
    entries: tuple[RunEntry, ...] = cli.open().runs(limit)
    if as_json:
        cli.output.out.write(to_json([_facts(entry) for entry in entries]))
    elif entries:
        columns = ("run", "status", "verb", "started", "succeeded", "failed", "skipped", "continues")
        rows = [_row(entry) for entry in entries]
        left_out = print_table(cli.output, columns, rows, right=columns[4:7], spare=("started", "continues", "verb"))
        if left_out and not cli.quiet:
            cli.output.err.line(f"note: left out for want of room: {', '.join(left_out)}; --json has all")
    elif not cli.quiet:
        cli.output.out.line("no runs yet")
    print_problems((problem for entry in entries for problem in entry.damage), cli.output)
    return ExitCode.OK


def _row(entry: RunEntry) -> tuple[str, ...]:
    facts = {**_facts(entry), "status": _status(entry)}
    return tuple(
        "" if facts[key] is None else str(facts[key])
        for key in ("runId", "status", "verb", "startedAt", "succeeded", "failed", "skipped", "retryOf")
    )


def _status(entry: RunEntry) -> str:
    """The status as people read it; ``fatal`` is what a cancelled run is called on the wire."""
    return "dead" if entry.dead else f"{entry.status.value} (cancelled)" if entry.cancelled else entry.status.value


def _facts(entry: RunEntry) -> dict[str, Any]:
    """What the list says about a run; None where its files do not tell."""
    record, results = entry.record, entry.results
    statuses = [] if results is None else [node.status.value for node in results.nodes]
    return {
        "runId": entry.run_id,
        "number": entry.number,
        "status": "dead" if entry.dead else entry.status.value,
        "verb": None if record is None else "retry" if record.retry_of is not None else record.verb,
        "startedAt": record.started_at if record is not None else None if results is None else results.started_at,
        "finishedAt": None if results is None else results.finished_at,
        "succeeded": statuses.count("success"),
        "failed": statuses.count("failed"),
        "skipped": statuses.count("skipped"),
        "retryOf": None if record is None else record.retry_of,
        "origin": entry.origin,
        "live": entry.live,
        "cancelled": entry.cancelled,
    }


def show(cli: Invocation, run_id: RunId = None, as_json: AsJson = False) -> int:
    """Print one run."""
    entry = _find(cli, run_id)
    nodes = () if entry.results is None else entry.results.nodes
    if as_json:
        cli.output.out.write(to_json({**_facts(entry), "nodes": nodes}))
    else:
        _print(cli, entry, nodes)
    print_problems(entry.damage, cli.output)
    return ExitCode.OK


def _find(cli: Invocation, run_id: str | None) -> RunEntry:
    from pz.runs.history import find, latest

    state_dir = cli.open().root / ".pz"
    entry = latest(state_dir) if run_id is None else find(state_dir, run_id)
    if entry is None:
        raise usage_error("there is no run yet" if run_id is None else f"there is no run '{run_id}'", "see `pz runs`")
    return entry


def _print(cli: Invocation, entry: RunEntry, nodes: tuple[NodeResult, ...]) -> None:
    columns = ("node", "kind", "status", "rows", "ms", "note")
    print_table(cli.output, columns, [_node_row(node) for node in nodes], right=("rows", "ms"))
    for node in nodes:
        if node.error is not None:
            cli.output.out.line(f"FAIL {printable(node.name)}")
            cli.output.out.line(printable(f"  error {node.error.code}: {node.error.message}".replace("\n", "\n  ")))
    facts = _facts(entry)
    counts = f"{facts['succeeded']} succeeded, {facts['failed']} failed, {facts['skipped']} skipped"
    missing = 0 if entry.record is None else max(len(entry.record.nodes) - len(nodes), 0)
    open_ = f", {counted(missing, 'node')} without a result" if missing else ""
    cli.output.out.line(f"run {entry.run_id}: {_status(entry)}: {counts}{open_}")


def _node_row(node: NodeResult) -> tuple[str, ...]:
    note = node.provenance or ("fused" if node.fused else node.materialization or "")
    if node.skipped_for is not None:
        note = f"{node.skipped_for} failed"
    unsaid = node.kind == NodeKind.CHECK or node.materialization is not None
    rows = "" if unsaid and not node.rows else str(node.rows)
    return (node.name, node.kind, node.status.value, rows, str(node.duration_ms), note)
