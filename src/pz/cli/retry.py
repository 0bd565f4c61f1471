"""``pz retry``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pz.cli.command import Group, Invocation, verb
from pz.cli.execute import execute
from pz.cli.help import RUN_EXITS, Page
from pz.cli.options import FailFast, LogFormat, LogFormatOption
from pz.cli.parameters import option

if TYPE_CHECKING:
    from pz.api import RunResult
    from pz.connectors.contract import CancelToken
    from pz.events import Handler

_PAGE = Page(
    "Continue the last run from what is already durable.",
    """Runs the failed and skipped nodes of the last run again, and what stands above them. Loads that were staged are reused,
    partitions and checkpoints resume, sinks that have committed are carried forward. It also takes over a run whose process
    was killed or stopped. Vars, flags and bounds are those of the run that it continues.

    When something cannot be reused, a note says why and that piece is done anew; a retry never fails for that reason.""",
    (
        ("pz retry", "continue"),
        ("pz retry --full-refresh", "start the extraction over: reuse nothing, deliver again"),
    ),
    RUN_EXITS,
)

StartOver = Annotated[
    bool,
    option(
        "--full-refresh",
        help="Start the extraction over: nothing is reused or carried forward.",
        panel="Execution",
    ),
]


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "retry", _PAGE, panel=panel)(retry)


def retry(
    cli: Invocation,
    full_refresh: StartOver = False,
    fail_fast: FailFast = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> int:
    """Continue the last run."""

    def action(on_event: Handler, cancel: CancelToken) -> RunResult:
        return cli.open().retry(full_refresh=full_refresh, fail_fast=fail_fast, on_event=on_event, cancel=cancel)

    return execute(cli, log_format, action)
