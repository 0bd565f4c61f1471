"""The TAB key, in a real bash with the script that `pz completion bash` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import pz
from pz.cli.main import build
from pz.project.scaffold import create

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

SCRIPT = """
set -euo pipefail
source <(pz completion bash)
for line in "$@"; do
    IFS='|' read -ra COMP_WORDS <<<"$line."
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMP_WORDS[COMP_CWORD]=${COMP_WORDS[COMP_CWORD]%.}
    COMPREPLY=()
    _pz_completion pz
    printf '%s' "${COMPREPLY[*]}" | tr '\\n' ' '
    echo
done
"""
LINES = {
    "pz|ru": "run runs",
    "pz|state|": "show set rollback clear",
    "pz|run|--log-format|": "text json",
    "pz|init|--temp": "--template",
    "pz|init|x|--template|s": "sample",
    "pz|completion|": "bash zsh fish pwsh",
}


def test_tab_completes_verbs_options_and_values() -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", SCRIPT, "bash", *LINES], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert dict(zip(LINES, map(str.strip, done.stdout.splitlines()), strict=True)) == LINES


def candidates(root: Path, *words: str, incomplete: str = "") -> list[str]:
    """What click would offer, without a shell, in a project; the words may name it."""
    complete = ShellComplete(build(), {}, "pz", "_PZ_COMPLETE")
    return [item.value for item in complete.get_completions(["--project", str(root), *words], incomplete)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("completion") / "demo"
    create(root, "incremental")
    return root, pz.open_project(root, environ={}).run().run_id


def test_tab_completes_the_names_of_the_project(ran: tuple[Path, str]) -> None:
    root, run = ran
    assert candidates(root, "run") == ["events", "src_app__events", "warehouse.events"]
    assert candidates(root, "plan", "--select", incomplete="ev") == ["events"]
    assert candidates(root, "show") == ["events"]
    assert candidates(root, "state", "set") == candidates(root, "schema", "accept") == ["app.events"]
    assert candidates(root, "state", "rollback", "app.events", "--to-run") == [run]
    assert candidates(root, "runs", "show") == candidates(root, "show", "events", "--run") == [run]
    assert "duckdb" in candidates(root, "connectors", "schema")
    assert candidates(root, "cdc", "drop") == []


@pytest.mark.parametrize(
    ("file", "text"),
    [("connections.yml", "a: [\n"), ("project.yml", "name: [\n"), ("pipelines/events.sql", "SELECT {{ nothing( }}")],
)
def test_tab_in_a_broken_project_offers_what_can_be_told_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    create(tmp_path / "demo", "incremental")
    (tmp_path / "demo" / file).write_text(text)
    assert candidates(tmp_path / "demo", "run") == candidates(tmp_path / "demo", "show") == ["events"]
    for words in (("state", "set"), ("cdc", "drop"), ("runs", "show"), ("schema", "accept")):
        assert candidates(tmp_path / "demo", *words) == []
    assert candidates(tmp_path / "nowhere", "run") == candidates(tmp_path / "nowhere", "state", "set") == []
    assert capfd.readouterr() == ("", "")
