"""The bottom of the house: every durable step has a name, a failpoint and an fsync.

Whatever must survive a crash happens inside ``with step(Step.X):``, connectors' commits and DDL included; a lint
(`tests/test_durable_lint.py`) demands it. The same enum serves traces and failpoints, so the crash sweep can list every
place where a process may die.

``PZ_FAILPOINT=<step>[.before|.after|.inside][:nth]=kill|stop|raise|hang|torn|enospc`` arms one failpoint (several are
joined by ``,``): the nth time (counted from 1, default 1) that this process passes it, it dies by SIGKILL, is stopped until
SIGCONT, raises, sleeps for ever, leaves half of the bytes (``torn``: file writes only, then dies) or fails with ENOSPC.
``PZ_FAILPOINT_TRACE=<file>`` appends a line for each step passed. When neither variable is set, a step costs two attribute reads.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

__all__ = [
    "Step",
    "append_line",
    "fsync_dir",
    "fsync_file",
    "left_aside",
    "make_dirs",
    "promote",
    "remove",
    "step",
    "write_atomic",
]


class Step(StrEnum):
    """Every durable step of a run, in the order in which a run meets them."""

    CREATE_RUN_DIR = "create_run_dir"
    WRITE_RUN_RECORD = "write_run_record"
    PEND_SNAPSHOT = "pend_snapshot"
    CREATE_STAGING = "create_staging"
    CREATE_META = "create_meta"
    WRITE_PLAN = "write_plan"
    WRITE_MANIFEST = "write_manifest"
    PIN_PARTITIONS = "pin_partitions"
    PIN_WINDOW = "pin_window"
    CAPTURE_SLOT = "capture_slot"
    STAGE_ROWS = "stage_rows"
    WRITE_CHECKPOINT = "write_checkpoint"
    COMPLETE_PARTITION = "complete_partition"
    CLOSE_PLAN = "close_plan"
    COMPLETE_LOAD = "complete_load"
    MATERIALIZE = "materialize"
    REUSE_LOAD = "reuse_load"
    REUSE_PARTITIONS = "reuse_partitions"
    RECORD_ATTEMPT = "record_attempt"
    RECORD_DELIVERY = "record_delivery"
    SINK_PREPARE = "sink_prepare"
    SINK_WRITE = "sink_write"
    SINK_COMMIT = "sink_commit"
    PROMOTE_FILE = "promote_file"
    WRITE_RESULTS = "write_results"
    ADVANCE_STATE = "advance_state"
    ACKNOWLEDGE = "acknowledge"
    APPEND_AUDIT = "append_audit"
    FINISH_RUN = "finish_run"
    SWEEP_RETENTION = "sweep_retention"


class FailpointError(OSError):
    """What an armed ``raise`` failpoint raises: a fault that no code expects by name."""


class _Failpoints:
    """The armed failpoints of this process and the count of each step passed."""

    def __init__(self, armed: str, trace: str) -> None:
        self.trace = trace
        self.armed = dict(_parse(part) for part in armed.split(",") if part.strip())
        self.active = bool(self.armed or trace)
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def action_at(self, point: str) -> str | None:
        with self._lock:
            nth = self._counts.get(point, 0) + 1
            self._counts[point] = nth
        if self.trace:
            with open(self.trace, "a", encoding="ascii") as out:  # durable: ok - a trace for tests, not state
                out.write(f"{point} {nth}\n")
        return self.armed.get((point, nth))

    def hit(self, point: str) -> None:
        action = self.action_at(point)
        if action is not None:
            _act(action, point)


class _Watched(_Failpoints):
    """Every point passed is told to a function of a test, which may copy the disk, raise, or run something beside."""

    def __init__(self, passed: Callable[[str], None]) -> None:
        super().__init__("", "")
        self.active = True
        self._passed = passed

    def action_at(self, point: str) -> None:
        self._passed(point)


def _parse(text: str) -> tuple[tuple[str, int], str]:
    target, _, action = text.strip().partition("=")
    if action not in {"kill", "stop", "raise", "hang", "torn", "enospc"}:
        raise ValueError(f"PZ_FAILPOINT: unknown action in {text!r}")
    point, _, nth = target.partition(":")
    name, _, side = point.partition(".")
    if action == "torn":
        side = "inside"
    return (f"{Step(name).value}.{side or 'before'}", int(nth or 1)), action


def _act(action: str, point: str) -> None:
    if action in {"kill", "torn"}:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal is on its way
    elif action == "stop":
        # To this thread: one sent to the process is for any of its threads, and until that one runs, this one goes on.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return
    elif action == "hang":
        while True:
            time.sleep(3600)
    elif action == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), point)
    raise FailpointError(errno.EIO, f"failpoint {point}")


_points = _Failpoints(os.environ.get("PZ_FAILPOINT", ""), os.environ.get("PZ_FAILPOINT_TRACE", ""))


def rearm(armed: str = "", trace: str = "") -> None:
    """Replace the failpoints of this process (tests that fork a warm interpreter use it)."""
    global _points
    _points = _Failpoints(armed, trace)


def watch(passed: Callable[[str], None] | None) -> None:
    """Call ``passed`` with the name of every point from now on, in the thread that passes it; None: no more."""
    global _points
    _points = _Failpoints("", "") if passed is None else _Watched(passed)


@contextmanager
def step(name: Step) -> Iterator[None]:
    """Mark a durable step; an armed failpoint fires before its body or after it succeeded."""
    points = _points
    if not points.active:
        yield
        return
    points.hit(f"{name.value}.before")
    yield
    points.hit(f"{name.value}.after")


def fsync_file(path: Path) -> None:
    """Flush a file's content to the device. Errors are fatal to the caller: an fsync is never retried."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_dir(path: Path) -> None:
    """Flush a directory, so that a rename or a new entry in it survives power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_dirs(path: Path) -> None:
    """Create a directory and its parents, as far as they are missing, so that they survive power loss."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        fsync_dir(directory.parent)


def write_atomic(path: Path, data: bytes, name: Step) -> None:
    """Replace ``path`` by ``data``: written aside, fsynced, renamed, directory fsynced.

    A reader, also one after a crash, sees the old content or the new, never a mixture. The temporary file has a name that
    no other writer has, be it in another container with the same process id.
    """
    aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    with step(name):
        try:
            with open(aside, "wb") as out:
                torn = _points.active and _points.action_at(f"{name.value}.inside") == "torn"
                out.write(data[: len(data) // 2] if torn else data)
                out.flush()
                if torn:
                    _act("torn", name.value)
                os.fsync(out.fileno())
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        fsync_dir(path.parent)


def left_aside(path: Path) -> list[Path]:
    """What writers of ``path`` that died in `write_atomic` left beside it; of those alive, too: ask under a lock."""
    start = f".{path.name}."
    return [found for found in path.parent.iterdir() if found.name.startswith(start) and found.suffix == ".tmp"]


def promote(aside: Path, final: Path, name: Step = Step.PROMOTE_FILE) -> None:
    """Make a finished file visible under its final name: fsync it, rename over, fsync the directory."""
    with step(name):
        fsync_file(aside)
        os.replace(aside, final)
        fsync_dir(final.parent)


def append_line(path: Path, line: str, name: Step) -> None:
    """Append one line durably to a log-like file; a torn last line of an earlier crash is closed off first."""
    with step(name), open(path, "ab+") as out:
        if out.tell() > 0:
            out.seek(-1, os.SEEK_END)
            if out.read(1) != b"\n":
                out.write(b"\n")
        out.write(line.encode() + b"\n")
        out.flush()
        os.fsync(out.fileno())


def remove(path: Path, name: Step) -> None:
    """Remove a file or an empty directory if it is there; its absence is what the caller wanted."""
    with step(name):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
