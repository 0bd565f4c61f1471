"""What the user wrote, as typed frozen records. No behaviour beyond small look-ups; `loader` makes them.

The two surfaces (YAML and template calls) meet in `ReadDecl` and `WriteDecl`: one entity-side is declared once, on
either surface, and looks the same from here on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from pz.connectors.contract import OnDelete, SchemaPolicy, WriteStrategy
from pz.frozen import frozen

__all__ = [
    "Breaker",
    "CheckDecl",
    "CheckKind",
    "ConnectionDecl",
    "ConnectorRequirement",
    "DriftPolicy",
    "DuckDbSettings",
    "EngineSettings",
    "EntityDecl",
    "Location",
    "Materialization",
    "NullCursor",
    "PipelineDecl",
    "Project",
    "RateLimit",
    "ReadDecl",
    "RetryPolicy",
    "RetrySettings",
    "SyncDecl",
    "SyncMode",
    "WriteDecl",
]


@frozen
class Location:
    """Where something was written: a file relative to the project and a line from 1."""

    file: str
    line: int | None = None


class Materialization(StrEnum):
    """What becomes of a pipeline in staging."""

    TABLE = "table"
    VIEW = "view"
    EPHEMERAL = "ephemeral"


class SyncMode(StrEnum):
    """The ``mode`` of a ``sync:`` block."""

    AUTO = "auto"
    INCREMENTAL = "incremental"
    CDC = "cdc"


class NullCursor(StrEnum):
    """What happens to rows without a cursor value; `DEFAULT` lands them on the first full read and warns."""

    DEFAULT = "default"
    INCLUDE = "include"
    REFUSE = "refuse"


class DriftPolicy(StrEnum):
    """``on_source_drift``."""

    IGNORE = "ignore"
    WARN = "warn"
    FAIL = "fail"


class CheckKind(StrEnum):
    """The six check types."""

    NOT_NULL = "not_null"
    UNIQUE = "unique"
    ROW_COUNT = "row_count"
    FRESHNESS = "freshness"
    ACCEPTED_VALUES = "accepted_values"
    CUSTOM_SQL = "custom_sql"


@frozen
class RetrySettings:
    """A ``retry:`` block as written; None means "not said here", so that blocks cascade field by field."""

    max_attempts: int | None = None
    base_delay: timedelta | None = None
    max_delay: timedelta | None = None


@frozen
class RetryPolicy:
    """The effective policy of a node: exponential, factor 2, +-25 % jitter, capped."""

    max_attempts: int = 3
    base_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(seconds=30)

    @classmethod
    def cascade(cls, *levels: RetrySettings | None) -> RetryPolicy:
        """The first level that says something about a field wins; most specific level first."""
        default = cls()

        def pick(name: str) -> Any:
            said = (getattr(level, name) for level in levels if level is not None)
            return next((value for value in said if value is not None), getattr(default, name))

        return cls(pick("max_attempts"), pick("base_delay"), pick("max_delay"))


@frozen
class RateLimit:
    """``rate_limit`` of a connection, in operations."""

    requests_per_minute: int
    burst: int


@frozen
class Breaker:
    """``engine.breaker``."""

    failure_threshold: int
    cool_down: timedelta


@frozen
class DuckDbSettings:
    """``engine.duckdb``; ``memory_limit`` as written, None means the default share of the machine's memory."""

    memory_limit: str | None = None
    threads: int | None = None
    temp_directory: str | None = None


@frozen
class EngineSettings:
    """``engine:``."""

    threads: int = 4
    batch_bytes: int = 32 * 1024 * 1024
    force_universal: bool = False
    check_samples: bool = True
    node_timeout: timedelta | None = None
    duckdb: DuckDbSettings = DuckDbSettings()
    breaker: Breaker | None = None


@frozen
class SyncDecl:
    """A ``sync:`` block. Window values are kept as written text; the compiler types them by the cursor."""

    mode: SyncMode = SyncMode.AUTO
    explicit: bool = False
    cursor: str | None = None
    initial: str | None = None
    max_window: str | None = None
    until: str | None = None
    lookback: str | None = None
    null_cursor: NullCursor = NullCursor.DEFAULT
    boundary: str | None = None
    start: str | None = None
    slot: str | None = None
    location: Location | None = None


@frozen
class ReadDecl:
    """The read side of an entity. ``options`` are the connector's own; ``columns`` the contract as written."""

    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] | None = None
    sync: SyncDecl = SyncDecl()
    retry: RetrySettings | None = None
    location: Location | None = None
    lines: Mapping[str, int | None] = field(default_factory=dict, compare=False)
    """The line of each key that was given."""


@frozen
class WriteDecl:
    """The write side of an entity. ``options`` are the connector's own."""

    strategy: WriteStrategy = WriteStrategy.APPEND
    keys: tuple[str, ...] = ()
    duplicates_accepted: bool = False
    dedupe_by: str | None = None
    on_delete: OnDelete | None = None
    schema_policy: SchemaPolicy = SchemaPolicy.FAIL_ON_CHANGE
    retry: RetrySettings | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    location: Location | None = None
    lines: Mapping[str, int | None] = field(default_factory=dict, compare=False)
    """The line of each key that was given."""


@frozen
class EntityDecl:
    """One entry of ``entities:``."""

    name: str
    read: ReadDecl | None = None
    write: WriteDecl | None = None
    location: Location | None = None


@frozen
class ConnectionDecl:
    """One top-level key of ``connections.yml``."""

    name: str
    connector: str
    options: Mapping[str, Any] = field(default_factory=dict)
    entities: Mapping[str, EntityDecl] = field(default_factory=dict)
    max_concurrency: int | None = None
    rate_limit: RateLimit | None = None
    retry: RetrySettings | None = None
    location: Location | None = None


@frozen
class CheckDecl:
    """One check of a sidecar; ``name`` only for custom_sql, ``options`` the rest of the dict form."""

    kind: CheckKind
    columns: tuple[str, ...] = ()
    name: str | None = None
    sql: str | None = None
    values: tuple[Any, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    max_age: timedelta | None = None
    sample_values: bool | None = None
    location: Location | None = None


@frozen
class PipelineDecl:
    """One ``pipelines/**/*.sql`` with its sidecar. ``text`` is the template, line endings normalised to LF."""

    name: str
    text: str
    location: Location
    materialization: Materialization = Materialization.TABLE
    tags: tuple[str, ...] = ()
    checks: tuple[CheckDecl, ...] = ()


@frozen
class ConnectorRequirement:
    """One entry of ``connectors:``: an installed distribution that provides connectors."""

    package: str
    version: str | None
    location: Location | None = None


@frozen
class Project:
    """A loaded project. ``keep_last`` is None when retention is off; ``scratch`` stands in for ``.pz`` in a preview."""

    root: Path
    name: str
    version: str
    vars: Mapping[str, Any] = field(default_factory=dict)
    engine: EngineSettings = EngineSettings()
    keep_last: int | None = 10
    on_source_drift: DriftPolicy = DriftPolicy.IGNORE
    connectors: tuple[ConnectorRequirement, ...] = ()
    connections: Mapping[str, ConnectionDecl] = field(default_factory=dict)
    pipelines: Mapping[str, PipelineDecl] = field(default_factory=dict)
    scratch: Path | None = None

    @property
    def state_dir(self) -> Path:
        """``.pz`` of the project: target, runs, state, locks. Never committed."""
        return self.scratch or self.root / ".pz"
