"""``pz``: the command line, put together from one module a verb.

This module and all verbs import nothing heavy; DuckDB, Arrow and Jinja come with the first call of `pz.api`.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from pz.cli import (
    cdc,
    clean,
    compile,
    completion,
    connectors,
    init,
    ls,
    plan,
    retry,
    run,
    runs,
    schema,
    show,
    state,
    test,
    validate,
)
from pz.cli.command import Invocation, callback
from pz.cli.failures import ExitCode, report
from pz.cli.help import Page
from pz.cli.options import usage_error
from pz.cli.output import Output
from pz.errors import ProjectError

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


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    callback(app, _PAGE, _bare)
    for panel, modules in _VERBS.items():
        for module in modules:
            module.register(app, panel)
    return app


@cache
def command() -> Any:
    """The same as typer runs it, made once in a process; typer has no public name for its type."""
    return get_command(build())


_VERBS = {
    "Project": (init, validate, compile, ls, plan),
    "Running": (run, test, retry),
    "Looking and housekeeping": (show, runs, state, cdc, schema, clean, connectors, completion),
}

Version = Annotated[
    bool, typer.Option("--version", help="Print the versions of pz, DuckDB and Python.", rich_help_panel="Global")
]


def _bare(cli: Invocation, version: Version = False) -> int:
    """``pz`` without a verb: the version if asked for, else a usage error."""
    if not version:
        raise usage_error("a verb is missing", "`pz --help` lists the verbs")
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
    sys.exit(code)


def answer(arguments: list[str], output: Output, base: Invocation | None = None) -> int:
    """Run one command line and return its exit code; never raises. ``base`` is what the global options start from."""
    if "_PZ_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # public, not re-exported

        completion_init()
    try:
        code = command().main(arguments, prog_name="pz", standalone_mode=False, obj=base or Invocation(output=output))
    except typer.TyperException as failure:
        return report(_usage(failure), output)
    except (Exception, KeyboardInterrupt) as failure:  # noqa: BLE001 - the last line of defence: no stack trace, ever
        return report(failure, output)
    return _settled(int(code or 0), output)


def _usage(failure: typer.TyperException) -> ProjectError:
    """What typer found wrong with the command line, in our words and with the help that applies."""
    context = getattr(failure, "ctx", None)
    path = "pz" if context is None else context.command_path
    message = " ".join(failure.format_message().split()).rstrip(".")
    return usage_error(message[:1].lower() + message[1:], f"see `{path} --help`")


def _settled(code: int, output: Output) -> int:
    """The exit code, unless what the verb had to say could not be written."""
    failure = output.out.failure
    if code == ExitCode.OK and failure is not None and not output.run_finished:
        return report(failure, output)
    return code
