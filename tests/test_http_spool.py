"""Folders for pages: several sources of a run share the directory that holds them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from http_server import Api, Reply
from http_support import ID, ids, read
from pz.connectors.http import client
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


@pytest.mark.parametrize("format_", ["json", "ndjson", "csv"])
@pytest.mark.parametrize("large", [False, True])
def test_only_a_page_that_is_worth_it_goes_to_a_file(
    monkeypatch: pytest.MonkeyPatch, format_: str, large: bool
) -> None:
    """Below a mebibyte a file costs more than it saves; csv is parsed out of one by DuckDB."""
    rows, written = 200_000 if large else 3, list[int]()
    real = client._write

    def write(file: Path, pieces: Iterable[bytes]) -> int:
        written.append(real(file, pieces))
        return written[-1]

    monkeypatch.setattr(client, "_write", write)
    body = {
        "json": json.dumps([{"id": n} for n in range(rows)]),
        "ndjson": "".join(f'{{"id": {n}}}\n' for n in range(rows)),
        "csv": "id\n" + "".join(f"{n}\n" for n in range(rows)),
    }[format_]
    kind = {"json": "application/json", "ndjson": "application/x-ndjson", "csv": "text/csv"}[format_]
    with Api() as api:
        api.route("GET", "/items", lambda asked: Reply(200, {"Content-Type": kind}, body.encode()))
        found = ids(read(api, {"format": format_, **({"items": ""} if format_ == "json" else {})}, ID))
    assert found == list(range(rows))
    assert written == ([len(body)] if large or format_ == "csv" else [])
