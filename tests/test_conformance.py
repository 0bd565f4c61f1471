"""Our own connectors pass the suite that we ask others to pass, and the suite bites."""

from __future__ import annotations

from pathlib import Path

import pytest

from pz.testing.conformance import run_conformance
from pz.testing.fixtures import fixture_for, fixture_names


@pytest.mark.parametrize("name", fixture_names())
def test_a_connector_of_ours_keeps_the_contract(name: str, tmp_path: Path) -> None:
    fixture = fixture_for(name, tmp_path)
    assert fixture is not None
    report = run_conformance(fixture)
    assert report.ok, report.render()
