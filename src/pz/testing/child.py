"""The process at the other end of `pz.testing.faults`: runs one command, or forks once per request.

``python -m pz.testing.child run --all`` is the command line in a fresh interpreter. ``python -m pz.testing.child --serve``
imports what a run needs, then reads one JSON request per line and forks for each; the fork arms its failpoints, runs the
target and ends without clean-up, so that nothing of the parent's is flushed twice.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pz
from pz import durable

__all__ = ["cli", "main", "serve"]

# What a run imports sooner or later; DuckDB looks for pandas when it binds a parameter.
WARM = (
    *("duckdb", "pyarrow", "pyarrow.parquet", "pyarrow.dataset", "jinja2", "yaml", "jsonschema", "pandas", "asyncio"),
    *("click.shell_completion", "_strptime", "encodings.ascii", "encodings.unicode_escape"),
)


def cli(arguments: Sequence[str]) -> int:
    """The command line, in this process."""
    command: Callable[[], Any] = importlib.import_module("pz.cli.main").main
    sys.argv = ["pz", *arguments]
    try:
        code = command()
    except SystemExit as leaving:
        code = leaving.code
    return int(code or 0)


def serve() -> None:
    """Answer requests until the other side closes."""
    ours = (found.name for found in pkgutil.walk_packages(pz.__path__, "pz.") if not found.name.endswith("__main__"))
    for module in (*WARM, *ours):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:  # what is not installed will be missed by the fork, which says so
            continue
    importlib.import_module("pz.cli.main").build()
    gc.collect()
    gc.freeze()  # else every fork copies the pages of all that was imported, just by looking for garbage
    for line in sys.stdin:
        sys.stdout.write(json.dumps({"code": _fork(json.loads(line))}) + "\n")
        sys.stdout.flush()


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _be_the_child(request)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _be_the_child(request: dict[str, Any]) -> None:
    code = 3
    try:
        _redirect(1, request["stdout"])
        _redirect(2, request["stderr"])
        os.chdir(request["cwd"])
        # A child that hangs must not hold up its parent for ever.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(request["timeout"]))
        durable.rearm(request["failpoint"], request["trace"])
        code = _call(request["target"], request["arguments"])
    except BaseException:  # noqa: BLE001 - the child reports every end of its work, whatever it was
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call(target: str, arguments: Sequence[str]) -> int:
    module, _, name = target.partition(":")
    return int(getattr(importlib.import_module(module), name)(arguments))


def _redirect(descriptor: int, path: str) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(opened, descriptor)
    os.close(opened)


def main() -> None:
    """Run one command, or serve."""
    if sys.argv[1:2] == ["--serve"]:
        serve()
    elif sys.argv[1:2] == ["--target"]:
        raise SystemExit(_call(sys.argv[2], sys.argv[3:]))
    else:
        raise SystemExit(cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
