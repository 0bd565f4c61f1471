"""Names of pipelines and connections: plain identifiers, because they become parts of table names."""

from __future__ import annotations

import re

__all__ = ["connection_name_problem", "pipeline_name_problem", "source_relation"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def pipeline_name_problem(name: str) -> tuple[str, str] | None:
    """Message and hint (PZ0136) when ``name`` cannot name a pipeline."""
    if name.lower().startswith("__pz"):
        return f"pipeline name '{name}' is reserved", "rename the file: tables of our own begin with __pz"
    if _IDENTIFIER.fullmatch(name):
        return None
    return f"pipeline name '{name}' is not a plain identifier", f"rename the file to {_suggest(name)}.sql"


def connection_name_problem(name: str) -> tuple[str, str] | None:
    """Message and hint (PZ0136) when ``name`` cannot name a connection."""
    suggestion = re.sub(r"_{2,}", "_", _suggest(name))
    if not _IDENTIFIER.fullmatch(name):
        return f"connection name '{name}' is not a plain identifier", f"rename it to {suggestion}"
    if "__" in name:
        return f"connection name '{name}' holds a double underscore", f"rename it to {suggestion}"
    return None


def source_relation(connection: str, entity: str) -> str:
    """The table that a dataset is staged as, in schema ``staging``."""
    return f"src_{connection}__{re.sub(r'[^A-Za-z0-9_]', '_', entity)}"


def _suggest(name: str) -> str:
    folded = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "unnamed"
    return f"_{folded}" if folded[0].isdigit() else folded
