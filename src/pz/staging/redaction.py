"""Take the values out of an engine's message before it is published.

DuckDB echoes the offending statement and quotes row values, paths and connection strings in its errors. `redact` keeps
the words that help (the kind of error, the names of columns and tables) and masks the rest. It never raises.
"""

from __future__ import annotations

import re

__all__ = ["redact", "redact_statement"]

MASK = "***"
_LIMIT = 20_000

_ECHO = re.compile(r"\s*\bLINE \d+:.*?(?:\n[ \t]*\^[^\n]*|\Z)", re.DOTALL)
_ORIGINAL_LINE = re.compile(r"^\s*Original Line:.*$", re.MULTILINE)
_SINGLE_QUOTED = re.compile(r"'(?:[^']|'')*(?:'|\Z)")
_DOLLAR_QUOTED = re.compile(r"\$(\w*)\$.*?(?:\$\1\$|\Z)", re.DOTALL)
_DOUBLE_QUOTED = re.compile(r'"((?:[^"]|"")*)(?:"|\Z)')
_IDENTIFIER = re.compile(r"[\w. ]{1,128}\Z")
_ABOUT_NAMES = re.compile(r"\b(?:Binder|Catalog|Parser) Error\b")  # elsewhere double quotes hold row values
_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s'\",;)]*")
_PAIR = re.compile(
    r"\b(password|passwd|pwd|secret|token|key_id|session_token|api_key|access_key|account_key|sig|user|host|hostaddr"
    r"|server|dbname|database)\s*=\s*[^\s,;)]+",
    re.IGNORECASE,
)


def redact(message: object) -> str:
    """A message without the statement's echo and without quoted literals, URLs and ``key=value`` credentials.

    Names in double quotes stay where DuckDB speaks of names. Malformed input is masked rather than refused.
    """
    try:
        text = str(message)[:_LIMIT]
    except Exception:  # noqa: BLE001 - a hostile __str__ must not replace the error that is being reported
        return MASK
    text = _ORIGINAL_LINE.sub("", _ECHO.sub("", text))
    return _mask(text, keep_names=_ABOUT_NAMES.search(text) is not None).strip()


def redact_statement(statement: str) -> str:
    """A SQL statement, short enough for one line, with every literal masked."""
    return " ".join(_mask(statement[:_LIMIT], keep_names=True).split())[:300]


def _mask(text: str, *, keep_names: bool) -> str:
    text = _DOLLAR_QUOTED.sub(f"'{MASK}'", text)
    text = _SINGLE_QUOTED.sub(f"'{MASK}'", text)
    text = _DOUBLE_QUOTED.sub(_name_or_mask if keep_names else f'"{MASK}"', text)
    return _PAIR.sub(rf"\1={MASK}", _URL.sub(MASK, text))


def _name_or_mask(quoted: re.Match[str]) -> str:
    return quoted[0] if _IDENTIFIER.match(quoted[1]) else f'"{MASK}"'
