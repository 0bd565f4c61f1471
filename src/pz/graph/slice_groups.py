"""Which groups and windows come out right over a slice.

Those that lie within one slice do: of the cursor itself, or of what a ``watermark()`` floor begins with. The newest row of each
key does where every output merges, and so do groups computed anew from something whole for the keys that a slice names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from pz.connectors.contract import WriteStrategy
from pz.graph.lineage import Select
from pz.graph.model import SinkNode
from pz.graph.slices import Slices, aggregates
from pz.graph.sqltree import Parser, SqlNode, column_ref, function_name, walk
from pz.graph.watermarks import WATERMARK

__all__ = ["SliceGroups"]

_RANKS = {"row_number", "rank", "dense_rank", "rank_dense"}
_NEWEST_BY = {"arg_max", "arg_max_null", "arg_max_nulls_last", "argmax", "max_by"}
_ANY = {"any_value", "arbitrary"}


class SliceGroups:
    """Judges the groups and windows of one pipeline.

    ``statements`` are those of all pipelines: a row number that one makes may be looked at by another. ``sinks`` are
    the outputs below.
    """

    def __init__(
        self, parser: Parser, slices: Slices, statements: Collection[SqlNode], sinks: Collection[SinkNode]
    ) -> None:
        self._parser = parser
        self._slices = slices
        self._statements = statements
        self._sinks = sinks

    def group_is_right(self, query: Select) -> bool:
        """Whether the groups of a SELECT that reads a slice are those of the whole, as far as they are delivered."""
        if self.of_touched_keys(query) or any(self._within_a_slice(query, key) for key in self.keys(query.node)):
            return True
        newest = all(self._newest(query, call) for call in aggregates(query.node))
        return newest and self._are_merged(query, list(self.keys(query.node)))

    def of_touched_keys(self, query: Select) -> bool:
        """Whether something whole is joined with keys of a slice, to compute anew what has changed."""
        both = [(relation, self._slices.of_relation(relation)) for relation in query.relations]
        sliced = [part for _, part in both if part is not None and not part.whole]
        named = any(relation.table or relation.query for relation, part in both if part is not None and part.whole)
        return named and all(part.condensed for part in sliced)

    def keys(self, node: SqlNode) -> Iterator[SqlNode]:
        """What a SELECT groups by: positions and aliases resolved, under GROUP BY ALL what is no aggregate."""
        items = node["select_list"]
        by_alias = {str(item.get("alias") or "").lower(): item for item in items}
        for key in node.get("group_expressions") or ():
            yield key
            names = column_ref(key)
            if names is not None and len(names) == 1 and names[0].lower() in by_alias:
                yield by_alias[names[0].lower()]
            position = self._parser.print_expression(key) if key.get("class") == "CONSTANT" else ""
            if position.isdigit() and 0 < int(position) <= len(items):
                yield items[int(position) - 1]
        if node.get("aggregate_handling") == "FORCE_AGGREGATES":
            calls = {id(call) for call in aggregates(node)}
            yield from (item for item in items if not any(id(inner) in calls for inner in walk(item)))

    def window_is_right(self, query: Select, window: SqlNode) -> bool:
        """Whether a window function gives over the slice what it gives over the whole, as far as it is delivered."""
        if any(self._within_a_slice(query, key) for key in window.get("partitions") or ()):
            return True
        if not self._are_merged(query, window.get("partitions") or ()):
            return False
        name = function_name(window)
        if name in _RANKS:
            return self._first_counts(window) and self._newest_first(query, list(window.get("orders") or ()))
        return self._newest(query, window)

    def _are_merged(self, query: Select, keys: Iterable[SqlNode]) -> bool:
        """Whether the row of a group, or partition, takes the place of the one that an earlier run delivered for it.

        So it is when every output merges by some of what makes the group; where that cannot be told, it may be.
        """
        if any(sink.write.strategy is not WriteStrategy.MERGE for sink in self._sinks):
            return False
        grouped = {None if (n := column_ref(key)) is None else self._slices.origin(query, n) for key in keys}
        merged = {self._slices.origin_of_output(sink.pipeline, key) for sink in self._sinks for key in sink.write.keys}
        return None in grouped | merged or merged <= grouped

    @cached_property
    def _firsts(self) -> list[SqlNode]:
        return [node for statement in self._statements for node in _compared_with_one(self._parser, statement)]

    def _first_counts(self, window: SqlNode) -> bool:
        """Whether only the first of each partition is kept, here or in a pipeline below."""
        alias = str(window.get("alias") or "").lower()
        if any(first is window for first in self._firsts):
            return True
        named = {names[-1].lower() for first in self._firsts if (names := column_ref(first)) is not None}
        return bool(alias) and alias in named

    def distinct_on_is_right(self, query: Select) -> bool:
        """Whether a DISTINCT ON, if there is one, keeps the newest row of each key, or any of them."""
        modifiers = query.node.get("modifiers") or ()
        keys = {column_ref(key) for found in modifiers for key in found.get("distinct_on_targets") or ()}
        orders = [order for found in modifiers for order in found.get("orders") or ()]
        behind = [order for order in orders if column_ref(order["expression"]) not in keys]
        return not keys or not behind or self._newest_first(query, behind)

    def _newest_first(self, query: Select, orders: Sequence[SqlNode]) -> bool:
        """Whether rows are ordered by the cursor, from the newest on; any order will do where no dataset has one."""
        if not any(source.read.sync.cursor for source in self._slices.sources.values()):
            return True
        first = orders[:1]
        return any(o["type"] == "DESCENDING" and self._slices.is_cursor(query, o["expression"]) for o in first)

    def _newest(self, query: Select, call: SqlNode) -> bool:
        """Whether the function takes what is newest: a slice has that."""
        name = function_name(call)
        used = [node for node in walk({**call, "partitions": None, "orders": None}) if column_ref(node) is not None]
        if name in _ANY:
            return True
        if name == "max":
            return bool(used) and all(self._slices.is_cursor(query, node) for node in used)
        return name in _NEWEST_BY and bool(used) and self._slices.is_cursor(query, used[-1])

    def _within_a_slice(self, query: Select, key: SqlNode) -> bool:
        """Whether all rows with one value of an expression come in one slice.

        They do for the cursor itself, because a slice ends and begins between two values of it, and for an expression
        of the cursor from which a ``watermark()`` bounds the slice.
        """
        if self._slices.is_cursor(query, key):
            return True
        shape = self._shape(query, key)
        return shape is not None and shape in self._floors

    @cached_property
    def _floors(self) -> list[object]:
        bounds = [bound for source in self._slices.sources.values() for bound in source.bounds]
        inclusive = [bound for bound in bounds if bound.floor and bound.inclusive]
        return [_normal(self._parser.expression(bound.expression), _is_watermark) for bound in inclusive]

    def _shape(self, query: Select, key: SqlNode) -> object | None:
        """The expression with a mark where it has the cursor; None when it has no column, or another one."""
        columns = [node for node in walk(key) if column_ref(node) is not None]
        if not columns or not all(self._slices.is_cursor(query, node) for node in columns):
            return None
        return _normal(key, lambda node: column_ref(node) is not None)


def _compared_with_one(parser: Parser, statement: SqlNode) -> Iterator[SqlNode]:
    """What is compared with the number 1: a rank of which only the first counts."""
    for node in walk(statement):
        if node.get("class") == "COMPARISON":
            for side, other in ((node["left"], node["right"]), (node["right"], node["left"])):
                if other.get("class") == "CONSTANT" and parser.print_expression(other) == "1":
                    yield side


def _is_watermark(node: SqlNode) -> bool:
    names = column_ref(node)
    return names is not None and names[-1] == WATERMARK


def _normal(node: object, is_mark: Callable[[SqlNode], bool]) -> object:
    """A tree without what does not change its meaning here: places, aliases, casts, and coalesce() around the mark."""
    if isinstance(node, list):
        return [_normal(item, is_mark) for item in node]
    if not isinstance(node, dict):
        return node
    if is_mark(node):
        return WATERMARK
    if node.get("class") == "CAST":
        return _normal(node["child"], is_mark)
    if node.get("type") == "OPERATOR_COALESCE":
        return _normal(node["children"][0], is_mark)
    return {key: _normal(value, is_mark) for key, value in node.items() if key not in {"query_location", "alias"}}
