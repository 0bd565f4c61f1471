"""``pz run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pz.cli.command import Group, Invocation, verb
from pz.cli.execute import execute
from pz.cli.help import RUN_EXITS, Page
from pz.cli.options import (
    All,
    FailFast,
    Flows,
    FullRefresh,
    LogFormat,
    LogFormatOption,
    Select,
    Vars,
    parse_vars,
    require_positive,
    usage_error,
)
from pz.cli.parameters import option

if TYPE_CHECKING:
    from pz.api import RunResult
    from pz.connectors.contract import CancelToken
    from pz.events import Handler

_PAGE = Page(
    "Run flows: load, transform, check, deliver.",
    """Compiles the project, plans it, and executes the selected nodes with everything above them. Rows are staged in the
    run's own DuckDB file, checked, and delivered with the guarantee that `pz plan` prints. State (watermarks, tokens) moves
    on only when every sink below a source has committed.

    A project with one flow needs no selection; with several, name nodes, select, or ask for --all. A node that fails skips
    what depends on it and nothing else; `pz retry` continues from what is durable.

    Ctrl-C (or SIGTERM, SIGHUP) winds the run down in order: nodes are cancelled, sessions aborted, results written. A
    second signal ends the process at once; `pz retry` takes the run over all the same.""",
    (
        ("pz run", "the project's only flow"),
        ("pz run --all", "every flow"),
        ("pz run orders_enriched", "the flow of one node"),
        ("pz run --select '+tag:daily'", "tagged pipelines and their ancestors"),
        ("pz run --all --log-format json", "events for a scheduler, one JSON object a line"),
        ("""pz run --vars '{"region": "eu"}'""", "with a variable of the project set"),
        ("pz run --all --until-caught-up", "windowed reads, pass after pass, until none is left"),
    ),
    RUN_EXITS,
)

UntilCaughtUp = Annotated[
    bool,
    option(
        "--until-caught-up",
        help="Run again while windowed reads (initial, max_window, until) have windows left; --full-refresh then applies to "
        "the first pass.",
        panel="Execution",
    ),
]
MaxPasses = Annotated[
    int | None,
    option(
        "--max-passes",
        metavar="N",
        help="At most N passes of --until-caught-up.",
        panel="Execution",
    ),
]


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "run", _PAGE, panel=panel)(run)


def run(
    cli: Invocation,
    flows: Flows = None,
    select: Select = None,
    everything: All = False,
    vars_text: Vars = None,
    full_refresh: FullRefresh = False,
    fail_fast: FailFast = False,
    until_caught_up: UntilCaughtUp = False,
    max_passes: MaxPasses = None,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> int:
    """Run flows."""
    _check_passes(until_caught_up, max_passes)
    variables = parse_vars(vars_text)
    bound = {} if max_passes is None else {"max_passes": max_passes}

    def action(on_event: Handler, cancel: CancelToken) -> RunResult:
        return cli.open().run(
            *(flows or ()),
            select=select,
            everything=everything,
            vars=variables,
            full_refresh=full_refresh,
            fail_fast=fail_fast,
            until_caught_up=until_caught_up,
            **bound,
            on_event=on_event,
            cancel=cancel,
        )

    return execute(cli, log_format, action)


def _check_passes(until_caught_up: bool, max_passes: int | None) -> None:
    if max_passes is not None and not until_caught_up:
        raise usage_error("--max-passes without --until-caught-up", "add --until-caught-up")
    if max_passes is not None:
        require_positive("--max-passes", max_passes)
