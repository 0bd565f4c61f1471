"""``pz validate``."""

from __future__ import annotations

from typing import Annotated

from pz.cli.command import Group, Invocation, verb
from pz.cli.failures import ExitCode, print_problems
from pz.cli.help import Page
from pz.cli.parameters import option
from pz.cli.render.lines import counted
from pz.errors import Severity

_PAGE = Page(
    "Check everything that can be checked without moving data.",
    """Loads and compiles the project, checks the options of every connection, dataset and output against the connector's
    schema, and compiles the SQL against empty tables made of the column contracts. All problems are reported together, with
    file and line. --connect also tries the live systems, compares contracts with what is there and asks whether
    every target can be written; what stored state says is told by `pz plan --connect`.""",
    (
        ("pz validate", "offline"),
        ("pz validate --connect", "with the live systems"),
    ),
)

Connect = Annotated[
    bool, option("--connect", help="Try the connections and compare column contracts with the live systems.")
]


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "validate", _PAGE, panel=panel)(validate)


def validate(cli: Invocation, connect: Connect = False) -> int:
    """Check the project."""
    problems = cli.open().validate(connect=connect)
    print_problems(problems, cli.output, quiet=cli.quiet)
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    warnings = sum(problem.severity is Severity.WARNING for problem in problems)
    if errors:
        cli.output.err.line(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")
        return ExitCode.REFUSED
    if not cli.quiet:
        cli.output.out.line(f"valid: no errors, {counted(warnings, 'warning')}")
    return ExitCode.OK
