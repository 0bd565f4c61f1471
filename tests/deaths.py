"""Deaths in one process, without any teardown: at a durable step the disk is copied, and the test goes on with the copy.

What the dying run still does, `finally` blocks and all, it does to the original, which is thrown away.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pz import durable

__all__ = ["Killed", "dying", "passages", "watching"]


class Killed(BaseException):
    """The process is dead: nothing that it still does counts."""


@contextmanager
def watching(passed: Callable[[str, int, int], None]) -> Iterator[None]:
    """Call ``passed(point, nth, total)`` at every passage of a point: the nth of this point, the total-th of all."""
    counts: Counter[str] = Counter()
    counting = threading.Lock()

    def point(name: str) -> None:
        with counting:
            counts[name] += 1
            nth, total = counts[name], counts.total()
        passed(name, nth, total)

    durable.watch(point)
    try:
        yield
    finally:
        durable.watch(None)


def passages(call: Callable[[], object]) -> list[str]:
    """Run something and list the points that it passed, in order, as ``name:nth``."""
    seen: list[str] = []
    with watching(lambda name, nth, total: seen.append(f"{name}:{nth}")):
        call()
    return seen


@contextmanager
def dying(root: Path, when: Callable[[str, int, int], bool]) -> Iterator[list[Path]]:
    """Die where ``when(point, nth, total)`` says so; `Killed` does not leave the block.

    Yields a list that then holds ``root``, as the death left it. Nothing is in it when the block came to its end alive.
    """
    left: list[Path] = []
    copying = threading.Lock()
    others = frozenset(threading.enumerate())
    aside = root.with_name(f".{root.name}-of-the-dead")

    def passed(name: str, nth: int, total: int) -> None:
        with copying:
            if not left and when(name, nth, total):
                shutil.copytree(root, aside)
                left.append(root)
        if left:
            raise Killed

    try:
        with watching(passed):
            yield left
    except Killed:
        pass
    finally:
        if left:
            _settle(others)
            shutil.rmtree(root)
            aside.rename(root)


def _settle(others: Collection[threading.Thread]) -> None:
    """Threads of the dead run write to the original until they meet a step; let them. ``others`` are none of it."""
    for thread in threading.enumerate():
        if thread.name.startswith("pz-") and thread not in others:
            thread.join(10)
