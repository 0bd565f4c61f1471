"""``pz clean``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pz.cli.command import Group, Invocation, verb
from pz.cli.failures import ExitCode, print_problems
from pz.cli.help import Page
from pz.cli.parameters import option
from pz.cli.render.lines import counted, human_bytes
from pz.errors import Severity

if TYPE_CHECKING:
    from pz.runs.retention import CleanReport

_PAGE = Page(
    "Remove what old runs left behind.",
    """Removes staging databases, the bulky part of a run; results stay, so that `pz runs` still lists every run. --purge removes
    whole run directories. State, live runs and unfinished chains of retries are never touched.""",
    (
        ("pz clean", "keep the newest run's staging"),
        ("pz clean --keep-last 5", "keep five"),
        ("pz clean --older-than 30d --purge --dry-run", "say what would go"),
    ),
)

KeepLast = Annotated[
    str | None,
    option("--keep-last", metavar="N", help="Keep the newest N runs (default 1; 0 keeps none)."),
]
OlderThan = Annotated[
    str | None,
    option("--older-than", metavar="AGE", help="Only runs older than this, say 90m, 12h or 30d."),
]
Purge = Annotated[bool, option("--purge", help="Remove whole run directories, results included.")]
DryRun = Annotated[bool, option("--dry-run", help="Only say what would be removed.")]


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "clean", _PAGE, panel=panel)(clean)


def clean(
    cli: Invocation,
    keep_last: KeepLast = None,
    older_than: OlderThan = None,
    purge: Purge = False,
    dry_run: DryRun = False,
) -> int:
    """Remove old runs."""
    from pz.runs.retention import clean_selection

    count, age = clean_selection(keep_last, older_than)
    report: CleanReport = cli.open().clean(keep_last=count, older_than=age, purge=purge, dry_run=dry_run)
    if not cli.quiet:
        _tell(cli, report)
    print_problems(report.problems, cli.output)
    return ExitCode.REFUSED if any(p.severity is Severity.ERROR for p in report.problems) else ExitCode.OK


def _tell(cli: Invocation, report: CleanReport) -> None:
    for run in report.cleaned:
        what = "run" if run.purged else "staging"
        cli.output.out.line(
            f"{'would remove' if report.dry_run else 'removed'} {what} {run.run_id} {human_bytes(run.bytes)}"
        )
    for run_id in report.live:
        cli.output.out.line(f"note: {run_id} is live and was left alone")
    mood = "would remove" if report.dry_run else "removed"
    cli.output.out.line(f"{mood} {counted(len(report.cleaned), 'run')}, {human_bytes(report.bytes)}")
