"""Which base table a name in a parse tree belongs to: scopes, FROM clauses, and columns passed through untouched.

Every answer is either certain or "not known": an unqualified name beside two relations, a renamed column list, a
recursive CTE or a pivot are never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from pz.frozen import frozen
from pz.graph.sqltree import SqlNode, column_ref, cte_bodies, is_subquery

__all__ = [
    "Cte",
    "Origin",
    "Relation",
    "Select",
    "computed_names",
    "output_origin",
    "own_nodes",
    "passes_through",
    "queries",
    "selects",
    "sides",
    "tables",
    "trace",
    "within",
]

Origin = tuple[str, str]
"""A base table (``schema.name``, lower case) and one of its columns, as spelled."""


@frozen(slots=False, eq=False)
class Cte:
    """The body of a plain CTE and the CTEs that it sees itself."""

    query: SqlNode
    ctes: Ctes


Ctes = Mapping[str, "Cte | None"]
"""CTEs in sight by lower-case name; None for one that cannot be followed (recursive, or with renamed columns)."""


@frozen(slots=False, eq=False)
class Relation:
    """One entry of a FROM clause.

    ``table`` is the base table as ``schema.name`` in lower case; ``query`` the body of a CTE or derived table. Neither:
    a table function, VALUES, a pivot. ``kept``: no join above adds or drops rows of this relation other than by its
    own condition (false on the nullable side of an outer join). ``renamed``: its columns got a list of aliases.
    """

    alias: str
    node: SqlNode
    table: str | None = None
    query: SqlNode | None = None
    ctes: Ctes = field(default_factory=dict)
    kept: bool = True
    lateral: bool = False
    renamed: bool = False


@frozen(slots=False, eq=False)
class Select:
    """One query of a tree with the CTEs in sight, its own included. ``correlated``: its names may belong to a query
    around it. A set operation has no relations.
    """

    node: SqlNode
    ctes: Ctes
    correlated: bool = False

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The FROM clause, flattened, left to right."""
        return tuple(_flatten(self.node.get("from_table") or {}, self.ctes, True, False))


def selects(statement: SqlNode) -> Iterator[Select]:
    """Every SELECT of a statement: sides of set operations, CTE bodies, derived tables and subqueries included."""
    return (query for query in queries(statement) if query.node["type"] == "SELECT_NODE")


def queries(statement: SqlNode) -> Iterator[Select]:
    """Every SELECT of a statement, and every set operation behind its sides."""
    yield from _queries(statement["node"], {}, False)


def within(query: SqlNode, ctes: Ctes) -> Select:
    """A query that stands where ``ctes`` are in sight: a side of a set operation, a derived table, a subquery."""
    return Select(query, {**ctes, **_own_ctes(query, ctes)})


def sides(query: SqlNode) -> tuple[SqlNode, ...]:
    """The sides of a set operation, left to right."""
    children = query.get("children")
    return tuple(children) if children else (query["left"], query["right"])


def own_nodes(query: SqlNode) -> Iterator[SqlNode]:
    """The nodes of a query's own clauses, parents first: nothing in its CTEs, sides, derived tables and subqueries.

    A subquery itself is given, and what stands left of its IN.
    """
    todo: list[object] = [v for k, v in query.items() if k not in {"cte_map", "left", "right", "children"}]
    while todo:
        current = todo.pop(0)
        if isinstance(current, list):
            todo[:0] = current
        elif isinstance(current, dict) and (is_subquery(current) or current.get("type") != "SUBQUERY"):
            yield current
            if is_subquery(current):
                todo.insert(0, current.get("child"))
            elif current.get("type") != "SHOW_REF":
                todo[:0] = list(current.values())


def tables(statement: SqlNode) -> tuple[str, ...]:
    """All base tables as ``schema.name`` or ``name`` in lower case, with repetition, without CTEs."""
    return tuple(r.table for select in selects(statement) for r in select.relations if r.table is not None)


def trace(select: Select, names: tuple[str, ...]) -> Origin | None:
    """Where a column reference passes through untouched from; None when that is not certain."""
    found = _owner(select, names)
    return None if found is None else _through(*found)


def output_origin(query: SqlNode, ctes: Ctes, column: str) -> Origin | None:
    """Where an output column of a query passes through untouched from; None when that is not certain."""
    inner = {**ctes, **_own_ctes(query, ctes)}
    if query["type"] == "SET_OPERATION_NODE":
        found = {output_origin(side, inner, column) for side in sides(query)}
        return found.pop() if len(found) == 1 else None
    if query["type"] != "SELECT_NODE":
        return None
    select = Select(query, inner)
    origins: set[Origin | None] = set()
    for item in query["select_list"]:
        if item.get("class") == "STAR":
            origins |= _through_star(select, item, column.lower())
        elif _output_name(item) == column.lower():
            names = column_ref(item)
            origins.add(None if names is None else trace(select, names))
    return origins.pop() if len(origins) == 1 else None


def passes_through(statement: SqlNode) -> str | None:
    """The base table whose rows the statement hands on, all of them and untouched; None when it does anything else."""
    query = statement["node"]
    if query["type"] != "SELECT_NODE" or any(query.get(part) for part in _PARTS_THAT_CHANGE_ROWS):
        return None
    if query.get("aggregate_handling") != "STANDARD_HANDLING" or _own_ctes(query, {}):
        return None
    if not all((item.get("class") == "STAR" and _is_plain(item)) or column_ref(item) for item in query["select_list"]):
        return None
    source = query.get("from_table") or {}
    if source.get("type") != "BASE_TABLE" or any(source.get(part) for part in ("sample", "at_clause")):
        return None
    return Select(query, {}).relations[0].table


_PARTS_THAT_CHANGE_ROWS = (
    "modifiers",
    "where_clause",
    "group_expressions",
    "group_sets",
    "having",
    "sample",
    "qualify",
)


def _is_plain(star: SqlNode) -> bool:
    return not any(star.get(part) for part in ("columns", "expr", "replace_list"))


def computed_names(select: Select) -> frozenset[str]:
    """Lower-case names that the select list gives to anything but the column of that name."""
    given = set()
    for item in select.node["select_list"]:
        alias = str(item.get("alias") or "").lower()
        names = column_ref(item)
        if alias and (names is None or names[-1].lower() != alias):
            given.add(alias)
    return frozenset(given)


def _owner(select: Select, names: tuple[str, ...]) -> tuple[Relation, str] | None:
    """The relation that a reference names, and the column in it, when there is no doubt."""
    found = select.relations
    if len(names) == 1:
        return (found[0], names[0]) if len(found) == 1 and not select.correlated else None
    qualifier = ".".join(names[:-1]).lower()
    matching = [relation for relation in found if qualifier in {relation.alias, relation.table}]
    return (matching[0], names[-1]) if len(matching) == 1 else None


def _through(relation: Relation, column: str) -> Origin | None:
    if relation.renamed:
        return None
    if relation.table is not None:
        return relation.table, column
    return None if relation.query is None else output_origin(relation.query, relation.ctes, column)


def _output_name(item: SqlNode) -> str | None:
    if item.get("alias"):
        return str(item["alias"]).lower()
    names = column_ref(item)
    return None if names is None else names[-1].lower()


def _through_star(select: Select, star: SqlNode, column: str) -> set[Origin | None]:
    """What a ``*`` contributes to an output column: nothing, one origin, or None for doubt."""
    if star.get("columns") or star.get("expr") or star.get("rename_list") or star.get("qualified_exclude_list"):
        return {None}
    if column in {str(name).lower() for name in star.get("exclude_list") or ()}:
        return set()
    if column in {str(entry["key"]).lower() for entry in star.get("replace_list") or ()}:
        return {None}
    wanted = str(star.get("relation_name") or "").lower()
    found = [relation for relation in select.relations if not wanted or relation.alias == wanted]
    return {_through(found[0], column) if len(found) == 1 else None}


def _own_ctes(query: SqlNode, ctes: Ctes) -> dict[str, Cte | None]:
    own: dict[str, Cte | None] = {}
    for name, body, renamed in cte_bodies(query):
        followed = not renamed and body["type"] != "RECURSIVE_CTE_NODE"
        own[name] = Cte(body, {**ctes, **own}) if followed else None
    return own


def _queries(query: SqlNode, ctes: Ctes, correlated: bool) -> Iterator[Select]:
    own = _own_ctes(query, ctes)
    seen: dict[str, Cte | None] = dict(ctes)
    for name, body, _ in cte_bodies(query):
        itself = {name: None} if body["type"] == "RECURSIVE_CTE_NODE" else {}
        yield from _queries(body, {**seen, **itself}, correlated)
        seen[name] = own[name]
    if query["type"] == "SELECT_NODE":
        yield Select(query, seen, correlated)
        for relation in _flatten(query.get("from_table") or {}, seen, True, False):
            if relation.node["type"] == "SUBQUERY" and relation.query is not None:
                yield from _queries(relation.query, seen, correlated or relation.lateral)
    else:
        for side in sides(query):
            yield from _queries(side, seen, correlated)
        yield Select(query, seen, correlated)
    yield from _expression_queries(query, seen)


def _expression_queries(query: SqlNode, ctes: Ctes) -> Iterator[Select]:
    """The queries inside a query's expressions: everywhere but in its CTEs, sides and derived tables."""
    for node in own_nodes(query):
        if is_subquery(node):
            yield from _queries(node["subquery"]["node"], ctes, True)
        elif node.get("type") == "SHOW_REF" and node.get("query"):
            yield from _queries(node["query"], ctes, True)


_KEEPS_LEFT = {"INNER", "LEFT", "SEMI", "ANTI"}
_KEEPS_RIGHT = {"INNER", "RIGHT"}


def _flatten(ref: SqlNode, ctes: Ctes, kept: bool, lateral: bool) -> Iterator[Relation]:
    kind = ref.get("type")
    if kind == "JOIN":
        plain = ref.get("ref_type") in {"REGULAR", "CROSS", "NATURAL"}
        yield from _flatten(ref["left"], ctes, kept and plain and ref.get("join_type") in _KEEPS_LEFT, lateral)
        yield from _flatten(ref["right"], ctes, kept and plain and ref.get("join_type") in _KEEPS_RIGHT, True)
    elif kind == "PIVOT":
        yield from _flatten(ref["source"], ctes, False, lateral)
        yield Relation(str(ref.get("alias") or "").lower(), ref, kept=False)
    elif kind not in {None, "EMPTY"}:
        yield _relation(ref, ctes, kept, lateral)


def _relation(ref: SqlNode, ctes: Ctes, kept: bool, lateral: bool) -> Relation:
    alias = str(ref.get("alias") or "").lower()
    renamed = bool(ref.get("column_name_alias"))
    if ref["type"] == "SUBQUERY":
        return Relation(alias, ref, None, ref["subquery"]["node"], ctes, kept, lateral, renamed)
    if ref["type"] != "BASE_TABLE":
        return Relation(alias, ref, None, None, {}, kept, lateral, renamed)
    name, schema = str(ref["table_name"]).lower(), str(ref.get("schema_name") or "").lower()
    if not schema and name in ctes:
        cte = ctes[name]
        if cte is None:
            return Relation(alias or name, ref, None, None, {}, kept, lateral, renamed)
        return Relation(alias or name, ref, None, cte.query, cte.ctes, kept, lateral, renamed)
    table = f"{schema}.{name}" if schema else name
    return Relation(alias or name, ref, table, None, ctes, kept, lateral, renamed)
