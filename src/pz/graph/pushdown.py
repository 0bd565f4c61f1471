"""What the one reader of a dataset needs of it: columns, and a filter that may run before staging.

Pushing is an optimisation and must never be seen in a result, so every doubt drops it: a name that could belong to
something else, a second reading of the dataset, a join that pads with NULLs, anything whose value depends on when it
runs. The filter is DuckDB SQL over the dataset's own columns; a source that does not run on DuckDB may use of it what
means exactly the same there, or nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pz.graph.lineage import Relation, Select, computed_names, selects, tables
from pz.graph.model import Pushdown
from pz.graph.sql import RUN_ID, RUN_STARTED_AT, watermark_key
from pz.graph.sqltree import (
    BARE_CLOCKS,
    CLOCKS_AND_DICE,
    Parser,
    SqlFault,
    SqlNode,
    column_ref,
    conjuncts,
    function_name,
    is_subquery,
    string_constant,
    walk,
)

__all__ = ["infer_pushdown"]


def infer_pushdown(
    parser: Parser, statement: SqlNode, relation: str, *, keep: Collection[str] = (), columns: Mapping[str, str] | None
) -> Pushdown:
    """What a pipeline needs of the dataset staged as ``staging.<relation>``.

    ``keep`` are columns that are read whatever the SQL says (the cursor). ``columns`` is the contract, if there is one:
    names are then spelled as there, and a name outside of it drops the pruning. Without one, names are spelled as in
    the SQL, which does not mind case. Not to be called for change capture.
    """
    table = f"staging.{relation.lower()}"
    if tables(statement).count(table) != 1:
        return Pushdown()
    select = next(s for s in selects(statement) if any(r.table == table for r in s.relations))
    owner = next(r for r in select.relations if r.table == table)
    if select.correlated or owner.renamed or owner.node.get("sample") or owner.node.get("at_clause"):
        return Pushdown()
    needed = _needed_columns(select, owner)
    return Pushdown(_spelled(needed, keep, columns), _predicate(parser, select, owner))


def _spelled(
    needed: frozenset[str] | None, keep: Collection[str], columns: Mapping[str, str] | None
) -> tuple[str, ...] | None:
    """The needed columns in a stable order, spelled as in the contract; None means all."""
    if not needed:
        return None
    by_name = {name.lower(): name for name in sorted([*needed, *keep])}
    if columns is None:
        return tuple(by_name[name] for name in sorted(by_name))
    spelling = {name.lower(): name for name in columns}
    if not by_name.keys() <= spelling.keys():
        return None
    return tuple(name for name in columns if name.lower() in by_name)


def _needed_columns(select: Select, owner: Relation) -> frozenset[str] | None:
    """The columns of ``owner`` that its SELECT names; None when that cannot be told."""
    if any(_hides_columns(node) for node in _own_nodes(select.node)):
        return None
    if any(r.table is None and r.query is None and r.node["type"] != "TABLE_FUNCTION" for r in select.relations):
        return None
    taken: set[str] = set()
    for node in _own_nodes(select.node):
        names = column_ref(node)
        if names is None:
            continue
        column = _column_of(names, select, owner)
        if column is None:
            return None
        if column:
            taken.add(column)
    return frozenset(taken)


def _column_of(names: tuple[str, ...], select: Select, owner: Relation) -> str | None:
    """The column of ``owner`` that a reference needs; "" when it is another relation's, None when in doubt."""
    aliases = {r.alias for r in select.relations}
    head = names[0].lower()
    if len(names) > 2 and head == "staging" and f"staging.{names[1].lower()}" == owner.table:
        return names[2]
    if len(names) > 1 and head == owner.alias:
        return names[1]
    if len(names) > 1 and head in aliases:
        return ""
    if len(select.relations) > 1 or head in aliases | computed_names(select) | BARE_CLOCKS | {"rowid"}:
        return None
    return names[0]


def _hides_columns(node: SqlNode) -> bool:
    """Whether a node uses columns that it does not name, or names that are none."""
    kind = node.get("class") or node.get("type")
    if kind == "JOIN":
        return bool(node.get("using_columns")) or node.get("ref_type") not in {"REGULAR", "CROSS"}
    return str(kind) in {"STAR", "LAMBDA", "POSITIONAL_REFERENCE", "SUBQUERY", "PIVOT", "SHOW_REF", "DEFAULT"}


def _own_nodes(query: SqlNode) -> Iterator[SqlNode]:
    """The nodes of a SELECT that can refer to its FROM clause. CTE bodies cannot; ORDER BY ALL and GROUP BY ALL do not."""
    for key, value in query.items():
        if key == "modifiers":
            yield from (node for entry in value if not _orders_by_all(entry) for node in walk(entry))
        elif key != "cte_map":
            yield from walk(value)


def _orders_by_all(modifier: SqlNode) -> bool:
    orders = modifier.get("orders") or []
    return len(orders) == 1 and orders[0]["expression"].get("class") == "STAR"


def _predicate(parser: Parser, select: Select, owner: Relation) -> str | None:
    """The terms of WHERE that look at ``owner`` alone, over its bare column names, each in parentheses."""
    if not owner.kept or any(r.table is None or r.renamed for r in select.relations):
        return None
    terms = [_bare(term, select, owner) for term in conjuncts(select.node.get("where_clause"))]
    printed = []
    for term in terms:
        if term is not None:
            try:
                printed.append(f"({parser.print_expression(term)})")
            except SqlFault:
                continue
    return " AND ".join(printed) or None


def _bare(term: SqlNode, select: Select, owner: Relation) -> SqlNode | None:
    """The term with the alias taken off its columns; None unless it depends on ``owner`` and nothing else."""
    found = False
    renamed: dict[int, str] = {}
    for node in walk(term):
        if _unpushable(node):
            return None
        names = column_ref(node)
        if names is None:
            continue
        bare = _bare_column(names, select, owner)
        if bare is None:
            return None
        renamed[id(node)] = bare
        found = True
    return _rename(term, renamed) if found else None


def _bare_column(names: tuple[str, ...], select: Select, owner: Relation) -> str | None:
    column = _column_of(names, select, owner)
    return column if column and names[-1] == column else None


def _unpushable(node: SqlNode) -> bool:
    """Whether a node makes a term depend on more than the row: time, chance, a watermark, other rows, parameters."""
    text = string_constant(node)
    if text is not None and (watermark_key(node) is not None or RUN_ID in text or RUN_STARTED_AT in text):
        return True
    if function_name(node) in CLOCKS_AND_DICE or is_subquery(node):
        return True
    return node.get("class") in {"LAMBDA", "WINDOW", "PARAMETER", "STAR", "POSITIONAL_REFERENCE", "DEFAULT"}


def _rename(node: object, renamed: Mapping[int, str]) -> SqlNode:
    """A copy of a tree with some column references replaced."""

    def copy(value: object) -> object:
        if isinstance(value, dict):
            if id(value) in renamed:
                return {**value, "column_names": [renamed[id(value)]]}
            return {key: copy(inner) for key, inner in value.items()}
        return [copy(inner) for inner in value] if isinstance(value, list) else value

    result = copy(node)
    assert isinstance(result, dict)
    return result
