"""Cursor values: canonical text, exact order, exact arithmetic."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pz.cursors import (
    CursorError,
    CursorType,
    Length,
    add_window,
    canonical,
    compare,
    literal,
    parse_window,
    probe_expression,
    subtract_window,
)
from pz.durations import format_duration, parse_duration

T = CursorType
VALUES: dict[CursorType, st.SearchStrategy[object]] = {
    T.INT: st.integers(-(2**31), 2**31 - 1),
    T.BIGINT: st.integers(-(2**63), 2**63 - 1),
    T.DECIMAL: st.decimals(-(10**14), 10**14, places=3),
    T.DATE: st.dates(),
    T.TIMESTAMP: st.datetimes(),
    T.TIMESTAMPTZ: st.datetimes(timezones=st.just(UTC)),
}
typed_values = st.sampled_from(list(T)).flatmap(lambda t: st.tuples(st.just(t), VALUES[t], VALUES[t]))
COLUMN = {T.INT: "INTEGER", T.BIGINT: "BIGINT", T.DECIMAL: "DECIMAL(18,3)", T.DATE: "DATE", T.TIMESTAMP: "TIMESTAMP"}


@pytest.mark.parametrize(
    ("given_text", "type_", "expected"),
    [
        ("+12.50", T.DECIMAL, "12.50"),
        ("-0.00", T.DECIMAL, "0.00"),
        ("+7", T.INT, "7"),
        ("-0", T.BIGINT, "0"),
        ("2024-02-29", T.DATE, "2024-02-29"),
        ("2024-02-29", T.TIMESTAMP, "2024-02-29T00:00:00.000000"),
        ("2024-02-29T01:02:03", T.TIMESTAMP, "2024-02-29T01:02:03.000000"),
        ("2024-02-29T01:02:03.5Z", T.TIMESTAMP, "2024-02-29T01:02:03.500000"),
        ("2024-02-29T01:02:03Z", T.TIMESTAMPTZ, "2024-02-29T01:02:03.000000"),
        ("2024-02-29 01:02:03.123456789", T.TIMESTAMP, "2024-02-29T01:02:03.123456789"),
        ("2024-02-29 01:02:03.1234569999999", T.TIMESTAMP, "2024-02-29T01:02:03.123456999"),
        ("20231-01-01", T.DATE, "20231-01-01"),
    ],
)
def test_accepted_spellings_become_the_canonical_one(given_text: str, type_: CursorType, expected: str) -> None:
    assert canonical(given_text, type_) == expected
    assert canonical(expected, type_) == expected


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("1,000", T.INT),
        (" 1", T.INT),
        ("007", T.INT),
        ("1.0", T.INT),
        ("", T.BIGINT),
        ("\u0661", T.INT),
        ("1" * 5000, T.BIGINT),
        ("1e3", T.DECIMAL),
        ("NaN", T.DECIMAL),
        (".5", T.DECIMAL),
        ("1" * 39, T.DECIMAL),
        ("2023-02-29", T.DATE),
        ("2023-13-01", T.DATE),
        ("2023-00-10", T.DATE),
        ("2023-01-00", T.DATE),
        ("0000-01-01", T.DATE),
        ("2024-02-29Z", T.DATE),
        ("2024-02-29Z", T.TIMESTAMP),
        ("2024-02-29T01:02:03+02:00", T.TIMESTAMPTZ),
        ("2024-02-29T24:00:00", T.TIMESTAMP),
        ("2024-02-29T01:02", T.TIMESTAMP),
        ("infinity", T.TIMESTAMP),
        ("999999-01-01", T.TIMESTAMP),
    ],
)
def test_everything_else_is_refused(text: str, type_: CursorType) -> None:
    with pytest.raises(CursorError):
        canonical(text, type_)


def test_values_of_another_kind_are_refused() -> None:
    for value, type_ in [
        (1.5, T.DECIMAL),
        (True, T.INT),
        (datetime(2024, 1, 1), T.DATE),
        (datetime(2024, 1, 1), T.TIMESTAMPTZ),
    ]:
        with pytest.raises(CursorError):
            canonical(value, type_)


def test_an_aware_moment_is_stored_in_utc() -> None:
    moment = datetime(2024, 7, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert canonical(moment, T.TIMESTAMPTZ) == "2024-06-30T23:30:00.000000"


def test_order_is_typed_and_exact() -> None:
    assert compare("9", "10", T.DECIMAL) == -1
    assert compare("12.5", "12.50", T.DECIMAL) == 0
    assert compare("9007199254740992", "9007199254740993", T.BIGINT) == -1
    assert compare("2024-01-01T00:00:00.000001", "2024-01-01T00:00:00", T.TIMESTAMP) == 1
    assert compare("20231-01-01", "2024-01-01", T.DATE) == 1


@given(typed_values)
def test_canonical_text_orders_as_the_values_do(case: tuple[CursorType, object, object]) -> None:
    type_, left, right = case
    expected = (left > right) - (left < right)  # type: ignore[operator]
    assert compare(canonical(left, type_), canonical(right, type_), type_) == expected


@given(typed_values)
def test_a_literal_equals_exactly_the_value_it_stands_for(case: tuple[CursorType, object, object]) -> None:
    type_, left, right = case
    column = COLUMN.get(type_)
    if column is None:
        return
    row = duckdb.execute(
        f"SELECT v = {literal(canonical(left, type_), type_)}, v > {literal(canonical(right, type_), type_)} "
        f"FROM (SELECT CAST($1 AS {column}) AS v)",
        [left],
    ).fetchone()
    assert row == (True, left > right)  # type: ignore[operator]


@given(st.dates())
def test_the_calendar_is_that_of_datetime(day: date) -> None:
    assert canonical(day.isoformat(), T.DATE) == day.isoformat()
    later = add_window(day.isoformat(), Length(1), T.DATE)
    expected = "10000-01-01" if day == date.max else (day + timedelta(days=1)).isoformat()
    assert later == expected


@given(st.integers(0, 2_000_000))
def test_a_probed_nanosecond_value_is_never_later_than_the_row(nanoseconds: int) -> None:
    for base in ("1969-12-31 23:59:59", "2024-01-01 00:00:00"):
        stamp = f"TIMESTAMP_NS '{base}.{nanoseconds:09}'"
        row = duckdb.execute(f"SELECT {probe_expression(stamp, 'TIMESTAMP_NS')}").fetchone()
        assert row is not None
        bound = literal(canonical(row[0], T.TIMESTAMP), T.TIMESTAMP)
        assert duckdb.execute(f"SELECT {bound} = {stamp}").fetchone() == (True,)


def test_a_probed_instant_ignores_the_zone_of_the_session() -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        sql = probe_expression("TIMESTAMPTZ '2024-11-03 01:30:00-05:00'", "TIMESTAMP WITH TIME ZONE")
        row = connection.execute(f"SELECT {sql}").fetchone()
        assert row is not None
        text = canonical(row[0], T.TIMESTAMPTZ)
        assert text == "2024-11-03T06:30:00.000000"
        same = f"SELECT {literal(text, T.TIMESTAMPTZ)} = TIMESTAMPTZ '2024-11-03 01:30:00-05:00'"
        assert connection.execute(same).fetchone() == (True,)


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMPTZ", "DATE"])
def test_an_infinite_maximum_is_refused_and_not_taken_for_no_rows(type_: str) -> None:
    row = duckdb.execute(f"SELECT {probe_expression(f'''CAST('infinity' AS {type_})''', type_)}").fetchone()
    cursor = CursorType.from_duckdb(type_ if type_ != "TIMESTAMPTZ" else "TIMESTAMP WITH TIME ZONE")
    assert row is not None
    assert cursor is not None
    with pytest.raises(CursorError):
        canonical(row[0], cursor)


@given(typed_values, st.integers(1, 10**6))
def test_windows_move_up_and_come_back(case: tuple[CursorType, object, object], units: int) -> None:
    type_, value, _ = case
    text = canonical(value, type_)
    moved = add_window(text, Length(units), type_)
    assert compare(moved, text, type_) == 1
    assert compare(subtract_window(moved, Length(units), type_), text, type_) == 0


def test_windows_stop_at_the_end_of_the_type() -> None:
    last = add_window("9999-12-31T00:00:00", Length(10**30), T.TIMESTAMP)
    assert add_window(last, Length(1), T.TIMESTAMP) == last
    assert add_window("9" * 38, Length(1), T.DECIMAL) == "9" * 38
    assert subtract_window("0001-01-02", Length(9), T.DATE) == "0001-01-01"


def test_window_sizes_follow_the_cursor() -> None:
    assert parse_window("500", T.DECIMAL) == Length(500)
    assert parse_window("2d", T.DATE) == Length(2)
    assert parse_window("48h", T.DATE) == Length(2)
    assert parse_window("250ms", T.TIMESTAMP) == Length(250_000)
    assert parse_window("0s", T.TIMESTAMP, zero=True) == Length(0)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("0", T.INT),
        ("-1", T.INT),
        ("1.5", T.DECIMAL),
        ("1d", T.INT),
        ("12h", T.DATE),
        ("7", T.DATE),
        ("0d", T.DATE),
        ("1w", T.TIMESTAMP),
    ],
)
def test_other_window_sizes_are_refused(text: str, type_: CursorType) -> None:
    with pytest.raises(CursorError):
        parse_window(text, type_)


def test_duckdb_types_map_to_cursor_types_or_to_none() -> None:
    expected = {
        "INTEGER": T.INT,
        "UTINYINT": T.INT,
        "HUGEINT": T.BIGINT,
        "UBIGINT": T.BIGINT,
        "DECIMAL(18,3)": T.DECIMAL,
        "DATE": T.DATE,
        "TIMESTAMP_NS": T.TIMESTAMP,
        "TIMESTAMP_S": T.TIMESTAMP,
        "TIMESTAMP WITH TIME ZONE": T.TIMESTAMPTZ,
        "VARCHAR": None,
        "DOUBLE": None,
        "DECIMAL(4,2)[]": None,
    }
    assert {name: CursorType.from_duckdb(name) for name in expected} == expected


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0), ("250ms", 0.25), ("7d", 604800), ("90m", 5400)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert parse_duration(format_duration(parse_duration(text))) == parse_duration(text)


@pytest.mark.parametrize(
    "text", ["", "5", "1.5s", "-1s", "1 s", "1w", "1S", "\u0661s", "9" * 5000 + "d", "9" * 30 + "d"]
)
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
