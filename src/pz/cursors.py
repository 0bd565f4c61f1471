"""Cursor values: six types, one canonical text each, exact order and exact arithmetic.

A stored watermark, a window's end and a pushed bound are all *canonical texts* of a `CursorType`:

    int, bigint     -12                          digits, no padding, no separators
    decimal         12.50                        digits; the scale is kept, the order ignores it
    date            2024-02-29
    timestamp       2024-02-29T12:00:00.000000   a naive moment
    timestamptz     2024-02-29T12:00:00.000000   an instant, in UTC

Six fraction digits; nine only where the source keeps nanoseconds and the last three are not all zero. Years beyond 9999
have more digits, as DuckDB prints them. Nothing here ever goes through a float, a locale or the session's time zone, and
whatever must be rounded is rounded down: a stored bound later than the row it came from would lose rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from pz.durations import parse_duration
from pz.frozen import frozen

__all__ = [
    "CursorError",
    "CursorType",
    "Length",
    "add_window",
    "canonical",
    "check_range",
    "compare",
    "highest",
    "literal",
    "lowest",
    "parse_window",
    "probe_expression",
    "subtract_window",
]


class CursorError(ValueError):
    """A text or value is no cursor value of the type asked for; the message is fit for the user."""


class CursorType(StrEnum):
    """What a cursor column may be."""

    INT = "int"
    BIGINT = "bigint"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"

    @classmethod
    def from_duckdb(cls, name: str) -> CursorType | None:
        """The cursor type of a DuckDB column type as DuckDB prints it; None for a type that cannot be a cursor."""
        base = name.strip().upper()
        return cls.DECIMAL if re.fullmatch(r"(DECIMAL|NUMERIC)(\(.*\))?", base) else _FROM_DUCKDB.get(base)

    @property
    def temporal(self) -> bool:
        """Whether windows and lookbacks are durations rather than whole numbers."""
        return self in {CursorType.DATE, CursorType.TIMESTAMP, CursorType.TIMESTAMPTZ}


_FROM_DUCKDB = {
    **dict.fromkeys(("INT", "INTEGER", "SMALLINT", "TINYINT", "UINTEGER", "USMALLINT", "UTINYINT"), CursorType.INT),
    **dict.fromkeys(("BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"), CursorType.BIGINT),
    "DATE": CursorType.DATE,
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATETIME", "TIMESTAMP WITHOUT TIME ZONE"),
        CursorType.TIMESTAMP,
    ),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"), CursorType.TIMESTAMPTZ),
}

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?")
_DATE = re.compile(r"([0-9]{4,6})-([0-9]{2})-([0-9]{2})")
_MOMENT = re.compile(r"([0-9]{4,6}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,30}))?)?")

_HUGEINT_MAX = 2**127 - 1
_RANGES = {CursorType.INT: (-(2**31), 2**32 - 1), CursorType.BIGINT: (-(2**63), 2**64 - 1)}
_DECIMAL_DIGITS = 38
_DAY = 86_400 * 10**9  # in nanoseconds, as all moments below
_MICROSECOND = 1_000
# DuckDB's own limits; a bound beyond them could not be compared with any row.
_LAST_DAY = 2_147_483_646
_LAST_MOMENT = 9_223_372_036_854_775_806 * _MICROSECOND


def canonical(value: object, type_: CursorType) -> str:
    """Return the canonical text of what a user, a state file, DuckDB or a driver gave.

    Text may be canonical, in seconds, or (timestamps) a bare date or with a trailing ``Z``; a numeric offset is refused,
    as nobody can tell which zone the column means. Aware datetimes become UTC. Raises `CursorError`.
    """
    return _spell(_read(value, type_), type_)


def check_range(value: str, type_: CursorType, beside: str | None = None) -> None:
    """Refuse a canonical whole number that no column of the type holds. Raises `CursorError`.

    ``int`` stands for all types of up to 32 bits, signed or not, ``bigint`` for all wider ones: beyond 64 bits only where a
    value ``beside`` it, that is known to come from the column, is beyond them too.
    """
    least, most = _RANGES.get(type_, (None, None))
    if least is None or most is None or least <= int(value) <= most:
        return
    if type_ is CursorType.BIGINT and beside is not None and not least <= int(beside) <= most:
        return
    raise CursorError(f"{_shown(value)} is beyond what a column of type {type_} holds")


def compare(left: str, right: str, type_: CursorType) -> int:
    """Return -1, 0 or 1 for the typed order of two values: 9 < 10, 12.5 = 12.50, nanoseconds count."""
    a, b = _order(left, type_), _order(right, type_)
    return (a > b) - (a < b)


def highest(values: Iterable[str], type_: CursorType) -> str:
    """The highest of some values (at least one)."""
    return max(values, key=lambda value: _order(value, type_))


def lowest(values: Iterable[str], type_: CursorType) -> str:
    """The lowest of some values (at least one)."""
    return min(values, key=lambda value: _order(value, type_))


@frozen
class Length:
    """A length on a cursor's axis: whole steps for numbers, days for dates, microseconds for timestamps."""

    units: int


def parse_window(text: str, type_: CursorType, *, zero: bool = False) -> Length:
    """Parse a window or lookback for a cursor: a positive whole number, or a duration (whole days for a date).

    ``zero`` also accepts nothing at all, as a lookback may. Raises `CursorError`.
    """
    length = _window_units(text, type_)
    if length == 0 and not zero:
        raise CursorError("a window must be longer than zero")
    return Length(length)


def add_window(value: str, window: Length, type_: CursorType) -> str:
    """Return ``value`` moved up by ``window``; stops at the last value that the type can hold."""
    return _moved(value, window.units, type_)


def subtract_window(value: str, window: Length, type_: CursorType) -> str:
    """Return ``value`` moved down by ``window``; stops at the first value that can be spelled."""
    return _moved(value, -window.units, type_)


def literal(value: str, type_: CursorType) -> str:
    """Return a DuckDB literal that compares exactly with a column of the type, whatever the session's settings."""
    text = canonical(value, type_)
    if not type_.temporal:
        return f"({text})" if text.startswith("-") else text
    if type_ is CursorType.DATE:
        return f"DATE '{text}'"
    if type_ is CursorType.TIMESTAMPTZ:
        return f"TIMESTAMPTZ '{text}+00:00'"
    return f"TIMESTAMP{'_NS' if _nanoseconds(text) else ''} '{text}'"


def probe_expression(sql: str, duckdb_type: str) -> str:
    """Wrap a SQL expression of a cursor's type so that its value leaves DuckDB exactly; `canonical` reads the result.

    Drivers lose nanoseconds and need the session's zone otherwise. An infinite moment becomes a value that `canonical`
    refuses, rather than NULL, which would read as "no rows".
    """
    type_ = CursorType.from_duckdb(duckdb_type)
    if type_ is CursorType.TIMESTAMPTZ:
        return f"CASE WHEN isinf({sql}) THEN 'infinity' ELSE make_timestamp(epoch_us({sql}))::VARCHAR END"
    return f"CAST({sql} AS VARCHAR)"


# The typed values behind the texts: Decimal for numbers, days or nanoseconds since 1970 for the rest.


def _read(value: object, type_: CursorType) -> int | Decimal:
    if isinstance(value, str):
        return _READERS[type_](value)
    if isinstance(value, bool):
        raise CursorError(f"a boolean is no value of a {type_} cursor")
    if type_ in {CursorType.INT, CursorType.BIGINT} and isinstance(value, int):
        return _read_integer(str(value))
    if type_ is CursorType.DECIMAL and isinstance(value, int | Decimal):
        return _read_decimal(format(value, "f"))
    if type_ in {CursorType.TIMESTAMP, CursorType.TIMESTAMPTZ} and isinstance(value, datetime):
        return _read_datetime(value, type_)
    if type_ is CursorType.DATE and isinstance(value, date) and not isinstance(value, datetime):
        return _read_date(value.isoformat())
    raise CursorError(f"a {type(value).__name__} is no value of a {type_} cursor")


def _read_integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None or len(text) > 41:
        raise CursorError(f"{_shown(text)} is not a whole number in plain digits")
    number = int(text)
    if abs(number) > _HUGEINT_MAX:
        raise CursorError("a whole number may have at most 128 bits")
    return number


def _read_decimal(text: str) -> Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise CursorError(f"{_shown(text)} is not a decimal number in plain digits")
    digits = text.lstrip("+-").replace(".", "")
    if len(digits.lstrip("0")) > _DECIMAL_DIGITS or len(text.partition(".")[2]) > _DECIMAL_DIGITS:
        raise CursorError(f"a decimal may have at most {_DECIMAL_DIGITS} digits")
    number = Decimal(text)
    return number if number else abs(number)  # no negative zero


def _read_date(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise CursorError(f"{_shown(text)} is not a date like 2024-02-29")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    days = _days_from_civil(year, month, day)
    if year < 1 or _civil_from_days(days) != (year, month, day):
        raise CursorError(f"{_shown(text)} is no day of the calendar")
    return days


def _read_moment(text: str) -> int:
    bare = text[:-1] if text.endswith("Z") and len(text) > 11 else text
    match = _MOMENT.fullmatch(bare)
    if match is None:
        raise CursorError(f"{_shown(text)} is not a moment like 2024-02-29T12:00:00 (UTC, without an offset)")
    if match[2] is None and bare != text:
        raise CursorError(f"{_shown(text)} is a bare date; leave the Z away")
    hour, minute, second = (int(match[group] or 0) for group in (2, 3, 4))
    if hour > 23 or minute > 59 or second > 59:
        raise CursorError(f"{_shown(text)} has no such time of day")
    fraction = int((match[5] or "").ljust(9, "0")[:9])  # cut, never rounded up
    moment = _read_date(match[1]) * _DAY + ((hour * 60 + minute) * 60 + second) * 10**9 + fraction
    if moment > _LAST_MOMENT:
        raise CursorError(f"{_shown(text)} is later than a timestamp can be")
    return moment


def _read_datetime(value: datetime, type_: CursorType) -> int:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    elif type_ is CursorType.TIMESTAMPTZ:
        raise CursorError("an instant needs a time zone")
    return _read_moment(value.isoformat())


_READERS: dict[CursorType, Callable[[str], int | Decimal]] = {
    CursorType.INT: _read_integer,
    CursorType.BIGINT: _read_integer,
    CursorType.DECIMAL: _read_decimal,
    CursorType.DATE: _read_date,
    CursorType.TIMESTAMP: _read_moment,
    CursorType.TIMESTAMPTZ: _read_moment,
}


def _order(text: str, type_: CursorType) -> int | Decimal:
    return _READERS[type_](text)


def _spell(value: int | Decimal, type_: CursorType) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if not type_.temporal:
        return str(value)
    if type_ is CursorType.DATE:
        return _spell_date(value)
    days, rest = divmod(value, _DAY)
    seconds, fraction = divmod(rest, 10**9)
    digits = f"{fraction:09}" if fraction % _MICROSECOND else f"{fraction // _MICROSECOND:06}"
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{_spell_date(days)}T{clock}.{digits}"


def _spell_date(days: int) -> str:
    year, month, day = _civil_from_days(days)
    return f"{year:04}-{month:02}-{day:02}"


def _nanoseconds(text: str) -> bool:
    return len(text.partition(".")[2]) > 6


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _window_units(text: str, type_: CursorType) -> int:
    if not type_.temporal:
        if re.fullmatch(r"[0-9]{1,30}", text) is None:
            raise CursorError(f"a {type_} cursor takes a whole number of steps here, not {_shown(text)}")
        return int(text)
    try:
        duration = parse_duration(text)
    except ValueError as failure:
        raise CursorError(str(failure)) from failure
    unit = timedelta(days=1) if type_ is CursorType.DATE else timedelta(microseconds=1)
    if duration % unit:
        raise CursorError(f"a date cursor takes whole days here, not {_shown(text)}")
    return duration // unit


_FIRST_DAY = -719_162  # 0001-01-01


def _moved(value: str, units: int, type_: CursorType) -> str:
    start = _order(value, type_)
    if isinstance(start, Decimal):
        return _moved_decimal(start, units)
    if type_ is CursorType.DATE:
        return _spell(max(_FIRST_DAY, min(start + units, _LAST_DAY)), type_)
    if type_.temporal:
        return _spell(max(_FIRST_DAY * _DAY, min(start + units * _MICROSECOND, _LAST_MOMENT)), type_)
    return _spell(max(-_HUGEINT_MAX, min(start + units, _HUGEINT_MAX)), type_)


def _moved_decimal(start: Decimal, units: int) -> str:
    # Integer arithmetic on the unscaled digits: the context of the decimal module would round beyond 28 of them.
    sign, digits, exponent = start.as_tuple()
    scale = -int(exponent)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1) + units * 10**scale
    most = 10**_DECIMAL_DIGITS - 1
    unscaled = max(-most, min(unscaled, most))
    return format(Decimal(f"{unscaled}E-{scale}"), "f")


# Days since 1970-01-01 in the proleptic Gregorian calendar, for years that datetime cannot hold. The year is counted from
# March, so that the leap day comes last and month lengths follow one linear formula; 400 years have 146,097 days.


def _days_from_civil(year: int, month: int, day: int) -> int:
    if not 1 <= month <= 12:
        return -(10**9)  # no such day: spells differently, so the caller's comparison refuses it
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _civil_from_days(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = (shifted_month + 2) % 12 + 1
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    return era * 400 + year_of_era + (month <= 2), month, day
