"""Help reads like documentation, is complete, and costs nothing heavy to print."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from cli_support import commands, invoke

HEAVY = ("duckdb", "pyarrow", "jinja2", "httpx", "rich", "yaml", "pz.graph.model", "pz.cli.clean")
ALL = commands()


def imported_by(*arguments: str) -> set[str]:
    """The modules that a process has loaded after running one command line."""
    program = (
        "import sys\n"
        "from pz.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [("--version",), ("run", "--help"), ("plan", "--help")])
def test_help_imports_nothing_heavy_and_no_other_verb(arguments: tuple[str, ...]) -> None:
    assert imported_by(*arguments) & set(HEAVY) == set()


@pytest.mark.parametrize("arguments", [("--help",), ("completion", "bash")])
def test_the_list_of_verbs_and_completion_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert imported_by(*arguments) & {*HEAVY[:6]} == set()


@pytest.mark.parametrize("path", ALL)
def test_every_verb_explains_itself(path: str) -> None:
    page = ALL[path].page
    assert page.summary.endswith(".")
    assert len(page.summary) <= 90
    assert page.about
    assert page.examples
    assert {code for code, _ in page.exits} >= {0, 2, 3}
    assert all(command.startswith(("pz ", 'eval "$(pz ')) for command, _ in page.examples)


def parameters() -> list[tuple[str, Any]]:
    return [(path, param) for path, command in ALL.items() for param in command.params]


@pytest.mark.parametrize(("path", "param"), parameters(), ids=lambda value: getattr(value, "name", value))
def test_every_option_and_argument_has_help(path: str, param: Any) -> None:
    assert param.help, f"{path} {param.name}"
    assert param.help.endswith("."), f"{path} {param.name}"


@pytest.mark.parametrize("path", ALL)
def test_the_page_is_printed_in_full_and_no_wider_than_80(path: str) -> None:
    answer = invoke(*path.split()[1:], "--help")
    assert answer.code == 0


def test_the_global_options_stand_on_every_page() -> None:
    for path, command in ALL.items():
        assert {"project", "quiet", "verbose"} <= {param.name for param in command.params}, path


def test_examples_name_verbs_and_options_that_exist() -> None:
    for path, command in ALL.items():
        for example, _ in command.page.examples:
            words = example.split("&&")[0].split("|")[0].replace('eval "$(', "").split()
            verb = next((p for p in sorted(ALL, key=len, reverse=True) if words[: len(p.split())] == p.split()), None)
            assert verb is not None, (path, example)
            known = {spelling for param in ALL[verb].params for spelling in param.opts} | {"--help"}
            options = [word.strip("'\"") for word in words[1:] if word.startswith("-")]
            assert set(options) <= known, (path, example)


@pytest.mark.parametrize("path", [("pz",), ("pz", "state"), ("pz", "cdc")])
def test_without_a_verb_the_help_is_shown_and_the_error_last(path: tuple[str, ...]) -> None:
    """A script whose verb is an empty variable must not go on as if something had been done."""
    got = invoke(*path[1:])
    assert (got.code, got.out) == (2, "")
    assert got.err.startswith(f"Usage: {' '.join(path)}")
    assert got.err.endswith(f"error PZ0700: a verb is missing\nhint: see `{' '.join(path)} --help`\n")


@pytest.mark.parametrize("path", [(), ("run",), ("state",), ("state", "set")])
def test_the_short_spelling_of_help_is_known_everywhere(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for spelling in ("-h", "--help"):
        assert invoke(*path, spelling).code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("Usage: pz")
