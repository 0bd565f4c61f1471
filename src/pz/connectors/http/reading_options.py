"""What a dataset's options say, and every way in which they cannot work together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from pz.connectors.contract import DatasetSpec
from pz.connectors.http.bindings import binding_faults, format_faults
from pz.connectors.http.headers import header_faults, spelled
from pz.connectors.http.pagination import PAGINATION_SCHEMA, Paging, paging_faults
from pz.connectors.http.paths import path_faults
from pz.connectors.http.selection import Selector, selector_faults
from pz.cursors import CursorType
from pz.errors import Code, PermanentError
from pz.frozen import frozen

__all__ = ["DATASET_SCHEMA", "BodyFormat", "ReadOptions", "dataset_faults"]

RAW_COLUMNS = ("payload", "pz_page", "pz_fetched_at")
_POINTER = "JSON pointer (RFC 6901)"

DATASET_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {
            "type": "string",
            "pattern": "^/",
            "description": "Path below the base URL; may hold bindings.",
            "examples": ["/issues", "/archive/{{ watermark }}"],
        },
        "method": {"enum": ["GET", "POST"], "description": "Default GET. A POST that reads is repeated like a GET."},
        "query": {
            "type": "object",
            "description": "Query parameters. {{ watermark }} and {{ window_upper }} are the bounds; without a value the "
            "parameter is left out.",
            "examples": [{"state": "all", "since": "{{ watermark }}"}],
        },
        "headers": {
            "type": "object",
            "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
            "description": "Sent with the requests of this dataset.",
        },
        "body": {
            "type": ["object", "array"],
            "description": "Body of a POST; bindings as in query.",
            "examples": [{"filter": {"since": "{{ watermark }}"}}],
        },
        "body_format": {"enum": ["json", "form"], "description": "How the body is sent (default json)."},
        "pagination": PAGINATION_SCHEMA,
        "format": {"enum": ["json", "ndjson", "csv"], "description": "What a response holds (default json)."},
        "compression": {
            "enum": ["none", "gzip"],
            "description": "gzip: the response is a gzip file, beside any Content-Encoding.",
        },
        "delimiter": {"type": "string", "minLength": 1, "maxLength": 1, "description": "csv: the delimiter."},
        "items": {
            "type": "string",
            "pattern": "^([/$]|$)",
            "description": f"Where the records are: a {_POINTER} (default: the whole body) or a JSONPath that begins with $.",
            "examples": ["/data/items", "$.orders[*].lines[*]"],
        },
        "items_missing": {
            "enum": ["fail", "empty"],
            "description": "What it means when nothing is found there (default fail).",
        },
        "parents": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "With a JSONPath: columns copied into each record from the object around it (/id), or from one "
            "further out by a relative pointer (4/id goes up four levels).",
            "examples": [{"order_id": "/id", "shop": "4/name"}],
        },
        "cursor": {"type": "string", "minLength": 1, "description": "Raw landing: the column that holds the cursor."},
        "cursor_type": {
            "enum": [str(kind) for kind in CursorType],
            "description": "Raw landing: the cursor's type.",
        },
        "cursor_pointer": {
            "type": "string",
            "description": f"Raw landing: where the cursor is in a record, a {_POINTER} (default /<cursor>).",
        },
        "cursor_order": {"enum": ["asc", "desc"], "description": "The order in which the API gives the records."},
        "cursor_format": {
            "type": "string",
            "minLength": 1,
            "description": "How bounds are spelled: iso (default), iso_ms, iso_us, date, epoch, epoch_ms, or a strftime "
            "pattern.",
        },
        "cursor_zone": {
            "type": "string",
            "description": "The zone in which the API reads such a spelling (default UTC).",
        },
        "bounds": {
            "enum": ["inclusive", "exclusive"],
            "description": "Whether the API's own filter includes its bounds (default inclusive). exclusive widens them by "
            "one unit; what is read too much is cut away.",
        },
        "delta_pointer": {
            "type": "string",
            "description": f"Where the token of a feed is, a {_POINTER}: an absolute URL that the next run asks first.",
            "examples": ["/@odata.deltaLink"],
        },
        "delta_param": {
            "type": "string",
            "minLength": 1,
            "description": "The token of a feed is no URL: the next run sends it in this query parameter.",
            "examples": ["syncToken"],
        },
        "max_pages": {"type": "integer", "minimum": 1, "description": "Stop after this many pages."},
        "allow_close_delimited": {
            "type": "boolean",
            "description": "Accept csv and ndjson whose end is marked only by the closing of the connection, where a cut "
            "cannot be seen (default false).",
        },
        "check_content_type": {
            "type": "boolean",
            "description": "Refuse a response whose Content-Type is of another kind, such as a login page (default true).",
        },
        "unique": {
            "type": "string",
            "pattern": "^/",
            "description": f"What identifies a record, a {_POINTER}: one that comes a second time is an error, because records "
            "that move between pages also hide others. Keeps 8 bytes and more per record in memory.",
            "examples": ["/id"],
        },
        "allow_repeated_pages": {
            "type": "boolean",
            "description": "Accept a page whose records are those of an earlier one (default false: it would mean that the "
            "pagination does not advance).",
        },
    },
}


class BodyFormat(StrEnum):
    """What a response holds."""

    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


@frozen(slots=False)
class ReadOptions:
    """A dataset's options without faults."""

    path: str
    method: str = "GET"
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    form: bool = False
    paging: Paging = field(default_factory=Paging)
    format: BodyFormat = BodyFormat.JSON
    layers: int = 0
    delimiter: str = ","
    selector: Selector = field(default_factory=Selector)
    cursor: str | None = None
    cursor_type: str | None = None
    cursor_pointer: str = ""
    descending: bool = False
    delta_pointer: str | None = None
    delta_param: str | None = None
    max_pages: int | None = None
    whole: bool = True
    checks_type: bool = True
    may_repeat: bool = False
    unique: str | None = None

    @classmethod
    def of(cls, dataset: DatasetSpec) -> ReadOptions:
        """Raises PermanentError PZ0760 with every fault."""
        faults = list(dataset_faults(dataset))
        if faults:
            raise PermanentError(f"dataset '{dataset.entity}': {'; '.join(faults)}", code=Code.PZ0760)
        options = dataset.options
        shape = BodyFormat(options.get("format", "json"))
        return cls(
            path=str(options["path"]),
            method=str(options.get("method", "GET")),
            query=options.get("query", {}),
            headers={str(name): spelled(value) for name, value in options.get("headers", {}).items()},
            body=options.get("body"),
            form=options.get("body_format") == "form",
            paging=Paging.of(options),
            format=shape,
            layers=int(options.get("compression") == "gzip"),
            delimiter=str(options.get("delimiter", ",")),
            selector=Selector.of(options),
            cursor=options.get("cursor"),
            cursor_type=options.get("cursor_type"),
            cursor_pointer=str(options.get("cursor_pointer", f"/{options.get('cursor', '')}")),
            descending=options.get("cursor_order") == "desc",
            delta_pointer=options.get("delta_pointer"),
            delta_param=options.get("delta_param"),
            max_pages=options.get("max_pages"),
            whole=shape is BodyFormat.JSON or bool(options.get("allow_close_delimited", False)),
            checks_type=bool(options.get("check_content_type", True)),
            may_repeat=bool(options.get("allow_repeated_pages", False)),
            unique=options.get("unique"),
        )


def dataset_faults(dataset: DatasetSpec) -> Iterator[str]:
    """Everything that a schema does not see; offline."""
    options = dataset.options
    yield from path_faults("path", str(options.get("path", "")))
    yield from header_faults(options.get("headers"))
    yield from _request_faults(options)
    yield from paging_faults(options)
    yield from selector_faults(options)
    yield from _format_faults(options, dataset)
    yield from _cursor_faults(options, dataset)
    yield from format_faults(options)
    if "delta_param" in options and "delta_pointer" not in options:
        yield "delta_param goes with delta_pointer"
    if "delta_pointer" in options and dataset.cursor is not None:
        yield "delta_pointer makes a feed; it has no cursor"


def _request_faults(options: Mapping[str, Any]) -> Iterator[str]:
    if "body" in options and options.get("method", "GET") != "POST":
        yield "body goes with method: POST"
    if "body_format" in options and "body" not in options:
        yield "body_format goes with body"
    if options.get("body_format") == "form" and not isinstance(options.get("body"), Mapping):
        yield "body_format: form takes a mapping as body"
    for name in ("path", "query", "body"):
        yield from binding_faults(options.get(name), name)
    for name, value in options.get("query", {}).items():
        if isinstance(value, Mapping) or (
            isinstance(value, list) and any(isinstance(v, list | Mapping) for v in value)
        ):
            yield f"query.{name} is a text, a number, true, false or a list of such"


def _format_faults(options: Mapping[str, Any], dataset: DatasetSpec) -> Iterator[str]:
    shape = options.get("format", "json")
    if "delimiter" in options and shape != "csv":
        yield "delimiter goes with format: csv"
    if shape == "csv" and not dataset.columns:
        yield "format: csv needs columns"
    if shape != "json":
        for name in ("items", "items_missing", "parents", "delta_pointer", "unique"):
            if name in options:
                yield f"{name} goes with format: json"
    if shape == "json" and "allow_close_delimited" in options:
        yield "allow_close_delimited goes with csv and ndjson; json tells its own end"
    if "delta_pointer" in options and not str(options["delta_pointer"]).startswith("/"):
        yield "delta_pointer begins with /"


def _cursor_faults(options: Mapping[str, Any], dataset: DatasetSpec) -> Iterator[str]:
    cursor, named = options.get("cursor"), dataset.cursor
    if dataset.columns:
        for name in ("cursor", "cursor_type", "cursor_pointer"):
            if name in options:
                yield f"{name} goes with raw landing; with columns, sync.cursor names one of them"
        if named is not None and named not in dataset.columns:
            yield f"cursor '{named}' is not in columns"
    else:
        if ("cursor" in options) != ("cursor_type" in options):
            yield "cursor and cursor_type go together"
        if "cursor_pointer" in options and cursor is None:
            yield "cursor_pointer goes with cursor"
        if cursor is not None and (cursor in RAW_COLUMNS or str(cursor).startswith("pz_")):
            yield f"cursor cannot be called '{cursor}': raw landing has such a column"
        if named is not None and cursor is None:
            yield "an incremental read needs columns, or cursor and cursor_type"
        if named is not None and cursor is not None and named != cursor:
            yield f"cursor is '{cursor}', sync.cursor '{named}'; they must be the same"
    if "cursor_order" in options and cursor is None and not dataset.columns:
        yield "cursor_order goes with cursor or columns"
