"""Rows written by binary COPY: the same as by text, row for row, and text where binary would not be right."""

from __future__ import annotations

import pyarrow as pa
import pytest

from postgres_server import Database
from postgres_support import APPEND, REPLACE, output, sink_of, write
from pz.connectors.postgres import binary, encode
from pz.connectors.postgres.session import PostgresSession
from pz.errors import PermanentError

pytest.importorskip("pgpq", reason="of the extra `native`")
pytestmark = pytest.mark.native

COLUMNS = {
    "a": ("SMALLINT", "int2", ["-32768", "0", "32767"]),
    "b": ("INTEGER", "int4", ["-2147483648", "7", "2147483647"]),
    "c": ("BIGINT", "int8", ["-9223372036854775808", "7", "9223372036854775807"]),
    "d": ("SMALLINT", "int8", ["-32768", "0", "32767"]),
    "e": ("FLOAT", "float4", ["1.5", "'nan'", "1e-40"]),
    "f": ("DOUBLE", "float8", ["0.1", "'-inf'", "-0.0"]),
    "g": ("BOOLEAN", "bool", ["true", "false", "true"]),
    "h": ("VARCHAR", "text", ["''", "'é🦉 \"q\" \\N, '", "'NULL'"]),
    "i": ("VARCHAR", "varchar(5)", ["'abcde'", "' '", "'x'"]),
    "j": ("BLOB", "bytea", ["''", "'\\x00\\xFF'", "'a'"]),
    "k": ("DATE", "date", ["'0001-01-01'", "'1999-12-31'", "'9999-12-31'"]),
    "l": ("TIME", "time", ["'00:00:00'", "'12:34:56.789012'", "'24:00:00'"]),
    "m": ("TIMESTAMP", "timestamp", ["'0001-01-01'", "'1999-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999999'"]),
    "n": ("TIMESTAMPTZ", "timestamptz", ["'1969-12-31 23:59:59.9+00'", "'2024-02-29 12:00:00.5+02'", "'2000-01-01 00:00:00+00'"]),
    "o": ("DECIMAL(12,2)", "numeric(12,2)", ["12.50", "-0.01", "9999999999.99"]),
    "p": ("DECIMAL(4,4)", "numeric", ["0.0012", "-0.9999", "0"]),
    "q": ("DECIMAL(38,38)", "numeric", ["'0.00000000000000000000000000000000000001'", "0", "'-0.1'"]),
    "r": ("DECIMAL(38,9)", "numeric(38,9)", ["'-99999999999999999999999999999.999999999'", "10000.0001", "10000"]),
}  # fmt: skip


def made(kind: str, values: list[str]) -> str:
    return f"unnest([{', '.join(f'({value})::{kind}' for value in values)}, NULL])"


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The form of each COPY that a session opens."""
    seen: list[str] = []
    opened = PostgresSession._opened

    def watched(session: PostgresSession, form: str, encoder: binary.BinaryEncoder | None = None) -> object:
        seen.append(form)
        return opened(session, form, encoder)

    monkeypatch.setattr(PostgresSession, "_opened", watched)
    return seen


@pytest.mark.parametrize("before", [0, 1, 8, 11])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_a_bit_for_each_byte_wherever_a_slice_begins(before: int, count: int) -> None:
    values = [(1, 0, None, -1, 7)[(before + i * i) % 5] for i in range(before + count)]
    stored = pa.array(values, pa.int8())
    made = binary.booleans(pa.ExtensionArray.from_storage(pa.bool8(), stored).slice(before))
    made.validate(full=True)
    assert made.equals(stored.slice(before).cast(pa.bool_()))


@pytest.mark.parametrize("few", [0, 1000], ids=["many", "few"])
def test_binary_and_text_write_the_same_rows(
    database: Database, forms: list[str], monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(encode, "FEW", few)
    ddl = ", ".join(f"{name} {kind}" for name, (_, kind, _) in COLUMNS.items())
    database.run(f"CREATE TABLE t ({ddl})", f"CREATE TABLE u ({ddl})")
    sql = "SELECT " + ", ".join(f"{made(kind, values)} AS {name}" for name, (kind, _, values) in COLUMNS.items())
    monkeypatch.setattr(binary, "ROWS_AT_ONCE", 3)
    write(sink_of(database), output("t", APPEND), sql)
    monkeypatch.setattr(binary.BinaryEncoder, "of", lambda *_: None)
    write(sink_of(database), output("u", APPEND), sql)
    assert forms == ["binary", "csv"]
    found = database.rows("SELECT t::text FROM t ORDER BY ctid")
    assert len(found) == 4
    assert found == database.rows("SELECT u::text FROM u ORDER BY ctid")


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("DATE", "date", "'infinity'"),
        ("TIMESTAMP", "timestamp", "'-infinity'"),
        ("TIMESTAMPTZ", "timestamptz", "'0044-03-15 (BC) 10:00:00+00'"),
        ("DATE", "date", "'15000-01-01'"),
    ],
)
def test_a_batch_that_binary_would_get_wrong_goes_as_text_between_binary_ones(
    database: Database, forms: list[str], kind: str, column: str, value: str
) -> None:
    database.run(f"CREATE TABLE t (n int, v {column})")
    sql = (
        f"SELECT n::INTEGER AS n, CASE WHEN n = 1500 THEN {value} ELSE '2024-01-01' END::{kind} AS v "
        "FROM range(3000) r(n) ORDER BY n"
    )
    write(sink_of(database), output("t", REPLACE), sql)
    assert forms == ["binary", "csv", "binary"]
    shown = value.strip("'").replace(" (BC)", "").split("+")[0]
    [(found,)] = database.rows("SELECT v::text FROM t WHERE n = 1500")
    assert found.startswith(shown)
    assert found.endswith("BC") is ("BC" in value)
    assert database.rows("SELECT count(*), count(DISTINCT n), count(DISTINCT v) FROM t") == [(3000, 3000, 2)]


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("SELECT uuid() AS v", "uuid"),
        ("SELECT '{}'::JSON AS v", "jsonb"),
        ("SELECT 1 AS v", "numeric(12,2)"),
        ("SELECT 0.1::FLOAT AS v", "float8"),
        ("SELECT 'x' AS v", "char(3)"),
        ("SELECT 'x' AS v", "label"),
        ("SELECT [1, 2] AS v", "int[]"),
        ("SELECT TIMESTAMP_S '2024-01-01 00:00:00' AS v", "timestamp"),
    ],
)
def test_a_column_of_another_type_on_the_server_makes_it_text(
    database: Database, forms: list[str], sql: str, column: str
) -> None:
    database.run("CREATE DOMAIN label AS text", f"CREATE TABLE t (v {column})")
    write(sink_of(database), output("t", APPEND), sql)
    assert forms == ["csv"]
    assert database.rows("SELECT count(v) FROM t") == [(1,)]


def test_a_text_that_is_too_long_is_refused_without_a_word_of_it(database: Database, forms: list[str]) -> None:
    database.run("CREATE TABLE t (v varchar(5))")
    with pytest.raises(PermanentError, match="a text is longer than its column") as refused:
        write(sink_of(database), output("t", APPEND), "SELECT 'secrets' AS v")
    assert forms == ["binary"]
    assert "secrets" not in str(refused.value)
    assert "column v" in str(refused.value)
    assert database.rows("SELECT count(*) FROM t") == [(0,)]
