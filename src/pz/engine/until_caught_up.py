"""`--until-caught-up`: the same run again and again, until every windowed source with a stop has reached it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pz.connectors.contract import CancelToken
from pz.engine.prepare import Request
from pz.engine.result import RunResult
from pz.engine.run import run
from pz.events import EventBus, Notice

__all__ = ["run_until_caught_up"]

_CANCELLED = "cancelled; run again to go on"


def run_until_caught_up(
    root: Path, environ: Mapping[str, str], request: Request, bus: EventBus, cancel: CancelToken, max_passes: int
) -> RunResult:
    """Run up to ``max_passes`` passes; returns the last one's result.

    Stops when a pass fails, when all datasets with a stop are caught up, when a pass stored no state (another would read
    the same again), when no dataset has a stop, or when it is cancelled between two passes. A full refresh applies to the
    first pass only.
    """
    passes = 0
    while True:
        passes += 1
        result = run(root, environ, request, bus, cancel)
        reason = _reason_to_stop(result, passes, max_passes, cancel)
        if reason is not None:
            message = f"stopped after {passes} pass(es): {reason}"
            bus.publish(Notice(run_id=result.run_id, severity="note", message=message))
            return replace(result, cancelled=result.cancelled or reason == _CANCELLED)
        request = replace(request, full_refresh=False)


def _reason_to_stop(result: RunResult, passes: int, max_passes: int, cancel: CancelToken) -> str | None:
    if result.exit_code != 0:
        return "the pass failed"
    progress = result.progress
    if progress is None or not progress.has_stop:
        return "no dataset has a stop, which `until` in its sync block would be"
    if progress.reached:
        return "caught up"
    if not progress.stored_state:
        return "the pass stored no state"
    if cancel.cancelled:
        return _CANCELLED
    if passes >= max_passes:
        return f"the limit of {max_passes} passes is reached, and windows are left to be read; run again to go on"
    return None
