"""``project.yml``: name, variables, engine settings, retention, state, drift policy, required connectors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pz.errors import Code, Problem, Problems, ProjectError
from pz.project.fields import Fields
from pz.project.interpolation import interpolate
from pz.project.keys import (
    BREAKER,
    CONNECTOR_REQUIREMENT,
    DUCKDB,
    ENGINE,
    MAX_BATCH_BYTES,
    MAX_INT32,
    MAX_THREADS,
    MEMORY_PATTERN,
    MIN_BATCH_BYTES,
    PROJECT,
    RETENTION,
    STATE,
)
from pz.project.model import (
    Breaker,
    ConnectorRequirement,
    DriftPolicy,
    DuckDbSettings,
    EngineSettings,
    Location,
)
from pz.project.yaml_source import Block, Listing, Scalar, plain_value

__all__ = [
    "check_state",
    "parse_connectors",
    "parse_drift",
    "parse_engine",
    "parse_name",
    "parse_retention",
    "parse_vars",
    "parse_vars_option",
    "project_fields",
]

DEFAULT_KEEP_LAST = 10


def project_fields(block: Block, file: str, problems: Problems) -> Fields:
    """The top level of ``project.yml``, unknown and missing keys reported."""
    fields = Fields(block, PROJECT, Code.PZ0101, "", file, problems)
    fields.refuse_unknown()
    fields.require()
    fields.text("pz")
    return fields


def parse_name(fields: Fields, key: str) -> str:
    """``name`` or ``version``, as written."""
    return fields.text(key) or ""


def parse_vars(fields: Fields, environ: Mapping[str, str]) -> dict[str, Any]:
    """``vars``, references substituted. Not a mapping: PZ0102."""
    item = fields.get("vars")
    if item is None:
        return {}
    if not isinstance(item, Block):
        fields.report(
            "vars", f"'vars' must be a mapping, not {item.kind}", code=Code.PZ0102, hint="write name: value pairs"
        )
        return {}
    resolved = interpolate(item, environ, fields.file, fields.problems)
    assert isinstance(resolved, Block)  # interpolation keeps the shape
    return {
        name: "" if isinstance(entry, Scalar) and entry.empty else plain_value(entry)
        for name, entry in resolved.entries.items()
    }


def parse_vars_option(text: str) -> dict[str, Any]:
    """The JSON object given on the command line; `ProjectError` with PZ0102 for anything else."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProjectError(Problem(Code.PZ0102, "--vars is not valid JSON", hint=_VARS_HINT)) from error
    if not isinstance(value, dict):
        raise ProjectError(Problem(Code.PZ0102, "--vars must be a JSON object", hint=_VARS_HINT))
    return value


_VARS_HINT = """pass a JSON object, such as --vars '{"day": "2024-01-31"}'"""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def parse_engine(fields: Fields) -> EngineSettings:
    """``engine``; problems are PZ0120 and leave the default in place."""
    engine = fields.inner("engine", ENGINE, Code.PZ0120)
    if engine is None:
        return EngineSettings()
    default = EngineSettings()
    samples, universal = engine.flag("check_samples"), engine.flag("force_universal")
    return EngineSettings(
        threads=engine.whole("threads", 1, MAX_THREADS) or default.threads,
        batch_bytes=engine.whole("batch_bytes", MIN_BATCH_BYTES, MAX_BATCH_BYTES) or default.batch_bytes,
        force_universal=default.force_universal if universal is None else universal,
        check_samples=default.check_samples if samples is None else samples,
        node_timeout=engine.duration("node_timeout", positive=True),
        duckdb=_duckdb(engine),
        breaker=_breaker(engine),
    )


def _duckdb(engine: Fields) -> DuckDbSettings:
    fields = engine.inner("duckdb", DUCKDB)
    if fields is None:
        return DuckDbSettings()
    limit = fields.text("memory_limit")
    if limit is not None and not re.fullmatch(MEMORY_PATTERN, limit):
        fields.report("memory_limit", "'engine.duckdb.memory_limit' must be a size", hint="such as 4GB, 512MiB or 50%")
        limit = None
    return DuckDbSettings(limit, fields.whole("threads", 1, MAX_THREADS), fields.text("temp_directory"))


def _breaker(engine: Fields) -> Breaker | None:
    fields = engine.inner("breaker", BREAKER)
    if fields is None:
        if "breaker" in engine.block.entries and engine.get("breaker") is None:
            engine.report(
                "breaker", "'engine.breaker' is empty", hint="give failure_threshold and cool_down, or drop it"
            )
        return None
    fields.require()
    threshold = fields.whole("failure_threshold", 1, MAX_INT32)
    cool_down = fields.duration("cool_down", positive=True)
    return Breaker(threshold, cool_down) if threshold is not None and cool_down is not None else None


def parse_retention(fields: Fields) -> int | None:
    """``retention``: how many runs keep their staging; None is off. Problems are PZ0123."""
    item = fields.get("retention")
    if item is None:
        return DEFAULT_KEEP_LAST
    if isinstance(item, Scalar):
        if item.text.lower() in ("off", "false", "no"):
            return None
        hint = "use off, or keep_last: 10"
        fields.report("retention", "'retention' must be off or keep_last with a number", hint=hint, code=Code.PZ0123)
        return DEFAULT_KEEP_LAST
    inner = fields.inner("retention", RETENTION, Code.PZ0123)
    if inner is None:
        return DEFAULT_KEEP_LAST
    inner.require()
    return inner.whole("keep_last", 1, MAX_INT32) or DEFAULT_KEEP_LAST


def check_state(fields: Fields) -> None:
    """``state``: only the local backend exists, and it takes no further key. Problems are PZ0124."""
    inner = fields.inner("state", STATE, Code.PZ0124)
    if inner is not None:
        inner.word("backend", ("local",))


def parse_drift(fields: Fields) -> DriftPolicy:
    """``on_source_drift``; a wrong word is PZ0126 and means ignore."""
    if fields.get("on_source_drift") is None:
        return DriftPolicy.IGNORE
    own = Fields(fields.block, fields.keys, Code.PZ0126, "", fields.file, fields.problems)
    return own.choice("on_source_drift", DriftPolicy) or DriftPolicy.IGNORE


def parse_connectors(fields: Fields) -> tuple[ConnectorRequirement, ...]:
    """``connectors``: a list of package and version."""
    item = fields.get("connectors")
    if item is None:
        return ()
    if not isinstance(item, Listing):
        fields.wrong("connectors", "a list of packages")
        return ()
    found = [_requirement(entry, fields) for entry in item.items if _is_block(entry, fields)]
    return tuple(entry for entry in found if entry is not None)


def _is_block(entry: object, fields: Fields) -> bool:
    if isinstance(entry, Block):
        return True
    line = getattr(entry, "line", None)
    fields.problems.error(
        Code.PZ0101,
        "an entry of 'connectors' must be a mapping with package and version",
        file=fields.file,
        line=line,
        hint='write - package: <name> with version: "1.2" below',
    )
    return False


def _requirement(entry: object, owner: Fields) -> ConnectorRequirement | None:
    assert isinstance(entry, Block)
    fields = Fields(entry, CONNECTOR_REQUIREMENT, Code.PZ0101, "connectors", owner.file, owner.problems)
    fields.refuse_unknown()
    fields.require()
    version = fields.scalar("version")
    if version is not None and isinstance(version.value, float):
        message = "'connectors.version' is an unquoted number: 1.10 would be read as 1.1"
        fields.report("version", message, hint=f'quote it: version: "{version.text}"')
    package = fields.text("package")
    if package is None:
        return None
    return ConnectorRequirement(package, version.text if version else None, Location(owner.file, entry.line))
