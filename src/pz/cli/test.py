"""``pz test``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pz.cli.command import Group, Invocation, verb
from pz.cli.execute import execute
from pz.cli.help import RUN_EXITS, Page
from pz.cli.options import FailFast, LogFormat, LogFormatOption, Select, Vars, parse_vars

if TYPE_CHECKING:
    from pz.api import RunResult
    from pz.connectors.contract import CancelToken
    from pz.events import Handler

_PAGE = Page(
    "Run the checks and what they need; write to no sink.",
    """Loads the sources and materialises the pipelines above the selected checks, and runs the checks. Nothing is delivered and
    no state moves on, so a failed check costs nothing: `pz test && pz run --all` is a gate.""",
    (
        ("pz test", "every check"),
        ("pz test --select stg_orders+", "the checks below one pipeline"),
        ("pz test && pz run --all", "deliver only what passes"),
    ),
    RUN_EXITS,
)


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "test", _PAGE, panel=panel)(run_checks)


def run_checks(
    cli: Invocation,
    select: Select = None,
    vars_text: Vars = None,
    fail_fast: FailFast = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> int:
    """Run checks."""
    variables = parse_vars(vars_text)

    def action(on_event: Handler, cancel: CancelToken) -> RunResult:
        return cli.open().test(select=select, vars=variables, fail_fast=fail_fast, on_event=on_event, cancel=cancel)

    return execute(cli, log_format, action)
