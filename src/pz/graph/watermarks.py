"""watermark() in SQL: which comparisons bound a read, and what the bounds are once a stored value is known.

Recognised is ``cursor <op> expression`` or its mirror image, as a term of a WHERE clause (or of an inner join's
condition) at any depth where the cursor passes through untouched from the dataset. ``> >=`` are floors, ``< <=``
ceilings. The expression holds exactly one watermark() and no columns, and gives the same value whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pz.connectors.contract import Bound
from pz.cursors import CursorType, canonical, compare, literal, probe_expression
from pz.frozen import frozen
from pz.graph.lineage import Select, computed_names, selects, trace
from pz.graph.model import SqlBound
from pz.graph.sql import bind_constants, watermark_key, watermark_sentinel
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
    walk,
)

if TYPE_CHECKING:
    import duckdb

__all__ = ["WATERMARK", "Comparison", "Unrecognised", "bound_type", "find_comparisons", "resolve", "value_sql"]

WATERMARK = "__pz_stored__"
"""Stands for the stored value in `SqlBound.expression`."""

_DUCKDB_TYPES = {
    CursorType.INT: "BIGINT",
    CursorType.BIGINT: "HUGEINT",
    CursorType.DATE: "DATE",
    CursorType.TIMESTAMP: "TIMESTAMP",
    CursorType.TIMESTAMPTZ: "TIMESTAMPTZ",
}


@frozen
class Comparison:
    """One recognised comparison: the dataset's key, its cursor column and the bound."""

    key: str
    cursor: str
    bound: SqlBound


@frozen
class Unrecognised:
    """A use of watermark() that bounds nothing, and why, in words for the user."""

    key: str
    why: str


_FLIPPED = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
}


def find_comparisons(
    parser: Parser, statement: SqlNode, relations: Mapping[str, str]
) -> tuple[tuple[Comparison, ...], tuple[Unrecognised, ...]]:
    """The watermark comparisons of a pipeline, in the order of the tree, and the uses that are none.

    ``relations`` maps the keys of the datasets that the pipeline reads to their staging relations. Every sentinel of the
    statement is in exactly one of the two results.
    """
    found: list[Comparison] = []
    failed: list[Unrecognised] = []
    settled: set[int] = set()
    for select in selects(statement):
        for term in _bounding_terms(select.node):
            marks = [node for node in walk(term) if watermark_key(node) is not None and id(node) not in settled]
            if len(marks) == 1 and not any(is_subquery(node) for node in walk(term)):
                settled.add(id(marks[0]))
                result = _comparison(parser, select, term, relations)
                if isinstance(result, Comparison):
                    found.append(result)
                else:
                    failed.append(result)
    for node in walk(statement):
        key = watermark_key(node)
        if key is not None and id(node) not in settled:
            failed.append(Unrecognised(key, "it is not one side of a comparison in WHERE"))
    return tuple(found), tuple(failed)


def value_sql(stored: str | None, cursor_type: CursorType | str | None) -> str:
    """The SQL to put in place of a watermark: a typed literal of the stored value, or a typed NULL without one."""
    kind = None if cursor_type is None else CursorType(cursor_type)
    if stored is not None and kind is not None:
        return literal(stored, kind)
    if stored is not None:
        raise ValueError("a stored value has a type")
    if kind is None:
        return "NULL"
    return f"CAST(NULL AS {_DUCKDB_TYPES.get(kind, 'DECIMAL(38,9)')})"


def resolve(
    bounds: Sequence[SqlBound],
    stored: str | None,
    cursor_type: CursorType | str | None,
    connection: duckdb.DuckDBPyConnection,
    *,
    run_id: str = "",
    run_started_at: str = "",
) -> tuple[Bound | None, Bound | None]:
    """The slice that SQL bounds make of a stored value: the loosest floor and the tightest ceiling.

    A floor that is NULL (a bare watermark() with nothing stored) lets everything pass, whatever the others say; a NULL
    ceiling bounds nothing. Without a ``cursor_type`` the bounds are compared as what `bound_type` finds, and there are
    none if that finds nothing. Raises `CursorError` for a value that no cursor can have, duckdb.Error for an expression
    that cannot be evaluated.
    """
    kind = bound_type(bounds, connection) if cursor_type is None else CursorType(cursor_type)
    if kind is None:
        return None, None
    constants = (run_id, run_started_at)
    floors = [_evaluate(bound, stored, kind, connection, constants) for bound in bounds if bound.floor]
    ceilings = [_evaluate(bound, stored, kind, connection, constants) for bound in bounds if not bound.floor]
    lower = None if None in floors else _lowest([f for f in floors if f is not None], kind, inclusive_wins=True)
    return lower, _lowest([c for c in ceilings if c is not None], kind, inclusive_wins=False)


def bound_type(bounds: Sequence[SqlBound], connection: duckdb.DuckDBPyConnection) -> CursorType | None:
    """The cursor type that the bounds have of themselves while nothing is stored, as in ``coalesce(wm, DATE '...')``.

    None when they do not tell, as with text or a bare watermark().
    """
    import duckdb

    types = set()
    for bound in bounds:
        for null in ("NULL", "CAST(NULL AS TIMESTAMP)"):
            sql = bind_constants(bound.expression.replace(WATERMARK, null), "", "2000-01-01T00:00:00")
            try:
                row = connection.execute(f"SELECT typeof({sql}), ({sql}) IS NULL").fetchone()
            except duckdb.BinderException:
                continue
            if row is not None and not row[1]:
                types.add(CursorType.from_duckdb(row[0]))
            break
    return types.pop() if len(types) == 1 else None


def _bounding_terms(query: SqlNode) -> Iterator[SqlNode]:
    """The terms that every row of a SELECT has to pass."""
    yield from conjuncts(query.get("where_clause"))
    yield from _inner_conditions(query.get("from_table") or {})


def _inner_conditions(ref: SqlNode) -> Iterator[SqlNode]:
    if ref.get("type") == "JOIN" and ref.get("join_type") == "INNER" and ref.get("ref_type") in {"REGULAR", "CROSS"}:
        yield from conjuncts(ref.get("condition"))
        yield from _inner_conditions(ref["left"])
        yield from _inner_conditions(ref["right"])


def _comparison(
    parser: Parser, select: Select, term: SqlNode, relations: Mapping[str, str]
) -> Comparison | Unrecognised:
    """Judge a term that holds one watermark()."""
    key = next(key for node in walk(term) if (key := watermark_key(node)) is not None)
    if term.get("class") != "COMPARISON" or term["type"] not in _FLIPPED:
        return Unrecognised(key, "it must be compared with >, >=, < or <=, outside of OR, NOT, BETWEEN and functions")
    column, expression, operator = term["left"], term["right"], term["type"]
    if any(watermark_key(node) is not None for node in walk(column)):
        column, expression, operator = expression, column, _FLIPPED[operator]
    names = column_ref(column)
    if names is None:
        return Unrecognised(key, "the other side of the comparison must be a bare column")
    why = _unsteady(expression)
    if why is not None:
        return Unrecognised(key, why)
    if key not in relations:
        return Unrecognised(key, "this pipeline does not read that dataset; pair it with source()")
    aliased = len(names) == 1 and names[0].lower() in computed_names(select)
    origin = None if aliased else trace(select, names)
    if origin is None or origin[0] != f"staging.{relations[key].lower()}":
        return Unrecognised(key, f"column '{'.'.join(names)}' is not certain to come from that dataset untouched")
    try:
        text = parser.print_expression(expression).replace(watermark_sentinel(key), WATERMARK)
    except SqlFault as fault:
        return Unrecognised(key, fault.message)
    return Comparison(key, origin[1], SqlBound("GREATER" in operator, "EQUALTO" in operator, text))


def _unsteady(expression: SqlNode) -> str | None:
    """Why an expression may not bound a read, or None."""
    for node in walk(expression):
        names = column_ref(node)
        clock = names is not None and len(names) == 1 and names[0].lower() in BARE_CLOCKS
        if clock or function_name(node) in CLOCKS_AND_DICE:
            return "the bound must not depend on when it is evaluated; use run_started_at for the time"
        if names is not None:
            return "the bound must not use columns"
        if node.get("class") in {"WINDOW", "PARAMETER", "LAMBDA", "STAR", "POSITIONAL_REFERENCE"}:
            return "the bound must be a plain expression around the watermark"
    return None


# A bound between two values that a cursor can have is the same as one at the value below it: n > 2.5 and n >= 2.5 are
# n > 2, and n < 2.5 is n <= 2. Rounding to the nearest would lose rows.
_EVALUATE = "SELECT {exact}, down = x FROM (SELECT x, {down} AS down FROM (SELECT {value} AS x))"


def _evaluate(
    bound: SqlBound,
    stored: str | None,
    kind: CursorType,
    connection: duckdb.DuckDBPyConnection,
    constants: tuple[str, str],
) -> Bound | None:
    value = bind_constants(bound.expression.replace(WATERMARK, f"({value_sql(stored, kind)})"), *constants)
    (type_name,) = connection.execute(f"SELECT typeof({value})").fetchone() or ("",)
    exact = probe_expression("down", str(type_name) if kind is CursorType.TIMESTAMP else _DUCKDB_TYPES.get(kind, ""))
    row = connection.execute(_EVALUATE.format(exact=exact, down=_down(type_name, kind), value=value)).fetchone()
    if row is None or row[0] is None:
        return None
    return Bound(canonical(row[0], kind), bound.inclusive if row[1] else not bound.floor)


def _down(type_name: str, kind: CursorType) -> str:
    """SQL that turns ``x`` into the highest value of the cursor's type that is not above it."""
    given = CursorType.from_duckdb(type_name)
    if kind.temporal:
        return "x" if given is kind else f"CAST(x AS {_DUCKDB_TYPES[kind]})"
    whole = given in {CursorType.INT, CursorType.BIGINT}
    return "x" if whole or given is kind else "CAST(floor(x) AS HUGEINT)"


def _lowest(found: Sequence[Bound], kind: CursorType, *, inclusive_wins: bool) -> Bound | None:
    """The lowest bound: the loosest floor (a tie is inclusive) or the tightest ceiling (a tie is exclusive)."""
    best: Bound | None = None
    for bound in found:
        order = -1 if best is None else compare(bound.value, best.value, kind)
        if order < 0 or (order == 0 and bound.inclusive is inclusive_wins):
            best = bound
    return best
