"""State counts only where it was earned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pz.cursors import CursorType
from pz.errors import Code
from pz.state.binding import check_binding
from pz.state.entries import Binding, Entry, Token, Watermark

EARNED = Binding("dev", {"lake.orders": "d1"})
STORED = Entry(Watermark("id", CursorType.INT, "100"), "r", EARNED)


def test_the_same_place_is_fine_also_when_an_output_was_dropped_since() -> None:
    assert check_binding("crm.orders", STORED, EARNED, cursor="id") == ()
    assert check_binding("crm.orders", STORED, Binding("dev", {}), cursor="id") == ()
    assert check_binding("crm.orders", replace(STORED, value=Token("t")), EARNED) == ()


@pytest.mark.parametrize(
    ("here", "cursor", "said"),
    [
        (Binding("prod", {"lake.orders": "d1"}), "id", "another source location"),
        (EARNED, "updated_at", "cursor 'id', not 'updated_at'"),
        (Binding("dev", {"lake.orders": "d2"}), "id", "another location of output 'lake.orders'"),
        (Binding("dev", {"lake.orders": "d1", "dwh.new": "d3"}), "id", "output 'dwh.new' never got"),
    ],
)
def test_another_place_is_refused_with_the_way_out(here: Binding, cursor: str, said: str) -> None:
    (problem,) = check_binding("crm.orders", STORED, here, cursor=cursor)
    assert problem.code is Code.PZ0705
    assert said in problem.message
    assert "--full-refresh" in problem.advice


def test_a_target_that_would_have_to_be_created_is_refused() -> None:
    (problem,) = check_binding("crm.orders", STORED, EARNED, cursor="id", to_create={"lake.orders"})
    assert "does not exist" in problem.message
    assert "from_state" in problem.advice


def test_a_new_output_may_consent_to_get_only_what_comes_from_now_on() -> None:
    here = Binding("dev", {"lake.orders": "d1", "dwh.new": "d3"})
    assert check_binding("crm.orders", STORED, here, cursor="id", to_create={"dwh.new"}, from_state=True) == ()
    moved = Binding("dev", {"lake.orders": "other"})
    assert len(check_binding("crm.orders", STORED, moved, cursor="id", from_state=True)) == 1


def test_another_path_is_refused_unless_it_goes_on_where_the_old_one_ended() -> None:
    earned, here = replace(EARNED, dataset="a"), replace(EARNED, dataset="b")
    (problem,) = check_binding("crm.orders", replace(STORED, binding=earned), here, cursor="id")
    assert (problem.code, "another path" in problem.message) == (Code.PZ0705, True)
    assert "from_state" in problem.advice
    assert check_binding("crm.orders", replace(STORED, binding=earned), here, cursor="id", from_state=True) == ()
    assert check_binding("crm.orders", STORED, here, cursor="id") == (), (
        "an entry from before paths were kept says nothing"
    )


def test_all_differences_are_reported_together() -> None:
    here = Binding("prod", {"lake.orders": "d2", "dwh.new": "d3"})
    assert len(check_binding("crm.orders", STORED, here, cursor="x")) == 4
