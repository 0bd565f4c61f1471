"""Verbs that take something away ask first: ``--dry-run`` only says it, ``--yes`` is for where nobody can answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

from pz.cli.command import Invocation
from pz.cli.output import printable
from pz.cli.parameters import option
from pz.errors import Code, Problem, StateError

__all__ = ["DryRun", "Yes", "confirmed", "require_somebody"]

DryRun = Annotated[bool, option("--dry-run", help="Only say what would change.")]
Yes = Annotated[bool, option("--yes", "-y", help="Do not ask; needed where nobody can answer.")]


def require_somebody() -> None:
    """Raise PZ0516 unless a terminal can be asked."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise StateError(Problem(Code.PZ0516, "nobody can confirm: standard input is no terminal", hint="Add --yes."))


def confirmed(cli: Invocation, question: str, notes: Iterable[str] = ()) -> bool:
    """Ask on the terminal; anything but yes is a no, and says that nothing was changed."""
    for note in notes:
        cli.output.err.line(printable(f"note: {note}"))
    cli.output.err.write(f"{printable(question)}? [y/N] ")
    agreed = sys.stdin.readline().strip().lower() in {"y", "yes"}
    if not agreed:
        cli.output.err.line("nothing was changed")
    return agreed
