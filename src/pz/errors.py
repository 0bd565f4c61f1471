"""Everything that can go wrong, on one screen.

    PzError                     carries one or more coded problems
     ├─ ProjectError            refused before anything moved: load, compile, validate, plan, usage (exit 2)
     ├─ StateError              the state store, or a verb on it, refused (exit 2)
     ├─ NodeError               one node of a run failed (exit 1)
     └─ EngineError             unexpected; a defect of ours or of the machine (exit 3)
    ConnectorError              what a connector raises; the engine decides by its type
     ├─ TransientError          worth another attempt, perhaps after ``retry_after`` seconds
     ├─ PermanentError          another attempt would fail alike
     └─ OutcomeUnknown          an acknowledgement was lost; neither success nor failure may be assumed
    Cancelled                   the run was told to stop; never counted as a failure of the node

A message names objects (connection, entity, option, file), never values that might be secret: messages are published
verbatim in results, events and the console.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from pz.codes import CODES, Code
from pz.frozen import frozen

__all__ = [
    "Cancelled",
    "Code",
    "ConnectorError",
    "EngineError",
    "NodeError",
    "OutcomeUnknown",
    "PermanentError",
    "Problem",
    "Problems",
    "ProjectError",
    "PzError",
    "Severity",
    "StateError",
    "TransientError",
    "os_problem",
]


class Severity(StrEnum):
    """How loud a problem is: errors stop a stage, warnings and notes are printed and life goes on."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@frozen
class Problem:
    """One coded finding: what, where and what to do next.

    ``file`` is relative to the project where it lies inside it; ``line`` counts from 1. ``hint`` defaults to the
    hint that the registry holds for the code.
    """

    code: Code
    message: str
    file: str | None = None
    line: int | None = None
    hint: str | None = None
    severity: Severity = Severity.ERROR

    @property
    def where(self) -> str:
        """``file:line``, ``file`` or the empty string."""
        if self.file is None:
            return ""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def advice(self) -> str:
        """The hint to print: the problem's own, else the registry's."""
        return self.hint if self.hint is not None else CODES[self.code].hint

    def render(self) -> str:
        """Return ``error PZ####: message (file:line)`` with the hint, if any, on the next line."""
        head = f"{self.severity} {self.code}: {self.message}"
        if self.where:
            head += f" ({self.where})"
        return f"{head}\nhint: {self.advice}" if self.advice else head

    def at(self, file: str | None, line: int | None) -> Problem:
        """Return the same problem with a place, unless it has one already."""
        return self if self.file is not None else replace(self, file=file, line=line)


class Problems:
    """Collects the problems of one stage, so that all of them are reported together.

    >>> problems = Problems()
    >>> problems.error(Code.PZ0101, "no name", file="project.yml", line=1)
    >>> problems.raise_errors()      # raises ProjectError with every error, ordered by file and line
    """

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, problem: Problem) -> None:
        """Keep a problem; an identical one is kept once."""
        if problem not in self._found:
            self._found.append(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Keep several problems."""
        for problem in problems:
            self.add(problem)

    def error(
        self, code: Code, message: str, *, file: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        """Keep an error."""
        self.add(Problem(code, message, file, line, hint))

    def warn(
        self, code: Code, message: str, *, file: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        """Keep a warning."""
        self.add(Problem(code, message, file, line, hint, Severity.WARNING))

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The errors, ordered by file, then line, then code."""
        return tuple(sorted((p for p in self._found if p.severity is Severity.ERROR), key=_order))

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Warnings and notes, in the same order."""
        return tuple(sorted((p for p in self._found if p.severity is not Severity.ERROR), key=_order))

    def raise_errors(self) -> None:
        """Raise `ProjectError` with all errors, if there are any."""
        if self.errors:
            raise ProjectError(self.errors)


def _order(problem: Problem) -> tuple[str, int, str, str]:
    return (problem.file or "", problem.line or 0, problem.code, problem.message)


class PzError(Exception):
    """Base of every error that the product itself reports; it always carries at least one `Problem`."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(p.render() for p in self.problems))

    @property
    def code(self) -> Code:
        """The code of the first problem."""
        return self.problems[0].code


class ProjectError(PzError):
    """Refused before anything moved; correct the project or the command and run again."""


class StateError(PzError):
    """The state store or a verb on it refused; nothing was changed."""


class NodeError(PzError):
    """A node of a run failed; `pz retry` continues from what is durable."""


class EngineError(PzError):
    """Something that should not happen did; report it."""


class ConnectorError(Exception):
    """What a connector raises. The message is published verbatim: keep it free of secrets and row values."""

    def __init__(self, message: str, *, hint: str | None = None, code: Code | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class TransientError(ConnectorError):
    """The same call may succeed later; the engine retries under the node's retry policy.

    ``retry_after`` is what the far side asked for, in seconds.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, hint: str | None = None, code: Code | None = None
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.retry_after = retry_after


class PermanentError(ConnectorError):
    """The same call would fail again; the node fails at once."""


class OutcomeUnknown(ConnectorError):
    """The destination may or may not have committed, and nothing could settle which."""


class Cancelled(Exception):
    """The run was told to stop and this piece of work obeyed."""


_OS_CODES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), (Code.PZ0531, "permission denied")),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), (Code.PZ0532, "the disk is full")),
    **dict.fromkeys((errno.EBUSY, errno.ETXTBSY), (Code.PZ0533, "the file is held by another process")),
}


def os_problem(failure: OSError, path: str | Path | None, otherwise: Code) -> Problem:
    """Say what the operating system refused, and where; decided by the error number, never by the text."""
    code, words = _OS_CODES.get(failure.errno or 0, (otherwise, failure.strerror or type(failure).__name__))
    return Problem(code, words if path is None else f"{words}: {path}")
