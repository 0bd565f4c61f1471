"""What a check asks of the column that it looks at, and of its query; asked before a run where the types are known."""

from __future__ import annotations

from pz.errors import Code, Problem
from pz.graph.model import CheckNode

__all__ = ["freshness_problem", "one_query"]


def freshness_problem(node: CheckNode, type_name: str) -> Problem | None:
    """Why a column of this DuckDB type has no age. Text has an order of its own, in which 9/2/2024 is the newest."""
    if type_name == "DATE" or type_name.startswith("TIMESTAMP"):
        return None
    column = node.check.columns[0]
    message = f"check '{node.name}' asks for the age of column '{column}', which is {type_name}, no date or timestamp"
    place = node.check.location or node.location
    hint = f"cast it in pipeline '{node.pipeline}', such as {column}::timestamp AS {column}"
    return Problem(Code.PZ0401, message, place.file if place else None, place.line if place else None, hint)


def one_query(sql: str) -> str:
    """A custom_sql check as one query; what is no query, or several, does not compile in it."""
    return f"SELECT count(*) FROM ({sql}\n)"
