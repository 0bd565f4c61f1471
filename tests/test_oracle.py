"""The oracle compares whole rows as a multiset: neither order nor counts alone decide."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pz.testing.oracle import assert_contains, assert_equal, assert_equal_alive, digest


def test_order_does_not_matter_and_every_cell_does() -> None:
    a = pa.table({"x": [1, 2], "y": ["p", "q"]})
    assert digest(a) == digest(a.take([1, 0]).select(["y", "x"]))
    assert digest(a) != digest(pa.table({"x": [1, 2], "y": ["q", "p"]}))


def test_equal_counts_with_another_multiplicity_differ() -> None:
    with pytest.raises(AssertionError, match=r"1 missing.*1 too many"):
        assert_equal(pa.table({"x": [1, 1, 2]}), pa.table({"x": [1, 2, 2]}))


def test_a_superset_may_repeat_rows_but_not_miss_or_invent_one() -> None:
    assert_contains(pa.table({"x": [1, 2, 2]}), pa.table({"x": [1, 2]}))
    with pytest.raises(AssertionError, match="1 missing"):
        assert_contains(pa.table({"x": [2, 2]}), pa.table({"x": [1, 2]}))
    with pytest.raises(AssertionError, match="1 foreign"):
        assert_contains(pa.table({"x": [1, 2, 3]}), pa.table({"x": [1, 2]}))


def test_softly_deleted_rows_do_not_count() -> None:
    target = pa.table({"x": [1, 2], "_pz_deleted_at": [None, 5]})
    assert_equal_alive(target, [{"x": 1}])
