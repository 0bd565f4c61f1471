"""``pz cdc``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pz.cli import complete
from pz.cli.command import Group, Invocation, group, verb
from pz.cli.confirm import DryRun, Yes, confirmed, require_somebody
from pz.cli.failures import ExitCode
from pz.cli.help import ALWAYS_EXITS, Page
from pz.cli.jsontext import plain, to_json
from pz.cli.options import AsJson
from pz.cli.output import printable
from pz.cli.parameters import argument
from pz.cli.render.table import print_table
from pz.errors import Code, Problem, ProjectError

if TYPE_CHECKING:
    from pz.engine.capture_verbs import ShownCapture

_PAGE = Page(
    "Look at and give up change capture.",
    """A captured table is read once as a whole and from then on from the database's log. The database keeps its log for pz until
    a run has stored that it has it; a dataset that nobody runs any more makes it keep its log for ever.""",
    (
        ("pz cdc status", "every captured dataset, what the database keeps for it, and what is wrong"),
        ("pz cdc drop crm.orders", "let go of one; the next run reads the whole table again"),
    ),
)
_STATUS_EXITS = (
    (0, "every captured dataset is healthy or was not run yet"),
    (
        1,
        "at least one is not: a lost or foreign slot, something that the server lacks, or a server that cannot be asked",
    ),
    *ALWAYS_EXITS[1:],
)
_STATUS = Page(
    "Print how every captured dataset stands; exit 1 if one is not healthy.",
    """One row per dataset: the slot, the stored position, the bytes of log that the database keeps for it, and its health. Below
    stands what is wrong, and what to do. A dataset that was not run yet has no slot and no position; its first run makes
    them, and until then nothing is wrong with it. One that is not captured any more is not healthy as long as its slot is
    there. With --json, `slot`, `stored`, `retainedBytes` and `health` are the columns of the table, `healthy` is false
    where the exit code is 1, and `position` is the slot once more.""",
    (("pz cdc status", "all"), ("pz cdc status --json", "for programs")),
    _STATUS_EXITS,
)
_DROP = Page(
    "Drop the slot of a captured dataset and forget its position.",
    """The next run reads the whole table again. A slot that is gone already is fine. A slot that several datasets share is
    dropped for all of them.""",
    (
        ("pz cdc drop crm.public.orders", "asks before it drops; only the first dot separates"),
        ("pz cdc drop crm.orders --dry-run", "only says it"),
        ("pz cdc drop crm.orders --yes", "from a script"),
    ),
)

Key = Annotated[str | None, argument("CONNECTION.ENTITY", help="The dataset's key.", complete=complete.captures)]


def register(app: Group, panel: str) -> None:
    """Add the verbs."""
    below = group(app, "cdc", _PAGE, panel=panel)
    verb(below, "status", _STATUS)(status)
    verb(below, "drop", _DROP)(drop)


def status(cli: Invocation, as_json: AsJson = False) -> int:
    """Print how captured datasets stand."""
    found: tuple[ShownCapture, ...] = cli.open().cdc.status()
    if as_json:
        cli.output.out.write(to_json([{**plain(s), "slot": s.position, "health": s.health} for s in found]))
    elif found:
        rows = [(s.key, s.position, s.stored or "-", _bytes(s.retained_bytes), s.health) for s in found]
        print_table(cli.output, ("dataset", "slot", "stored", "retained bytes", "health"), rows)
        for shown in found:
            for detail in shown.details:
                cli.output.out.line(printable(f"{shown.key}: {detail}"))
    elif not cli.quiet:
        cli.output.out.line("no dataset is read by change capture")
    return ExitCode.OK if all(shown.healthy for shown in found) else ExitCode.NODE_FAILED


def drop(cli: Invocation, key: Key = None, dry_run: DryRun = False, yes: Yes = False) -> int:
    """Give up a position."""
    if key is None:
        raise ProjectError(Problem(Code.PZ0507, "the dataset's key is missing", hint="See `pz cdc drop --help`."))
    if not (dry_run or yes):
        require_somebody()
    capture = cli.open().cdc
    planned = "" if yes and not dry_run else capture.drop(key, dry_run=True)
    if not (dry_run or yes) and not confirmed(cli, f"{key}: {planned}"):
        return ExitCode.REFUSED
    said = f"would {planned}" if dry_run else capture.drop(key)
    if not cli.quiet:
        cli.output.out.line(printable(f"{key}: {said}"))
    return ExitCode.OK


def _bytes(count: int | None) -> str:
    return "-" if count is None else str(count)
