"""The pinned versions fit what the package asks for."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PINS = [line for line in (ROOT / "requirements-dev.txt").read_text().splitlines() if not line.startswith("#")]


def test_pins_are_plain_names_and_versions() -> None:
    assert all(pin.count("==") == 1 and "/" not in pin and "@" not in pin for pin in PINS)


def test_every_requirement_of_the_package_its_extras_and_its_tools_is_pinned() -> None:
    pinned = {canonicalize_name(name): version for name, version in (pin.split("==") for pin in PINS)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [
        *project["project"]["dependencies"],
        *(text for extra in project["project"]["optional-dependencies"].values() for text in extra),
        *project["dependency-groups"]["dev"],
    ]
    for requirement in map(Requirement, asked):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not pinned (run: make lock)"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} is pinned to {version}"
