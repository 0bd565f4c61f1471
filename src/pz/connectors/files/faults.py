"""DuckDB's errors about files, told again: which file, which line, which column; never the row itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pz.connectors.contract import ConnectorError, PermanentError
from pz.errors import Code
from pz.sqltext import quote

__all__ = ["explain", "explain_or_none", "own_fault"]

_OURS = re.compile(r"(?:^|\nError: )Invalid Input Error: \[pz (PZ\d{4})\] (.*)")
_CSV_LINE = re.compile(r"CSV Error on Line: (\d+)")
_CSV_COLUMN = re.compile(r'\nError when converting column "(.*?)"\. Could not convert')
_CSV_TYPE = re.compile(r" to '([^'\n]*)'\n")
_MISFIT = re.compile(r"column '(.*)': a value does not fit the type (.*)")
_CSV_WIDTH = re.compile(r"\nExpected Number of Columns: (\d+) Found: (\d+)")
_CSV_FILE = re.compile(r"\n {2}file = (.*)")
_JSON_VALUE = re.compile(r'JSON transform error in file "(.*?)", in (?:line|record/value) (\d+)')
_JSON_SYNTAX = re.compile(r'Malformed JSON in file "(.*?)", at byte \d+ in (?:line|record/value) (\d+)')
_NO_FILE = re.compile(r"No files found that match the pattern")
_QUOTED_PATH = re.compile(r"""["']([^"']*)["']""")
_DECLARE = "give the column a type in `columns` that fits every row (varchar fits any), or correct the file"

# What DuckDB says, what we say about the file, and the hint. The first that is found wins.
_PLAIN = (
    ("terminated quote", "has a quoted value that never closes, or text behind a closing quote", None),
    ("not utf-8 encoded", "is not UTF-8 text", "save it as UTF-8"),
    ("Maximum line size", "has a line that is too long", None),
    ("invalid state", "mixes line ends, or has quotes that do not follow RFC 4180", "use one kind of line end"),
    ("Unexpected end of GZIP", "is not a complete gzip file", "the file may be truncated; deliver it again"),
    ("GZIP", "is not a gzip file", None),
    ("ZSTD", "is not a zstd file", None),
    ("top-level JSON array", "is not one json array of objects", "use `layout: ndjson` for an object a line"),
    (
        "Duplicate name",
        "has keys that differ from others in case alone",
        "rename them at the source: SQL does not tell them apart",
    ),
    ("expected records", "does not hold json objects", None),
    ("byte order mark", "starts with a byte order mark", "save it as UTF-8 without one"),
    ("No magic bytes", "is not a parquet file", None),
    ("too small to be a Parquet file", "is not a parquet file", None),
    ("schema mismatch", "lacks a column that other files have", "declare `columns` with those that all files have"),
    ("Parquet", "cannot be read as parquet", None),
)


def explain(error: Exception, names: Mapping[str, str], *, inferring: bool = False) -> ConnectorError:
    """Say what DuckDB's error means for the files; ``names`` maps their paths to the names that messages show."""
    found = explain_or_none(error, names)
    if found is not None:
        return found
    doing = "inferring its columns" if inferring else "reading it"
    return PermanentError(f"{_file(str(error), names)} failed while {doing} ({type(error).__name__})", code=Code.PZ0722)


def explain_or_none(error: Exception, names: Mapping[str, str]) -> ConnectorError | None:
    """As `explain`; None for an error that is not about files."""
    text = str(error)
    if ours := own_fault(error):
        return ours
    if _NO_FILE.search(text):
        return PermanentError("no file matches the path of the dataset", code=Code.PZ0720)
    if line := _CSV_LINE.search(text):
        return _csv_fault(text, int(line[1]), names)
    if value := _JSON_VALUE.search(text):
        what = (
            f"file '{_name(value[1], names)}', line {value[2]}: a value does not fit its column, or a row is no object"
        )
        return PermanentError(what, code=Code.PZ0722, hint=_DECLARE)
    if syntax := _JSON_SYNTAX.search(text):
        for_bom = "byte order mark" in text
        what = "starts with a byte order mark" if for_bom else f"is not valid json at line {syntax[2]}"
        return PermanentError(f"file '{_name(syntax[1], names)}' {what}", code=Code.PZ0722)
    for words, what, hint in _PLAIN:
        if words in text:
            return PermanentError(f"{_file(text, names)} {what}", code=Code.PZ0722, hint=hint)
    return None


def own_fault(error: Exception) -> ConnectorError | None:
    """What a statement of this package raised by itself; None for an error of DuckDB's own."""
    found = _OURS.search(str(error))
    return None if found is None else PermanentError(found[2].strip(), code=Code(found[1]), hint=_hint_of(found[2]))


def _hint_of(message: str) -> str | None:
    if "NUL character" in message:
        return "take it out in the pipeline: replace(column, chr(0), '')"
    if misfit := _MISFIT.search(message):
        return _convert(misfit[1], misfit[2])
    return _DECLARE if "does not fit" in message or "would lose" in message else None


def _convert(column: str, wanted: str) -> str:
    """How to read what is not spelled as its type: as text, which the pipeline's SQL converts."""
    wanted = "DECIMAL(18,2)" if wanted == "DECIMAL" else wanted  # DuckDB does not tell the declared digits
    name = column if column.isidentifier() else quote(column)
    if wanted.startswith(("DATE", "TIME")):
        sql = f"strptime({name}, '%d.%m.%Y')::{wanted}"
    elif wanted.startswith(("DECIMAL", "DOUBLE", "FLOAT")):
        sql = f"CAST(replace({name}, ',', '.') AS {wanted})"
    else:
        sql = f"CAST(trim({name}) AS {wanted})"
    return f"declare it as varchar in `columns` and convert it in the SQL, such as {sql}; or correct the file"


def _csv_fault(text: str, line: int, names: Mapping[str, str]) -> ConnectorError:
    place = f"{_file(text, names)}, line {line}"
    if width := _CSV_WIDTH.search(text):
        return PermanentError(f"{place}: {width[2]} values where the header has {width[1]}", code=Code.PZ0722)
    if column := _CSV_COLUMN.search(text):
        wanted = _CSV_TYPE.search(text, column.end())
        type_ = wanted[1] if wanted else ""
        message = f"{place}, column '{column[1]}': a value does not fit {f'the type {type_}' if type_ else 'its type'}"
        return PermanentError(message, code=Code.PZ0722, hint=_convert(column[1], type_) if type_ else _DECLARE)
    for words, what, hint in _PLAIN:
        if words in text:
            return PermanentError(f"{place}: {what}", code=Code.PZ0722, hint=hint)
    return PermanentError(f"{place}: the row does not fit the format", code=Code.PZ0722)


def _file(text: str, names: Mapping[str, str]) -> str:
    """``file 'x'`` where the error names one of the files, or where there is only one."""
    hit = _CSV_FILE.search(text)
    candidates = [hit[1].strip()] if hit else []
    candidates += [quoted for quoted in _QUOTED_PATH.findall(text) if quoted in names]
    for path in candidates:
        if path in names:
            return f"file '{names[path]}'"
    return f"file '{next(iter(names.values()))}'" if len(names) == 1 else "one of the files"


def _name(path: str, names: Mapping[str, str]) -> str:
    return names.get(path, path.rsplit("/", 1)[-1])
