"""DuckDB files that outputs write to: how a new one comes to be.

DuckDB writes the first pages of a new file one after the other. A process that dies between them leaves a file that nobody
can open, and that stands in the way of every later run. So a file is made aside and gets its name when it is whole.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pz.durable import Step, fsync_dir, fsync_file, step

__all__ = ["make_database"]


def make_database(path: Path) -> None:
    """Make an empty DuckDB file, durably, where there is none; never in the place of another.

    A folder that cannot be used is left for DuckDB to complain of; where folders cannot be locked, DuckDB makes the file as it
    is first opened. Raises duckdb.Error and OSError.
    """
    if path.exists():
        return
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if _locked(folder):
            _make(path, path.with_name(f".{path.name}.new"))
    finally:
        os.close(folder)


def _locked(folder: int) -> bool:
    """Wait for the folder's lock, so that two outputs of one new file make it once; some network file systems have none."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _make(path: Path, aside: Path) -> None:
    import duckdb

    if path.exists():
        return
    with step(Step.SINK_PREPARE):
        aside.unlink(missing_ok=True)  # a dead process left it
        try:
            duckdb.connect(aside).close()
            fsync_file(aside)
            _name(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        fsync_dir(path.parent)


def _name(aside: Path, path: Path) -> None:
    """Give the file its name, unless something else took it meanwhile; not every file system can tell."""
    try:
        os.link(aside, path)  # durable: ok - inside the step of the caller
    except FileExistsError:
        return
    except OSError:
        aside.rename(path)  # durable: ok - inside the step of the caller
