"""Folders for pages: several sources of a run share the directory that holds them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from pz.connectors.http.spool import Spool


def test_a_folder_is_made_though_another_source_drops_the_directory_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a source that ended just then failed the others with "No such file or directory"."""
    directory, real = tmp_path / "run/spool", tempfile.mkdtemp
    made: list[Path] = []

    def another_ends(prefix: str, dir: Path) -> str:
        if not made:
            dir.rmdir()
        made.append(dir)
        return real(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkdtemp", another_ends)
    spool = Spool()
    spool.use(directory)
    with spool.folder() as folder:
        assert folder.parent == directory
    assert len(made) == 2
    assert not directory.exists()
