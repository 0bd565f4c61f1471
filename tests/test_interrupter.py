"""A request for the end of something is made until it ended, and never after that."""

from __future__ import annotations

import threading

from pz.interrupter import Interrupter


def test_it_asks_again_also_when_a_request_failed() -> None:
    asked = threading.Semaphore(0)

    def request() -> None:
        asked.release()
        raise OSError("nobody is there")

    interrupter = Interrupter(request, 0.001)
    interrupter.start()
    assert all(asked.acquire(timeout=120) for _ in range(3))
    interrupter.end()


def test_nothing_is_asked_after_an_exclusive_end() -> None:
    first, over, late = threading.Event(), threading.Event(), list[bool]()

    def request() -> None:
        late.append(over.is_set())
        first.set()

    interrupter = Interrupter(request, 0.0, exclusive=True)
    interrupter.start()
    assert first.wait(120)
    interrupter.end()
    over.set()
    for thread in threading.enumerate():
        if thread.name == "pz-interrupt":
            thread.join(120)
    assert not any(late)


def test_an_end_before_the_beginning_asks_nothing() -> None:
    asked = threading.Event()
    interrupter = Interrupter(asked.set, 0.001)
    interrupter.end()
    interrupter.start()
    for thread in threading.enumerate():
        if thread.name == "pz-interrupt":
            thread.join(120)
    assert not asked.is_set()
