"""The harness bites: defects seeded into the engine, each caught by a check that is named here.

`make test` seeds a sample, `make crash-sweep` all of them. A defect is one function (or constant) replaced.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from pz.testing.reference import distribution_path
from seeded_checks import CHECKS, install
from seeded_defects import DEFECTS

SEED = int(os.environ.get("PZ_SWEEP_SEED", "20240229"))
SAMPLE = sorted(random.Random(SEED).sample(sorted(DEFECTS), 8))


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(distribution_path()))
    monkeypatch.syspath_prepend(str(install(tmp_path / "installed")))


def _must_be_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defect = DEFECTS[name]
    defect.seed(monkeypatch)
    try:
        CHECKS[defect.caught_by](tmp_path / "seeded")
    except BaseException as caught:
        if isinstance(caught, KeyboardInterrupt):
            raise
        print(f"{name}: {type(caught).__name__}: {str(caught).splitlines()[0][:200] if str(caught) else ''}")
        return
    raise AssertionError(f"{name}: {defect.caught_by} did not notice")


def test_there_are_at_least_thirty_defects() -> None:
    assert len(DEFECTS) >= 30
    assert {defect.caught_by for defect in DEFECTS.values()} <= set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sampled_defect_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[DEFECTS[name].caught_by](tmp_path / "whole")
    _must_be_caught(name, tmp_path, monkeypatch)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_every_check_passes_without_a_defect(name: str, tmp_path: Path) -> None:
    CHECKS[name](tmp_path)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DEFECTS))
def test_every_defect_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _must_be_caught(name, tmp_path, monkeypatch)
