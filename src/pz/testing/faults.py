"""Levers: end, stop or starve a child process at a durable step, fill its disk, damage its files.

A child is a fresh interpreter (`run_fresh`) or a fork of a warm one (`WarmInterpreter`, several times as fast: modules
are imported once, nothing else is shared). Both arm the failpoints of `pz.durable` in the child alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from pz.frozen import frozen
from pz.testing.reference import distribution_path

__all__ = [
    "Child",
    "Damage",
    "Outcome",
    "WarmInterpreter",
    "child_environment",
    "cuts",
    "flips",
    "list_steps",
    "run_fresh",
    "start_fresh",
    "tmpfs",
]

CLI = "pz.testing.child:cli"
"""The default target of a child: the command line."""


@frozen
class Outcome:
    """How a child ended: its exit code, negative for the signal that killed it, and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.code == -signal.SIGKILL


def child_environment(*, failpoint: str = "", trace: Path | None = None, reference: bool = True) -> dict[str, str]:
    """What a child needs to import `pz` as this process does, with armed failpoints and the reference connectors."""
    path = [str(distribution_path())] if reference else []
    path += [entry for entry in sys.path if entry]
    environment = {"PYTHONPATH": os.pathsep.join(path), "PYTHONWARNINGS": "error"}
    if failpoint:
        environment["PZ_FAILPOINT"] = failpoint
    if trace is not None:
        environment["PZ_FAILPOINT_TRACE"] = str(trace)
    return environment


class Child:
    """A running `pz` in an interpreter of its own. Wait for it, wait until a ``stop`` failpoint stopped it, go on."""

    def __init__(self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pz.testing.child", *arguments],
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=self._out,
            stderr=self._err,
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait(self, timeout: float = 240.0) -> Outcome:
        """Wait for its end; a child that does not end in time is killed and reported as `TimeoutError`."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired as late:
            self._process.kill()
            self._process.wait()
            raise TimeoutError(f"child still ran after {timeout} s") from late
        return Outcome(code, _drain(self._out), _drain(self._err))

    def wait_stopped(self) -> bool:
        """Wait until it is stopped (True) or has ended (False)."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return False

    def go_on(self) -> None:
        """Let a stopped child continue."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()


def start_fresh(arguments: Sequence[str], cwd: Path, *, failpoint: str = "", trace: Path | None = None) -> Child:
    """Start ``pz <arguments>`` in a fresh interpreter."""
    return Child(arguments, cwd, child_environment(failpoint=failpoint, trace=trace))


def run_fresh(
    arguments: Sequence[str], cwd: Path, *, failpoint: str = "", trace: Path | None = None, timeout: float = 240.0
) -> Outcome:
    """Run ``pz <arguments>`` in a fresh interpreter to its end."""
    return start_fresh(arguments, cwd, failpoint=failpoint, trace=trace).wait(timeout)


class WarmInterpreter:
    """An interpreter that has imported everything and forks once per call.

    It opens no database and starts no thread itself, so a fork inherits nothing but modules. One call at a time.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pz.testing.child", "--serve"],
            # Number libraries must not start threads: a fork has only the thread that forked.
            env={**os.environ, **child_environment(), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> WarmInterpreter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the parent of all forks."""
        return self._process.pid

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        *,
        failpoint: str = "",
        trace: Path | None = None,
        target: str = CLI,
        timeout: float = 240.0,
    ) -> Outcome:
        """Fork, call ``target`` (``module:function``, given the arguments, returns an exit code) in ``cwd``, wait."""
        with tempfile.TemporaryDirectory() as scratch:
            out, err = Path(scratch) / "out", Path(scratch) / "err"
            request = {
                "target": target,
                "arguments": list(arguments),
                "cwd": str(cwd),
                "failpoint": failpoint,
                "trace": "" if trace is None else str(trace),
                "stdout": str(out),
                "stderr": str(err),
                "timeout": timeout,
            }
            code = self._ask(request)
            if code == -signal.SIGALRM:
                raise TimeoutError(f"child still ran after {timeout} s")
            return Outcome(code, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def close(self) -> None:
        """End the interpreter."""
        if self._process.stdin is not None and self._process.stdout is not None:
            self._process.stdin.close()
            self._process.stdout.close()
        self._process.wait()

    def _ask(self, request: Mapping[str, object]) -> int:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the warm interpreter has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the warm interpreter has ended")
        return int(json.loads(answer)["code"])


def list_steps(trace: Path) -> dict[str, int]:
    """How often each point (``<step>.before``, ``.after``, ``.inside``) was passed, in order of first passage."""
    passed: dict[str, int] = {}
    for line in trace.read_text(encoding="ascii").splitlines():
        point, _, nth = line.partition(" ")
        passed[point] = max(passed.get(point, 0), int(nth))
    return passed


@frozen
class Damage:
    """One damaged version of a file."""

    label: str
    content: bytes


def cuts(content: bytes, pieces: int = 64) -> Iterator[Damage]:
    """The content cut at every ``1/pieces`` of its length, the empty file included."""
    for part in range(pieces):
        length = len(content) * part // pieces
        yield Damage(f"cut at {length} of {len(content)}", content[:length])


def flips(content: bytes, count: int = 64, seed: int = 0) -> Iterator[Damage]:
    """The content with one bit turned, at ``count`` places that the seed decides."""
    chance = random.Random(seed)
    for _ in range(count if content else 0):
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        yield Damage(f"bit {bit} of byte {place}", bytes(damaged))


@contextlib.contextmanager
def tmpfs(path: Path, size: int) -> Iterator[Tmpfs]:
    """A file system of ``size`` bytes at ``path``. Raises PermissionError where mounting is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
    try:
        yield Tmpfs(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


@frozen
class Tmpfs:
    """A mounted file system whose size and leave to write can change."""

    path: Path

    def resize(self, size: int) -> None:
        """Grow or shrink it."""
        _mount("-o", f"remount,size={size}", str(self.path))

    def writable(self, allowed: bool) -> None:
        """Make it read-only for everybody, also for root, or writable again. Fails while a file is open for writing."""
        _mount("-o", f"remount,{'rw' if allowed else 'ro'}", str(self.path))


def _mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError as absent:
        raise PermissionError("there is no mount command") from absent
    if done.returncode != 0:
        raise PermissionError(f"mounting is not allowed here: {done.stderr.strip()}")


def _drain(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")
