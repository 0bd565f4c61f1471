"""Running a piece of code in a child process: to let it die, stop or race."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"


def start(code: str, *arguments: object, failpoint: str = "") -> subprocess.Popen[str]:
    """Start ``python -c code arguments`` with pz importable; stdout and stdin are text pipes."""
    env = {**os.environ, "PYTHONPATH": str(SRC), "PZ_FAILPOINT": failpoint, "PZ_FAILPOINT_TRACE": ""}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def run(code: str, *arguments: object, failpoint: str = "") -> int:
    """Run it to its end; the exit status, negative for a signal."""
    with start(code, *arguments, failpoint=failpoint) as child:
        child.communicate(timeout=60)
        return child.returncode


def wait_for_line(child: subprocess.Popen[str], expected: str) -> None:
    """Block until the child prints this line."""
    assert child.stdout is not None
    assert child.stdout.readline().strip() == expected
