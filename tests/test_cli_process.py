"""Whole processes: pipes that close, pipes that nobody reads, signals, locales."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

_CHILD = """
import sys
sys.path.insert(0, {tests!r})
from cli_support import FakeProject, FakeResult, completed, scripted_run, OUTLINE
from pz.cli.command import Invocation
from pz.cli.main import answer, end
from pz.cli.output import Output

class Project(FakeProject):
    def run(self, *flows, **options):
        for _ in range({rounds}):
            for event in scripted_run():
                options["on_event"](event)
        if {wait}:
            print("ready", file=sys.stderr, flush=True)
            assert options["cancel"].wait(120)
            return FakeResult(3)
        return FakeResult({code})

output = Output.of_process()
end(answer(sys.argv[1:], output, Invocation(output=output, opener=lambda path: Project())), output)
"""


def child(*arguments: str, rounds: int = 1, code: int = 0, wait: bool = False) -> list[str]:
    text = _CHILD.format(tests=str(TESTS), rounds=rounds, code=code, wait=wait)
    return [sys.executable, "-c", text, *arguments]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_reader_that_stops_early_ends_nothing(form: str) -> None:
    with subprocess.Popen(
        child("run", "--log-format", form, rounds=3000, code=1),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


@pytest.mark.slow
def test_a_reader_that_never_reads_delays_the_exit_by_a_bounded_time() -> None:
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            child("run", rounds=3000), stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=120
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert done.returncode == 0
    assert done.stderr.count("warning: the output could not be written in time") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_winds_down_and_says_so(number: signal.Signals) -> None:
    with subprocess.Popen(
        child("run", wait=True), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        out, errors = process.communicate()
    assert process.returncode == 3
    assert out.splitlines()[-1].startswith("run ")
    assert errors.splitlines() in ([], ["note: stopping; a second signal ends the process at once"])


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "cp1252"])
def test_any_locale_gets_through_a_run(encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(child("run"), capture_output=True, env=env, check=False)
    assert done.returncode == 0
    assert b"ok stg_orders 4790 rows 33 ms" in done.stdout


def test_closed_standard_streams_are_survived() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&- 2>&-', "sh", *child("run", code=1)], check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 1
