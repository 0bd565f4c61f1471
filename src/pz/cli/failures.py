"""What a user sees of an error, and the exit code it ends with. Never a stack trace unless ``PZ_DEBUG=1`` asks for it."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from pathlib import Path

from pz.cli.output import Output, printable
from pz.errors import Cancelled, Code, ConnectorError, EngineError, NodeError, Problem, PzError, Severity, os_problem

__all__ = ["ExitCode", "explain", "print_problems", "problem_lines", "report"]


class ExitCode(IntEnum):
    """What the process ends with."""

    OK = 0
    NODE_FAILED = 1
    REFUSED = 2
    FATAL = 3
    INTERRUPTED = 130


_NOWHERE = "-"


def report(failure: BaseException, output: Output) -> ExitCode:
    """Print an error the way every verb does and return the exit code that belongs to it."""
    if os.environ.get("PZ_DEBUG") == "1":
        output.err.write("".join(traceback.format_exception(failure)))
    problems, code = explain(failure)
    print_problems(problems, output)
    return code


def explain(failure: BaseException) -> tuple[tuple[Problem, ...], ExitCode]:
    """Turn an exception into problems and an exit code; unknown ones say where they rose, not what they held."""
    if isinstance(failure, PzError):
        return failure.problems, _pz_exit(failure)
    if isinstance(failure, Cancelled | KeyboardInterrupt):
        return (Problem(Code.PZ0504, "stopped before anything ran", hint="Run again", severity=Severity.NOTE),), (
            ExitCode.FATAL if isinstance(failure, Cancelled) else ExitCode.INTERRUPTED
        )
    if isinstance(failure, ConnectorError):
        return (Problem(failure.code or Code.PZ0501, failure.message, hint=failure.hint),), ExitCode.NODE_FAILED
    if isinstance(failure, OSError):
        known = _os_problem(failure)
        if known is not None:
            return (known,), ExitCode.REFUSED
    return (Problem(Code.PZ0500, f"unexpected {type(failure).__name__}{_origin(failure)}"),), ExitCode.FATAL


def _pz_exit(failure: PzError) -> ExitCode:
    if isinstance(failure, EngineError):
        return ExitCode.FATAL
    return ExitCode.NODE_FAILED if isinstance(failure, NodeError) else ExitCode.REFUSED


def _os_problem(failure: OSError) -> Problem | None:
    """The coded form of a failing disk; None for what has no code of its own.

    Whatever goes wrong with a path below ``.pz`` (a file where a folder belongs, say) is something the user can mend.
    """
    named = isinstance(failure.filename, str | bytes | os.PathLike)
    path = Path(os.fsdecode(failure.filename) if named else _NOWHERE)
    problem = os_problem(failure, path, Code.PZ0702 if ".pz" in path.parts else Code.PZ0500)
    if problem.code is Code.PZ0500:
        return None
    return problem if named else replace(problem, message=problem.message.removesuffix(f": {_NOWHERE}"))


def _origin(failure: BaseException) -> str:
    """`` in pz/x.py:12``: the innermost frame of ours; the message itself may hold values and stays unsaid."""
    ours = Path(__file__).parents[2]
    for frame in reversed(traceback.extract_tb(failure.__traceback__)):
        if Path(frame.filename).is_relative_to(ours):
            return f" in {Path(frame.filename).relative_to(ours).as_posix()}:{frame.lineno}"
    return ""


def problem_lines(problem: Problem) -> list[str]:
    """The lines of one problem: ``error PZ####: message (file:line)``, hint below; a note carries no code."""
    text = printable(problem.render())
    if problem.severity is Severity.NOTE:
        text = text.replace(f"note {problem.code}: ", "note: ", 1)
    return text.split("\n")


def print_problems(problems: Iterable[Problem], output: Output, *, quiet: bool = False) -> None:
    """Print problems on standard error; ``quiet`` leaves notes out."""
    for problem in problems:
        if not (quiet and problem.severity is Severity.NOTE):
            output.err.write("\n".join(problem_lines(problem)) + "\n")
