"""Identifiers and literals keep their meaning whatever characters they hold."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal

import duckdb
import pytest

from pz.sqltext import filled, literal, qualified, quote

NAMES = ["plain", "with space", 'quo"te', "sémi;colon", "select", "--x", "a.b", "%"]
VALUES = [
    None, True, False, 0, -5, 2**62, 0.1, -2.5e300, Decimal("12.340"), Decimal("-0.001"),
    Decimal(0), "", "it's", 'a "b"', "nul\x00inside", "\x00", "x'; DROP TABLE t; --", "line\nbreak\\",
    b"", b"\x00'\xff\\", date(2024, 2, 29), time(1, 2, 3, 4), datetime(2024, 1, 1, 1, 2, 3, 456789),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_reads_back_as_itself(name: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE SCHEMA {quote(name)}")
        connection.execute(f"CREATE TABLE {qualified(name, name)} AS SELECT 1 AS {quote(name)}")
        description = connection.execute(f"SELECT * FROM {qualified(name, name)}").description
    assert [column[0] for column in description] == [name]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_literal_reads_back_as_its_value_and_type(value: object) -> None:
    with duckdb.connect() as connection:
        (found,) = connection.execute(f"SELECT {literal(value)}").fetchone() or ()
    assert found == value
    assert type(found) is type(value)


def test_an_aware_datetime_is_the_same_instant() -> None:
    moment = datetime(2024, 6, 1, 12, 30, 0, 5, tzinfo=UTC)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        (same,) = connection.execute(f"SELECT {literal(moment)} = $1", [moment]).fetchone() or ()
    assert same is True


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_float_beyond_the_finite_is_still_a_float(value: float) -> None:
    with duckdb.connect() as connection:
        (found,) = connection.execute(f"SELECT {literal(value)}").fetchone() or ()
    assert repr(found) == repr(value)


def test_what_has_no_exact_literal_is_refused() -> None:
    with pytest.raises(TypeError):
        literal([1])
    with pytest.raises(TypeError):
        literal(Decimal("NaN"))
    with pytest.raises(ValueError, match="NUL"):
        quote("a\x00b")


def test_question_marks_are_replaced_by_literals_lists_and_mappings_included() -> None:
    with duckdb.connect() as connection:
        sql = filled("SELECT ?, ?, unnest(?::VARCHAR[]), ?", ["it's", 3, ["a"], {"k": None}])
        assert connection.execute(sql).fetchall() == [("it's", 3, "a", {"k": None})]
    with pytest.raises(ValueError, match="as many values"):
        filled("SELECT ?", [])
