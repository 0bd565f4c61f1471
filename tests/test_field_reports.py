"""What has gone wrong for people elsewhere, on files and DuckDB: each report a small project, run whole.

A test's name starts with the report's number. "Right" is one of: refused before anything moves, failed with no state moved,
or done and equal to what plain DuckDB says about the source.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pz
from pz.engine.result import RunResult
from pz.errors import Code, ProjectError
from running import errors, project, rows, run

BASE = """
files:
  connector: localfiles
  root: data
  entities:
    t:
      read: { %s }
lake: { connector: localfiles, root: out }
shop: { connector: duckdb, path: shop.duckdb }
"""
SELECT = "SELECT * FROM {{ source('files', 't') }}"
TO_LAKE = "INSERT INTO {{ sink('lake', 't', strategy: 'replace') }} "
TO_SHOP = "INSERT INTO {{ sink('shop', 't', strategy: 'replace') }} "
MERGE = "INSERT INTO {{ sink('shop', 't', strategy: 'merge', keys: ['id']) }} "
APPEND = "INSERT INTO {{ sink('lake', 't', strategy: 'append', duplicates: 'accept') }} "


def demo(root: Path, read: str, sql: str, **files: str | bytes) -> pz.OpenProject:
    """A project with one dataset ``files.t`` that is read as told, one pipeline, and files in data/."""
    named = {f"data/{name.replace('__', '.')}": content for name, content in files.items()}
    return project(root, {"connections.yml": BASE % read, "pipelines/t.sql": sql, **named})


def lake(root: Path) -> list[tuple[Any, ...]]:
    return rows(root / "out/t/*.parquet")


def shop(root: Path, sql: str = "SELECT * FROM t ORDER BY ALL") -> list[tuple[Any, ...]]:
    with duckdb.connect(str(root / "shop.duckdb"), read_only=True) as opened:
        return opened.execute(sql).fetchall()


def state(root: Path) -> str | None:
    path = root / ".pz/state/watermarks.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())["watermarks"].get("files.t", {})
    return found.get("value")


def good(result: RunResult) -> RunResult:
    assert errors(result) == {}
    assert result.exit_code == 0
    return result


def refused(opened: pz.OpenProject) -> set[Code]:
    with pytest.raises(ProjectError) as failed:
        run(opened)
    return {problem.code for problem in failed.value.problems}


def csv(*lines: Sequence[object]) -> str:
    return "".join(",".join(str(cell) for cell in line) + "\n" for line in lines)


# --- A: boundaries and ties

AT = "path: t.csv, columns: { id: bigint, at: %s }, sync: { mode: incremental, cursor: at%s }"


def test_a02_a_tie_that_commits_later_is_merged(tmp_path: Path) -> None:
    opened = demo(tmp_path, AT % ("timestamp", ""), MERGE + SELECT, t__csv=csv(("id", "at"), (1, "2024-01-01")))
    good(run(opened))
    (tmp_path / "data/t.csv").write_text(csv(("id", "at"), (1, "2024-01-01"), (2, "2024-01-01")))
    good(run(opened))
    assert [row[0] for row in shop(tmp_path)] == [1, 2]


def test_a06_rows_of_the_same_day_that_come_later_are_read(tmp_path: Path) -> None:
    opened = demo(tmp_path, AT % ("date", ""), MERGE + SELECT, t__csv=csv(("id", "at"), (1, "2024-01-01")))
    good(run(opened))
    (tmp_path / "data/t.csv").write_text(csv(("id", "at"), (1, "2024-01-01"), (2, "2024-01-01"), (3, "2024-01-02")))
    good(run(opened))
    assert [row[0] for row in shop(tmp_path)] == [1, 2, 3]


def test_a09_idle_runs_add_nothing(tmp_path: Path) -> None:
    text = csv(("id", "at"), (1, "2024-01-01"), (2, "2024-01-02"))
    opened = demo(tmp_path, AT % ("timestamp", ""), APPEND + SELECT, t__csv=text)
    for _ in range(10):
        good(run(opened))
    assert [row[0] for row in lake(tmp_path)] == [1, 2]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date", "bigint"])
def test_a11_windows_tile(tmp_path: Path, kind: str) -> None:
    number = kind == "bigint"
    cells = [*range(2, 10)] if number else [f"2024-01-0{day}" for day in range(2, 10)]
    window = (
        "initial: 1, max_window: 2, until: 9" if number else "initial: 2024-01-01, max_window: 2d, until: 2024-01-09"
    )
    text = csv(("id", "at"), *enumerate(cells))
    opened = demo(tmp_path, AT % (kind, f", {window}"), APPEND + SELECT, t__csv=text)
    good(run(opened, until_caught_up=True))
    good(run(opened, until_caught_up=True))
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT id FROM read_parquet('{tmp_path}/out/t/*.parquet') ORDER BY id").fetchall()
    assert found == [(number,) for number in range(8)]


def test_a14_a_window_of_one_day_gives_that_day(tmp_path: Path) -> None:
    window = ", initial: 2024-01-02, max_window: 1d, until: 2024-01-03"
    text = csv(("id", "at"), *((day, f"2024-01-0{day} 12:00:00") for day in range(1, 6)))
    good(run(demo(tmp_path, AT % ("timestamp", window), MERGE + SELECT, t__csv=text)))
    assert [row[0] for row in shop(tmp_path)] == [2]


def test_a19_whole_numbers_beyond_a_double_are_told_apart(tmp_path: Path) -> None:
    opened = demo(tmp_path, AT % ("bigint", ""), APPEND + SELECT, t__csv=csv(("id", "at"), (1, 9007199254740992)))
    good(run(opened))
    (tmp_path / "data/t.csv").write_text(csv(("id", "at"), (1, 9007199254740992), (2, 9007199254740993)))
    good(run(opened))
    assert [row[0] for row in lake(tmp_path)] == [1, 2]
    assert state(tmp_path) == "9007199254740993"


# --- B: precision and zones


def test_b04_a_stored_bound_is_never_later_than_the_row(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with duckdb.connect() as connection:
        made = "SELECT 1 AS id, TIMESTAMP_NS '2024-01-01 00:00:00.123456789' AS at"
        connection.execute(f"COPY ({made}) TO '{tmp_path}/data/t.parquet'")
        read = "path: t.parquet, format: parquet, sync: { mode: incremental, cursor: at }"
        opened = demo(tmp_path, read, MERGE + SELECT)
        good(run(opened))
        later = "SELECT 2 AS id, TIMESTAMP_NS '2024-01-01 00:00:00.123456790' AS at"
        connection.execute(f"COPY ({made} UNION ALL {later}) TO '{tmp_path}/data/t.parquet'")
    good(run(opened))
    assert [row[0] for row in shop(tmp_path, "SELECT id FROM t ORDER BY id")] == [1, 2]


def test_b16_instants_in_csv_carry_their_zone(tmp_path: Path) -> None:
    read = "path: t.csv, columns: { id: int, i: timestamptz, n: timestamp }"
    to_csv = "INSERT INTO {{ sink('lake', 't', format: 'csv', strategy: 'replace') }} " + SELECT
    text = csv(("id", "i", "n"), (1, "2024-06-01 12:00:00+02", "2024-06-01 12:00:00"))
    good(run(demo(tmp_path, read, to_csv, t__csv=text)))
    written = (tmp_path / "out/t/t.csv").read_text()
    assert "2024-06-01 10:00:00+00" in written
    assert ",2024-06-01 12:00:00\n" in written


# --- C: NULL and odd cursors


def test_c02_the_bound_is_the_highest_that_is_there(tmp_path: Path) -> None:
    text = csv(("id", "at"), (1, "2024-01-01"), (2, "2024-01-05"), (3, ""))
    good(run(demo(tmp_path, AT % ("timestamp", ""), MERGE + SELECT, t__csv=text)))
    assert state(tmp_path) == "2024-01-05T00:00:00.000000"
    assert [row[0] for row in shop(tmp_path)] == [1, 2, 3]


def test_c07_a_record_without_the_key_counts_as_one_without_a_value(tmp_path: Path) -> None:
    lines = '{"id": 1, "at": "2024-01-01T00:00:00"}\n{"id": 2}\n{"id": 3, "at": null}\n'
    read = "path: t.json, format: json, columns: { id: bigint, at: timestamp }, sync: { mode: incremental, cursor: at }"
    good(run(demo(tmp_path, read, MERGE + SELECT, t__json=lines)))
    assert [row[0] for row in shop(tmp_path)] == [1, 2, 3]


def test_c09_a_text_cursor_is_refused(tmp_path: Path) -> None:
    text = csv(("id", "at"), (1, "9"), (2, "10"))
    assert Code.PZ0212 in refused(demo(tmp_path, AT % ("varchar", ""), MERGE + SELECT, t__csv=text))


# --- E, F: retries, artifacts, state


def test_e04_a_replace_is_the_same_however_often(tmp_path: Path) -> None:
    opened = demo(tmp_path, "path: t.csv", TO_SHOP + SELECT, t__csv="id\n1\n2\n")
    for _ in range(3):
        good(run(opened))
        assert shop(tmp_path) == [(1,), (2,)]


def test_e17_an_idle_run_leaves_the_outputs_alone(tmp_path: Path) -> None:
    opened = demo(tmp_path, AT % ("timestamp", ""), APPEND + SELECT, t__csv=csv(("id", "at"), (1, "2024-01-01")))
    good(run(opened))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "out").rglob("*.parquet")}
    good(run(opened))
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "out").rglob("*.parquet")}
    assert before.items() <= after.items()
    assert [row[0] for row in lake(tmp_path)] == [1]


def test_e27_a_retry_from_another_directory_finds_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = demo(tmp_path, "path: t.csv, columns: {id: int}", TO_LAKE + SELECT, t__csv="id\nx\n")
    assert run(opened).exit_code == 1
    (tmp_path / "data/t.csv").write_text("id\n1\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    good(pz.open_project("..").retry())
    assert lake(tmp_path) == [(1,)]
    assert list(elsewhere.iterdir()) == []


def test_e29_appends_within_one_second_have_names_of_their_own(tmp_path: Path) -> None:
    opened = demo(
        tmp_path, "path: t.csv", "INSERT INTO {{ sink('lake', 't', strategy: 'append') }} " + SELECT, t__csv="id\n1\n"
    )
    for _ in range(3):
        good(run(opened))
    assert lake(tmp_path) == [(1,), (1,), (1,)]


# --- G: types and values


@pytest.mark.parametrize(
    "value", ["9007199254740993", "18446744073709551615", "-170141183460469231731687303715884105728"]
)
def test_g11_g31_wide_whole_numbers_in_json_keep_their_digits(tmp_path: Path, value: str) -> None:
    kind = "bigint" if value.startswith("900") else "hugeint"
    read = f"path: t.json, format: json, columns: {{ id: {kind} }}"
    good(run(demo(tmp_path, read, TO_SHOP + SELECT, t__json=f'{{"id": {value}}}\n')))
    assert shop(tmp_path) == [(int(value),)]


def test_g31_a_number_too_wide_for_its_type_fails(tmp_path: Path) -> None:
    read = "path: t.json, format: json, columns: { id: bigint }"
    result = run(demo(tmp_path, read, TO_LAKE + SELECT, t__json='{"id": 18446744073709551615}\n'))
    assert "PZ0722" in str(errors(result))


@pytest.mark.slow
@pytest.mark.parametrize("language", ["de_DE.UTF-8", "th_TH.UTF-8", "tr_TR.UTF-8"])
def test_g27_the_language_of_the_machine_changes_no_byte(tmp_path: Path, language: str) -> None:
    text = csv(("id", "f", "d"), (1, 1.5, "2024-01-02"))
    read = "path: t.csv, columns: { id: int, f: double, d: date }"
    demo(tmp_path, read, TO_LAKE.replace("replace'", "replace', format: 'csv'") + SELECT, t__csv=text)
    command = [sys.executable, "-m", "pz", "run", "--all"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "LANG": language, "LC_ALL": language}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out/t/t.csv").read_text() == text


# --- I, J: merge, empty loads, replace


def test_i01_a_key_twice_in_one_batch_lands_once_with_a_warning(tmp_path: Path) -> None:
    result = run(demo(tmp_path, "path: t.csv", MERGE + SELECT, t__csv="id,v\n1,a\n1,b\n2,c\n"))
    good(result)
    assert [row[0] for row in shop(tmp_path)] == [1, 2]


def test_i02_a_null_key_fails(tmp_path: Path) -> None:
    result = run(demo(tmp_path, "path: t.csv", MERGE + SELECT, t__csv="id,v\n1,a\n,b\n"))
    assert result.exit_code == 1
    assert "PZ" in str(errors(result))


def test_i04_a_merge_without_a_key_is_refused(tmp_path: Path) -> None:
    sql = "INSERT INTO {{ sink('shop', 't', strategy: 'merge') }} " + SELECT
    assert refused(demo(tmp_path, "path: t.csv", sql, t__csv="id\n1\n"))


def test_i07_an_incremental_read_never_feeds_a_replace(tmp_path: Path) -> None:
    text = csv(("id", "at"), (1, "2024-01-01"))
    assert Code.PZ0335 in refused(demo(tmp_path, AT % ("timestamp", ""), TO_LAKE + SELECT, t__csv=text))


@pytest.mark.parametrize("strategy", ["append", "merge", "replace"])
def test_i09_columns_are_written_by_name(tmp_path: Path, strategy: str) -> None:
    sql = MERGE if strategy == "merge" else TO_SHOP.replace("replace", strategy)
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute("CREATE TABLE t (v VARCHAR, w VARCHAR, id BIGINT)")
    opened = demo(tmp_path, "path: t.csv", sql + SELECT, t__csv="id,w,v\n1,w1,v1\n")
    good(run(opened))
    assert shop(tmp_path, "SELECT id, v, w FROM t") == [(1, "v1", "w1")]


@pytest.mark.parametrize("where", ["lake", "shop"])
def test_j01_a_replace_with_no_rows_empties_the_target(tmp_path: Path, where: str) -> None:
    sql = (TO_LAKE if where == "lake" else TO_SHOP) + SELECT
    opened = demo(tmp_path, "path: t.csv, columns: { id: int }", sql, t__csv="id\n1\n")
    good(run(opened))
    (tmp_path / "data/t.csv").write_text("id\n")
    good(run(opened))
    assert (lake(tmp_path) if where == "lake" else shop(tmp_path)) == []


def test_j02_nothing_new_changes_nothing(tmp_path: Path) -> None:
    opened = demo(tmp_path, AT % ("timestamp", ""), MERGE + SELECT, t__csv=csv(("id", "at"), (1, "2024-01-01")))
    good(run(opened))
    (tmp_path / "data/t.csv").write_text("id,at\n")
    good(run(opened))
    assert [row[0] for row in shop(tmp_path)] == [1]
    assert state(tmp_path) == "2024-01-01T00:00:00.000000"


def test_j04_an_empty_first_batch_makes_a_typed_table(tmp_path: Path) -> None:
    read = "path: t.csv, columns: { id: bigint, d: date, n: 'decimal(9,2)' }"
    good(run(demo(tmp_path, read, MERGE + SELECT, t__csv="id,d,n\n")))
    found = shop(
        tmp_path, "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 't' ORDER BY 1"
    )
    assert found == [("d", "DATE"), ("id", "BIGINT"), ("n", "DECIMAL(9,2)")]


@pytest.mark.parametrize("missing", ["fail", "empty"])
def test_j07_a_glob_that_matches_nothing_is_as_declared(tmp_path: Path, missing: str) -> None:
    read = f"path: 'none*.csv', missing: {missing}, columns: {{ id: int }}"
    opened = demo(tmp_path, read, TO_LAKE + SELECT, other__csv="id\n1\n")
    if missing == "fail":
        assert refused(opened) == {Code.PZ0720}
    else:
        good(run(opened))
        assert lake(tmp_path) == []


# --- K: identifiers

ODD = ["Order", "user", "my col", "ÄÖ", 'a"b', "a'b", "select", "x;y", "Amount, USD", "a" * 70 + "1", "a" * 70 + "2"]


@pytest.mark.parametrize("where", ["lake", "shop"])
def test_k01_odd_names_of_columns_go_through(tmp_path: Path, where: str) -> None:
    header = ",".join('"' + name.replace('"', '""') + '"' for name in ["id", *ODD])
    sql = (TO_LAKE if where == "lake" else MERGE) + SELECT
    good(run(demo(tmp_path, "path: t.csv", sql, t__csv=header + "\n" + ",".join("1" * (len(ODD) + 1)) + "\n")))
    with duckdb.connect() as connection:
        if where == "shop":
            connection.execute(f"ATTACH '{tmp_path}/shop.duckdb' AS shop (READ_ONLY)")
        relation = "shop.t" if where == "shop" else f"read_parquet('{tmp_path}/out/t/*.parquet')"
        assert [column[0] for column in connection.sql(f"SELECT * FROM {relation}").description] == ["id", *ODD]


def test_k09_a_csv_header_with_a_comma_is_quoted(tmp_path: Path) -> None:
    sql = "INSERT INTO {{ sink('lake', 't', format: 'csv', strategy: 'replace') }} " + SELECT
    good(run(demo(tmp_path, "path: t.csv", sql, t__csv='"Amount, USD",b\n1,2\n')))
    assert (tmp_path / "out/t/t.csv").read_text().splitlines()[0] == '"Amount, USD",b'


def test_k04_names_that_look_alike_are_refused(tmp_path: Path) -> None:
    connections = "a: { connector: localfiles, root: one }\na_: { connector: localfiles, root: two }\n"
    sql = (
        "INSERT INTO {{ sink('a', 't', strategy: 'replace') }} "
        "SELECT * FROM {{ source('a', '_b', path: 'b.csv') }} UNION ALL SELECT * FROM {{ source('a_', 'b', path: 'b.csv') }}"
    )
    assert refused(project(tmp_path, {"connections.yml": connections, "pipelines/t.sql": sql})) == {Code.PZ0110}


# --- L: csv, json, files


def contents(root: Path, read: str, text: str | bytes, name: str = "t__csv") -> Any:
    """The rows that land, or the codes of the failure."""
    try:
        result = run(demo(root, read, TO_LAKE + SELECT, **{name: text}))
    except ProjectError as failure:
        return str(failure)
    return lake(root) if result.exit_code == 0 else str(errors(result))


def test_l01_odd_line_ends_give_each_row_once_or_fail(tmp_path: Path) -> None:
    lines = "".join(f"{number},x\r\r\n" for number in range(200_000))
    found = contents(tmp_path, "path: t.csv, columns: { id: bigint, v: varchar }", "id,v\r\r\n" + lines)
    assert (
        "PZ0722" in found if isinstance(found, str) else [row[0] for row in found] == sorted(range(200_000), key=repr)
    )


@pytest.mark.parametrize("threads", [1, 8])
def test_l02_quoted_newlines_do_not_depend_on_threads(tmp_path: Path, threads: int) -> None:
    lines = "".join(f'{number},"a\n{"b" * (number % 97)}\r\nc"\n' for number in range(60_000))
    files = {
        "project.yml": f'name: d\nversion: "1"\nengine: {{ threads: {threads} }}\n',
        "connections.yml": BASE % "path: t.csv, columns: { id: bigint, v: varchar }",
        "pipelines/t.sql": TO_LAKE
        + "SELECT count(*) AS n, sum(id) AS s, sum(length(v)) AS l FROM {{ source('files', 't') }}",
        "data/t.csv": "id,v\n" + lines,
    }
    good(run(project(tmp_path, files)))
    assert lake(tmp_path) == [(60_000, sum(range(60_000)), sum(5 + number % 97 for number in range(60_000)))]


@pytest.mark.parametrize(
    ("read", "text", "wanted"),
    [
        ("path: t.csv", "\ufeffid,v\n1,a\n", [(1, "a")]),
        ("path: t.csv, columns: { zip: varchar }", "zip\n00123\n", [("00123",)]),
        ("path: t.csv, columns: { id: int, v: varchar }", "id,v\n1,a\\\n2,\\N\n3,\\t\n", [(1, "a\\"), (2, "\\N"), (3, "\\t")]),
        ("path: t.csv, columns: { id: int }", "id\n", []),
        ("path: t.csv, columns: { id: int }", "", []),
        ("path: t.csv, columns: { id: int }", "\n", []),
        ("path: t.csv", 'id,v\n1,"a\nb"\n', [(1, "a\nb")]),
        ("path: t.csv", "id,v\n1\n", "PZ0722"),
        ("path: t.csv", "id,v\n1,2,3\n", "PZ0722"),
        ("path: t.csv", "id,id\n1,2\n", "PZ0722"),
        ("path: t.csv, columns: { id: int }", "id\n1\nx\n", "PZ0722"),
    ],
    ids=["l04-bom", "l06-zip", "l14-backslash", "l17-header", "l17-empty", "l17-newline", "l27-quoted", "l11-few", "l11-many",
         "l22-twice", "l06-text"],
)  # fmt: skip
def test_l_csv(tmp_path: Path, read: str, text: str, wanted: Any) -> None:
    found = contents(tmp_path, read, text)
    assert wanted in found if isinstance(wanted, str) else found == wanted


def test_l09_a_number_where_text_is_due_is_no_silent_cast(tmp_path: Path) -> None:
    lines = '{"id": 1, "v": "a"}\n{"id": "x", "v": 2}\n'
    read = "path: t.json, format: json, columns: { id: bigint, v: varchar }"
    assert "PZ0722" in contents(tmp_path, read, lines, "t__json")


def test_l16_types_hold_for_every_file(tmp_path: Path) -> None:
    read = "path: '*.csv', columns: { id: int, v: varchar }"
    result = run(demo(tmp_path, read, TO_LAKE + SELECT, a__csv="id,v\n1,\n", b__csv="id,v\n2,text\n"))
    good(result)
    assert lake(tmp_path) == [(1, None), (2, "text")]


def test_l19_every_frame_of_a_compressed_file_is_read_and_a_cut_one_fails(tmp_path: Path) -> None:
    two = gzip.compress(b"id\n1\n") + gzip.compress(b"2\n")
    read = "path: t.csv.gz, columns: { id: int }"
    assert contents(tmp_path / "whole", read, two, "t__csv__gz") == [(1,), (2,)]
    assert "PZ0722" in contents(tmp_path / "cut", read, two[:-6], "t__csv__gz")


def test_l24_a_field_that_appears_late_is_kept(tmp_path: Path) -> None:
    lines = '{"id": 1}\n' * 3 + '{"id": 2, "late": "x"}\n'
    assert (2, "x") in contents(tmp_path, "path: t.json, format: json", lines, "t__json")


# --- O, P


def test_o12_a_thousand_files_are_read(tmp_path: Path) -> None:
    files = {f"f{number}__csv": f"id\n{number}\n" for number in range(1_000)}
    good(run(demo(tmp_path, "path: 'f*.csv', columns: { id: int }", TO_SHOP + SELECT, **files)))
    assert shop(tmp_path, "SELECT count(DISTINCT id) FROM t") == [(1_000,)]


def test_p04_a_filter_below_an_outer_join_is_not_pushed(tmp_path: Path) -> None:
    sql = TO_LAKE + (
        "SELECT a.id, b.v FROM {{ source('files', 't') }} a LEFT JOIN {{ source('files', 'u', path: 'u.csv') }} b "
        "ON a.id = b.id AND b.v > 5 WHERE b.v IS NULL OR b.v > 6"
    )
    good(run(demo(tmp_path, "path: t.csv", sql, t__csv="id\n1\n2\n3\n", u__csv="id,v\n1,5\n2,6\n3,7\n")))
    assert lake(tmp_path) == [(1, None), (3, 7)]


@pytest.mark.parametrize("end", [";", " -- done", ";\n/* done */\n", ";;"])
def test_p06_sql_may_end_in_a_semicolon_or_a_comment(tmp_path: Path, end: str) -> None:
    good(run(demo(tmp_path, "path: t.csv", TO_LAKE + SELECT + end, t__csv="id\n1\n")))
    assert lake(tmp_path) == [(1,)]
