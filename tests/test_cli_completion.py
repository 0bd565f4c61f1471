"""The TAB key, in a real bash with the script that `pz completion bash` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
