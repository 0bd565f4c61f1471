"""``pz clean``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer

from pz.cli.command import Invocation, verb
from pz.cli.failures import ExitCode
from pz.cli.help import Page
from pz.errors import Code, Problem, ProjectError

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
    int | None,
    typer.Option(
        "--keep-last", metavar="N", help="Keep the newest N runs (default 1; 0 keeps none).", show_default=False
    ),
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="AGE", help="Only runs older than this: 90m, 12h, 30d, 4w.", show_default=False
    ),
]
Purge = Annotated[bool, typer.Option("--purge", help="Remove whole run directories, results included.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def register(app: typer.Typer, panel: str) -> None:
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
    if keep_last is not None and older_than is not None:
        raise ProjectError(Problem(Code.PZ0511, "--keep-last and --older-than together", hint="Use one of them"))
    if keep_last is not None and keep_last < 0:
        raise ProjectError(Problem(Code.PZ0512, "--keep-last is below 0", hint="Give 0 or more"))
    age = None if older_than is None else parse_age(older_than)
    report = cli.open().clean(keep_last=keep_last, older_than=age, purge=purge, dry_run=dry_run)
    if not cli.quiet:
        cli.output.out.line(str(report))
    return ExitCode.OK


def parse_age(text: str) -> timedelta:
    """``30d`` and the like; raises PZ0512."""
    match = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if match is None:
        raise ProjectError(Problem(Code.PZ0512, f"--older-than '{text}' is no age", hint="Say 90m, 12h, 30d or 4w"))
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
