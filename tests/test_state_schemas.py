"""Drift baselines: what a source looked like when it was last accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pz.connectors.contract import Column
from pz.errors import Code, StateError
from pz.state.schemas import (
    Drift,
    Observed,
    accept,
    compare,
    observe,
    observed_from_json,
    observed_to_json,
    schema_store,
)

ID, NAME, AMOUNT = Column("id", "INTEGER"), Column("name", "VARCHAR"), Column("amount", "DECIMAL(9,2)")


def seen(*columns: Column, hints: str = "h1") -> Observed:
    return Observed(columns, hints)


def test_the_first_observation_seeds_silently_and_no_change_leaves_the_file_alone(tmp_path: Path) -> None:
    store = schema_store(tmp_path)
    assert not observe(store, "crm.orders", seen(ID, NAME), "r1")
    before = store.path.stat().st_ino
    assert not observe(store, "crm.orders", seen(ID, NAME), "r2")
    assert store.path.stat().st_ino == before


def test_drift_is_reported_on_every_run_until_it_is_accepted(tmp_path: Path) -> None:
    store = schema_store(tmp_path)
    observe(store, "crm.orders", seen(ID, NAME), "r1")
    now = seen(Column("id", "BIGINT"), AMOUNT)
    expected = Drift(("amount",), ("name",), ("id: INTEGER -> BIGINT",))
    assert observe(store, "crm.orders", now, "r2") == expected
    assert observe(store, "crm.orders", now, "r3") == expected
    assert str(expected) == "added amount; removed name; retyped id: INTEGER -> BIGINT"
    assert accept(store, {"crm.orders": now}, ["crm.orders"], "r3") == ("crm.orders",)
    assert not observe(store, "crm.orders", now, "r4")
    assert accept(store, {"crm.orders": now}, [], "r4") == ()


def test_another_way_of_reading_seeds_anew_silently(tmp_path: Path) -> None:
    store = schema_store(tmp_path)
    observe(store, "crm.orders", seen(ID, NAME), "r1")
    assert not observe(store, "crm.orders", seen(ID, hints="h2"), "r2")
    assert observe(store, "crm.orders", seen(ID, NAME, hints="h2"), "r3").added == ("name",)


def test_order_is_no_drift_and_names_and_types_are_compared_exactly() -> None:
    assert not compare([ID, NAME], [NAME, ID])
    assert compare([Column("at", "TIMESTAMP")], [Column("at", "TIMESTAMP WITH TIME ZONE")]).retyped
    assert compare([Column("Id", "INTEGER")], [ID]) == Drift(("id",), ("Id",))


def test_accepting_what_was_not_observed_is_refused_before_anything_changes(tmp_path: Path) -> None:
    store = schema_store(tmp_path)
    with pytest.raises(StateError, match=r"crm\.other") as raised:
        accept(store, {"crm.orders": seen(ID)}, ["crm.orders", "crm.other"], "r")
    assert raised.value.code is Code.PZ0127
    assert store.read() == {}


def test_an_observation_survives_the_results_file() -> None:
    assert observed_from_json(observed_to_json(seen(ID, AMOUNT))) == seen(ID, AMOUNT)
    with pytest.raises(StateError):
        observed_from_json({"columns": [{"name": "x"}]})
