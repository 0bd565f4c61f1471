"""The first stop signal winds down, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from pz.cli.signals import StopSignals
from pz.connectors.contract import CancelToken

STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", STOPS)
def test_the_first_signal_cancels_and_a_second_ends(number: signal.Signals) -> None:
    cancel, ended, codes = CancelToken(), threading.Event(), list[int]()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    with StopSignals(cancel, end=end):
        os.kill(os.getpid(), number)
        assert cancel.wait(120)
        assert codes == []
        os.kill(os.getpid(), number)
        assert ended.wait(120)
    assert codes == [128 + number]


def test_what_was_there_before_is_restored() -> None:
    before = [signal.getsignal(number) for number in STOPS]
    with StopSignals(CancelToken()):
        assert [signal.getsignal(number) for number in STOPS] != before
    assert [signal.getsignal(number) for number in STOPS] == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals(CancelToken()):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_announcement_cannot_hold_the_signal_up() -> None:
    cancel, ended, never = CancelToken(), threading.Event(), threading.Event()

    def stuck() -> None:
        never.wait()

    with StopSignals(cancel, announce=stuck, last_words=stuck, end=lambda code: ended.set()):
        os.kill(os.getpid(), signal.SIGTERM)
        assert cancel.wait(120)
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(120)
    never.set()


def test_work_that_cannot_be_stopped_does_not_hold_up_the_second_signal() -> None:
    cancel, ended, never = CancelToken(), threading.Event(), threading.Event()

    def stuck() -> None:
        never.wait()

    cancel.on_cancel(stuck)
    with StopSignals(cancel, end=lambda code: ended.set()):
        os.kill(os.getpid(), signal.SIGTERM)
        assert cancel.wait(120)
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(120)
    never.set()


def test_a_callback_that_fails_keeps_no_other_from_hearing_of_the_stop() -> None:
    cancel, heard = CancelToken(), list[int]()

    def fail() -> None:
        raise RuntimeError("closed")

    cancel.on_cancel(lambda: heard.append(1))
    cancel.on_cancel(fail)
    cancel.on_cancel(lambda: heard.append(2))
    with pytest.raises(RuntimeError, match="closed"):
        cancel.cancel()
    assert heard == [1, 2]


_BUSY = """
import hashlib
from pz.cli.signals import StopSignals
from pz.connectors.contract import CancelToken

cancel = CancelToken()
cancel.on_cancel(lambda: print("cancelled", flush=True))
with StopSignals(cancel):
    print("ready", flush=True)
    # One native call that does not come back to the interpreter's loop, as a long statement would.
    hashlib.pbkdf2_hmac("sha256", b"x", b"x", 2**31 - 1)
"""


def test_signals_are_seen_while_the_main_thread_sits_in_a_native_call() -> None:
    with subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "cancelled\n"
        child.send_signal(signal.SIGINT)
        assert child.wait() == 130


@pytest.mark.parametrize("seen", ["pz.cli", "click", "pz.errors", "pz.cli.command"])
def test_an_interrupt_while_the_program_is_loaded_leaves_no_stack_trace(seen: str) -> None:
    program = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {seen!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from pz.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
