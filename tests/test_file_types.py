"""Every DuckDB type through every file format, both ways of writing, with its extremes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from duck_types import TYPES, create_table, fingerprint
from file_support import columns_of, connect, dataset, output, run_copy, source, spec
from pz.connectors.contract import Column, PermanentError, ReadHints
from pz.connectors.files.localfiles import LocalFiles
from pz.errors import Code

FORMATS = ("csv", "tsv", "json", "parquet")


def write(connection: duckdb.DuckDBPyConnection, base: Path, way: str, format_: str) -> Path:
    """Write table ``t`` and return the file."""
    sink = LocalFiles().open_sink(spec(base))
    wanted = replace(output(format=format_, path=way), columns=columns_of(connection, "t"))
    if way == "native":
        run_copy(connection, sink.native_copy(wanted), "t")
    else:
        reader = connection.sql("SELECT * FROM t").to_arrow_reader(2)
        session = sink.begin_write(wanted, reader.schema)
        try:
            for batch in reader:
                session.write_batch(batch)
            session.commit()
        finally:
            session.close()
    return base / way / f"out.{format_}"


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("type_", TYPES)
def test_a_declared_type_survives_the_round_trip_and_both_ways_spell_it_alike(
    type_: str, format_: str, tmp_path: Path
) -> None:
    connection = connect()
    connection.execute(create_table(type_))
    expected = connection.execute(fingerprint("t", type_)).fetchall()
    written = [write(connection, tmp_path, way, format_) for way in ("native", "session")]
    for file in written:
        scan = source(tmp_path).native_scan(
            dataset(str(file), {"v": type_, "i": "INTEGER"}, format=format_), ReadHints()
        )
        assert connection.execute(fingerprint(scan.relation, type_)).fetchall() == expected
    if format_ != "parquet":
        assert written[0].read_bytes() == written[1].read_bytes()


@pytest.mark.parametrize("format_", ["csv", "parquet"])
@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE"])
def test_nan_and_infinities_survive_csv_and_parquet(type_: str, format_: str, tmp_path: Path) -> None:
    connection = connect()
    connection.execute(f"CREATE TABLE t AS SELECT * FROM (VALUES ('nan'::{type_}), ('inf'), ('-inf'), (NULL)) AS x(v)")
    for way in ("native", "session"):
        file = write(connection, tmp_path, way, format_)
        scan = source(tmp_path).native_scan(dataset(str(file), {"v": type_}, format=format_), ReadHints())
        found = connection.execute(f"SELECT v::VARCHAR FROM {scan.relation}").fetchall()
        assert found == [("nan",), ("inf",), ("-inf",), (None,)]


def test_json_has_no_nan_and_writes_null_also_inside_nested_values(tmp_path: Path) -> None:
    connection = connect()
    connection.execute(
        "CREATE TABLE t AS SELECT 'nan'::DOUBLE AS v, ['inf'::DOUBLE, 1.5] AS l, {'x': 'nan'::FLOAT} AS s"
    )
    for way in ("native", "session"):
        assert write(connection, tmp_path, way, "json").read_text() == '{"v":null,"l":[null,1.5],"s":{"x":null}}\n'


def test_json_spells_moments_in_iso_and_marks_instants(tmp_path: Path) -> None:
    connection = connect()
    connection.execute(
        "CREATE TABLE t AS SELECT TIMESTAMP '2024-02-29 12:00:00' AS n, '2024-02-29 12:00:00+02'::TIMESTAMPTZ AS z"
    )
    for way in ("native", "session"):
        text = write(connection, tmp_path, way, "json").read_text()
        assert text == '{"n":"2024-02-29T12:00:00.000000","z":"2024-02-29T10:00:00.000000Z"}\n'


def test_csv_marks_instants_with_an_offset(tmp_path: Path) -> None:
    connection = connect()
    connection.execute("CREATE TABLE t AS SELECT '2024-02-29 12:00:00+02'::TIMESTAMPTZ AS z")
    assert write(connection, tmp_path, "native", "csv").read_text() == "z\n2024-02-29 10:00:00+00\n"


@pytest.mark.parametrize("format_", FORMATS)
def test_a_union_is_refused_before_anything_moves(format_: str, tmp_path: Path) -> None:
    sink = LocalFiles().open_sink(spec(tmp_path))
    wanted = replace(output(format=format_), columns=(Column("u", "UNION(a INTEGER, b VARCHAR)"),))
    with pytest.raises(PermanentError, match="column 'u'") as caught:
        sink.native_copy(wanted)
    assert caught.value.code is Code.PZ0723


def test_a_number_too_wide_for_parquet_is_refused_by_name_and_not_turned_into_a_double(tmp_path: Path) -> None:
    connection = connect()
    connection.execute("CREATE TABLE t AS SELECT 170141183460469231731687303715884105727::HUGEINT AS big")
    sink = LocalFiles().open_sink(spec(tmp_path))
    with pytest.raises(duckdb.Error) as caught:
        write(connection, tmp_path, "native", "parquet")
    explained = sink.explain(caught.value)
    assert explained is not None
    assert explained.code is Code.PZ0723
    assert "'big'" in explained.message
    with pytest.raises(PermanentError, match="'big'"):
        write(connection, tmp_path, "session", "parquet")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
