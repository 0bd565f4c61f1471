"""Whole processes, measured: wall-clock seconds and peak resident memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Measurement:
    """One process from its start to its end."""

    seconds: float
    peak_bytes: int
    processor_seconds: float = 0.0


def measure(command: Sequence[str], directory: Path) -> Measurement:
    """Run a command; a failure is fatal, because a benchmark of a failed move says nothing."""
    log = directory / "benchmark.log"
    with log.open("wb") as out:
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed in {directory}:\n{log.read_text()}")
    return Measurement(seconds, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)


def best(repeats: int, moves: Sequence[Callable[[], Measurement]]) -> list[Measurement]:
    """The fastest of several repeats of each move, and the highest peak; the moves take turns, so that noise is shared."""
    rounds = [[move() for move in moves] for _ in range(repeats)]
    return [
        Measurement(
            min(m.seconds for m in turns),
            max(m.peak_bytes for m in turns),
            min(m.processor_seconds for m in turns),
        )
        for turns in zip(*rounds, strict=True)
    ]
