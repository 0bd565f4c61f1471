"""Every PostgreSQL type, read and written back: the table that the documentation prints is tested here row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest

from postgres_server import Database
from postgres_support import APPEND, Relation, as_text, dataset, duckdb_types, output, read, sink_of, source_of, write
from pz.connectors.contract import Column
from pz.connectors.postgres.types import read_columns
from pz.errors import Code, PermanentError


@dataclass(frozen=True)
class Case:
    """A column type, what it is read as, and values with what DuckDB prints for them (None: as PostgreSQL does).

    ``logged`` says whether the server's log has all of the value, so that changes of it can be followed; ``written`` whether
    what is read can be written back.
    """

    ddl: str
    duckdb: str
    values: dict[str, str | None]
    setup: tuple[str, ...] = ()
    logged: bool = True
    written: bool = True


def same(*values: str) -> dict[str, str | None]:
    return dict.fromkeys(values)


SHADE = (
    "CREATE TYPE shade AS ENUM ('dark')",
    "CREATE FUNCTION words(shade) RETURNS text IMMUTABLE STRICT LANGUAGE sql AS $$ SELECT format('shade %s', $1) $$",
    "CREATE CAST (shade AS text) WITH FUNCTION words(shade)",
)
"""A type whose cast to text says something else than the server prints."""

CASES = [
    Case("boolean", "BOOLEAN", {"t": "true", "f": "false"}),
    Case("smallint", "SMALLINT", same("-32768", "32767")),
    Case("integer", "INTEGER", same("-2147483648", "2147483647")),
    Case("bigint", "BIGINT", same("-9223372036854775808", "9223372036854775807", "9007199254740993")),
    Case("oid", "BIGINT", same("0", "4294967295")),
    Case("real", "FLOAT", {"1.5": None, "NaN": "nan", "Infinity": "inf", "-Infinity": "-inf", "1e-40": None}),
    Case(
        "double precision",
        "DOUBLE",
        {"0.1": None, "NaN": "nan", "Infinity": "inf", "1e300": None, "5e-324": None, "-0": "-0.0"},
    ),
    Case("numeric(12,2)", "DECIMAL(12,2)", same("-9999999999.99", "0.00", "12.50")),
    Case("numeric(18,0)", "DECIMAL(18,0)", same("-999999999999999999", "0", "999999999999999999")),
    Case("numeric(18,17)", "DECIMAL(18,17)", same("-9.99999999999999999", "0.00000000000000001")),
    Case("numeric(19,2)", "DECIMAL(19,2)", same("-99999999999999999.99", "0.01")),
    Case("numeric(38,10)", "DECIMAL(38,10)", same("1234567890123456789012345678.0123456789")),
    Case("numeric(5,-2)", "DECIMAL(7,0)", same("1234500")),
    Case("numeric(2,4)", "DECIMAL(4,4)", {"0.0012": ".0012"}),
    Case(
        "numeric",
        "DECIMAL(38,9)",
        {
            "12345678901234567890.12": "12345678901234567890.120000000",
            "0.000000001": None,
            "0.1250000000000000": "0.125000000",
        },
    ),
    Case("money", "DECIMAL(19,2)", {"$92,233,720,368,547,758.07": "92233720368547758.07", "-$1.50": "-1.50"}),
    Case("text", "VARCHAR", same("", "a", "é🦉", " x ", "NULL", "\\N", 'q"q', "l\nl")),
    Case("varchar(5)", "VARCHAR", same("abcde", "")),
    Case("char(3)", "VARCHAR", same("abc", "x  ")),
    Case("name", "VARCHAR", same("pg_catalog")),
    Case('"char"', "VARCHAR", same("x")),
    Case("citext", "VARCHAR", same("MiXed"), ("CREATE EXTENSION citext",)),
    Case("bytea", "BLOB", {"\\x": "", "\\x00ff61": "\\x00\\xFFa"}),
    Case(
        "date",
        "DATE",
        {
            "2024-02-29": None,
            "infinity": None,
            "-infinity": None,
            "0001-12-31 BC": "0001-12-31 (BC)",
            "4713-01-01 BC": "4713-01-01 (BC)",
            "15000-01-01": None,
            "5874897-12-31": None,
        },
    ),
    Case("time", "TIME", same("00:00:00", "12:34:56.789012", "24:00:00")),
    Case("time with time zone", "VARCHAR", same("12:34:56.789012+05:30", "00:00:00-12")),
    Case(
        "timestamp",
        "TIMESTAMP",
        {
            "2024-02-29 12:00:00.000001": None,
            "infinity": None,
            "-infinity": None,
            "0044-03-15 10:00:00 BC": "0044-03-15 (BC) 10:00:00",
            "20231-01-01 00:00:00": None,
            "294246-12-31 00:00:00": None,
        },
    ),
    Case(
        "timestamptz",
        "TIMESTAMP WITH TIME ZONE",
        {
            "2024-02-29 12:00:00.000001+00": None,
            "infinity": None,
            "-infinity": None,
            "0044-03-15 10:00:00+00 BC": "0044-03-15 (BC) 10:00:00+00",
        },
    ),
    Case("timestamp(3)", "TIMESTAMP", same("2024-02-29 12:00:00.123")),
    Case(
        "interval",
        "INTERVAL",
        {
            "1 mon": "1 month",
            "30 days": None,
            "-3 days": None,
            "1 year 2 mons 3 days 04:05:06.789": "1 year 2 months 3 days 04:05:06.789",
            "-00:00:01.5": None,
            "00:00:00": None,
        },
    ),
    Case("uuid", "UUID", same("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    Case("json", "JSON", same('{"b": 1,  "a": [null, "\\u0041"], "a": 2}', "null", '"x"', "9007199254740993")),
    Case("jsonb", "JSON", same('{"a": [null, 1.50], "b": {}}', "null")),
    Case("xml", "VARCHAR", same('<a b="1">x</a>', '<?xml version="1.0"?><a/>', "text"), logged=False),
    Case("bit(4)", "VARCHAR", same("1010")),
    Case("bit varying", "VARCHAR", same("1", "10101")),
    Case("inet", "VARCHAR", same("10.0.0.1", "10.0.0.0/8", "::1")),
    Case("cidr", "VARCHAR", same("10.0.0.0/8")),
    Case("macaddr", "VARCHAR", same("08:00:2b:01:02:03")),
    Case("int4range", "VARCHAR", same("[1,5)", "empty", "(,)")),
    Case("tstzrange", "VARCHAR", same('["2024-01-01 00:00:00+00",)')),
    Case("int4multirange", "VARCHAR", same("{[1,3),[5,9)}")),
    Case("point", "VARCHAR", same("(1,2.5)")),
    Case("polygon", "VARCHAR", same("((0,0),(1,0),(1,1))")),
    Case("circle", "VARCHAR", same("<(1,2),3>")),
    Case("tsvector", "VARCHAR", same("'a':1 'b':2")),
    Case("pg_lsn", "VARCHAR", same("16/B374D848")),
    Case("jsonpath", "VARCHAR", same('$."a"')),
    Case("mood", "VARCHAR", same("sad", "it's, ok"), ("CREATE TYPE mood AS ENUM ('sad', 'it''s, ok')",)),
    Case("price", "DECIMAL(10,2)", same("1.50"), ("CREATE DOMAIN price AS numeric(10,2) CHECK (VALUE > 0)",)),
    Case("label", "VARCHAR", same("x"), ("CREATE DOMAIN base AS text", "CREATE DOMAIN label AS base")),
    Case("ids", "INTEGER[]", {"{1,2}": "[1, 2]"}, ("CREATE DOMAIN ids AS int[]",)),
    Case("day", "DATE", {"infinity": None}, ("CREATE DOMAIN day AS date",)),
    Case("pair", "VARCHAR", same('(1,"a b")', "(,)"), ("CREATE TYPE pair AS (n int, s text)",)),
    Case("hstore", "VARCHAR", same('"a"=>"1", "b"=>NULL'), ("CREATE EXTENSION hstore",)),
    Case("int[]", "INTEGER[]", {"{1,NULL,3}": "[1, NULL, 3]", "{}": "[]"}),
    Case("bigint[]", "BIGINT[]", {"{9223372036854775807}": "[9223372036854775807]"}),
    Case("text[]", "VARCHAR[]", {'{a,NULL,"NULL","","a,b","q\\"q","back\\\\slash",{}}'.replace(",{}", ""): None}),
    Case("numeric(8,2)[]", "DECIMAL(8,2)[]", {"{1.50,NULL}": "[1.50, NULL]"}),
    Case("numeric[]", "DECIMAL(38,9)[]", {"{1.5}": "[1.500000000]"}),
    Case(
        "timestamp[]",
        "TIMESTAMP[]",
        {'{"2024-01-01 00:00:00",infinity,NULL}': "['2024-01-01 00:00:00', infinity, NULL]"},
    ),
    Case("date[]", "DATE[]", {"{2024-01-01,infinity}": "[2024-01-01, infinity]"}),
    Case("bool[]", "BOOLEAN[]", {"{t,f}": "[true, false]"}),
    Case("float8[]", "DOUBLE[]", {"{0.1,NaN}": "[0.1, nan]"}),
    Case("uuid[]", "UUID[]", {"{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}": "[a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11]"}),
    # DuckDB 2 puts bytes in a list between quotes when it prints it.
    Case("bytea[]", "BLOB[]", {'{"\\\\x00ff"}': "['\\\\x00\\\\xFF']" if duckdb.__version__ >= "2" else "[\\x00\\xFF]"}),
    Case("mood[]", "VARCHAR[]", {"{sad}": "[sad]"}, ("CREATE TYPE mood AS ENUM ('sad')",)),
    Case("jsonb[]", "VARCHAR[]", {'{"{\\"a\\": 1}"}': None}),
    Case("inet[]", "VARCHAR[]", {"{10.0.0.1,10.0.0.0/8,::1,NULL}": "[10.0.0.1/32, 10.0.0.0/8, '::1/128', NULL]"}),
    Case("cidr[]", "VARCHAR[]", {"{10.0.0.0/8,10.0.0.1/32}": "[10.0.0.0/8, 10.0.0.1/32]"}),
    Case("char(3)[]", "VARCHAR[]", {'{abc,"x  ",NULL}': "[abc, x, NULL]"}),
    Case("varchar(3)[]", "VARCHAR[]", {'{abc,"x  "}': "[abc, 'x  ']"}),
    Case("name[]", "VARCHAR[]", {"{a,NULL}": "[a, NULL]"}),
    Case('"char"[]', "VARCHAR[]", {"{a,NULL}": "[a, NULL]"}),
    Case("oid[]", "VARCHAR[]", {"{4294967295}": "[4294967295]"}, written=False),
    Case("real[]", "FLOAT[]", {"{0.1,NaN}": "[0.1, nan]"}),
    Case("money[]", "VARCHAR[]", {"{-$1.50}": "[-$1.50]"}, written=False),
    Case("interval[]", "VARCHAR[]", {'{"1 mon -1 days +02:00:00"}': "['1 mon -1 days +02:00:00']"}, written=False),
    Case("timestamptz[]", "TIMESTAMP WITH TIME ZONE[]", {'{"2024-01-01 00:00:00+00"}': "['2024-01-01 00:00:00+00']"}),
    Case("json[]", "VARCHAR[]", {'{"[1,2]"}': "['[1,2]']"}),
    Case("box[]", "VARCHAR[]", {"{(1,1),(0,0);(2,2),(1,1)}": "['(1,1),(0,0)', '(2,2),(1,1)']"}, written=False),
    Case("xml[]", "VARCHAR[]", {'{"<?xml version=\\"1.0\\"?><a/>",<b/>}': None}, logged=False),
    Case(
        "flags",
        "BOOLEAN[]",
        {"{t,f}": "[true, false]"},
        ("CREATE DOMAIN flag AS bool", "CREATE DOMAIN flags AS flag[]"),
    ),
    Case("shade", "VARCHAR", {"dark": "shade dark"}, SHADE, logged=False, written=False),
    Case("shade[]", "VARCHAR[]", {"{dark}": "[shade dark]"}, SHADE, logged=False, written=False),
    Case("int[][]", "VARCHAR", same("{{1,2},{3,4}}", "[0:1]={1,2}", "{1}")),
    Case("int2vector", "VARCHAR", same("1 2 3")),
]


@dataclass(frozen=True)
class Declared:
    """A column type, what it is declared as, values with what DuckDB prints for them, and values that must be refused.

    ``logged`` says whether the conversion can be made of what the server's log has.
    """

    ddl: str
    wanted: str
    values: dict[str, str | None]
    refused: tuple[str, ...] = ()
    logged: bool = True

    def __str__(self) -> str:
        return f"{self.ddl} as {self.wanted}"


UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"

DECLARED = [
    Declared("money", "decimal(12,4)", {"$12.34": "12.3400", "-$0.01": "-0.0100"}, ("$999,999,999.00",)),
    Declared("money", "decimal(12,0)", {"$12.00": "12"}, ("$12.34",)),
    Declared("money", "double", {"$12.34": "12.34", "-$0.01": "-0.01", "$1,000.00": "1000.0"}),
    Declared("money", "varchar", {"-$1,000.50": "-$1,000.50"}),
    Declared("oid", "double", {"4294967295": "4294967295.0"}),
    Declared("oid", "integer", {"2147483647": "2147483647"}, ("4294967295",)),
    Declared("oid", "smallint", {"1": "1"}, ("40000",)),
    Declared("oid", "decimal(12,1)", {"4294967295": "4294967295.0"}),
    Declared("real", "double", {"0.1": "0.10000000149011612", "NaN": "nan", "-Infinity": "-inf", "-0": "-0.0"}),
    Declared(
        "numeric",
        "double",
        {"0.1": "0.1", "0": "0.0", "0.000": "0.0", "NaN": "nan", "-Infinity": "-inf", "1e300": None, "1e-320": None},
        ("1e309", "-1e400", "1e-400"),
    ),
    Declared("numeric(30,20)", "double", {"0.10000000000000000001": "0.1"}),
    Declared("numeric", "decimal(10,3)", {"1.239": "1.239", "1.5": "1.500"}, ("1.2391", "NaN", "Infinity", "1e8")),
    Declared("bigint", "double", {"9007199254740993": "9007199254740992.0"}),
    Declared("bigint", "smallint", {"-5": "-5"}, ("40000",)),
    Declared("smallint", "decimal(7,2)", {"-5": "-5.00"}),
    Declared("text", "json", {'{"a":1}': '{"a":1}', " [1] ": " [1] "}, ("[1,]", "NaN", "[1,NaN]", "", "{a:1}"), False),
    Declared(
        "text",
        "uuid",
        {
            UUID: UUID,
            f"{{{UUID.upper()}}}": UUID,
            UUID.replace("-", ""): UUID,
            "a0ee-bc99-9c0b-4ef8-bb6d6bb9bd380a11": UUID,
        },
        (f"{{{UUID}", "a0-eebc999c0b4ef8bb6d6bb9bd380a11", f" {UUID}", UUID + "0", "", UUID.replace("-", "--", 1)),
    ),
    Declared("char(36)", "uuid", {UUID: UUID}),
    Declared("char(38)", "uuid", {}, (UUID,)),
    Declared("boolean", "varchar", {"t": "true", "f": "false"}),
    Declared("inet", "varchar", {"10.0.0.1": "10.0.0.1", "::1/64": "::1/64"}),
    Declared("xml[]", "varchar", {'{"<?xml version=\\"1.0\\"?><a/>"}': "{<a/>}"}),
    Declared("bool[]", "varchar", {"{t,f}": "{t,f}"}),
    Declared("box[]", "varchar", {"{(1,1),(0,0)}": "{(1,1),(0,0)}"}),
    Declared("timestamptz", "timestamp", {"2024-01-01 02:00:00+02": "2024-01-01 00:00:00", "infinity": "infinity"}),
    Declared("timestamptz", "timestamp", {"0044-03-15 10:00:00+00 BC": "0044-03-15 (BC) 10:00:00"}),
    Declared("timestamp", "timestamptz", {"2024-01-01 02:00": "2024-01-01 02:00:00+00", "-infinity": "-infinity"}),
    Declared("timestamp", "timestamptz", {"0044-03-15 10:00:00 BC": "0044-03-15 (BC) 10:00:00+00"}),
    Declared("date", "timestamp", {"2024-02-03": "2024-02-03 00:00:00", "0044-03-15 BC": "0044-03-15 (BC) 00:00:00"}),
    Declared("date", "timestamp", {"infinity": "infinity"}, ("5874897-12-31",)),
]
"""Conversions that the server makes of a declared column, and that every way to read must make alike."""


def declared_table(database: Database, case: Declared, values: Iterable[str | None]) -> dict[str, str]:
    """A table with a column of the case's type and these values; the columns to declare."""
    database.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (k int PRIMARY KEY, v {case.ddl})")
    with database.connect() as connection:
        for k, value in enumerate(values):
            connection.execute(f"INSERT INTO t VALUES (%s, %s::text::{case.ddl})", [k, value])
    return {"k": "int", "v": case.wanted}


@pytest.mark.parametrize("case", DECLARED, ids=str)
def test_every_declared_conversion_is_exact_or_refused(database: Database, case: Declared) -> None:
    columns = declared_table(database, case, [*case.values, None])
    source = source_of(database)
    printed = [row[1] for row in as_text(read(source, dataset(columns=columns)).sort_by("k"))]
    source.close()
    expected = [*case.values.values(), None]
    assert [p for p, e in zip(printed, expected, strict=True) if e is not None] == [
        e for e in expected if e is not None
    ]
    assert printed[-1] is None
    for value in case.refused:
        declared_table(database, case, [value])
        with pytest.raises(PermanentError) as refused:
            read(source_of(database), dataset(columns=columns))
        assert not value or value not in str(refused.value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.ddl)
def test_every_type_is_read_exactly_and_written_back_unchanged(database: Database, case: Case) -> None:
    database.run(
        *case.setup, f"CREATE TABLE t (k int PRIMARY KEY, v {case.ddl})", f"CREATE TABLE back (k int, v {case.ddl})"
    )
    with database.connect() as connection:
        for k, value in enumerate([*case.values, None]):
            connection.execute(f"INSERT INTO t VALUES (%s, %s::text::{case.ddl})", [k, value])
    source = source_of(database)
    [_, column] = source.probe(dataset()).columns or ()
    assert column == Column("v", case.duckdb)
    table = read(source, dataset()).sort_by("k")
    source.close()
    assert duckdb_types(table)[1] == case.duckdb
    printed = dict(zip([*case.values, None], [row[1] for row in as_text(table)], strict=True))
    for value, expected in case.values.items():
        assert expected is None or printed[value] == expected
        if expected is None and not case.duckdb.endswith("[]") and case.duckdb not in {"FLOAT", "DOUBLE"}:
            assert printed[value] == value
    assert printed[None] is None
    if not case.written:
        return
    write_back(database, table)
    # A numeric without declared scale comes back as the same number with the scale of the decimal.
    value = {"numeric": "trim_scale({}.v)", "numeric[]": "trim_scale({}.v[1])"}.get(case.ddl, "{}.v::text")
    before, after = value.format("t"), value.format("back")
    differing = f"SELECT {before}, {after} FROM t FULL JOIN back USING (k) WHERE {before} IS DISTINCT FROM {after}"
    assert database.rows(differing) == []
    assert database.rows("SELECT count(*) FROM back") == [(len(case.values) + 1,)]


def write_back(database: Database, table: pa.Table) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("staged", table)
        connection.execute("CREATE TABLE s AS SELECT * FROM staged")
        described = connection.execute("SELECT column_name, column_type FROM (DESCRIBE s)").fetchall()
        relation = Relation.__new__(Relation)
        relation.columns = tuple(Column(name, kind) for name, kind in described)
        relation.table = connection.sql("SELECT * FROM s").to_arrow_table()
    write(sink_of(database), output("back", APPEND), relation)


@pytest.mark.parametrize(
    ("ddl", "words"),
    [("numeric(50,10)", "more than 38 digits"), ("numeric(1000)", "38 digits"), ("numeric(40,2)[]", "38 digits")],
)
def test_a_type_that_cannot_be_held_is_refused_by_the_probe_with_what_to_write(
    database: Database, ddl: str, words: str
) -> None:
    database.run(f"CREATE TABLE t (k int, v {ddl})")
    with pytest.raises(PermanentError, match=words) as refused:
        source_of(database).probe(dataset())
    assert refused.value.code is Code.PZ0740
    assert "varchar" in str(refused.value.hint)
    table = read(source_of(database), dataset(columns={"k": "int", "v": "varchar"}))
    assert duckdb_types(table) == ["INTEGER", "VARCHAR"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1.0000000001", "123456789012345678901234567890"])
def test_an_unbounded_numeric_that_does_not_fit_is_refused_before_anything_moves(
    database: Database, value: str
) -> None:
    database.run("CREATE TABLE t (v numeric)", f"INSERT INTO t VALUES (1), ('{value}')")
    with pytest.raises(PermanentError, match="cannot hold all values"):
        source_of(database).probe(dataset())
    with pytest.raises(PermanentError, match="cannot hold exactly") as refused:
        read(source_of(database), dataset())
    assert value not in str(refused.value)
    texts = read(source_of(database), dataset(columns={"v": "varchar"})).column("v").to_pylist()
    assert sorted(texts) == sorted(["1", value])


def test_zeros_behind_the_last_digit_of_a_numeric_say_nothing(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT n / 8.0 AS v, round(n / 8.0, 60) AS w FROM generate_series(1, 3) n")
    assert source_of(database).probe(dataset()).rows is None
    assert as_text(read(source_of(database), dataset())) == [(f"{n / 8:.9f}", f"{n / 8:.9f}") for n in range(1, 4)]


def test_nan_in_a_bounded_numeric_is_an_error_and_never_a_number(database: Database) -> None:
    database.run("CREATE TABLE t (v numeric(10,2))", "INSERT INTO t VALUES ('NaN')")
    with pytest.raises(PermanentError, match="'v' holds a value"):
        read(source_of(database), dataset())
    doubles = read(source_of(database), dataset(columns={"v": "double"}))
    assert as_text(doubles) == [("nan",)]
    database.run("ALTER TABLE t ADD w numeric(20,2), ADD x numeric(4,1)", "UPDATE t SET v = 1, x = 'NaN'")
    with pytest.raises(PermanentError, match=r"'v' or 'x' holds a value that DECIMAL\(10,2\) or DECIMAL\(4,1\)"):
        read(source_of(database), dataset())


def test_a_foreign_table_may_hold_what_its_columns_do_not_declare(database: Database) -> None:
    file = database.server.folder / "values.csv"
    file.write_text("1.25\n")
    file.chmod(0o644)
    database.run(
        "CREATE EXTENSION file_fdw",
        "CREATE SERVER files FOREIGN DATA WRAPPER file_fdw",
        f"CREATE FOREIGN TABLE t (v numeric(10,2)) SERVER files OPTIONS (filename '{file}', format 'csv')",
    )
    assert as_text(read(source_of(database), dataset())) == [("1.25",)]
    assert "::int8" not in source_of(database)._relation(dataset()).columns[0].selected


@pytest.mark.parametrize("value", ["{{1,2},{3,4}}", "[0:1]={1,2}"])
def test_an_array_that_is_no_plain_list_is_refused_and_can_be_read_as_text(database: Database, value: str) -> None:
    database.run("CREATE TABLE t (v int[])", f"INSERT INTO t VALUES ('{value}')")
    with pytest.raises(PermanentError, match="more than one dimension"):
        read(source_of(database), dataset())
    assert read(source_of(database), dataset(columns={"v": "varchar"})).column("v").to_pylist() == [value]


def test_moments_beyond_64_bits_and_huge_intervals_are_errors(database: Database) -> None:
    database.run("CREATE TABLE t (v timestamp)", "INSERT INTO t VALUES ('infinity'), ('294276-12-31 00:00')")
    with pytest.raises(PermanentError, match="'v' holds a value"):
        read(source_of(database), dataset())
    database.run("CREATE TABLE i (v interval)", "INSERT INTO i VALUES (make_interval(hours => 2147483647))")
    with pytest.raises(PermanentError):
        read(source_of(database), dataset("i"))


def test_declared_types_are_converted_on_the_server_or_refused_together(database: Database) -> None:
    database.run(
        "CREATE TABLE t (i int, n numeric, s text, at timestamptz, d timestamp)",
        "INSERT INTO t VALUES (1, 1.239, '{\"a\":1}', '2024-01-01 02:00+02', '2024-01-01 00:00')",
    )
    declared = {"at": "timestamp", "i": "bigint", "n": "decimal(10,3)", "s": "json", "d": "timestamptz"}
    table = read(source_of(database), dataset(columns=declared))
    assert duckdb_types(table) == ["TIMESTAMP", "BIGINT", "DECIMAL(10,3)", "JSON", "TIMESTAMP WITH TIME ZONE"]
    assert as_text(table) == [("2024-01-01 00:00:00", "1", "1.239", '{"a":1}', "2024-01-01 00:00:00+00")]
    with pytest.raises(PermanentError, match="holds a value"):
        read(source_of(database), dataset(columns={"n": "decimal(10,2)"}))
    with pytest.raises(PermanentError) as refused:
        source_of(database).probe(dataset(columns={"n": "int", "s": "date", "gone": "int"}))
    for column in ('"n"', '"s"', '"gone"'):
        assert column in str(refused.value)


def test_text_forms_do_not_depend_on_the_settings_of_the_database(database: Database) -> None:
    settings = {
        "TimeZone": "America/New_York",
        "DateStyle": "German, DMY",
        "IntervalStyle": "sql_standard",
        "bytea_output": "escape",
        "extra_float_digits": "-4",
        "array_nulls": "off",
    }
    database.run(*(f"ALTER DATABASE {database.name} SET {key} TO '{value}'" for key, value in settings.items()))
    database.run(
        "CREATE TYPE c AS (d date, z timestamptz, b bytea, i interval, f float8)",
        "CREATE TABLE t (v c, z timestamptz, n timestamp, r daterange)",
        "INSERT INTO t VALUES (ROW('01.02.2024', '2024-07-01 12:00+00', '\\x00ff', '1 day 02:00', 0.1::float8 + 0.2),"
        " '2024-07-01 12:00+00', '2024-07-01 12:00', '[2024-02-01,2024-02-03)')",
    )
    [row] = as_text(read(source_of(database), dataset()))
    assert row == (
        '(2024-02-01,"2024-07-01 12:00:00+00","\\\\x00ff","1 day 02:00:00",0.30000000000000004)',
        "2024-07-01 12:00:00+00",
        "2024-07-01 12:00:00",
        "[2024-02-01,2024-02-03)",
    )


def test_null_in_an_array_is_null_whatever_the_database_has_as_default(database: Database) -> None:
    database.run(f"ALTER DATABASE {database.name} SET array_nulls TO off")
    write(sink_of(database), output("back", APPEND), Relation("SELECT ['NULL', NULL, 'a'] AS v"))
    assert database.rows("SELECT v FROM back") == [(["NULL", None, "a"],)]


def test_a_declared_column_that_is_gone_is_not_to_be_declared() -> None:
    with pytest.raises(PermanentError, match="there is no column") as caught:
        read_columns((), {"gone": "VARCHAR"}, subject="table t")
    assert caught.value.hint == (
        "rename it under `columns:` as it is called at the source now, or take it out there and in the SQL"
    )
