"""``pz state``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from pz.cli import complete
from pz.cli.command import Group, Invocation, group, verb
from pz.cli.confirm import DryRun, Yes, confirmed, require_somebody
from pz.cli.failures import ExitCode
from pz.cli.help import Page
from pz.cli.jsontext import to_json
from pz.cli.options import AsJson
from pz.cli.output import printable
from pz.cli.parameters import argument, option
from pz.cli.render.table import print_table
from pz.errors import Code, Problem, StateError

if TYPE_CHECKING:
    from pz.state.verbs import Change, ShownState

_PAGE = Page(
    "Look at and edit what the next run continues from.",
    """A watermark says up to where a dataset has been read and delivered. Every edit is checked against the runs in flight,
    written to the audit (.pz/state/audit.jsonl), and undone by another edit. Tokens of feeds are listed, never shown or
    edited.""",
    (
        ("pz state show", "everything that is stored"),
        ("pz state set crm.orders --value 2026-07-01 --reason 'reload July'", "move a watermark"),
        ("pz state rollback crm.orders --to-run 20260710T120000000Z-ab12", "back to what a run recorded"),
        ("pz state clear crm.orders", "read the dataset from its beginning"),
    ),
)
_SHOW = Page(
    "Print the stored watermarks and which datasets have a token.",
    "Prints one row per dataset, or the one that is named.",
    (("pz state show", "all"), ("pz state show crm.orders --json", "one, for programs")),
)
_SET = Page(
    "Give a stored watermark another value.",
    """Moves an existing watermark in either direction; the value is read as the stored type. The next run reads what lies
    behind it: with a later value than the stored one, rows are passed over, and a note says so.""",
    (
        ("pz state set crm.orders --value 2026-07-01", "asks before it writes"),
        ("pz state set crm.orders --value 41 --yes --reason 'replay'", "from a script"),
    ),
)
_ROLLBACK = Page(
    "Take a watermark back to what a run recorded.",
    """Moves backward only; forward is `pz state set`. The next run reads the slices since then again. The place that the run
    read comes back with the value: if the project reads another one by now, the next run refuses it.""",
    (("pz state rollback crm.orders --to-run 20260710T120000000Z-ab12", "see `pz runs` for ids"),),
)
_CLEAR = Page(
    "Forget a watermark.",
    "The next run reads the dataset as if for the first time. Also removes an entry that is damaged.",
    (("pz state clear crm.orders", "asks before it writes"), ("pz state clear crm.orders --dry-run", "only says it")),
)

Key = Annotated[str | None, argument("CONNECTION.ENTITY", help="The dataset's key.", complete=complete.stored)]
Value = Annotated[str | None, option("--value", metavar="VALUE", help="The new value.")]
ToRun = Annotated[str | None, option("--to-run", metavar="ID", help="The run to go back to.", complete=complete.runs)]
Reason = Annotated[str | None, option("--reason", metavar="TEXT", help="Why, for the audit.")]


def register(app: Group, panel: str) -> None:
    """Add the verbs."""
    below = group(app, "state", _PAGE, panel=panel)
    verb(below, "show", _SHOW)(show)
    verb(below, "set", _SET)(set_value)
    verb(below, "rollback", _ROLLBACK)(rollback)
    verb(below, "clear", _CLEAR)(clear)


def show(cli: Invocation, key: Key = None, as_json: AsJson = False) -> int:
    """Print stored state."""
    found: tuple[ShownState, ...] = cli.open().state.show(key)
    if as_json:
        cli.output.out.write(to_json(found))
    elif found:
        rows = [(s.key, s.kind, s.cursor or "", s.type or "", s.value or "", s.run_id or "") for s in found]
        print_table(cli.output, ("dataset", "kind", "cursor", "type", "value", "run"), rows)
    elif not cli.quiet:
        cli.output.out.line("no state is stored")
    return ExitCode.OK


def set_value(
    cli: Invocation,
    key: Key = None,
    value: Value = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Move a watermark."""
    named, new = _needed(key, "the dataset's key"), _needed(value, "--value")
    state = cli.open().state
    return _edit(cli, lambda dry: state.set(named, new, reason=reason, dry_run=dry), dry_run, yes)


def rollback(
    cli: Invocation,
    key: Key = None,
    to_run: ToRun = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Move a watermark back."""
    named, run = _needed(key, "the dataset's key"), _needed(to_run, "--to-run")
    state = cli.open().state
    return _edit(cli, lambda dry: state.rollback(named, run, reason=reason, dry_run=dry), dry_run, yes)


def clear(cli: Invocation, key: Key = None, reason: Reason = None, dry_run: DryRun = False, yes: Yes = False) -> int:
    """Forget a watermark."""
    named = _needed(key, "the dataset's key")
    state = cli.open().state
    return _edit(cli, lambda dry: state.clear(named, reason=reason, dry_run=dry), dry_run, yes)


def _needed(value: str | None, what: str) -> str:
    if value is None:
        raise StateError(Problem(Code.PZ0516, f"{what} is missing", hint="See `pz state --help`."))
    return value


def _edit(cli: Invocation, change: Callable[[bool], Change], dry_run: bool, yes: bool) -> int:
    """Say what would change, ask unless told not to, and change it."""
    if not (dry_run or yes):
        require_somebody()
    planned = change(True)
    if dry_run:
        _tell(cli, planned, "would ")
        return ExitCode.OK
    if not yes and not confirmed(cli, _words(planned), planned.notes):
        return ExitCode.REFUSED
    _tell(cli, change(False), "")
    return ExitCode.OK


def _tell(cli: Invocation, change: Change, mood: str) -> None:
    for note in change.notes:
        cli.output.err.line(printable(f"note: {note}"))
    if not cli.quiet:
        cli.output.out.line(f"{mood}{_words(change)}")


def _words(change: Change) -> str:
    after = "nothing" if change.after is None else change.after
    return printable(f"{change.action} {change.key}: {change.before} -> {after}")
