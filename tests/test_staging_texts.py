"""How texts are staged: as they come where they come in full, compressed where the file shows that it pays."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from running import errors, project, rows, run

CONNECTIONS = {
    "files": {"connector": "localfiles", "root": "data"},
    "lake": {"connector": "localfiles", "root": "out"},
}
ROWS = """
SELECT n AS id, md5(n::VARCHAR) AS "own, text", CASE n % 3 WHEN 0 THEN 'Lima' ELSE 'Osaka' END AS city
FROM range(20000) AS numbers(n)
"""
CHECKED = "pipeline: p\nchecks:\n  - row_count: { min: 20000 }\n"  # so the chain is staged


@pytest.mark.parametrize(("form", "city"), [("parquet", "Dictionary"), ("csv", "Uncompressed")])
def test_texts_that_come_in_full_are_staged_as_they_are(tmp_path: Path, form: str, city: str) -> None:
    (tmp_path / "data").mkdir()
    for part in ("a", "b"):
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({ROWS}) TO '{tmp_path / 'data' / f'{part}.{form}'}' (FORMAT {form})")
    sql = (
        "INSERT INTO {{ sink('lake', 'moved', format: 'parquet', strategy: 'replace') }} "
        f"SELECT * FROM {{{{ source('files', 'a', path: '*.{form}', format: '{form}') }}}}"
    )
    files = {"connections.yml": json.dumps(CONNECTIONS), "pipelines/p.sql": sql, "pipelines/configs/p.yml": CHECKED}
    opened = project(tmp_path, files)
    assert errors(run(opened)) == {}
    [staged] = tmp_path.glob(".pz/runs/*/staging.duckdb")
    with duckdb.connect(str(staged), read_only=True) as connection:
        found = connection.execute(
            "SELECT DISTINCT column_name, compression FROM pragma_storage_info('staging.staging.src_files__a') "
            "WHERE segment_type = 'VARCHAR'"
        ).fetchall()
        source = tmp_path / "data" / f"*.{form}"
        expected = connection.execute(f"SELECT * FROM '{source}' ORDER BY ALL").fetchall()
    assert dict(found) == {"own, text": "Uncompressed", "city": city}
    assert sorted(rows(tmp_path / "out" / "**" / "*.parquet")) == expected
