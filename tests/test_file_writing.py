"""Writing files: names, what is visible when, and the same bytes on both ways of moving."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from file_support import Rows, columns_of, connect, dataset, output, read, run_copy, spec
from pz.connectors.contract import OutputSpec, PermanentError, WriteResult, WriteStrategy
from pz.connectors.files.localfiles import LocalFiles
from pz.errors import Code

FORMATS = ("csv", "tsv", "json", "parquet")
both_ways = pytest.mark.parametrize("way", ["native", "session"])


def write(base: Path, way: str, wanted: OutputSpec, sql: str) -> WriteResult | None:
    connection = connect()
    connection.execute(f"CREATE TABLE t AS {sql}")
    wanted = replace(wanted, columns=columns_of(connection, "t"))
    sink = LocalFiles().open_sink(spec(base))
    if way == "native":
        run_copy(connection, sink.native_copy(wanted), "t")
        return None
    reader = connection.sql("SELECT * FROM t").to_arrow_reader(2)
    session = sink.begin_write(wanted, reader.schema)
    try:
        for batch in reader:
            session.write_batch(batch)
        return session.commit()
    finally:
        session.close()


def files(base: Path) -> list[str]:
    return sorted(path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file())


@both_ways
@pytest.mark.parametrize("format_", FORMATS)
def test_replace_writes_one_stable_file_and_leaves_nothing_else(format_: str, way: str, tmp_path: Path) -> None:
    for n in (1, 2):
        write(tmp_path, way, output(format=format_), f"SELECT {n}::INTEGER AS a, 'x' AS b")
        assert files(tmp_path) == [f"out/out.{format_}"]
        found = read(tmp_path, dataset(f"out/out.{format_}", {"a": "INTEGER", "b": "VARCHAR"}, format=format_))
        assert found == [(n, "x")]


@both_ways
def test_append_names_a_file_by_origin_and_output_so_that_a_repeat_overwrites_its_own(way: str, tmp_path: Path) -> None:
    first = replace(output(WriteStrategy.APPEND), origin="run-1", node="0123456789abcdef")
    for wanted in (first, first, replace(first, origin="run-2"), replace(first, node="fedcba9876543210")):
        write(tmp_path, way, wanted, "SELECT 1 AS a")
    assert files(tmp_path) == [
        "out/out-run-1-01234567.parquet",
        "out/out-run-1-fedcba98.parquet",
        "out/out-run-2-01234567.parquet",
    ]


@both_ways
def test_an_append_without_rows_makes_a_file_only_where_there_is_none(way: str, tmp_path: Path) -> None:
    """The first tells the columns; an idle run adds none, and a repeat still replaces what it had written itself."""
    runs = [f"20240101T00000000{n}Z-ab12" for n in range(3)]
    wanted = [replace(output(WriteStrategy.APPEND), origin=run, node="0123456789abcdef") for run in runs]
    names = [f"out/out-{run}-01234567.parquet" for run in runs]
    none, one = "SELECT 1 AS a LIMIT 0", "SELECT 1 AS a"
    (tmp_path / "out").mkdir()
    other = f"out/out-old-{runs[0]}-01234567.csv"
    (tmp_path / other).touch()
    write(tmp_path, way, wanted[0], none)
    write(tmp_path, way, wanted[1], none)
    assert files(tmp_path) == [names[0], other]
    write(tmp_path, way, wanted[2], one)
    assert read(tmp_path, dataset("out/*.parquet", format="parquet")) == [(1,)]
    write(tmp_path, way, wanted[2], none)
    assert files(tmp_path) == [names[0], names[2], other]
    assert read(tmp_path, dataset("out/*.parquet", format="parquet")) == []


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("out-20240101T000000000Z-ab12-01234567.parquet", True),
        ("out-20240101T000000000Z-ab12-fedcba98.csv.gz", True),
        ("out.parquet", True),
        ("out-old-20240101T000000000Z-ab12-01234567.parquet", False),
        ("out-old.parquet", False),
        (".out.parquet.99999999-aa.tmp", False),
        (None, False),
    ],
)
def test_an_append_is_there_where_any_run_has_left_a_file(name: str | None, is_there: bool, tmp_path: Path) -> None:
    """Also one of before an edit of its SQL or its format; a file of another output in the same directory is none."""
    if name is not None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / name).touch()
    sink = LocalFiles().open_sink(spec(tmp_path))
    assert sink.probe_output(output(WriteStrategy.APPEND)).exists is is_there
    assert sink.probe_output(output()).exists is (name == "out.parquet")


@both_ways
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"format": "csv"}, b"a,b\n"),
        ({"format": "tsv"}, b"a\tb\n"),
        ({"format": "json"}, b""),
    ],
)
def test_no_rows_still_make_a_valid_file(options: dict[str, Any], expected: bytes, way: str, tmp_path: Path) -> None:
    write(tmp_path, way, output(**options), "SELECT 1 AS a, 2 AS b LIMIT 0")
    assert (tmp_path / f"out/out.{options['format']}").read_bytes() == expected


@both_ways
def test_no_rows_keep_columns_and_types_in_parquet_and_an_array_in_json(way: str, tmp_path: Path) -> None:
    write(tmp_path, way, output(), "SELECT 1::SMALLINT AS a, DATE '2024-01-01' AS b LIMIT 0")
    found = connect().execute(f"DESCRIBE SELECT * FROM '{tmp_path}/out/out.parquet'").fetchall()
    assert [(row[0], row[1]) for row in found] == [("a", "SMALLINT"), ("b", "DATE")]
    write(tmp_path, way, output(format="json", layout="array"), "SELECT 1 AS a LIMIT 0")
    assert (tmp_path / "out/out.json").read_text().split() == ["[", "]"]


@both_ways
def test_csv_quotes_what_must_be_quoted_and_tells_null_from_empty(way: str, tmp_path: Path) -> None:
    rows = "(VALUES ('', NULL, 'a,b', 'q\"', 'n\nl'), (NULL, '', 'plain', ' ', '-'))"
    sql = f'SELECT * FROM {rows} AS v("Amount, USD", b, c, d, e)'
    write(tmp_path, way, output(format="csv"), sql)
    assert (tmp_path / "out/out.csv").read_bytes() == (
        b'"Amount, USD",b,c,d,e\n"",,"a,b","q""","n\nl"\n,"",plain, ,-\n'
    )


@both_ways
@pytest.mark.parametrize("format_", ["csv", "tsv"])
@pytest.mark.parametrize("value", ["'a' || chr(0)", "['a', chr(0)]", "{'k': chr(0)}"])
def test_a_nul_is_refused_where_its_reader_would_refuse_it(way: str, format_: str, value: str, tmp_path: Path) -> None:
    with pytest.raises((PermanentError, duckdb.Error), match=f"column 'b'.*: {format_} cannot hold a NUL character"):
        write(tmp_path, way, output(format=format_), f"SELECT 'fine' AS a, {value} AS b")
    assert not (tmp_path / f"out/out.{format_}").exists()


@both_ways
def test_nulls_in_a_single_column_come_back(way: str, tmp_path: Path) -> None:
    rows: Rows = [(None,), ("",), ("x",), (None,)]
    write(tmp_path, way, output(format="csv"), "SELECT * FROM (VALUES (NULL), (''), ('x'), (NULL)) AS v(a)")
    assert read(tmp_path, dataset("out/out.csv", {"a": "VARCHAR"})) == rows


@both_ways
def test_the_delimiter_and_the_compression_are_the_outputs_choice(way: str, tmp_path: Path) -> None:
    write(tmp_path, way, output(format="csv", delimiter=";", compression="gzip"), "SELECT 1 AS a, 'x;y' AS b")
    assert gzip.decompress((tmp_path / "out/out.csv.gz").read_bytes()) == b'a;b\n1;"x;y"\n'
    write(tmp_path, way, output(format="json", compression="zstd"), "SELECT 1 AS a")
    assert read(tmp_path, dataset("out/out.json.zst", {"a": "INTEGER"}, format="json")) == [(1,)]
    for packing in ("snappy", "zstd", "gzip", "none"):
        write(tmp_path, way, output(compression=packing), "SELECT 1 AS a")
        assert read(tmp_path, dataset("out/out.parquet", format="parquet")) == [(1,)]


@both_ways
def test_the_zone_of_the_machine_changes_no_byte(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    write(tmp_path, way, output(format="csv"), "SELECT '2024-01-01 00:00:00+00'::TIMESTAMPTZ AS z, 1.5 AS n")
    assert (tmp_path / "out/out.csv").read_bytes() == b"z,n\n2024-01-01 00:00:00+00,1.5\n"


def test_a_failed_write_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, "native", output(format="csv"), "SELECT 1 AS a")
    before = (tmp_path / "out/out.csv").read_bytes()
    connection = connect()
    sink = LocalFiles().open_sink(spec(tmp_path))
    failing = "(SELECT CASE WHEN i < 500000 THEN i ELSE error('boom')::BIGINT END AS a FROM range(1000000) AS r(i))"
    with pytest.raises(duckdb.Error):
        run_copy(connection, sink.native_copy(output(format="csv")), failing)
    assert (tmp_path / "out/out.csv").read_bytes() == before
    assert files(tmp_path) == ["out/out.csv"]


def test_an_aborted_session_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, "session", output(format="csv"), "SELECT 1 AS a")
    schema = pa.schema([("a", pa.int32())])
    for finish in ("abort", "close"):
        session = LocalFiles().open_sink(spec(tmp_path)).begin_write(output(format="csv"), schema)
        session.write_batch(pa.record_batch({"a": pa.array([2], pa.int32())}))
        if finish == "abort":
            session.abort()
        session.close()
        assert (tmp_path / "out/out.csv").read_bytes() == b"a\n1\n"
        assert files(tmp_path) == ["out/out.csv"]


def test_a_commit_counts_rows_and_batches_and_ends_the_session(tmp_path: Path) -> None:
    assert write(tmp_path, "session", output(), "SELECT * FROM range(5)") == WriteResult(5, 3)
    session = LocalFiles().open_sink(spec(tmp_path)).begin_write(output(), pa.schema([("a", pa.int32())]))
    session.commit()
    with pytest.raises(RuntimeError):
        session.abort()
    session.close()


def test_planning_a_write_touches_nothing(tmp_path: Path) -> None:
    copy = LocalFiles().open_sink(spec(tmp_path)).native_copy(output())
    assert list(tmp_path.iterdir()) == []
    ((aside, final),) = copy.moves
    assert (aside.parent, aside.name.startswith(".out.parquet."), final.name) == (final.parent, True, "out.parquet")


def test_temporary_files_have_unique_names_and_those_of_dead_attempts_are_swept(tmp_path: Path) -> None:
    sink = LocalFiles().open_sink(spec(tmp_path))
    first, second = sink.native_copy(output()), sink.native_copy(output())
    assert first.moves[0][0] != second.moves[0][0]
    first.directories[0].mkdir()
    dead, other = first.moves[0][0], first.directories[0] / ".out.parquet.99999999-aa.tmp"
    dead.write_bytes(b"torn")
    other.write_bytes(b"of another output")
    assert sink.native_copy(output()).stale == (dead,)
    write(tmp_path, "session", output(), "SELECT 1 AS a")
    assert (dead.exists(), other.exists()) == (False, True)


@pytest.mark.parametrize("entity", ["a/b", "..", ".hidden", "a\\b"])
def test_an_entity_that_is_no_file_name_is_refused(entity: str, tmp_path: Path) -> None:
    with pytest.raises(PermanentError) as caught:
        LocalFiles().open_sink(spec(tmp_path)).native_copy(output(entity=entity))
    assert caught.value.code is Code.PZ0353


@pytest.mark.parametrize("options", [{}, {"path": "below/it"}])
@both_ways
def test_a_file_in_the_way_is_named_with_the_option_that_leads_there(
    options: dict[str, Any], way: str, tmp_path: Path
) -> None:
    blocker = tmp_path / ("below" if options else "out")
    blocker.write_text("a file")
    with pytest.raises(PermanentError, match=rf"`path` leads through '{blocker}', which is no directory") as caught:
        write(tmp_path, way, output(**options), "SELECT 1 AS a")
    assert caught.value.code is Code.PZ0724
    assert blocker.read_text() == "a file"


def test_merge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError) as caught:
        LocalFiles().open_sink(spec(tmp_path)).native_copy(output(WriteStrategy.MERGE))
    assert caught.value.code is Code.PZ0324


def test_an_output_may_not_leave_the_root(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with pytest.raises(PermanentError) as caught:
        LocalFiles().open_sink(spec(tmp_path, root="lake")).native_copy(output(path="../other"))
    assert caught.value.code is Code.PZ0365


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(PermissionError):
        write(tmp_path, "session", output(path="out/deeper"), "SELECT 1 AS a")
