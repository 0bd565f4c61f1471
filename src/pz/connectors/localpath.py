"""Paths that a user wrote, and the operating system's refusals of them, as errors with a code.

A path comes from YAML or a template, so it may be anything: too long, with a NUL, in a home that nobody has, in a circle
of links. None of that may surface as a bare Python exception.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from pz.connectors.contract import PermanentError
from pz.errors import Code, os_problem

__all__ = ["local_path", "not_a_directory", "os_refusals", "real_path", "spelled_path"]

_LONGEST_NAME = 255
_LONGEST_PATH = 4095


def local_path(base: Path, text: str) -> Path:
    """``base / text`` with ``~`` expanded, not normalised. Raises PermanentError PZ0353 for what can be no path."""
    if "\0" in text:
        raise PermanentError("a path cannot hold a NUL character", code=Code.PZ0353, hint="correct the path")
    try:
        path = base / Path(text).expanduser()
        encoded = os.fsencode(path)
    except RuntimeError as error:
        message = f"path '{text}' starts in a home directory that is not known"
        raise PermanentError(message, code=Code.PZ0353, hint="write the whole path; ~ is expanded") from error
    except UnicodeEncodeError as error:
        raise PermanentError("a path holds half a character", code=Code.PZ0353, hint="correct the path") from error
    if len(encoded) > _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in encoded.split(b"/")):
        raise PermanentError("a path is too long for the file system", code=Code.PZ0353, hint="write a shorter path")
    return path


def spelled_path(text: str) -> str:
    """The path as the project spells it, ``./out/`` and ``out`` alike; moving the project does not change it.

    A ``..`` stays: behind a symbolic link it leads elsewhere than the text before it says.
    """
    return PurePath(text).as_posix()


def real_path(path: Path) -> Path:
    """The path with all links followed; a circle of links stays as it is (`Path.resolve` would raise RuntimeError)."""
    return Path(os.path.realpath(path))


def not_a_directory(directory: Path) -> Path | None:
    """What stands, and is no directory, where ``directory`` or one above it is or would have to be; None when nothing is."""
    lowest = next(path for path in (directory, *directory.parents) if path.exists() or path.is_symlink())
    return None if lowest.is_dir() else lowest


@contextmanager
def os_refusals() -> Iterator[None]:
    """Turn what the operating system refuses while a connector looks at files into a PermanentError with a code."""
    try:
        yield
    except OSError as failure:
        named = isinstance(failure.filename, str | bytes)
        problem = os_problem(failure, Path(os.fsdecode(failure.filename) if named else "-"), Code.PZ0353)
        message = problem.message if named else problem.message.removesuffix(": -")
        hint = "remove the circle of symbolic links" if failure.errno == errno.ELOOP else None
        raise PermanentError(message, code=problem.code, hint=hint) from failure
