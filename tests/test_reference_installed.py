"""The reference connectors are installed only where a test asks for them."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from pz.testing.reference import CONNECTORS, distribution_path


def names() -> set[str]:
    return {point.name for point in entry_points(group="pz.connectors")}


def test_they_are_absent_by_default_and_present_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {connector.name for connector in CONNECTORS}
    assert not ours & names()
    monkeypatch.syspath_prepend(str(distribution_path()))
    assert ours <= names()


def test_what_is_installed_is_what_the_module_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(distribution_path()))
    loaded = {point.load() for point in entry_points(group="pz.connectors") if point.name.startswith("reference")}
    assert loaded == set(CONNECTORS)
