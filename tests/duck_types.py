"""Every DuckDB type with its extremes: the table behind the round-trip tests."""

from __future__ import annotations

from collections.abc import Mapping

TYPES: Mapping[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127"),
    "SMALLINT": ("-32768", "32767"),
    "INTEGER": ("-2147483648", "2147483647"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "9007199254740993"),
    "HUGEINT": ("-99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
    "UTINYINT": ("0", "255"),
    "USMALLINT": ("0", "65535"),
    "UINTEGER": ("0", "4294967295"),
    "UBIGINT": ("0", "18446744073709551615"),
    "UHUGEINT": ("0", "99999999999999999999999999999999999999"),
    "FLOAT": ("-0.0", "3.4028235e38", "1.17549435e-38", "1.4e-45", "0.1"),
    "DOUBLE": ("-0.0", "1.7976931348623157e308", "5e-324", "0.1", "1e22", "123456789.123456789"),
    "DECIMAL(9,2)": ("'-9999999.99'", "'0.01'"),
    "DECIMAL(38,9)": ("'12345678901234567890123456789.123456789'", "'-0.000000001'"),
    "DECIMAL(18,4)": ("'99999999999999.9999'", "'1.5000'"),
    "DECIMAL(38,38)": ("'0.99999999999999999999999999999999999999'",),
    "VARCHAR": (
        "''",
        "'a,b'",
        "'q\"q'",
        "'n\nl'",
        "'cr\r\nlf'",
        "'\\t\\N\\'",
        "'ü😀'",
        "'null'",
        "'NULL'",
        "' sp '",
        "'00123'",
        "'true'",
        "'{\"a\":1}'",
        "'\t'",
        "'#c'",
    ),
    "BLOB": ("'\\x00\\xFF'::BLOB", "''::BLOB", "'a,\"\\x0A'::BLOB"),
    "BIT": ("'0101'", "'1'"),
    "UUID": ("'eeccb8c5-9943-b2bb-bb5e-222f4e14b687'",),
    "DATE": (
        "'0001-01-01'",
        "'9999-12-31'",
        "'0044-03-15 (BC)'",
        "'infinity'",
        "'-infinity'",
        "'5881580-07-10'",
        "'5877642-06-25 (BC)'",
    ),
    "TIME": ("'00:00:00'", "'23:59:59.999999'", "'24:00:00'"),
    "TIME WITH TIME ZONE": ("'00:00:00+15:59'", "'23:59:59.999999-12:30'"),
    "TIMESTAMP": (
        "'0001-01-01 00:00:00.000001'",
        "'9999-12-31 23:59:59.999999'",
        "'infinity'",
        "'-infinity'",
        "'294247-01-10 04:00:54.775806'",
        "'290309-12-22 (BC) 00:00:00'",
    ),
    "TIMESTAMP_S": ("'2000-01-01 00:00:01'", "'infinity'"),
    "TIMESTAMP_MS": ("'2000-01-01 00:00:01.123'",),
    "TIMESTAMP_NS": ("'2000-01-01 00:00:01.123456789'", "'1677-09-22 00:00:00'"),
    "TIMESTAMP WITH TIME ZONE": (
        "'2000-01-01 00:00:01.123456+02'",
        "'0001-01-01 00:00:00+00'",
        "'9999-12-31 23:59:59.999999+00'",
        "'infinity'",
    ),
    "INTERVAL": ("'1 month 2 days 3.000004 seconds'", "'-1 year'", "'-1 month 40 days -3 hours'"),
    "ENUM('a', 'b c', '')": ("'a'", "'b c'", "''"),
    "INTEGER[]": ("[1, null, 3]", "[]"),
    "VARCHAR[]": ("['a', '', 'b,c', 'NULL', null, 'q\"', 'n\nl', '[x]']",),
    "INTEGER[2]": ("[1, 2]", "[1, null]"),
    'STRUCT(a INTEGER, "B c" VARCHAR)': ("{'a': 1, 'B c': 'x,\"}'}", "{'a': null, 'B c': ''}"),
    "MAP(VARCHAR, INTEGER)": ("map {'a': 1, 'b c': null}", "map {}", "map {'x=y,': 2}"),
    "MAP(INTEGER, VARCHAR)": ("map {1: 'a', 2: ''}",),
    "STRUCT(l DECIMAL(38,9)[], m MAP(VARCHAR, BLOB))": (
        "{'l': [12345678901234567890123456789.123456789, null], 'm': map {'k': '\\x00'::BLOB}}",
        "{'l': null, 'm': null}",
    ),
    "HUGEINT[]": ("[99999999999999999999999999999999999999, null]",),
    "JSON": ('\'{"a":[1,2.5,null],"b":"x"}\'', "'\"x\"'", "'[]'"),
    "BIGNUM": ("'12345678901234567890123456789012345678901234567890'",),
    "TIMESTAMP WITH TIME ZONE[]": ("['2000-01-01 00:00:00+00'::timestamptz]",),
}
"""Type -> literals. What single formats cannot hold stands in the tests that say so."""


def create_table(type_: str) -> str:
    """SQL that creates ``t(i INTEGER, v <type>)`` with all values of the type and a NULL."""
    values = ", ".join(f"({i}, CAST({value} AS {type_}))" for i, value in enumerate((*TYPES[type_], "NULL")))
    return f"CREATE OR REPLACE TABLE t AS SELECT i::INTEGER AS i, v::{type_} AS v FROM (VALUES {values}) AS x(i, v)"


def fingerprint(relation: str, type_: str) -> str:
    """SQL that shows each value exactly: text, bytes, sign of zero, and whether it is NULL."""
    exact = {"BLOB": "hex(v)", "FLOAT": "signbit(v)", "DOUBLE": "signbit(v)"}.get(type_, "1")
    return f"SELECT i, v IS NULL, v::VARCHAR, {exact}, typeof(v) FROM {relation} ORDER BY i"
