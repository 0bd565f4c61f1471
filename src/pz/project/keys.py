"""Every key that a project file may hold, once: the loader refuses what is not here, the editors' schemas print it.

A table is an ordered tuple of `Key`; ``schema`` is the JSON Schema of the key's value. Tables of blocks that also hold
a connector's own options (a connection, ``read``, ``write``) list the engine's keys only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pz.connectors.contract import OnDelete, SchemaPolicy, WriteStrategy
from pz.frozen import frozen
from pz.project.model import DriftPolicy, Materialization, NullCursor, SyncMode

__all__ = [
    "ACCEPTED_VALUES",
    "BREAKER",
    "CHECKS",
    "CONNECTION",
    "CONNECTOR_REQUIREMENT",
    "CUSTOM_SQL",
    "DUCKDB",
    "ENGINE",
    "ENTITY",
    "FRESHNESS",
    "NOT_NULL",
    "PROJECT",
    "RATE_LIMIT",
    "READ",
    "RETENTION",
    "RETRY",
    "ROW_COUNT",
    "SIDECAR",
    "STATE",
    "SYNC",
    "SYNC_KEYS",
    "UNIQUE",
    "WRITE",
    "Key",
    "names",
]

JsonSchema = Mapping[str, Any]


@frozen
class Key:
    """One key of a block."""

    name: str
    doc: str
    schema: JsonSchema = field(default_factory=dict)
    required: bool = False


Keys = tuple[Key, ...]


def names(keys: Keys) -> tuple[str, ...]:
    """The names of a table's keys, in its order."""
    return tuple(key.name for key in keys)


def block(keys: Keys, *, open_ended: bool = False) -> dict[str, Any]:
    """The JSON Schema of a mapping with these keys; an open-ended one also takes a connector's own options."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key.name: {"description": key.doc, **key.schema} for key in keys},
    }
    if not open_ended:
        schema["additionalProperties"] = False
    required = [key.name for key in keys if key.required]
    return {**schema, "required": required} if required else schema


def _or_empty(schema: dict[str, Any]) -> dict[str, Any]:
    """A block that may also be left without a value, which means its default."""
    return {**schema, "type": ["object", "null"]}


def _whole(low: int, high: int | None = None) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high})}


def _one_of(values: type[SyncMode] | type[WriteStrategy] | type[OnDelete] | type[SchemaPolicy]) -> dict[str, Any]:
    return {"enum": [str(value) for value in values]}


_TEXT = {"type": "string"}
_SCALAR = {"type": ["string", "number", "boolean"]}
_FLAG = {"type": "boolean"}
#: What `pz.durations.parse_duration` accepts, for editors.
DURATION_PATTERN = r"^[0-9]+(ms|s|m|h|d)$"
_DURATION = {"type": "string", "pattern": DURATION_PATTERN}
_WORDS = {"type": ["string", "array"], "items": {"type": "string"}}

MAX_INT32 = 2**31 - 1
MAX_THREADS = 1024  # DuckDB starts them all at once, and a machine that cannot ends the process
MAX_RATE = 1_000_000
MIN_BATCH_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 512 * 1024 * 1024
MEMORY_PATTERN = r"^(?=.*[1-9])[0-9]+(\.[0-9]+)? ?([kKmMgGtT][iI]?[bB]|[bB]|%)?$"

RETRY: Keys = (
    Key("max_attempts", "Attempts in all, the first included (default 3).", _whole(1)),
    Key("base_delay", "Wait before the second attempt; doubles from there (default 1s).", _DURATION),
    Key("max_delay", "Longest wait between two attempts (default 30s).", _DURATION),
)

RATE_LIMIT: Keys = (
    Key("requests_per_minute", "Operations per minute, over all nodes of the connection.", _whole(1, MAX_RATE), True),
    Key("burst", "Operations that may start at once (default: a second's worth, at least 1).", _whole(1, MAX_RATE)),
)

BREAKER: Keys = (
    Key("failure_threshold", "Transient failures in a row that open the breaker.", _whole(1, MAX_INT32), True),
    Key("cool_down", "How long it stays open before one probe is let through.", _DURATION, True),
)

DUCKDB: Keys = (
    Key(
        "memory_limit",
        "Memory for the staging database, such as 4GB, 512MiB or 50% (default: 60 % of what the machine or its cgroup has).",
        {"type": ["string", "integer"], "minimum": 1, "pattern": MEMORY_PATTERN},
    ),
    Key("threads", "Threads of the staging database; not the same as engine.threads.", _whole(1, MAX_THREADS)),
    Key("temp_directory", "Where the staging database spills (default: inside the run's folder).", _TEXT),
)

ENGINE: Keys = (
    Key("threads", "Nodes that run at once (default 4).", _whole(1, MAX_THREADS)),
    Key(
        "batch_bytes",
        "Target size of a record batch, 1 MiB to 512 MiB (default 32 MiB).",
        _whole(MIN_BATCH_BYTES, MAX_BATCH_BYTES),
    ),
    Key("force_universal", "Move all data as record batches, never by DuckDB alone (default false).", _FLAG),
    Key("check_samples", "Show sample rows of failed checks (default true).", _FLAG),
    Key("node_timeout", "Longest time that one attempt of a node may take (default: unbounded).", _DURATION),
    Key("duckdb", "Settings of the staging database.", _or_empty(block(DUCKDB))),
    Key("breaker", "Circuit breaker per connection; absent means none.", block(BREAKER)),
)

CONNECTOR_REQUIREMENT: Keys = (
    Key("package", "The distribution that provides connectors.", _TEXT, True),
    Key("version", "The exact version that must be installed, quoted.", _TEXT),
)

RETENTION: Keys = (Key("keep_last", "Runs whose staging database is kept (default 10).", _whole(1), True),)

STATE: Keys = (Key("backend", "Where state is kept: only 'local', the .pz folder.", {"enum": ["local"]}),)

PROJECT: Keys = (
    Key("name", "The project's name.", _SCALAR, True),
    Key("version", "The project's own version, free text.", _SCALAR, True),
    Key("pz", "The version of pz it was written for; recorded, not enforced.", _SCALAR),
    Key(
        "connectors",
        "Installed distributions that provide connectors.",
        {"type": ["array", "null"], "items": block(CONNECTOR_REQUIREMENT)},
    ),
    Key("vars", "Values for var() in templates; ${NAME} is substituted.", {"type": ["object", "null"]}),
    Key("engine", "How runs are executed.", _or_empty(block(ENGINE))),
    Key(
        "retention",
        "How many runs keep their staging database; off keeps all.",
        {"oneOf": [block(RETENTION), {"enum": ["off", "no", "Off", "No", "OFF", "NO", False]}]},
    ),
    Key("state", "Where watermarks and tokens are kept.", _or_empty(block(STATE))),
    Key(
        "on_source_drift",
        "What to do when a source without a contract changes its columns (default ignore).",
        {"enum": [str(value) for value in DriftPolicy]},
    ),
)

SYNC: Keys = (
    Key(
        "mode",
        "incremental: by a cursor column; cdc: from the database's log; auto: the natural read.",
        _one_of(SyncMode),
        True,
    ),
    Key("cursor", "The column that grows with every change (incremental).", _SCALAR),
    Key("initial", "Where the first run starts, exclusive (incremental).", _SCALAR),
    Key("max_window", "The largest slice that one run reads (incremental).", _SCALAR),
    Key("until", "Where reading stops; 'now' is the run's start (incremental).", _SCALAR),
    Key("lookback", "How far below the stored value each run reads again (incremental).", _SCALAR),
    Key(
        "null_cursor",
        "Rows without a cursor value: include them in every run, or refuse them (incremental).",
        {"enum": [str(value) for value in NullCursor if value is not NullCursor.DEFAULT]},
    ),
    Key(
        "boundary",
        "'exclusive': also where every output merges, rows equal to the stored value are not read again (incremental).",
        {"enum": ["exclusive"]},
    ),
    Key(
        "start",
        "'from_state': a new output, or another path, gives only what comes from now on.",
        {"enum": ["from_state"]},
    ),
    Key("slot", "Name of the replication slot (cdc).", _SCALAR),
)

#: What a mode takes besides ``mode``.
SYNC_KEYS: Mapping[SyncMode, tuple[str, ...]] = {
    SyncMode.AUTO: (),
    SyncMode.INCREMENTAL: tuple(name for name in names(SYNC) if name not in ("mode", "slot")),
    SyncMode.CDC: ("slot", "start"),
}

READ: Keys = (
    Key(
        "columns",
        "The contract: column name to DuckDB type.",
        {"type": ["object", "null"], "additionalProperties": _TEXT, "minProperties": 1},
    ),
    Key("sync", "How reads continue from run to run; left out means auto.", _or_empty(block(SYNC))),
    Key("retry", "Overrides the connection's retry for this read.", _or_empty(block(RETRY))),
)

WRITE: Keys = (
    Key("strategy", "append (default), replace or merge.", _one_of(WriteStrategy)),
    Key("keys", "Columns that identify a row (merge).", _WORDS),
    Key("duplicates", "'accept' consents to at-least-once delivery.", {"const": "accept"}),
    Key("dedupe_by", "Among rows with equal keys the highest of this column survives (merge).", _TEXT),
    Key("on_delete", "What happens to rows deleted at a cdc source (merge).", _one_of(OnDelete)),
    Key("schema_policy", "What may change at an existing target (default fail_on_change).", _one_of(SchemaPolicy)),
    Key("retry", "Overrides the connection's retry for this write.", _or_empty(block(RETRY))),
)

ENTITY: Keys = (
    Key("read", "How the entity is read.", _or_empty(block(READ, open_ended=True))),
    Key("write", "How the entity is written.", _or_empty(block(WRITE, open_ended=True))),
)

CONNECTION: Keys = (
    Key("connector", "Which connector reaches it.", _TEXT, True),
    Key(
        "entities",
        "What is read and written there, by name.",
        {"type": ["object", "null"], "additionalProperties": _or_empty(block(ENTITY))},
    ),
    Key("max_concurrency", "Nodes of this connection that run at once (default: unbounded).", _whole(1)),
    Key("rate_limit", "Pace of remote operations.", block(RATE_LIMIT)),
    Key("retry", "How transient failures are tried again.", _or_empty(block(RETRY))),
    Key("allow_unsigned_extensions", "Whether unsigned DuckDB extensions may be loaded (default false).", _FLAG),
)

_SAMPLES = Key("sample_values", "Whether a failure shows sample rows.", _FLAG)
_COLUMN = Key("column", "The column.", _TEXT)
_COLUMNS = Key("columns", "The columns.", _WORDS)

NOT_NULL: Keys = (_COLUMN, _COLUMNS, _SAMPLES)
UNIQUE: Keys = (_COLUMN, _COLUMNS, _SAMPLES)
ROW_COUNT: Keys = (
    Key("min", "Fewest rows allowed.", _whole(0)),
    Key("max", "Most rows allowed.", _whole(0)),
    _SAMPLES,
)
FRESHNESS: Keys = (
    _COLUMN,
    _COLUMNS,
    Key("max_age", "How old the newest row may be.", _DURATION, True),
    _SAMPLES,
)
ACCEPTED_VALUES: Keys = (
    _COLUMN,
    _COLUMNS,
    Key("values", "The values allowed; NULL always is.", {"type": "array", "minItems": 1, "items": _SCALAR}, True),
    _SAMPLES,
)
CUSTOM_SQL: Keys = (
    Key("name", "A name for the check.", {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"}, True),
    Key("sql", "A query; every row that it returns is a violation.", _TEXT, True),
    _SAMPLES,
)

CHECKS: Mapping[str, Keys] = {
    "not_null": NOT_NULL,
    "unique": UNIQUE,
    "row_count": ROW_COUNT,
    "freshness": FRESHNESS,
    "accepted_values": ACCEPTED_VALUES,
    "custom_sql": CUSTOM_SQL,
}


def _check_schema() -> dict[str, Any]:
    """One item of ``checks``: a mapping with a single key, the type; the two column checks also take a plain list."""

    def options(name: str, keys: Keys) -> dict[str, Any]:
        return {"anyOf": [_WORDS, block(keys)]} if name in ("not_null", "unique") else block(keys)

    return {
        "type": "object",
        "properties": {name: options(name, keys) for name, keys in CHECKS.items()},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


SIDECAR: Keys = (
    Key("pipeline", "The pipeline that this file configures.", _TEXT, True),
    Key(
        "materialization",
        "table (default), view, or ephemeral: inlined where it is used.",
        {"enum": [str(value) for value in Materialization]},
    ),
    Key("tags", "Words to select the pipeline by.", _WORDS),
    Key("checks", "Assertions on the result.", {"type": ["array", "null"], "items": _check_schema()}),
)
