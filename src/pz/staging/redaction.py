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

# DuckDB quotes row values as they are: one with a quote or a line break in it ends neither at that quote nor at that line.
_OF_ROWS = re.compile(r"(Conversion|Out of Range|Invalid Input) Error:")
_CAST_ECHO = re.compile(r"\n\nLINE \d+: [^\n]*\n *\^\Z")
_UNPARSED = re.compile(r"(Could not parse string ).*\nError: ", re.DOTALL)
_QUOTED = re.compile(r"""['"].*['"]""", re.DOTALL)
_UNQUOTED = re.compile(
    r"(missing [\])]|unexpected \)|invalid [a-z -]+|(?:no argument for|bad) repetition operator|trailing \\|codepoint)"
    r"(?::|(?= \d)).*",
    re.IGNORECASE | re.DOTALL,
)
_FORMAT = re.compile(r"(format specifier) .*", re.DOTALL)
_ESCAPE = re.compile(rf"(conversion of string '{re.escape(MASK)}'):.*", re.DOTALL)
_TYPE_WORD_OR_NUMBER = re.compile(r"[A-Z]+\(\d+(?:, ?\d+)?\)|[^\W\d]\w*|[-+]?\d[\w.:+-]*")


def redact(message: object) -> str:
    """A message without the statement's echo and without quoted literals, URLs and ``key=value`` credentials.

    Names in double quotes stay where DuckDB speaks of names. Malformed input is masked rather than refused.
    """
    try:
        text = str(message)[:_LIMIT]
    except Exception:  # noqa: BLE001 - a hostile __str__ must not replace the error that is being reported
        return MASK
    if _OF_ROWS.match(text):
        text = _without_row_values(text)
    text = _ORIGINAL_LINE.sub("", _ECHO.sub("", text))
    return _mask(text, keep_names=_ABOUT_NAMES.search(text) is not None).strip()


def _without_row_values(text: str) -> str:
    """What DuckDB says of a row on which a cast or a function failed, without what the row holds."""
    text = _UNPARSED.sub(rf"\1'{MASK}': ", _CAST_ECHO.sub("", text))
    text = _QUOTED.sub(f"'{MASK}'", text.replace("can't", "cannot").replace("doesn't", "does not"))
    if text.startswith("Invalid Input"):  # numbers in it are limits, or belong to what the user has error() say
        kind, said = text.split(":", 1)
        return f"{kind}:" + _FORMAT.sub(r"\1", _UNQUOTED.sub(r"\1", said))
    text = _ESCAPE.sub(r"\1", text)
    return _TYPE_WORD_OR_NUMBER.sub(lambda found: found[0] if found[0][0].isalpha() else MASK, text)


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
