"""A view that fails, blocks or lags never holds the run up."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from cli_support import LOAD, OUTLINE, RUN, scripted_run, started
from pz.cli.render.pump import EventPump
from pz.events import Event, NodeProgress


@dataclass
class Recorder:
    """A view that keeps what it is shown, once ``gate`` is open."""

    gate: threading.Event = field(default_factory=threading.Event)
    seen: list[Event] = field(default_factory=list)
    finished: bool = False
    fail: bool = False

    def handle(self, event: Event) -> None:
        self.gate.wait()
        if self.fail:
            raise RuntimeError("broken view")
        self.seen.append(event)

    def tick(self) -> None:
        pass

    def finish(self) -> None:
        self.finished = True


def open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


def progress(rows: int) -> NodeProgress:
    return NodeProgress(run_id=RUN, node_id=LOAD, rows=rows, bytes=0, batches=0)


def test_events_arrive_in_order_and_then_the_end() -> None:
    view = Recorder(open_gate())
    pump = EventPump(view)
    for event in scripted_run():
        pump.publish(event)
    assert pump.close()
    assert view.seen == scripted_run()
    assert view.finished


def test_a_blocked_view_is_given_up_after_the_bound() -> None:
    view = Recorder()
    pump = EventPump(view)
    for event in scripted_run():
        pump.publish(event)
    assert not pump.close(timeout=0.01)
    view.gate.set()


def test_a_failing_view_is_left_alone_and_remembered() -> None:
    view = Recorder(open_gate(), fail=True)
    pump = EventPump(view)
    for event in scripted_run():
        pump.publish(event)
    assert pump.close()
    assert isinstance(pump.failure, RuntimeError)
    assert view.seen == []


def test_a_slow_view_loses_progress_first_and_counts_what_else_it_loses() -> None:
    view = Recorder()
    pump = EventPump(view, limit=10, progress_limit=5)
    pump.publish(started(OUTLINE[0]))
    for rows in range(50):
        pump.publish(progress(rows))
    for _ in range(20):
        pump.publish(started(OUTLINE[1]))
    view.gate.set()
    assert pump.close()
    assert 10 <= pump.dropped <= 20
    kinds = [type(event) for event in view.seen]
    assert kinds.count(NodeProgress) <= 6
