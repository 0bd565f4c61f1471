"""What an output's options say, and every way in which they cannot work together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from pz.connectors.contract import OnDelete, OutputSpec, WriteStrategy
from pz.connectors.http.headers import header_faults, name_fault, spelled
from pz.connectors.http.paths import path_faults
from pz.errors import Code, PermanentError
from pz.frozen import frozen

__all__ = ["KEY", "OUTPUT_SCHEMA", "PartialSuccess", "WriteOptions", "output_faults"]

KEY = "{key}"
_POINTER = {"type": "string", "pattern": "^/"}

OUTPUT_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["path"],
    "properties": {
        "path": {
            "type": "string",
            "pattern": "^/",
            "description": "Path below the base URL. A merge puts the row's key for {key}.",
            "examples": ["/events", "/customers/{key}"],
        },
        "method": {"enum": ["post", "put", "patch"], "description": "Default post for append, put for merge."},
        "body_format": {
            "enum": ["json_array", "ndjson"],
            "description": "How a chunk of rows is sent (default json_array).",
        },
        "envelope": {
            "type": "string",
            "minLength": 1,
            "description": 'json_array: put the list under this key, {"records": [...]}.',
            "examples": ["records"],
        },
        "rows_per_request": {"type": "integer", "minimum": 1, "description": "Most rows of a chunk (default 500)."},
        "max_request_kb": {
            "type": "integer",
            "minimum": 1,
            "description": "Most KiB of a chunk (default 4096). A single row may be larger.",
        },
        "batch": {
            "type": "boolean",
            "description": "merge: send chunks of rows to an endpoint that upserts them, instead of a request per row.",
        },
        "query": {
            "type": "object",
            "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
            "description": "Query parameters.",
        },
        "headers": {
            "type": "object",
            "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
            "description": "Sent with the requests of this output.",
        },
        "idempotency_header": {
            "type": "string",
            "minLength": 1,
            "description": "A header that tells the API which chunk this is: the same for a repeated chunk, another for "
            "every other. An API that honours it takes each chunk once within a chain of retries.",
            "examples": ["Idempotency-Key"],
        },
        "delete_path": {
            "type": "string",
            "pattern": "^/",
            "description": "merge fed by change capture, on_delete: delete: where a key is deleted; holds {key}.",
            "examples": ["/customers/{key}"],
        },
        "delete_method": {"enum": ["delete", "post"], "description": "Default delete. 404 and 410 count as done."},
        "partial": {
            "type": "object",
            "additionalProperties": False,
            "required": ["items"],
            "description": "Where an answer tells the fate of each row of a chunk.",
            "examples": [{"items": "/results", "status": "/status", "reason": "/error"}],
            "properties": {
                "items": {**_POINTER, "description": "The list: an entry per row in order, or as index says."},
                "index": {**_POINTER, "description": "In an entry: the row's number in the chunk, from 0."},
                "status": {**_POINTER, "description": "In an entry: a status; 2xx is accepted."},
                "ok": {**_POINTER, "description": "In an entry: true is accepted, false refused."},
                "error": {**_POINTER, "description": "In an entry: missing or null is accepted."},
                "reason": {**_POINTER, "description": "In an entry: the API's reason, for the message."},
            },
        },
    },
}


@frozen
class PartialSuccess:
    """Where an answer tells the fate of each row."""

    items: str
    judge: str
    pointer: str
    index: str | None = None
    reason: str | None = None


@frozen(slots=False)
class WriteOptions:
    """An output's options without faults. ``keyed`` is a request per row."""

    path: str
    method: str
    keyed: bool
    ndjson: bool = False
    envelope: str | None = None
    rows: int = 500
    bytes: int = 4096 * 1024
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_header: str | None = None
    delete_path: str | None = None
    delete_method: str = "DELETE"
    partial: PartialSuccess | None = None

    @classmethod
    def of(cls, output: OutputSpec) -> WriteOptions:
        """Raises PermanentError with every fault: PZ0324 for replace, else PZ0760."""
        if output.strategy is WriteStrategy.REPLACE:
            raise PermanentError(
                f"output '{output.entity}': nothing replaces what lies behind an API as a whole", code=Code.PZ0324
            )
        faults = list(output_faults(output))
        if faults:
            raise PermanentError(f"output '{output.entity}': {'; '.join(faults)}", code=Code.PZ0760)
        options = output.options
        merges = output.strategy is WriteStrategy.MERGE
        keyed = merges and not options.get("batch", False)
        usual = "put" if keyed else "post"
        return cls(
            path=str(options["path"]),
            method=str(options.get("method", usual)).upper(),
            keyed=keyed,
            ndjson=options.get("body_format") == "ndjson",
            envelope=options.get("envelope"),
            rows=int(options.get("rows_per_request", 500)),
            bytes=int(options.get("max_request_kb", 4096)) * 1024,
            query=tuple((str(name), spelled(value)) for name, value in options.get("query", {}).items()),
            headers={str(name): spelled(value) for name, value in options.get("headers", {}).items()},
            idempotency_header=options.get("idempotency_header"),
            delete_path=options.get("delete_path"),
            delete_method=str(options.get("delete_method", "delete")).upper(),
            partial=_partial(options.get("partial")),
        )


def _partial(block: Mapping[str, Any] | None) -> PartialSuccess | None:
    if block is None:
        return None
    judge = next(name for name in ("status", "ok", "error") if name in block)
    return PartialSuccess(block["items"], judge, block[judge], block.get("index"), block.get("reason"))


def output_faults(output: OutputSpec) -> Iterator[str]:
    """Everything that a schema does not see; offline."""
    options = output.options
    path = str(options.get("path", ""))
    merges = output.strategy is WriteStrategy.MERGE
    batched = bool(options.get("batch", False))
    for name in ("path", "delete_path"):
        yield from _path_faults(name, str(options.get(name, "/")))
    if merges and not batched:
        yield from _keyed_faults(output, path)
    elif KEY in path:
        yield "{key} goes with a merge that sends a request per row"
    if batched and not merges:
        yield "batch goes with strategy: merge"
    if "envelope" in options and options.get("body_format") == "ndjson":
        yield "envelope goes with json_array"
    yield from _delete_faults(output)
    yield from header_faults(options.get("headers"))
    yield from _idempotency_faults(options)
    block = options.get("partial")
    if isinstance(block, Mapping) and sum(name in block for name in ("status", "ok", "error")) != 1:
        yield "partial needs exactly one of status, ok and error"


def _idempotency_faults(options: Mapping[str, Any]) -> Iterator[str]:
    name = options.get("idempotency_header")
    if name is None:
        return
    fault = name_fault(str(name))
    if fault is not None:
        yield f"idempotency_header: {fault}"
    others = {"content-type", "authorization", *(str(other).lower() for other in options.get("headers", {}))}
    if str(name).lower() in others:
        yield f"idempotency_header: '{name}' says something else already"


def _path_faults(name: str, path: str) -> Iterator[str]:
    yield from path_faults(name, path)
    if "{" in path.replace(KEY, "") or "}" in path.replace(KEY, ""):
        yield f"{name} knows no placeholder but {{key}}"


def _keyed_faults(output: OutputSpec, path: str) -> Iterator[str]:
    if KEY not in path:
        yield "a merge needs {key} in path, or batch: true where the API upserts lists"
    if len(output.keys) != 1:
        yield "a merge that sends a request per row takes exactly one key"
    for name in ("body_format", "rows_per_request", "max_request_kb", "envelope", "partial", "idempotency_header"):
        if name in output.options:
            yield f"{name} goes with chunks, not with a request per row"


def _delete_faults(output: OutputSpec) -> Iterator[str]:
    declared = "delete_path" in output.options
    if output.on_delete is OnDelete.SOFT:
        yield "on_delete: soft cannot be done; an API has no column to mark. Use delete or ignore"
    if output.on_delete is OnDelete.DELETE and not declared:
        yield "on_delete: delete needs delete_path"
    if declared:
        if output.strategy is not WriteStrategy.MERGE:
            yield "delete_path goes with strategy: merge"
        if KEY not in str(output.options["delete_path"]):
            yield "delete_path needs {key}"
        if output.strategy is WriteStrategy.MERGE and len(output.keys) != 1:
            yield "delete_path takes exactly one key"
    elif "delete_method" in output.options:
        yield "delete_method goes with delete_path"
