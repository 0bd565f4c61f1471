"""What a refused or failed command prints and returns; a stack trace is never part of it."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_support import Answer, Capture, FakeProject, FakeResult, invoke, opening, scripted_run
from pz.cli.command import Invocation
from pz.cli.main import answer
from pz.cli.output import Output
from pz.codes import Code
from pz.errors import (
    Cancelled,
    EngineError,
    NodeError,
    PermanentError,
    Problem,
    ProjectError,
    PzError,
    StateError,
)
from pz.events import Notice

PROBLEM = Problem(Code.PZ0101, "no name", "project.yml", 3, "add a name")


@pytest.mark.parametrize(
    ("failure", "code", "first"),
    [
        (ProjectError([PROBLEM, Problem(Code.PZ0104, "bad", "a.sql", 1, "x")]), 2, "error PZ0101: no name (project.yml:3)"),
        (StateError(Problem(Code.PZ0520, "moved on")), 2, "error PZ0520: moved on"),
        (NodeError(Problem(Code.PZ0510, "two rows")), 1, "error PZ0510: two rows"),
        (EngineError(Problem(Code.PZ0500, "cannot be")), 3, "error PZ0500: cannot be"),
        (PermanentError("the server says no", code=Code.PZ0330), 1, "error PZ0330: the server says no"),
        (PermissionError(errno.EACCES, "Permission denied", "/p/.pz"), 2, "error PZ0531: permission denied: /p/.pz"),
        (OSError(errno.EROFS, "Read-only", "/p/.pz"), 2, "error PZ0531: permission denied: /p/.pz"),
        (OSError(errno.ENOSPC, "No space", "/p/.pz/x"), 2, "error PZ0532: the disk is full: /p/.pz/x"),
        (OSError(errno.EBUSY, "busy", "/p/x"), 2, "error PZ0533: the file is held by another process: /p/x"),
        (Cancelled(), 3, "note: stopped before anything ran"),
        (KeyboardInterrupt(), 130, "note: stopped before anything ran"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["run", "test", "retry"])
def test_each_kind_of_error_has_its_exit_code(failure: BaseException, code: int, first: str, verb: str) -> None:
    got = invoke(verb, project=FakeProject(failure=failure))
    assert (got.code, got.err.splitlines()[0], got.out) == (code, first, "")
    assert "Traceback" not in got.err


def test_all_problems_of_a_refusal_are_printed_with_their_hints() -> None:
    got = invoke("run", project=FakeProject(failure=ProjectError([PROBLEM, Problem(Code.PZ0104, "b", hint="h")])))
    assert got.err == "error PZ0101: no name (project.yml:3)\nhint: add a name\nerror PZ0104: b\nhint: h\n"


def test_an_unexpected_exception_says_where_and_not_what_it_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PZ_DEBUG", raising=False)
    got = invoke("run", project=FakeProject(failure=ValueError("password=hunter2")))
    assert got.code == 3
    assert got.err.startswith("error PZ0500: unexpected ValueError")
    assert "hunter2" not in got.err
    assert "Traceback" not in got.err


def test_debug_adds_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PZ_DEBUG", "1")
    assert "Traceback" in invoke("run", project=FakeProject(failure=ValueError("x"))).err


@pytest.mark.parametrize("status", [0, 1, 3])
def test_the_exit_code_of_a_run_is_its_results(status: int) -> None:
    assert invoke("run", project=FakeProject(scripted_run(), FakeResult(status))).code == status


def test_text_mode_prints_nodes_and_ends_with_the_summary_on_standard_output() -> None:
    got = invoke("run", project=FakeProject(scripted_run()))
    assert "ok stg_orders 4790 rows 33 ms" in got.out.splitlines()
    assert got.out.splitlines()[-1].startswith("run 20260710T120000000Z-ab12: 1 succeeded, 0 failed, 0 skipped (")
    assert got.err == ""


def test_a_run_with_nothing_to_do_has_no_summary() -> None:
    notice = Notice(run_id="", severity="note", message="nothing to retry")
    got = invoke("retry", project=FakeProject([notice], FakeResult(nothing_to_do=True)))
    assert got == Answer(0, "note: nothing to retry\n", "")


def test_each_pass_ends_with_its_own_summary() -> None:
    lines = invoke("run", project=FakeProject([*scripted_run(), *scripted_run()])).out.splitlines()
    assert [line for line in lines if line.startswith("run ")] == [
        "run 20260710T120000000Z-ab12: 2 succeeded, 1 failed, 1 skipped",
        FakeResult().summary,
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rnu",), "no such command 'rnu'. Did you mean 'run'?"),
        (("run", "--selct", "x"), "no such option '--selct'"),
        (("run", "--select"), "option '--select' requires an argument"),
        (("run", "--log-format", "xml"), "invalid value for '--log-format'"),
        (("run", "--max-passes", "3"), "--max-passes without --until-caught-up"),
        (("ls", "--project", ""), "invalid value for '--project': the path is empty"),
        (("--project", "", "ls"), "invalid value for '--project': the path is empty"),
        (("test", "extra"), "got unexpected extra argument"),
        (("completion",), "missing argument 'SHELL'"),
    ],
)
def test_a_wrong_command_line_is_refused_in_the_same_style(arguments: tuple[str, ...], message: str) -> None:
    got = invoke(*arguments)
    assert got.code == 2
    assert got.err.startswith(f"error PZ0700: {message}")
    assert "\nhint: " in got.err
    assert got.out == ""


@pytest.mark.parametrize("text", ["{", "[1]", "3", '{"a": NaN}', "", "null", "[" * 100_000])
def test_vars_must_be_a_json_object(text: str) -> None:
    got = invoke("run", "--vars", text, project=FakeProject())
    assert got.code == 2
    assert got.err.startswith("error PZ0102: --vars is ")


def test_vars_and_flags_reach_the_run() -> None:
    project = FakeProject()
    line = ("run", "a", "b", "--vars", '{"x": [1, null]}', "--full-refresh", "--fail-fast", "--until-caught-up")
    assert invoke(*line, "--max-passes", "3", project=project).code == 0
    name, flows, options = project.calls[0]
    assert (name, flows) == ("run", ("a", "b"))
    assert options["vars"] == {"x": [1, None]}
    assert (options["full_refresh"], options["fail_fast"], options["until_caught_up"]) == (True, True, True)
    assert options["max_passes"] == 3
    assert (options["select"], options["everything"]) == (None, False)


@pytest.mark.parametrize("line", [("--project", "here", "run"), ("run", "--project", "here")])
def test_the_project_may_be_named_before_or_after_the_verb(line: tuple[str, ...]) -> None:
    seen: list[Path] = []
    output = Output(Capture(), Capture(), {})

    def opener(path: Path) -> Any:
        seen.append(path)
        return FakeProject()

    assert answer(list(line), output, Invocation(output=output, opener=opener)) == 0
    assert seen == [Path("here")]


@pytest.mark.parametrize("line", [("-q", "run"), ("run", "--quiet")])
def test_quiet_may_stand_on_either_side_too(line: tuple[str, ...]) -> None:
    got = invoke(*line, project=FakeProject(scripted_run()))
    assert not any(text.startswith(("ok", "note")) for text in got.out.splitlines())
    assert any(text.startswith("FAIL") for text in got.out.splitlines())


def test_completion_for_an_unknown_shell_has_its_code() -> None:
    got = invoke("completion", "fsh")
    assert (got.code, got.err) == (
        2,
        "error PZ0535: there is no completion for the shell 'fsh'\nhint: did you mean fish?\n",
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "pwsh"])
def test_each_shell_gets_its_script(shell: str) -> None:
    got = invoke("completion", shell)
    assert got.code == 0
    assert "_PZ_COMPLETE" in got.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("init",), Code.PZ0132),
        (("init", "x", "--list-templates"), Code.PZ0132),
        (("init", "x", "--template", "sampel"), Code.PZ0131),
        (("init", "full"), Code.PZ0130),
    ],
)
def test_init_refuses_with_its_codes(arguments: tuple[str, ...], code: Code, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    got = invoke("--project", str(tmp_path), *arguments)
    assert got.code == 2
    assert got.err.startswith(f"error {code}: ")


def test_init_prints_a_command_that_can_be_pasted(tmp_path: Path) -> None:
    got = invoke("--project", str(tmp_path), "init", "my shop's")
    command = got.out.splitlines()[-1].removeprefix("next: ").removesuffix(" && pz run --all")
    assert shlex.split(command) == ["cd", str(tmp_path / "my shop's")]


def test_init_makes_a_project_and_says_what_comes_next(tmp_path: Path) -> None:
    got = invoke("--project", str(tmp_path), "init", "demo", "--template", "minimal")
    assert got.code == 0
    assert (tmp_path / "demo" / "project.yml").exists()
    assert f"next: cd {tmp_path / 'demo'} && pz run --all" in got.out
    got = invoke("--project", str(tmp_path), "init", "web", "--template", "http")
    assert f"next: cd {tmp_path / 'web'}; python server.py & pz run --all" in got.out


def test_the_version_names_what_matters_for_a_report() -> None:
    assert invoke("--version").out.startswith("pz ")


def run_process(*arguments: str, **options: object) -> Answer:
    done = subprocess.run(
        [sys.executable, "-m", "pz", *arguments], capture_output=True, text=True, check=False, **options
    )  # type: ignore[call-overload]
    return Answer(done.returncode, done.stdout, done.stderr)


def test_a_reader_that_goes_away_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pz", "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "verb", [("show", "x", "--limit"), ("runs", "--limit"), ("run", "--until-caught-up", "--max-passes")]
)
def test_a_number_below_one_has_the_same_code_everywhere(verb: tuple[str, ...]) -> None:
    for number in ("0", "-1"):
        got = invoke(*verb, number)
        assert (got.code, got.err) == (2, f"error PZ0534: {verb[-1]} is below 1\nhint: Give a positive number.\n")


def test_the_version_is_all_that_is_printed_whatever_follows() -> None:
    """As with other commands; before, it was dropped in silence where a verb followed."""
    for following in (("ls",), ("no-such-verb",), ("show", "x")):
        got = invoke("--version", *following)
        assert (got.code, got.err) == (0, "")
        assert got.out.startswith("pz ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error_of_verbs_whose_point_it_is() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pz", "init", "--list-templates"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error PZ0532: the output could not be written: the disk is full\n")
    assert "retry" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_locale_that_lacks_a_character_gets_it_escaped() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    got = run_process("completion", "fïsh", env=env)
    assert got.code == 2
    assert "'f\\xefsh'" in got.err


def test_a_terminal_gets_the_tree_and_then_the_plain_summary() -> None:
    screen = Capture(terminal=True)
    output = Output(screen, Capture(), {"TERM": "xterm"})
    base = Invocation(output=output, opener=opening(FakeProject(scripted_run())))
    assert answer(["run"], output, base) == 0
    assert "└── " in screen.getvalue()
    assert screen.getvalue().splitlines()[-1].startswith("run 20260710T120000000Z-ab12: 1 succeeded")


@pytest.mark.parametrize("environ", [{"CI": "true"}, {"TERM": "dumb"}])
def test_ci_and_dumb_terminals_get_plain_lines(environ: dict[str, str]) -> None:
    screen = Capture(terminal=True)
    output = Output(screen, Capture(), environ)
    answer(["run"], output, Invocation(output=output, opener=opening(FakeProject(scripted_run()))))
    assert "\x1b" not in screen.getvalue()
    assert "ok stg_orders 4790 rows 33 ms" in screen.getvalue().splitlines()


def test_no_color_is_respected_on_a_terminal() -> None:
    screen = Capture(terminal=True)
    output = Output(screen, Capture(), {"TERM": "xterm", "NO_COLOR": "1"})
    answer(["run"], output, Invocation(output=output, opener=opening(FakeProject(scripted_run()))))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", screen.getvalue())


def test_a_refusal_is_an_object_on_standard_output_where_that_is_the_stream_of_events() -> None:
    got = invoke("run", "--log-format", "json", project=FakeProject(failure=ProjectError(PROBLEM)))
    told = json.loads(got.out)
    assert (told["event"], told["code"], told["message"], told["hint"]) == (
        "run_refused",
        PROBLEM.code,
        PROBLEM.message,
        PROBLEM.hint,
    )
    assert got.code == 2


def test_every_known_base_class_of_errors_has_a_rule() -> None:
    assert {kind.__name__ for kind in PzError.__subclasses__()} == {
        "ProjectError", "StateError", "NodeError", "EngineError"
    }  # fmt: skip


def test_a_json_stream_survives_a_failing_run() -> None:
    got = invoke("run", "--log-format", "json", project=FakeProject(scripted_run(), failure=ValueError("x")))
    assert json.loads(got.out.splitlines()[0])["event"] == "run_started"
    assert got.code == 3
