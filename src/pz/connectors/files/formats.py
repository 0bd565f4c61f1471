"""The file formats, once, as data: names, extensions, options, compressions. Shared by every connector of files.

An unknown format is PZ0361, an option that does not fit its format PZ0362.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pz.connectors.closest import closest
from pz.connectors.contract import PermanentError
from pz.errors import Code
from pz.frozen import frozen

__all__ = [
    "FORMATS",
    "Compression",
    "FileFormat",
    "Format",
    "Layout",
    "ReadOptions",
    "WriteOptions",
    "read_path",
    "read_schema",
    "write_schema",
]


class Format(StrEnum):
    """A file format."""

    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    PARQUET = "parquet"

    @property
    def delimited(self) -> bool:
        """Whether it is csv or its tab-separated sister."""
        return self in {Format.CSV, Format.TSV}


class Layout(StrEnum):
    """How a json file holds its rows: an object a line, or one array of objects."""

    NDJSON = "ndjson"
    ARRAY = "array"


class Compression(StrEnum):
    """Compression of a whole file (csv, tsv, json) or of the pages inside (parquet)."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"
    SNAPPY = "snappy"

    @property
    def suffix(self) -> str:
        """What a compressed text file's name ends with."""
        return {Compression.GZIP: ".gz", Compression.ZSTD: ".zst"}.get(self, "")

    @classmethod
    def of_name(cls, name: str) -> Compression:
        """The compression that a file's name tells, as DuckDB reads it."""
        lower = name.lower()
        if lower.endswith(".gz"):
            return cls.GZIP
        return cls.ZSTD if lower.endswith(".zst") else cls.NONE


@frozen
class FileFormat:
    """What a format offers."""

    name: Format
    read_options: frozenset[str]
    write_options: frozenset[str]
    compressions: tuple[Compression, ...]


_TEXT = (Compression.NONE, Compression.GZIP, Compression.ZSTD)
_CSV_READ = frozenset({"delimiter", "null_text", "quoted_empty", "compression"})

FORMATS: Mapping[Format, FileFormat] = {
    Format.CSV: FileFormat(Format.CSV, _CSV_READ, frozenset({"delimiter", "compression"}), _TEXT),
    Format.TSV: FileFormat(Format.TSV, _CSV_READ - {"delimiter"}, frozenset({"compression"}), _TEXT),
    Format.JSON: FileFormat(
        Format.JSON, frozenset({"layout", "compression"}), frozenset({"layout", "compression"}), _TEXT
    ),
    Format.PARQUET: FileFormat(Format.PARQUET, frozenset(), frozenset({"compression"}), (*_TEXT, Compression.SNAPPY)),
}


def read_path(entity: str, options: Mapping[str, Any], default: Format = Format.CSV) -> str:
    """The path or glob of a dataset, whether or not its options are right."""
    return str(options.get("path", f"{entity}.{options.get('format', default)}"))


def write_path(entity: str, options: Mapping[str, Any]) -> str:
    """The directory of an output, whether or not its options are right."""
    return str(options.get("path", entity))


@frozen
class ReadOptions:
    """The read options of a dataset of files, checked.

    ``compression`` is None when the file's name tells. ``null_text`` are the spellings of NULL besides the empty cell.
    ``frugal`` reads with little memory rather than fast, for files that are a part of something else.
    """

    path: str
    format: Format
    delimiter: str = ","
    layout: Layout = Layout.NDJSON
    compression: Compression | None = None
    null_text: tuple[str, ...] = ()
    quoted_empty_is_null: bool = False
    missing_is_empty: bool = False
    frugal: bool = False

    @classmethod
    def parse(cls, entity: str, options: Mapping[str, Any], default: Format = Format.CSV) -> ReadOptions:
        """Read the options. Raises PermanentError PZ0361 or PZ0362."""
        format_ = _format(options, default)
        _refuse_foreign(options, format_, FORMATS[format_].read_options, {"path", "format", "missing"})
        return cls(
            path=read_path(entity, options, default),
            format=format_,
            delimiter=_delimiter(options, format_),
            layout=Layout(_choice(options, "layout", [*Layout], Layout.NDJSON)),
            compression=_compression(options, format_),
            null_text=_texts(options, "null_text"),
            quoted_empty_is_null=_choice(options, "quoted_empty", ["text", "null"], "text") == "null",
            missing_is_empty=_choice(options, "missing", ["fail", "empty"], "fail") == "empty",
        )

    def compression_of(self, name: str) -> Compression:
        """How the file with this name is compressed."""
        return self.compression if self.compression is not None else Compression.of_name(name)


@frozen
class WriteOptions:
    """The write options of an output of files, checked. ``path`` is a directory."""

    path: str
    format: Format
    delimiter: str = ","
    layout: Layout = Layout.NDJSON
    compression: Compression = Compression.NONE

    @classmethod
    def parse(cls, entity: str, options: Mapping[str, Any], default: Format = Format.PARQUET) -> WriteOptions:
        """Read the options. Raises PermanentError PZ0361 or PZ0362."""
        format_ = _format(options, default)
        _refuse_foreign(options, format_, FORMATS[format_].write_options, {"path", "format"})
        usual = Compression.SNAPPY if format_ is Format.PARQUET else Compression.NONE
        return cls(
            path=write_path(entity, options),
            format=format_,
            delimiter=_delimiter(options, format_),
            layout=Layout(_choice(options, "layout", [*Layout], Layout.NDJSON)),
            compression=_compression(options, format_) or usual,
        )

    @property
    def extension(self) -> str:
        """The extension of the files written, e.g. ``csv.gz``."""
        return f"{self.format}{'' if self.format is Format.PARQUET else self.compression.suffix}"


def _format(options: Mapping[str, Any], default: Format) -> Format:
    given = str(options.get("format", default))
    try:
        return Format(given.lower())
    except ValueError:
        close = closest(given, Format, cutoff=0.6)
        meant = f"did you mean '{close}'? " if close else ""
        known = ", ".join(Format)
        raise PermanentError(
            "the format of the files is not supported", code=Code.PZ0361, hint=f"{meant}supported formats: {known}"
        ) from None


def _refuse_foreign(options: Mapping[str, Any], format_: Format, own: frozenset[str], common: set[str]) -> None:
    """Refuse options that exist, but not for this format; unknown ones are the schema's business."""
    known = {name for each in FORMATS.values() for name in (*each.read_options, *each.write_options)}
    foreign = sorted((set(options) & known) - own - common)
    if foreign:
        raise PermanentError(
            f"option {', '.join(repr(name) for name in foreign)} is not valid for format '{format_}'",
            code=Code.PZ0362,
            hint=f"remove it; options of {format_}: {', '.join(sorted(own)) or 'none'}",
        )


def _choice(options: Mapping[str, Any], name: str, known: list[str], default: str) -> str:
    given = options.get(name, default)
    if str(given) not in known:
        raise PermanentError(f"option '{name}' must be one of {', '.join(known)}", code=Code.PZ0362)
    return str(given)


def _compression(options: Mapping[str, Any], format_: Format) -> Compression | None:
    if options.get("compression", "auto") == "auto":
        return None
    return Compression(_choice(options, "compression", [*FORMATS[format_].compressions], Compression.NONE))


def _delimiter(options: Mapping[str, Any], format_: Format) -> str:
    if format_ is Format.TSV:
        return "\t"
    given = options.get("delimiter", ",")
    if not isinstance(given, str) or len(given) != 1 or not given.isascii() or given in '"\r\n\x00':
        raise PermanentError(
            "option 'delimiter' must be one ASCII character, not a quote or a line end",
            code=Code.PZ0362,
            hint="for tabs use format: tsv",
        )
    return given


def _texts(options: Mapping[str, Any], name: str) -> tuple[str, ...]:
    given = options.get(name, [])
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(text, str) and text for text in listed):
        raise PermanentError(f"option '{name}' must be a list of texts that are not empty", code=Code.PZ0362)
    return tuple(listed)


_FORMAT = {
    "type": "string",
    "description": f"Format of the files: {', '.join(Format)}. Case does not matter.",
    "examples": ["csv", "parquet"],
}
_DELIMITER = {
    "type": "string",
    "minLength": 1,
    "description": "Field delimiter of csv: one ASCII character, not a quote or a line end. Default `,`.",
    "examples": [";", "|"],
}
_LAYOUT = {
    "enum": [*Layout],
    "description": "Layout of json: `ndjson` (an object a line, default) or `array` (one array of objects).",
}


def read_schema(path: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the read options; the connector describes ``path``."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "path": dict(path),
            "format": {**_FORMAT, "description": f"{_FORMAT['description']} Default csv."},
            "delimiter": _DELIMITER,
            "layout": _LAYOUT,
            "compression": {
                "enum": ["auto", "none", "gzip", "zstd"],
                "description": "Compression of csv, tsv and json files. Default `auto`: by the ending `.gz` or `.zst`.",
            },
            "missing": {
                "enum": ["fail", "empty"],
                "description": "When no file matches: `fail` (default), or `empty` for no rows, which needs `columns`.",
            },
            "null_text": {
                "type": ["array", "string"],
                "items": {"type": "string", "minLength": 1},
                "description": "Unquoted cells of csv and tsv that mean NULL, besides the empty cell.",
                "examples": [["NA", "null"]],
            },
            "quoted_empty": {
                "enum": ["text", "null"],
                "description": 'What `""` in a csv or tsv cell means: `text` (default) the empty text, or `null`.',
            },
        },
    }


def write_schema(path: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the write options; the connector describes ``path``."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "path": dict(path),
            "format": {**_FORMAT, "description": f"{_FORMAT['description']} Default parquet."},
            "delimiter": _DELIMITER,
            "layout": _LAYOUT,
            "compression": {
                "enum": ["auto", *Compression],
                "description": "csv, tsv, json: `none` (default), `gzip`, `zstd`. "
                "parquet: `snappy` (default), `zstd`, `gzip`, `none`.",
            },
        },
    }
