"""Reads the examples out of a Markdown page and runs them, so that a page cannot show what does not work.

A comment before a fence says what to do with it:

    <!-- project: sample -->    a fresh directory, filled from a template (`empty`: with nothing); stands alone
    <!-- write: a/b.yml -->     write the fence's text to that file
    <!-- append: a/b.csv -->    append it
    <!-- run -->                run it: console lines behind ``$``, or Python
    <!-- not run: reason -->    neither

In a console fence, the lines between two commands are their output: each must appear, in this order, where ``...``
stands for any text. A command may end in ``# exit 1`` to say that it fails so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pz.project.scaffold import create

MARK = re.compile(r"^<!-- (project|write|append|run|not run)(?:: (.*?))? -->$")
FENCE = re.compile(r"^```(\w*)$")
EXIT = re.compile(r"\s+# exit (\d)$")
NEEDS_MARK = {"console", "python", "yaml", "sql"}


@dataclass(frozen=True, slots=True)
class Example:
    """A marked fence, or a ``project`` mark alone."""

    action: str
    argument: str
    language: str
    text: str
    line: int


def examples(page: Path) -> list[Example]:
    """The examples of a page in order. A fence of code without a mark is an error."""
    found: list[Example] = []
    lines = iter(enumerate(page.read_text().splitlines(), start=1))
    mark: tuple[str, str] | None = None
    for number, line in lines:
        if matched := MARK.match(line):
            mark = (matched[1], matched[2] or "")
            if mark[0] == "project":
                found.append(Example("project", mark[1], "", "", number))
                mark = None
        elif fence := FENCE.match(line):
            text = "".join(f"{inner}\n" for inner in _until_fence(lines))
            if mark is None and fence[1] in NEEDS_MARK:
                raise AssertionError(f"{page.name}:{number}: this {fence[1]} block says neither `run` nor `not run`")
            if mark is not None and mark[0] != "not run":
                found.append(Example(mark[0], mark[1], fence[1], text, number))
            mark = None
    return found


def _until_fence(lines: Iterator[tuple[int, str]]) -> list[str]:
    inside = []
    for _, line in lines:
        if line == "```":
            break
        inside.append(line)
    return inside


@dataclass
class Runner:
    """Runs the examples of one page, each in the directory in which the one before ended."""

    page: Path
    scratch: Path
    directory: Path = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.directory = self.scratch
        shim = self.scratch / "bin" / "pz"
        shim.parent.mkdir(parents=True)
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from pz.cli.main import main; main()" "$@"\n')
        shim.chmod(0o755)

    def run(self, example: Example) -> None:
        """Carry out one example; AssertionError says where the page is wrong."""
        if example.action == "project":
            self._start(example.argument)
        elif example.action in {"write", "append"}:
            path = self.directory / example.argument
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a" if example.action == "append" else "w") as out:
                out.write(example.text)
        elif example.language == "python":
            self._python(example)
        else:
            self._console(example)

    def _start(self, template: str) -> None:
        self.count += 1
        self.directory = self.scratch / f"project{self.count}"
        if template == "empty":
            self.directory.mkdir()
        else:
            create(self.directory, template)

    def _python(self, example: Example) -> None:
        done = self._process([sys.executable, "-c", example.text])
        assert done.returncode == 0, f"{self._where(example)}:\n{done.stdout}"

    def _console(self, example: Example) -> None:
        command, shown = "", [""]
        for line in [*example.text.splitlines(), "$ "]:
            if line.startswith("$ "):
                if command:
                    self._command(example, command, [text for text in shown if text.strip()])
                command, shown = line[2:], []
            else:
                shown.append(line)

    def _command(self, example: Example, command: str, shown: list[str]) -> None:
        expected = int(matched[1]) if (matched := EXIT.search(command)) else 0
        script = f"{EXIT.sub('', command)}\nstatus=$?\npwd > '{self.scratch}/cwd'\nexit $status\n"
        done = self._process(["bash", "-c", script])
        assert done.returncode == expected, f"{self._where(example)}: {command}: exit {done.returncode}\n{done.stdout}"
        self.directory = Path((self.scratch / "cwd").read_text().strip())
        pattern = ".*".join(_pattern(line) for line in shown)
        assert re.search(pattern, " ".join(done.stdout.split()), re.DOTALL), (
            f"{self._where(example)}: {command} printed\n{done.stdout}\nnot\n" + "\n".join(shown)
        )

    def _process(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PZ_")}
        path = f"{self.scratch / 'bin'}:{Path(sys.executable).parent}:{environ.get('PATH', '')}"
        return subprocess.run(
            command,
            cwd=self.directory,
            env={**environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )

    def _where(self, example: Example) -> str:
        return f"{self.page.name}:{example.line}"


def _pattern(line: str) -> str:
    """A shown line as a pattern: white space counts as one blank, ``...`` as anything."""
    return ".*?".join(re.escape(" ".join(part.split())) for part in line.split("..."))
