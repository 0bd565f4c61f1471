"""``pz``: the command line, put together from one module a verb.

This module and all verbs import nothing heavy; DuckDB, Arrow and Jinja come with the first call of `pz.api`.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import click

from pz.cli.command import Group, Invocation, parameters_of, performing
from pz.cli.failures import ExitCode, report
from pz.cli.help import Page
from pz.cli.options import usage_error
from pz.cli.output import Output
from pz.cli.parameters import option
from pz.errors import Code, ProjectError, os_problem

__all__ = ["answer", "build", "end", "main"]

_PAGE = Page(
    "pz: batch data pipelines that say what they guarantee.",
    """A project is a folder: connections in YAML, pipelines in SQL. pz compiles it into a graph of loads, pipelines, checks and
    sink writes, tells before a run how each row will move and what a replay can do to each target, and continues after any
    failure from what is already durable.""",
    (
        ("pz init demo --template sample", "make a project that runs as it is"),
        ("pz plan", "say what a run would do, without touching anything"),
        ("pz run --all", "run every flow"),
        ("pz retry", "continue the last run from what is durable"),
        ("pz run --help", "everything about one verb"),
    ),
    (
        (0, "done"),
        (1, "at least one node of a run failed"),
        (2, "refused: the project, the command line or the state does not allow it"),
        (3, "unexpected failure, or a run stopped by a signal with no node failed"),
    ),
)


_MISSING = "a verb is missing"
_LOOKING = "Looking and housekeeping"
_VERBS = {
    "init": "Project",
    "validate": "Project",
    "compile": "Project",
    "ls": "Project",
    "plan": "Project",
    "run": "Running",
    "test": "Running",
    "retry": "Running",
    "show": _LOOKING,
    "runs": _LOOKING,
    "state": _LOOKING,
    "cdc": _LOOKING,
    "schema": _LOOKING,
    "clean": _LOOKING,
    "connectors": _LOOKING,
    "completion": _LOOKING,
}


class _Verbs(Group):
    """All verbs. The module of one is imported when it is asked for: a run has no use for the others."""

    def invoke(self, ctx: click.Context) -> Any:
        """Perform the verb; ``--version`` stands for all, whatever follows, as with other commands."""
        return click.Command.invoke(self, ctx) if ctx.params["version"] else super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the help."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A verb; for a name that is none all are there afterwards, so that click finds what was meant."""
        for name in (cmd_name,) if cmd_name in _VERBS else _VERBS:
            if name not in self.commands:
                import_module(f"pz.cli.{name}").register(self, _VERBS[name])
        return self.commands.get(cmd_name)


@cache
def build() -> Group:
    """The whole command line, made once in a process."""
    return _Verbs(
        _PAGE, None, name="pz", params=parameters_of(_bare), callback=performing(_bare), invoke_without_command=True
    )


Version = Annotated[bool, option("--version", help="Print the versions of pz, DuckDB and Python.", panel="Global")]


def _bare(cli: Invocation, version: Version = False) -> int:
    """``pz`` without a verb: the version if asked for, else a usage error that shows the help."""
    if not version:
        raise click.UsageError("Missing command.", click.get_current_context())
    cli.output.out.line(_versions())
    return ExitCode.OK


def _versions() -> str:
    return f"pz {_version_of('pz-engine')} (duckdb {_version_of('duckdb')}, python {sys.version.split()[0]})"


def _version_of(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def main(arguments: list[str] | None = None) -> None:
    """The entry point: run one command line and end the process with its exit code."""
    output = Output.of_process()
    end(answer(sys.argv[1:] if arguments is None else arguments, output), output)


def end(code: int, output: Output) -> NoReturn:
    """End the process. When a stream blocks, at once: the interpreter's own flush at exit would hang on it."""
    if output.abandoned:
        os._exit(code)
    gc.freeze()  # all is closed by now: no looking for garbage in what goes with the process, a tenth of a short run
    sys.exit(code)


def answer(arguments: list[str], output: Output, base: Invocation | None = None) -> int:
    """Run one command line and return its exit code; never raises. ``base`` is what the global options start from."""
    try:
        code = build().main(arguments, prog_name="pz", standalone_mode=False, obj=base or Invocation(output=output))
    except click.ClickException as failure:
        return report(_usage(failure, output), output)
    except (Exception, KeyboardInterrupt) as failure:  # noqa: BLE001 - the last line of defence: no stack trace, ever
        return report(failure, output)
    return _settled(int(code or 0), output)


def _usage(failure: click.ClickException, output: Output) -> ProjectError:
    """What click found wrong with the command line, in our words and with the help that applies; all of it without a verb."""
    context = getattr(failure, "ctx", None)
    path = "pz" if context is None else context.command_path
    message = " ".join(failure.format_message().split()).rstrip(".")
    if message == "Missing command":
        message = _MISSING
        output.err.line(context.get_help() + "\n" if context is not None else "")
    return usage_error(message[:1].lower() + message[1:], f"see `{path} --help`")


def _settled(code: int, output: Output) -> int:
    """The exit code, unless what the verb had to say could not be written."""
    failure = output.out.failure
    if code == ExitCode.OK and failure is not None and not output.run_finished:
        return report(_unwritten(failure), output)
    return code


def _unwritten(failure: OSError) -> ProjectError:
    """The error of a verb whose answer nobody got; what the verb did is done."""
    problem = os_problem(failure, None, Code.PZ0702)
    message = f"the output could not be written: {problem.message[:1].lower()}{problem.message[1:]}"
    return ProjectError(
        replace(problem, message=message, hint="look at where standard output goes, then print it again")
    )
