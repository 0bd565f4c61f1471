"""What the tests of the command line share: a scripted run, a fake project, and one invocation in this process."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from pz.cli.command import Invocation
from pz.cli.main import answer, build
from pz.cli.output import Output
from pz.codes import Code
from pz.events import (
    Event,
    NodeCompleted,
    NodeProgress,
    NodeStarted,
    Notice,
    OutlineNode,
    RetentionSwept,
    RetryScheduled,
    RunCompleted,
    RunStarted,
)

RUN = "20260710T120000000Z-ab12"
AT = datetime(2026, 7, 10, 12, tzinfo=UTC)

LOAD, STG, CHECK, SINK = "0" * 15 + "1", "0" * 15 + "2", "0" * 15 + "3", "0" * 15 + "4"
OUTLINE = (
    OutlineNode(LOAD, "SourceLoad", "crm.orders", "orders"),
    OutlineNode(STG, "Pipeline", "stg_orders", "orders"),
    OutlineNode(CHECK, "Check", "stg_orders.not_null", "orders"),
    OutlineNode(SINK, "SinkWrite", "lake.orders", "orders"),
)


def started(node: OutlineNode) -> NodeStarted:
    return NodeStarted(run_id=RUN, at=AT, node_id=node.node_id, kind=node.kind, node_name=node.name)


def completed(node: OutlineNode, status: str = "success", rows: int = 0, ms: int = 5, **more: Any) -> NodeCompleted:
    return NodeCompleted(
        run_id=RUN, at=AT, node_id=node.node_id, kind=node.kind, node_name=node.name, status=status, rows=rows,
        duration_ms=ms, **more,
    )  # fmt: skip


def scripted_run() -> list[Event]:
    """A run in which a load is retried, a check fails, and a sink is skipped."""
    load, stg, check, sink = OUTLINE
    return [
        RunStarted(run_id=RUN, at=AT, project_name="shop", node_count=4, outline=OUTLINE),
        Notice(run_id=RUN, at=AT, severity="note", message="reusing staged data for 1 source load(s)"),
        Notice(run_id=RUN, at=AT, severity="warning", message="pipeline 'x' is not loaded", code=Code.PZ0223.value),
        started(load),
        NodeProgress(run_id=RUN, at=AT, node_id=LOAD, rows=1200, bytes=9600, batches=10, total=4800),
        RetryScheduled(
            run_id=RUN, at=AT, node_id=LOAD, attempt=1, max_attempts=3, delay_ms=1000, reason="connection reset"
        ),
        completed(load, rows=4800, ms=812),
        started(stg),
        completed(stg, rows=4790, ms=33),
        started(check),
        completed(
            check, "failed", rows=2, ms=4, error_code=Code.PZ0510.value,
            error_message="2 row(s) violate not_null(id)\n{id=NULL}",
        ),
        completed(sink, "skipped", ms=0),
        RunCompleted(
            run_id=RUN, at=AT, status="completed_with_failures", succeeded=2, failed=1, skipped=1, duration_ms=900
        ),
        RetentionSwept(run_id=RUN, at=AT, runs=2, bytes=3 * 1024 * 1024),
    ]  # fmt: skip


@dataclass
class FakeResult:
    """A `RunOutcome`."""

    exit_code: int = 0
    summary: str = f"run {RUN}: 1 succeeded, 0 failed, 0 skipped (.pz/runs/{RUN}/run_results.json)"
    nothing_to_do: bool = False


@dataclass
class FakeProject:
    """An open project that replays events and remembers with what it was called."""

    events: Sequence[Event] = ()
    result: FakeResult = field(default_factory=FakeResult)
    failure: BaseException | None = None
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def run(self, *flows: str, **options: Any) -> FakeResult:
        return self._execute("run", flows, options)

    def test(self, **options: Any) -> FakeResult:
        return self._execute("test", (), options)

    def retry(self, **options: Any) -> FakeResult:
        return self._execute("retry", (), options)

    def _execute(self, name: str, flows: tuple[Any, ...], options: dict[str, Any]) -> FakeResult:
        self.calls.append((name, flows, options))
        for event in self.events:
            options["on_event"](event)
        if self.failure is not None:
            raise self.failure
        return self.result

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AssertionError(f"unexpected call of {name}")


@dataclass(frozen=True)
class Answer:
    """What one invocation printed and returned."""

    code: int
    out: str
    err: str


class Capture(io.StringIO):
    """A text stream with an encoding, that may pretend to be a terminal."""

    encoding = "utf-8"

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def invoke(*arguments: str, project: Any = None, environ: dict[str, str] | None = None) -> Answer:
    """Run one command line in this process against a fake project."""
    out, err = Capture(), Capture()
    output = Output(out, err, environ or {})
    base = Invocation(output=output) if project is None else Invocation(output=output, opener=opening(project))
    code = answer(list(arguments), output, base)
    return Answer(code, out.getvalue(), err.getvalue())


def opening(project: Any) -> Callable[[Path], Any]:
    """An opener that gives this project, whatever the directory."""
    return lambda path: project


def commands() -> dict[str, Any]:
    """Every verb by its full spelling, ``pz`` itself included."""
    found: dict[str, Any] = {}

    def walk(command: Any, path: str) -> None:
        found[path] = command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                walk(command.get_command(context, name), f"{path} {name}")

    walk(build(), "pz")
    return found
