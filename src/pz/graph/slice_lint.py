"""SQL that is right over a whole dataset and wrong over a slice of it: a warning for each construct (PZ0711).

What is certain to be right is left alone, such as a slice joined with something whole, and so is what cannot be told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

from pz.connectors.contract import OnDelete, ReadShape, WriteStrategy
from pz.errors import Code, Problem, Severity
from pz.frozen import frozen
from pz.graph.lineage import Select, own_nodes, queries, sides, within
from pz.graph.model import Graph, PipelineNode, SinkNode
from pz.graph.slice_groups import SliceGroups
from pz.graph.slices import Slice, Slices, aggregates, groups, is_distinct, is_filter
from pz.graph.sqltree import (
    Parser,
    SqlNode,
    column_ref,
    conjuncts,
    function_name,
    is_subquery,
    line_at,
    offset_of,
    walk,
)
from pz.graph.understand import Understood, UnderstoodPipeline
from pz.project.templates import RefCall, SourceCall

__all__ = ["lint_slices"]

_SLICED = {ReadShape.INCREMENTAL, ReadShape.FEED, ReadShape.CDC}


def lint_slices(
    parser: Parser, graph: Graph, understood: Understood, shapes: Mapping[str, ReadShape | None]
) -> Iterator[Problem]:
    """A PZ0711 for every construct that is computed over a slice and delivered wrong. ``shapes`` are by node id.

    A pipeline that feeds no output delivers nothing, and is only followed.
    """
    statements = {name: pipeline.statement for name, pipeline in understood.pipelines.items()}
    slices = Slices((source for source in graph.sources() if shapes.get(source.id) in _SLICED), statements)
    if not slices.sources:
        return
    for node in graph.nodes:
        if not isinstance(node, PipelineNode):
            continue
        pipeline = understood.pipelines[node.name]
        sinks = [below for below in graph.in_order(graph.descendants([node.id])) if isinstance(below, SinkNode)]
        if sinks:
            lint = _Lint(parser, slices, sinks, pipeline.statement, statements.values())
            yield from (_told(finding, pipeline, understood) for finding in lint.findings())
        slices.learn(node.name)


@frozen(slots=False, eq=False)
class _Finding:
    """One construct: where it begins in the SQL, what it does to which datasets, and what to do instead."""

    offset: int | None
    what: str
    datasets: frozenset[str]
    why: str
    hint: str


def _told(finding: _Finding, pipeline: UnderstoodPipeline, understood: Understood) -> Problem:
    name, file, line = _place(finding.offset, pipeline, understood)
    keys = " and ".join(f"'{key}'" for key in sorted(finding.datasets))
    noun = "dataset" if len(finding.datasets) == 1 else "datasets"
    message = f"pipeline '{name}' {finding.what}, but of {noun} {keys} each run reads only what is new: {finding.why}"
    return Problem(Code.PZ0711, message, file, line, finding.hint, Severity.WARNING)


def _place(offset: int | None, pipeline: UnderstoodPipeline, understood: Understood) -> tuple[str, str, int | None]:
    """Pipeline, file and line of a place in the SQL; an ephemeral pipeline is named itself."""
    bound, sql = pipeline.bound, pipeline.sql
    if offset is None:
        return bound.decl.name, bound.decl.location.file, bound.decl.location.line
    line = line_at(sql, offset)
    for name in bound.inlined:
        rendered = understood.bindings.ephemeral[name]
        begin = sql.find(rendered.sql)
        first = sql[:begin].count("\n") + 1
        if begin >= 0 and first <= line <= first + rendered.sql.count("\n"):
            calls: list[SourceCall | RefCall] = [*rendered.sources, *rendered.refs]
            return name, calls[0].location.file, rendered.template_line(line - first + 1)
    return bound.decl.name, bound.decl.location.file, pipeline.lines[line - 1] or None


_WHOLE_INSTEAD = "read the whole dataset (no sync:, no watermark()) and replace the output"
_DOWNSTREAM = "deliver the rows and compute this where they are read"
_BY_CURSOR = f"order them by the cursor, newest first; or {_WHOLE_INSTEAD}"


class _Lint:
    """The constructs of one pipeline, whose rows go to ``sinks``. ``statements`` are those of all pipelines."""

    def __init__(
        self,
        parser: Parser,
        slices: Slices,
        sinks: Collection[SinkNode],
        statement: SqlNode,
        statements: Collection[SqlNode],
    ) -> None:
        self._slices = slices
        self._sinks = sinks
        self._statement = statement
        self._merges = all(sink.write.strategy is WriteStrategy.MERGE for sink in sinks)
        self._judge = SliceGroups(parser, slices, statements, sinks)

    def findings(self) -> Iterator[_Finding]:
        """All of them, in the order of the tree."""
        for query in queries(self._statement):
            if query.node["type"] == "SET_OPERATION_NODE":
                yield from self._set_operation(query)
            elif query.node["type"] == "SELECT_NODE":
                yield from self._groups(query)
                yield from self._windows(query)
                yield from self._joins(query)
                yield from self._subqueries(query)
                yield from self._filters(query)
            if id(query.node) not in self._inner:
                yield from self._distinct(query)
                yield from self._limit(query)

    @cached_property
    def _inner(self) -> frozenset[int]:
        """The nodes inside subqueries of expressions, whose rows are only looked at."""
        asked = [node["subquery"] for node in walk(self._statement) if is_subquery(node)]
        return frozenset(id(node) for subquery in asked for node in walk(subquery))

    # ---- groups, windows, distinct, limit: computed over what one query reads

    def _groups(self, query: Select) -> Iterator[_Finding]:
        read, node = self._slices.of_from(query), query.node
        called = aggregates(node)
        if read is None or read.whole or not called or self._judge.group_is_right(query):
            return
        names = _listed(f"{_spelled(call)}()" for call in called)
        why = "what earlier runs read of them is missing in the result"
        hint = (
            f"{_WHOLE_INSTEAD}; or {_DOWNSTREAM}; or group by what one slice holds whole: the cursor itself, or "
            "date_trunc('day', cursor) with WHERE cursor >= date_trunc('day', {{ watermark(...) }})"
        )
        over = "groups of rows" if any(self._judge.keys(node)) else "all rows"
        yield _Finding(offset_of(*called), f"computes {names} over {over}", read.datasets, why, hint)

    def _windows(self, query: Select) -> Iterator[_Finding]:
        read = self._slices.of_from(query)
        if read is None or read.whole or self._judge.of_touched_keys(query):
            return
        windows = [node for node in own_nodes(query.node) if node.get("class") == "WINDOW"]
        wrong = [window for window in windows if not self._judge.window_is_right(query, window)]
        if wrong:
            names = _listed(f"{_spelled(window)}() OVER (...)" for window in wrong)
            why = "the rows that earlier runs read are not in the window"
            hint = f"{_WHOLE_INSTEAD}; or {_DOWNSTREAM}; or partition by the cursor"
            yield _Finding(offset_of(*wrong), f"computes {names}", read.datasets, why, hint)

    def _distinct(self, query: Select) -> Iterator[_Finding]:
        read = self._slices.of_query(query)
        plain = is_distinct(query.node) or (groups(query.node) and not aggregates(query.node))
        if read is None or read.whole or not plain:
            return
        where = offset_of(query.node.get("select_list"), query.node.get("left"), query.node.get("children"))
        if self._merges and not self._judge.distinct_on_is_right(query):
            why = "a row that an earlier run delivered may be the first of its key"
            yield _Finding(where, "takes one row of each key (DISTINCT ON)", read.datasets, why, _BY_CURSOR)
        if self._merges:
            return
        why = "a row that an earlier run appended is appended again"
        hint = "use write.strategy: merge, with the distinct columns as keys"
        yield _Finding(where, "drops repeated rows (DISTINCT, UNION or GROUP BY)", read.datasets, why, hint)

    def _limit(self, query: Select) -> Iterator[_Finding]:
        read = self._slices.of_query(query)
        limits = [found for found in query.node.get("modifiers") or () if found.get("limit") or found.get("offset")]
        if read is not None and not read.whole and limits:
            why = "the rows behind the limit are not read again by a later run"
            hint = "drop LIMIT and OFFSET, and limit where the output is read; sync.max_window makes slices smaller"
            yield _Finding(offset_of(*limits), "takes some of the rows (LIMIT)", read.datasets, why, hint)

    # ---- two relations: joins, subqueries, set operations

    def _joins(self, query: Select) -> Iterator[_Finding]:
        relations = {id(relation.node): relation for relation in query.relations}
        for join in own_nodes(query.node):
            if join.get("type") != "JOIN":
                continue
            left, right = (self._slices.of_ref(join[side], relations) for side in ("left", "right"))
            if left is None or right is None or (left.whole and right.whole):
                continue
            kind, where = join["join_type"], offset_of({**join, "left": None, "condition": None}, join["right"])
            if not left.whole and not right.whole:
                yield from self._two_slices(left, right, where, "joins two slices")
            elif kind == "ANTI" and left.whole:
                yield _without(right, where, "ANTI JOIN")
            elif kind == "FULL" or (kind == "LEFT" and left.whole) or (kind == "RIGHT" and right.whole):
                sliced = right if left.whole else left
                why = "rows whose partner came in an earlier run are delivered without it"
                hint = (
                    "let the slice be the side that is kept (slice LEFT JOIN whole), use an inner join, or read both "
                    "datasets whole and replace the output"
                )
                what = f"keeps rows that have no partner in a slice ({kind} JOIN)"
                yield _Finding(where, what, sliced.datasets, why, hint)

    def _subqueries(self, query: Select) -> Iterator[_Finding]:
        read = self._slices.of_from(query)
        terms = conjuncts(query.node.get("where_clause"))
        filters = {id(term) for term in terms if is_filter(term)}
        denied = {id(child) for node in own_nodes(query.node) for child in _denied(node)}
        for node in own_nodes(query.node):
            if not is_subquery(node) or not query.relations or read is None:
                continue
            asked = self._slices.of_query(within(node["subquery"]["node"], query.ctes))
            if asked is None or asked.whole:
                continue
            where = offset_of({**node, "child": None})
            if id(node) in denied:
                yield _without(asked, where, "NOT EXISTS or NOT IN")
            elif not read.whole:
                yield from self._two_slices(read, asked, where, "looks up rows of a slice in a slice")
            elif id(node) not in filters and not asked.condensed:
                why = "what is not found may have come in an earlier run"
                hint = f"{_WHOLE_INSTEAD}; or use an inner join, so that only what is new is delivered"
                yield _Finding(where, "looks up every row in a slice", asked.datasets, why, hint)

    def _set_operation(self, query: Select) -> Iterator[_Finding]:
        kind, node = query.node["setop_type"], query.node
        if kind not in {"EXCEPT", "INTERSECT"}:
            return
        first, *others = sides(node)
        left = self._slices.of_query(within(first, query.ctes))
        for other in others:
            right = self._slices.of_query(within(other, query.ctes))
            if right is None or right.whole:
                continue
            if kind == "EXCEPT":
                yield _without(right, offset_of(other), "EXCEPT")
            elif left is not None and not left.whole:
                yield from self._two_slices(left, right, offset_of(other), "intersects two slices")

    @staticmethod
    def _two_slices(left: Slice, right: Slice, where: int | None, what: str) -> Iterator[_Finding]:
        one = left.datasets == right.datasets and len(left.datasets) == 1
        if one and (left.condensed or right.condensed):
            return  # a slice beside its own groups; those are judged where they are made
        why = "a row whose partner came in an earlier run does not find it"
        hint = "read all but one of the datasets whole (no sync:, no watermark()), or deliver each and join them there"
        yield _Finding(where, what, left.datasets | right.datasets, why, hint)

    # ---- captured datasets

    def _filters(self, query: Select) -> Iterator[_Finding]:
        """A row that WHERE no longer lets through is no delete: the version before it stays in the output."""
        read = self._slices.of_from(query)
        captured = {
            source.key
            for source in self._slices.sources.values()
            if source.declared_shape is ReadShape.CDC and read is not None and source.key in read.datasets
        }
        sinks = [sink for sink in self._sinks if sink.write.on_delete in {OnDelete.DELETE, OnDelete.SOFT}]
        if not captured or not sinks or id(query.node) in self._inner:
            return
        keys = {key.lower() for sink in sinks for key in sink.write.keys}
        terms = conjuncts(query.node.get("where_clause"))
        wrong = [term for term in terms if not self._is_over_keys(query, term, keys)]
        if wrong:
            outputs = _listed(f"'{sink.name}'" for sink in sinks)
            why = (
                f"a row that is changed so that it no longer passes stays in {outputs} as it was, for that is no delete"
            )
            hint = (
                "deliver all rows, with a column that says which count, and filter where they are read; a filter on "
                "merge keys alone is fine"
            )
            yield _Finding(offset_of(*wrong), "filters a captured dataset (WHERE)", frozenset(captured), why, hint)

    def _is_over_keys(self, query: Select, term: SqlNode, keys: Collection[str]) -> bool:
        named = [names for node in walk(term) if (names := column_ref(node)) is not None]
        if any(is_subquery(node) for node in walk(term)):
            return False
        origins = [self._slices.origin(query, names) for names in named]
        return all(origin is not None and origin[1].lower() in keys for origin in origins)


def _without(sliced: Slice, where: int | None, kind: str) -> _Finding:
    why = "what it lacks may have come in an earlier run"
    hint = "read the dataset that is looked up whole (no sync:, no watermark())"
    return _Finding(where, f"takes what is not in a slice ({kind})", sliced.datasets, why, hint)


def _denied(node: SqlNode) -> Iterator[SqlNode]:
    if node.get("type") == "OPERATOR_NOT":
        yield from node["children"]


def _spelled(call: SqlNode) -> str:
    return (function_name(call) or "").removesuffix("_star")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
