"""What was most likely meant by a path that no file matches."""

from __future__ import annotations

import glob
from itertools import islice
from pathlib import Path

from pz.connectors.closest import closest
from pz.connectors.files.paths import FileRoot

__all__ = ["nearby"]

_SHOWN = 5
_LOOKED_AT = 10_000


def nearby(root: FileRoot, path: str) -> str | None:
    """Advice from the names that are there: the nearest to the first that is not, else some of them; None without any."""
    pattern = root.resolve(path)
    inside = pattern.is_relative_to(root.directory) and root.directory.is_dir()
    here = root.directory if inside else Path(pattern.anchor)
    names = pattern.relative_to(here).parts
    for number, name in enumerate(names):
        if glob.has_magic(name) or not (here / name).exists():
            return _advice(root, here, name, names[number + 1 :])
        here /= name
    return None


def _advice(root: FileRoot, here: Path, name: str, below: tuple[str, ...]) -> str | None:
    present = _names(here)
    near = None if glob.has_magic(name) else closest(name, present)
    if near is not None:
        return f"did you mean '{root.name_of(here.joinpath(near, *below))}'?"
    if not present:
        return f"'{root.name_of(here)}' is empty"
    more = f" and {len(present) - _SHOWN} more" if len(present) > _SHOWN else ""
    return f"in '{root.name_of(here)}' there are: {', '.join(present[:_SHOWN])}{more}"


def _names(directory: Path) -> list[str]:
    """What is there and not hidden; no more of a huge directory than can be looked through at once."""
    try:
        found = [path.name for path in islice(directory.iterdir(), _LOOKED_AT)]
    except OSError:
        return []
    return sorted(name for name in found if not name.startswith(".") and name.isprintable())
