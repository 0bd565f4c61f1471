"""Events as lines of text: what the piped console prints and what the live view prints above and below its tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pz.cli.output import printable
from pz.codes import CODES, Code
from pz.errors import Problem, Severity
from pz.events import (
    BreakerStateChanged,
    ConnectionWaiting,
    ConnectorLog,
    Event,
    LockAwaited,
    NodeCompleted,
    Notice,
    RetentionSwept,
    RetryScheduled,
    RunCompleted,
    RunStarted,
)

__all__ = [
    "Repeats",
    "changes",
    "completed_line",
    "counted",
    "error_lines",
    "human_bytes",
    "node_word",
    "pass_line",
    "remark",
    "retention_line",
    "skip_reason",
]

_LAST_OF_A_CHAIN = "SinkWrite"  # `NodeKind.SINK_WRITE`, without importing the graph for every help page
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def node_word(event: NodeCompleted) -> str:
    """The one word for how a node ended: ok, FAIL, skip, reused, carried or fused."""
    if event.status != "success":
        return "FAIL" if event.status == "failed" else "skip"
    if event.provenance is not None:
        return {"reused": "reused", "carried_forward": "carried"}.get(event.provenance, event.provenance)
    return "fused" if event.fused else "ok"


def completed_line(event: NodeCompleted, *, counted: bool = True, verbose: bool = False) -> str:
    """``ok orders 3 rows 12 ms``; no rows for what is not ``counted``; ``verbose``: also kind and accounting blocks.

    A skip says for which failed node: ``skip lake.orders 0 rows 0 ms (orders failed)``; captured changes by their kind:
    ``ok crm.orders 2 rows 12 ms (1 inserted, 1 updated, 2 deleted)``.
    """
    rows = f" {event.rows} rows" if counted or event.rows else ""
    line = f"{node_word(event)} {event.node_name}{rows} {event.duration_ms} ms"
    if reason := skip_reason(event) or changes(event):
        line += f" ({reason})"
    return f"{line} [{', '.join((event.kind, *_blocks(event)))}]" if verbose else line


def skip_reason(event: NodeCompleted) -> str:
    """``orders failed`` of a node that was skipped for another; else empty."""
    return "" if event.skipped_for is None else f"{event.skipped_for} failed"


def changes(event: NodeCompleted) -> str:
    """The kinds of the changes that were captured, and the deletes that an output got; empty where all are inserts."""
    words = {"inserts": "inserted", "updates": "updated", "deletes": "deleted"}
    found = {word: (event.cdc or {}).get(kind, 0) for kind, word in words.items()}
    if not (found["updated"] or found["deleted"]):
        return ""
    return ", ".join(f"{count} {word}" for word, count in found.items() if count)


def _blocks(event: NodeCompleted) -> list[str]:
    named: dict[str, Mapping[str, Any] | None] = {
        "timings": event.timings,
        "ops": event.ops,
        "partitions": event.partitions,
        "cdc": event.cdc,
    }
    return [
        f"{name} {' '.join(f'{key}={value}' for key, value in block.items())}" for name, block in named.items() if block
    ]


def error_lines(event: NodeCompleted) -> list[str]:
    """The indented lines below a failed node: code, message, what is visible at the destination, hint.

    The nodes of a fused chain fail together by one error, which stands below the last of them.
    """
    if (event.error_code is None and event.error_message is None) or (event.fused and event.kind != _LAST_OF_A_CHAIN):
        return []
    code = event.error_code or Code.PZ0501.value
    lines = f"error {code}: {event.error_message or 'failed'}".split("\n")
    visible = _visible_rows(event)
    if visible and visible not in (event.error_message or ""):
        lines.append(visible)
    if "\nhint: " not in (event.error_message or "") and (hint := _hint(code)):
        lines.append(f"hint: {hint}")
    return [f"  {line}" for line in lines]


def _hint(code: str) -> str:
    return CODES[Code(code)].hint if code in set(Code) else ""


def _visible_rows(event: NodeCompleted) -> str:
    """The sentence about rows that a failed delivery may have left behind; empty when an abort discards all."""
    block = event.delivery or {}
    abort = block.get("abortSemantics", block.get("abort_semantics"))
    if event.status != "failed" or abort in {None, "discards_all"}:
        return ""
    rows = block.get("rowsVisible", block.get("rows_visible", 0))
    return f"delivery stopped: up to {rows} row(s) already visible at the destination (abort: {abort})"


def remark(event: Event, names: Mapping[str, str]) -> Problem | None:
    """The note or warning that an event amounts to; ``names`` are the nodes' names by id.

    None for all other events, also for what was found in the data (drift, duplicate keys, inference): a notice in words
    comes with each of those.
    """
    match event:
        case Notice():
            return _notice(event)
        case LockAwaited():
            return _note(event.message)
        case RetryScheduled():
            what = "" if event.operation is None else f"{event.operation}: "
            again = f"attempt {event.attempt} of {event.max_attempts} failed, next in {event.delay_ms} ms"
            return _note(f"{names.get(event.node_id, event.node_name or event.node_id)}: {what}{again}: {event.reason}")
        case ConnectionWaiting():
            return _note(f"connection '{event.connection}': {_waiting(event)}")
        case ConnectorLog():
            return _note(f"connection '{event.connection}': {event.message}")
        case BreakerStateChanged():
            return _note(f"connection '{event.connection}': circuit breaker {event.state}")
    return None


def _waiting(event: ConnectionWaiting) -> str:
    """What a connection waits for, and how long."""
    if event.wait_ms is None:
        return f"operations wait for its {event.reason}"
    return f"the next operation waits {event.wait_ms / 1000:.0f} s, because the {event.reason} asked for it"


class Repeats:
    """Knows the notices of earlier passes of ``--until-caught-up``, which need not be read again."""

    def __init__(self) -> None:
        self._earlier: set[tuple[str, str | None, str]] = set()
        self._now: set[tuple[str, str | None, str]] = set()

    def known(self, event: Event) -> bool:
        """Whether an earlier pass said the same."""
        if isinstance(event, RunStarted):
            self._earlier |= self._now
        if not isinstance(event, Notice):
            return False
        self._now.add((event.severity, event.code, event.message))
        return (event.severity, event.code, event.message) in self._earlier


def _notice(event: Notice) -> Problem:
    known = event.code is not None and event.code in set(Code)
    code = Code(event.code) if known and event.code is not None else Code.PZ0501
    severity = Severity(event.severity) if event.severity in set(Severity) else Severity.NOTE
    if not known and severity is not Severity.NOTE:
        severity = Severity.NOTE
    return Problem(code, event.message, hint="" if severity is Severity.NOTE else event.hint, severity=severity)


def _note(message: str) -> Problem:
    return Problem(Code.PZ0501, message, hint="", severity=Severity.NOTE)


def retention_line(event: RetentionSwept) -> str:
    """What the retention sweep removed."""
    return f"note: removed the staging of {counted(event.runs, 'run')} ({human_bytes(event.bytes)})"


def pass_line(event: RunCompleted) -> str:
    """``run <id>: a succeeded, b failed, c skipped``: the summary of a pass that another one follows."""
    return printable(f"run {event.run_id}: {event.succeeded} succeeded, {event.failed} failed, {event.skipped} skipped")


def counted(number: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def human_bytes(count: float) -> str:
    """A size in binary units, one decimal from KiB on."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"
