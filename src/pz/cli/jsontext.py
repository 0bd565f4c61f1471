"""Records as JSON text for ``--json``: dataclass fields in camelCase, enums as their values, nothing lost to a locale."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any

__all__ = ["plain", "to_json"]


def to_json(value: Any) -> str:
    """Pretty JSON, ASCII only, with a final newline."""
    return json.dumps(plain(value), indent=2) + "\n"


def plain(value: Any) -> Any:
    """The value as JSON can hold it; durations become seconds, moments ISO text, bytes hex."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_camel(f.name): plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and value not in {float("inf"), float("-inf")} and value == value:
        return value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
