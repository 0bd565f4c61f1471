"""Which relations are slices: of a dataset that is read incrementally, as a feed or by capture, a run has what is new.

A slice is followed through joins, CTEs, derived tables and pipelines. What cannot be followed is not known: neither a
slice nor whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from pz.frozen import frozen
from pz.graph.lineage import Origin, Relation, Select, output_origin, own_nodes, sides, trace, within
from pz.graph.model import SourceNode
from pz.graph.sqltree import AGGREGATES, SqlNode, column_ref, conjuncts, function_name, is_subquery

__all__ = ["WHOLE", "Slice", "SlicedColumn", "Slices", "aggregates", "groups", "is_distinct", "is_filter"]


@frozen
class Slice:
    """Of ``datasets`` (by key) only what is new; whole without any. ``condensed``: groups or distinct values of it."""

    datasets: frozenset[str] = frozenset()
    condensed: bool = False

    @property
    def whole(self) -> bool:
        """Whether it lacks nothing that an earlier run read."""
        return not self.datasets


WHOLE = Slice()

SlicedColumn = tuple[str, str]
"""The key of a dataset and one of its columns, in lower case."""


class Slices:
    """What the relations of a project are.

    ``sources`` are the datasets of which each run reads only what is new, ``statements`` those of the pipelines by name.
    Pipelines have to be learned parents first; an answer of None means "not known".
    """

    def __init__(self, sources: Iterable[SourceNode], statements: Mapping[str, SqlNode]) -> None:
        self.sources: Mapping[str, SourceNode] = {f"staging.{source.relation.lower()}": source for source in sources}
        self._tables = {table: Slice(frozenset({source.key})) for table, source in self.sources.items()}
        self._statements = {f"staging.{name.lower()}": statement for name, statement in statements.items()}
        self._queries: dict[int, Slice | None] = {}

    def learn(self, pipeline: str) -> None:
        """Find out what a pipeline is whose parents are known."""
        table = f"staging.{pipeline.lower()}"
        found = self.of_query(within(self._statements[table]["node"], {}))
        if found is not None:
            self._tables[table] = found

    def of_query(self, query: Select) -> Slice | None:
        """What the rows are that a query gives."""
        key = id(query.node)
        if key not in self._queries:
            self._queries[key] = self._of_query(query)
        return self._queries[key]

    def _of_query(self, query: Select) -> Slice | None:
        node = query.node
        if node["type"] == "SET_OPERATION_NODE":
            parts = [self.of_query(within(side, query.ctes)) for side in sides(node)]
            return parts[0] if node["setop_type"] == "EXCEPT" else _together(parts)
        if node["type"] != "SELECT_NODE":
            return None
        filters = [
            self.of_query(within(term["subquery"]["node"], query.ctes))
            for term in conjuncts(node.get("where_clause"))
            if is_filter(term)
        ]
        found = _together([self.of_from(query), *filters])
        return found if found is None or found.whole else Slice(found.datasets, is_distinct(node) or groups(node))

    def of_from(self, query: Select) -> Slice | None:
        """What the rows are that a SELECT reads, before its WHERE."""
        return _together([self.of_relation(relation) for relation in query.relations])

    def of_ref(self, ref: SqlNode, relations: Mapping[int, Relation]) -> Slice | None:
        """What an entry of a FROM clause is; ``relations`` are those of its SELECT by the id of their nodes."""
        if ref.get("type") == "JOIN":
            left = self.of_ref(ref["left"], relations)
            return left if ref["join_type"] == "ANTI" else _together([left, self.of_ref(ref["right"], relations)])
        if ref.get("type") == "PIVOT":
            return self.of_ref(ref["source"], relations)
        return self.of_relation(relations[id(ref)]) if id(ref) in relations else None

    def of_relation(self, relation: Relation) -> Slice | None:
        """What one relation is."""
        if relation.query is not None:
            return self.of_query(within(relation.query, relation.ctes))
        if relation.table is not None:
            return self._tables.get(relation.table, None if relation.table in self._statements else WHOLE)
        return None if relation.node["type"] == "BASE_TABLE" else WHOLE

    def origin(self, select: Select, names: tuple[str, ...]) -> SlicedColumn | None:
        """The sliced dataset and its column that a reference passes through untouched from, pipelines included."""
        return self._followed(trace(select, names))

    def origin_of_output(self, pipeline: str, column: str) -> SlicedColumn | None:
        """The same for a column of a pipeline's result."""
        return self._followed((f"staging.{pipeline.lower()}", column))

    def _followed(self, found: Origin | None) -> SlicedColumn | None:
        while found is not None and found[0] in self._statements:
            found = output_origin(self._statements[found[0]]["node"], {}, found[1])
        source = None if found is None else self.sources.get(found[0])
        return None if found is None or source is None else (source.key, found[1].lower())

    def is_cursor(self, select: Select, node: object) -> bool:
        """Whether an expression is the bare cursor of a slice. A name without a qualifier gets the benefit of the doubt."""
        names = column_ref(node)
        if names is None:
            return False
        found = self.origin(select, names)
        if found is not None:
            return found in self._cursors
        doubtful = len(names) == 1 and (len(select.relations) > 1 or select.correlated)
        return doubtful and names[0].lower() in {column for _, column in self._cursors}

    @cached_property
    def _cursors(self) -> frozenset[SlicedColumn]:
        return frozenset((source.key, (source.read.sync.cursor or "").lower()) for source in self.sources.values())


def aggregates(query: SqlNode) -> list[SqlNode]:
    """The aggregate functions that a SELECT calls, window functions not among them."""
    called = (node for node in own_nodes(query) if node.get("class") == "FUNCTION")
    return [node for node in called if function_name(node) in AGGREGATES]


def groups(query: SqlNode) -> bool:
    """Whether a SELECT makes groups, one of all rows included."""
    forced = query.get("aggregate_handling") == "FORCE_AGGREGATES"  # GROUP BY ALL
    return bool(query.get("group_expressions") or forced or aggregates(query))


def is_distinct(query: SqlNode) -> bool:
    """Whether a query drops rows that are equal, or equal in some columns."""
    if query["type"] == "SET_OPERATION_NODE" and query["setop_type"] == "UNION" and not query.get("setop_all"):
        return True
    return any(modifier["type"] == "DISTINCT_MODIFIER" for modifier in query.get("modifiers") or ())


def is_filter(term: SqlNode) -> bool:
    """Whether a term of WHERE keeps the rows that have a partner in a subquery: EXISTS or IN."""
    return is_subquery(term) and term["subquery_type"] in {"EXISTS", "ANY"}


def _together(parts: Iterable[Slice | None]) -> Slice | None:
    known = list(parts)
    datasets = frozenset[str]().union(*(part.datasets for part in known if part is not None))
    return None if not datasets and None in known else Slice(datasets)
