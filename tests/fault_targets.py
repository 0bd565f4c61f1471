"""Small programs that the tests of the fault levers run in child processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pz.durable import Step, append_line, step, write_atomic


def two_steps(arguments: Sequence[str]) -> int:
    """Two durable writes into the working directory."""
    write_atomic(Path("state.json"), b"0123456789", Step.ADVANCE_STATE)
    append_line(Path("audit.log"), "done", Step.APPEND_AUDIT)
    print("both written")
    return int(arguments[0]) if arguments else 0


def step_in_a_thread(_: Sequence[str]) -> int:
    """A durable step in a thread, while the main thread waits; the thread then tells how far it has come."""

    def work() -> None:
        with step(Step.SINK_WRITE):
            Path("gone-on").touch()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return 0


def hang(_: Sequence[str]) -> int:
    """Never ends."""
    while True:
        time.sleep(60)


def tell_pid(_: Sequence[str]) -> int:
    """Print who runs this."""
    print(os.getpid())
    return 0
