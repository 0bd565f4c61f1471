"""One edit or a difference in case is a slip; more is another word."""

from __future__ import annotations

import pytest

from pz.project.nearmiss import did_you_mean, near_miss

KNOWN = ("sync", "strategy", "keys", "x")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("synk", "sync"),
        ("snyc", "sync"),
        ("ync", "sync"),
        ("syncs", "sync"),
        ("SYNC", "sync"),
        ("stratgey", "strategy"),
        ("startegy", "strategy"),
        ("stratgy", "strategy"),
        ("key", "keys"),
        ("Kyes", "keys"),
        ("sync", None),
        ("snik", None),
        ("y", None),
        ("X", "x"),
        ("", None),
    ],
)
def test_near_miss(word: str, meant: str | None) -> None:
    assert near_miss(word, KNOWN) == meant


def test_what_is_known_is_listed_when_nothing_is_close() -> None:
    assert did_you_mean("colour", KNOWN) == "known here: sync, strategy, keys, x"
    assert did_you_mean("synk", KNOWN) == "did you mean 'sync'?"
    assert did_you_mean("synk", ()) == ""
