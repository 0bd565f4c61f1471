"""Text that goes into SQL: identifiers and literals, quoted in one place.

Values travel as bound parameters wherever the statement allows them; these helpers are for the
places that do not (DDL, identifiers, ATTACH, the text of a compiled pipeline).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal


def quote(name: str) -> str:
    """Return `name` as a quoted SQL identifier, whatever characters it holds."""
    if "\x00" in name:
        raise ValueError("an SQL identifier cannot hold a NUL character")
    return '"' + name.replace('"', '""') + '"'


def qualified(*parts: str) -> str:
    """Return the quoted parts joined by dots: `qualified("staging", "orders")`."""
    return ".".join(quote(part) for part in parts)


def literal(value: object) -> str:
    """Return `value` as an SQL literal with an explicit type where text alone would lose it.

    Accepts None, bool, int, float, Decimal, str, bytes, date, time and datetime; an aware datetime
    becomes a TIMESTAMPTZ. Anything else is a TypeError: guessing here would change data.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}::DOUBLE" if math.isfinite(value) else f"'{value}'::DOUBLE"
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, datetime):
        kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
        return f"'{value.isoformat(sep=' ')}'::{kind}"
    if isinstance(value, date):
        return f"'{value.isoformat()}'::DATE"
    if isinstance(value, time):
        return f"'{value.isoformat()}'::{'TIME' if value.tzinfo is None else 'TIMETZ'}"
    raise TypeError(f"no SQL literal for {type(value).__name__}")


def filled(sql: str, values: Sequence[object]) -> str:
    """Return `sql` with each `?` replaced by the literal of its value; lists and mappings of literals too.

    For statements of our own that hold no `?` in quotes. DuckDB's Python client imports pandas, where it is installed, as
    soon as a parameter is bound, which takes longer than most of our runs.
    """
    parts = sql.split("?")
    if len(parts) != len(values) + 1:
        raise ValueError("as many values as question marks are needed")
    spelled = [_nested(value) for value in values]
    return "".join(part + value for part, value in zip(parts, [*spelled, ""], strict=True))


def _nested(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_nested(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(str(key))}: {_nested(item)}" for key, item in value.items()) + "}"
    return literal(value)


def _text(value: str) -> str:
    """Quote text; a NUL, which DuckDB's parser would stop at, is concatenated as `chr(0)`."""
    pieces = ["'" + piece.replace("'", "''") + "'" for piece in value.split("\x00")]
    return pieces[0] if len(pieces) == 1 else "(" + " || chr(0) || ".join(pieces) + ")"


def _decimal(value: Decimal) -> str:
    """Spell a decimal with its exact width and scale, so that it never becomes a float."""
    if not value.is_finite():
        raise TypeError("a decimal literal must be finite")
    text = format(value, "f")
    digits = text.lstrip("-").replace(".", "").lstrip("0")
    scale = len(text.partition(".")[2])
    width = max(len(digits), scale, 1)
    if width > 38:
        raise TypeError("a decimal literal holds at most 38 digits")
    return f"'{text}'::DECIMAL({width},{scale})"


def unfit(value: object) -> str | None:
    """What keeps a text, or one at any depth of a list or mapping, out of SQL: words to say behind its name, or None.

    Files of a project are UTF-8 without NULs, but variables, escapes in templates and names of files bring text of their
    own. Bytes of a name or of the environment that are no UTF-8 reach Python as lone surrogates.
    """
    if isinstance(value, Mapping):
        return next((fault for pair in value.items() for part in pair if (fault := unfit(part))), None)
    if isinstance(value, list | tuple):
        return next((fault for part in value if (fault := unfit(part))), None)
    if not isinstance(value, str):
        return None
    if "\x00" in value:
        return "holds a NUL character"
    return "is not UTF-8 text" if any("\ud800" <= character <= "\udfff" for character in value) else None


def printable(text: str) -> str:
    """The text with its lone surrogates spelled as escapes, so that a message can name it."""
    return text.encode("utf-8", "backslashreplace").decode()
