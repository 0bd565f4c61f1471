"""DuckDB's own parse tree of a pipeline, as plain JSON, and the few things that the rest of the graph asks of it.

The tree is what `json_serialize_sql` gives: exact dialect, no second parser to keep in step. Its layout is DuckDB's and
differs a little between 1.5 and 2.x (function arguments, constants), so nothing outside this module looks at those
parts directly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pz.sqltext import literal

if TYPE_CHECKING:
    from types import TracebackType

    import duckdb

__all__ = [
    "AGGREGATES",
    "BARE_CLOCKS",
    "CLOCKS_AND_DICE",
    "Parser",
    "SqlFault",
    "SqlNode",
    "column_ref",
    "conjuncts",
    "cte_bodies",
    "function_name",
    "is_subquery",
    "line_at",
    "offset_of",
    "string_constant",
    "walk",
]

SqlNode = dict[str, Any]
"""A node of the tree."""

# Functions and keywords whose value depends on when, or how often, they are evaluated.
CLOCKS_AND_DICE = frozenset({
    "now", "today", "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp",
    "current_localtime", "current_localtimestamp", "get_current_time", "get_current_timestamp",
    "transaction_timestamp", "random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "setseed", "nextval",
    "currval", "setval", "sleep_ms", "txid_current", "current_query", "current_query_id", "current_transaction_id",
    "current_connection_id", "current_user", "session_user", "user", "current_role", "current_schema",
    "current_schemas", "current_database", "current_catalog", "current_setting", "getvariable", "getenv", "error",
    "stats", "write_log", "in_search_path", "version",
})  # fmt: skip

# The ones of them that are written without parentheses, and look like a column in the tree.
BARE_CLOCKS = frozenset({
    "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "current_user", "session_user",
    "user", "current_role", "current_schema", "current_catalog",
})  # fmt: skip

# What makes one row of many; a test compares it with what DuckDB has.
AGGREGATES = frozenset({
    "any_value", "approx_count_distinct", "approx_quantile", "approx_top_k", "arbitrary", "arg_max", "arg_max_null",
    "arg_max_nulls_last", "arg_min", "arg_min_null", "arg_min_nulls_last", "argmax", "argmin", "array_agg", "avg",
    "bit_and", "bit_or", "bit_xor", "bitstring_agg", "bool_and", "bool_or", "corr", "count", "count_if", "count_star",
    "countif", "covar_pop", "covar_samp", "entropy", "favg", "first", "fsum", "group_concat", "histogram",
    "histogram_exact", "kahan_sum", "kurtosis", "kurtosis_pop", "last", "list", "listagg", "mad", "max", "max_by", "mean",
    "median", "min", "min_by", "mode", "product", "quantile", "quantile_cont", "quantile_disc", "regr_avgx",
    "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "reservoir_quantile", "sem", "skewness", "stddev", "stddev_pop", "stddev_samp", "string_agg", "sum",
    "sum_no_overflow", "sumkahan", "var_pop", "var_samp", "variance",
})  # fmt: skip

_NOT_SELECT = (
    "a pipeline is one SELECT (WITH, VALUES and FROM-first included); other statements, and PIVOT without a list of "
    "values, cannot be materialised"
)


class SqlFault(Exception):
    """The text is no single SELECT; ``line`` counts from 1 within the text, None when unknown."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class Parser:
    """DuckDB's parser on a private in-memory database; use it as a context manager, from one thread."""

    def __init__(self) -> None:
        import duckdb

        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(":memory:")

    def __enter__(self) -> Parser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def parse(self, sql: str) -> SqlNode:
        """Return the statement node of exactly one SELECT. Raises `SqlFault` otherwise."""
        answer = json.loads(self._one(f"SELECT json_serialize_sql({literal(sql)}::VARCHAR)"))
        if answer["error"]:
            if answer["error_type"] == "not implemented":
                raise SqlFault(_NOT_SELECT)
            position = answer.get("position")
            raise SqlFault(answer["error_message"], line_at(sql, int(position)) if position else None)
        statements: list[SqlNode] = answer["statements"]
        if not statements:
            raise SqlFault("the SQL is empty")
        if len(statements) > 1:
            raise SqlFault("there is more than one statement; a pipeline is one SELECT")
        return statements[0]

    def print(self, statement: SqlNode) -> str:
        """Return the SQL of a (changed) statement. Raises `SqlFault` for the rare node that DuckDB cannot print."""
        import duckdb

        document = json.dumps({"error": False, "statements": [statement]})
        try:
            return self._one(f"SELECT json_deserialize_sql({literal(document)}::JSON)")
        except duckdb.Error as failure:
            raise SqlFault(f"DuckDB cannot print this SQL again: {str(failure).splitlines()[0]}") from failure

    def print_expression(self, expression: SqlNode) -> str:
        """Return the SQL of one expression."""
        statement = self.parse("SELECT 1")
        statement["node"]["select_list"] = [{**expression, "alias": ""}]
        return self.print(statement).removeprefix("SELECT ")

    def expression(self, sql: str) -> SqlNode:
        """Return the node of one expression, to be used as a pattern for a changed tree."""
        node: SqlNode = self.parse(f"SELECT {sql}")["node"]["select_list"][0]
        return node

    def _one(self, query: str) -> str:
        # Text in the query, not as a parameter: binding one makes DuckDB import pandas, a second of start-up.
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return str(row[0])


def line_at(sql: str, byte_offset: int) -> int:
    """The line, from 1, of a position that DuckDB gave; it counts bytes."""
    return sql.encode()[:byte_offset].count(b"\n") + 1


def offset_of(*nodes: object) -> int | None:
    """The first byte of the SQL that any of the nodes, or what is below them, comes from; None where none tells."""
    told = (found.get("query_location") for node in nodes for found in walk(node))
    return min((at for at in told if isinstance(at, int) and at < _NOWHERE), default=None)


_NOWHERE = 2**64 - 1


def walk(node: object) -> Iterator[SqlNode]:
    """Every object below and including ``node``, parents first."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from walk(value)
    elif isinstance(node, list):
        for item in node:
            yield from walk(item)


def column_ref(node: object) -> tuple[str, ...] | None:
    """The dotted parts of a column reference, None for any other node."""
    if isinstance(node, dict) and node.get("class") == "COLUMN_REF":
        return tuple(node["column_names"])
    return None


def string_constant(node: object) -> str | None:
    """The text of a string literal, None for any other node."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    modern = node.get("literal")
    if modern is not None:
        return modern["text"] if modern.get("kind") == "STRING" else None
    value = node["value"]
    return str(value["value"]) if value["type"]["id"] == "VARCHAR" and not value["is_null"] else None


def function_name(node: object) -> str | None:
    """The lower-case name of a function call or window function, None for any other node."""
    if isinstance(node, dict) and node.get("class") in {"FUNCTION", "WINDOW"}:
        return str(node.get("function_name", "")).lower()
    return None


def is_subquery(node: SqlNode) -> bool:
    """Whether the node is a subquery inside an expression."""
    return node.get("class") == "SUBQUERY"


def cte_bodies(query: SqlNode) -> Iterator[tuple[str, SqlNode, bool]]:
    """Lower-case name and body of a query's own CTEs in order; the flag says whether its columns got other names."""
    for entry in (query.get("cte_map") or {}).get("map") or ():
        value = entry["value"]
        body = value.get("query_node") or value["query"]["node"]
        yield str(entry["key"]).lower(), body, bool(value.get("aliases"))


def conjuncts(expression: SqlNode | None) -> tuple[SqlNode, ...]:
    """The terms of a (nested) AND; a single term is itself."""
    if expression is None:
        return ()
    if expression.get("type") == "CONJUNCTION_AND":
        return tuple(term for child in expression["children"] for term in conjuncts(child))
    return (expression,)
