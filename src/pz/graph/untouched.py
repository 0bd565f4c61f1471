"""Whether columns reach an output untouched, through every pipeline between: only then may a merge leave them alone.

A value that the source did not send must not be looked at by any expression, filter, join or grouping. Anything but a bare
column in a select list counts as looking, also where a closer look might find it harmless: the answer errs to "no".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pz.frozen import frozen
from pz.graph.sqltree import SqlNode, column_ref, walk

__all__ = ["Passage", "Touched", "follow"]


class Touched(Exception):
    """A column is used by more than its name; the message says where."""


@frozen
class Passage:
    """Output columns that carry each of the followed columns."""

    carriers: Mapping[str, frozenset[str]]

    def outputs(self, columns: Iterable[str]) -> frozenset[str]:
        """All output columns (lower case) that carry one of these."""
        return frozenset().union(*(self.carriers[column.lower()] for column in columns))


def follow(columns: Sequence[str], pipelines: Sequence[tuple[str, SqlNode]]) -> Passage:
    """Follow columns of a dataset through the statements of pipelines, in the order in which they run.

    Raises:
        Touched: with the pipeline and what it does to them.
    """
    carriers = {column.lower(): frozenset({column.lower()}) for column in columns}
    for name, statement in pipelines:
        everything = frozenset().union(*carriers.values())
        _require_plain(name, statement)
        renamed = _renamed(name, statement, everything)
        carriers = {
            column: carried | frozenset(new for old, new in renamed if old in carried)
            for column, carried in carriers.items()
        }
    return Passage(carriers)


def _renamed(name: str, statement: SqlNode, followed: frozenset[str]) -> list[tuple[str, str]]:
    """Aliases given to followed columns, to the end; every other use raises."""
    known = set(followed)
    pairs: list[tuple[str, str]] = []
    bare = _bare_items(statement)
    while True:
        fresh = [
            (column, str(item["alias"]).lower())
            for item in bare
            if item.get("alias") and (column := _last(item)) in known and str(item["alias"]).lower() not in known
        ]
        if not fresh:
            break
        pairs += [(origin, alias) for column, alias in fresh for origin in _origins(column, pairs)]
        known |= {alias for _, alias in fresh}
    allowed = {id(item) for item in bare}
    for node in walk(statement["node"]):
        if node.get("class") == "COLUMN_REF" and id(node) not in allowed and _last(node) in known:
            raise Touched(
                f"pipeline '{name}' uses column '{_last(node)}' in an expression, a filter, a join or a grouping"
            )
        joined = known & {str(using).lower() for using in node.get("using_columns") or ()}
        if joined:
            raise Touched(f"pipeline '{name}' joins by column '{min(joined)}'")
    return pairs


def _origins(column: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The column itself, or what it was called before, when it is an alias already."""
    return [column, *(old for old, new in pairs if new == column)]


def _bare_items(statement: SqlNode) -> list[SqlNode]:
    """The bare columns of all select lists."""
    return [
        item
        for node in walk(statement["node"])
        if node.get("type") == "SELECT_NODE"
        for item in node["select_list"]
        if column_ref(item) is not None
    ]


def _last(item: SqlNode) -> str:
    names = column_ref(item)
    return names[-1].lower() if names else ""


def _require_plain(name: str, statement: SqlNode) -> None:
    """Refuse what looks at all columns without naming them."""
    tables = set()
    for node in walk(statement["node"]):
        kind = str(node.get("type"))
        if kind == "SET_OPERATION_NODE" and (node.get("setop_type") != "UNION" or not node.get("setop_all")):
            raise Touched(f"pipeline '{name}' compares whole rows in a set operation")
        if kind == "DISTINCT_MODIFIER":
            raise Touched(f"pipeline '{name}' compares whole rows with DISTINCT")
        if kind == "RECURSIVE_CTE_NODE" or kind == "PIVOT":
            raise Touched(f"pipeline '{name}' uses a recursive query or a pivot")
        if node.get("class") == "STAR" and any(node.get(part) for part in ("columns", "expr", "replace_list")):
            raise Touched(f"pipeline '{name}' computes over all columns")
        if kind == "JOIN" and node.get("ref_type") == "NATURAL":
            raise Touched(f"pipeline '{name}' joins by the names of all columns")
        if kind == "SELECT_NODE" and any(e.get("class") == "CONSTANT" for e in node.get("group_expressions") or ()):
            raise Touched(f"pipeline '{name}' groups by the place of a column")
        if node.get("aliases") or (kind in {"BASE_TABLE", "SUBQUERY"} and node.get("column_name_alias")):
            raise Touched(f"pipeline '{name}' renames the columns of a table")
        if kind == "SELECT_NODE" and node.get("aggregate_handling") not in {None, "STANDARD_HANDLING"}:
            raise Touched(f"pipeline '{name}' groups by all columns")
        if kind in {"BASE_TABLE", "SUBQUERY"}:
            tables |= {str(node.get("alias") or "").lower(), str(node.get("table_name") or "").lower()}
    for node in walk(statement["node"]):
        names = column_ref(node)
        if names is not None and len(names) == 1 and names[0].lower() in tables - {""}:
            raise Touched(f"pipeline '{name}' uses whole rows of '{names[0]}'")
