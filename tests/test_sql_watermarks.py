"""watermark() comparisons in SQL bound the read exactly as they bound the pipeline's own rows."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pz.connectors.contract import Bound
from pz.cursors import CursorType
from pz.graph.model import SqlBound
from pz.graph.sql import bind, watermark_sentinel
from pz.graph.sqltree import Parser
from pz.graph.watermarks import WATERMARK, Comparison, bound_type, find_comparisons, resolve, value_sql

WM = watermark_sentinel("crm.s")
RELATIONS = {"crm.s": "src_crm__s", "crm.t": "src_crm__t"}


def find(sql: str) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Recognised comparisons as (cursor, operator, expression), and why the others are none."""
    with Parser() as parser:
        found, failed = find_comparisons(parser, parser.parse(sql), RELATIONS)
    return [(c.cursor, operator(c), c.bound.expression) for c in found], [f.why for f in failed]


def operator(comparison: Comparison) -> str:
    return (">" if comparison.bound.floor else "<") + ("=" if comparison.bound.inclusive else "")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"select * from staging.src_crm__s where at_ > {WM}", [("at_", ">", WATERMARK)]),
        (f"select * from staging.src_crm__s s where n = 1 and (s.at_ >= {WM} and n < 3)", [("at_", ">=", WATERMARK)]),
        (f"select * from staging.src_crm__s where {WM} < at_", [("at_", ">", WATERMARK)]),
        (
            f"select * from staging.src_crm__s where at_ > {WM} and at_ <= least({WM} + 10, 50)",
            [("at_", ">", WATERMARK), ("at_", "<=", f"least(({WATERMARK} + 10), 50)")],
        ),
        (
            f"with a as (select at_ as b, n from staging.src_crm__s) select * from a where b >= coalesce({WM}, 7) - 1",
            [("at_", ">=", f"(COALESCE({WATERMARK}, 7) - 1)")],
        ),
        (
            f"select * from staging.src_crm__t t join staging.src_crm__s s on s.id = t.id and s.at_ > {WM}",
            [("at_", ">", WATERMARK)],
        ),
        (
            f"select * from staging.src_crm__t t where exists (select 1 from staging.src_crm__s s where s.at_ > {WM})",
            [("at_", ">", WATERMARK)],
        ),
    ],
)
def test_a_comparison_is_recognised_wherever_it_bounds_the_dataset(sql: str, expected: list[object]) -> None:
    assert find(sql) == (expected, [])


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (f"select {WM} from staging.src_crm__s", "not one side of a comparison"),
        (f"select * from staging.src_crm__s where at_ = {WM}", "must be compared with"),
        (f"select * from staging.src_crm__s where at_ > {WM} or n = 1", "must be compared with"),
        (f"select * from staging.src_crm__s where not (at_ > {WM} and n = 1)", "must be compared with"),
        (f"select * from staging.src_crm__s where at_ between {WM} and 3", "must be compared with"),
        (f"select * from staging.src_crm__s where abs(at_) > {WM}", "bare column"),
        (f"select * from staging.src_crm__s where at_ > {WM} + n", "must not use columns"),
        (f"select * from staging.src_crm__s where at_ > least({WM}, now())", "when it is evaluated"),
        (f"select * from staging.src_crm__s where at_ > least({WM}, current_date)", "when it is evaluated"),
        (f"select * from staging.src_crm__s where at_ > least({WM}, {WM})", "not one side of a comparison"),
        (f"select max(at_) from staging.src_crm__s having max(at_) > {WM}", "not one side of a comparison"),
        (f"select at_ + 1 as b from staging.src_crm__s where b > {WM}", "not certain"),
        (f"select * from staging.src_crm__t where at_ > {WM}", "not certain"),
        (f"select * from staging.src_crm__s join staging.src_crm__t using (id) where at_ > {WM}", "not certain"),
        (
            f"select * from staging.src_crm__t t left join staging.src_crm__s s on s.id = t.id and s.at_ > {WM}",
            "not one side of a comparison",
        ),
        (
            f"select * from staging.src_crm__s where at_ > {watermark_sentinel('crm.other')}",
            "does not read that dataset",
        ),
    ],
)
def test_any_other_use_is_reported_with_a_reason(sql: str, why: str) -> None:
    found, reasons = find(sql)
    assert found == []
    assert reasons
    assert all(why in reason for reason in reasons)


def bounds(*expressions: str) -> list[SqlBound]:
    """`bounds("> $", "<= $ + 5")`, the dollar being the stored value."""
    result = []
    for text in expressions:
        op, _, expression = text.partition(" ")
        result.append(SqlBound(">" in op, "=" in op, expression.replace("$", WATERMARK)))
    return result


@pytest.mark.parametrize(
    ("expressions", "stored", "kind", "expected"),
    [
        (["> $"], "7", "int", (Bound("7", False), None)),
        (["> $"], None, "int", (None, None)),
        ([">= coalesce($, 3)"], None, "int", (Bound("3", True), None)),
        (["> $", ">= $ - 2"], "7", "int", (Bound("5", True), None)),
        (["> $", ">= $"], "7", "int", (Bound("7", True), None)),
        (["> coalesce($, 3)", "> $"], None, "int", (None, None)),
        (["> $", "<= $ + 5", "< $ + 5", "<= $ + 9"], "7", "int", (Bound("7", False), Bound("12", False))),
        (["> $", "<= least($ + 5, 10)"], "7", "int", (Bound("7", False), Bound("10", True))),
        (["> $", "<= $ + 5"], None, "int", (None, None)),
        ([">= $ / 2", "< $ * 1.5"], "5", "int", (Bound("2", False), Bound("7", True))),
        (["> $"], "9007199254740993", "bigint", (Bound("9007199254740993", False), None)),
        ([">= $ - 0.25"], "12.50", "decimal", (Bound("12.25", True), None)),
        ([">= $ - interval 2 hour"], "2024-03-01", "date", (Bound("2024-02-29", False), None)),
        (
            [">= $ - interval 2 hour"],
            "2024-03-01T01:00:00.000001",
            "timestamp",
            (Bound("2024-02-29T23:00:00.000001", True), None),
        ),
        (
            [">= coalesce($, '2024-01-01') - interval 1 day", "<= '__pz_run_started_at__'"],
            None,
            "timestamp",
            (Bound("2023-12-31T00:00:00.000000", True), Bound("2024-06-01T00:00:00.000000", True)),
        ),
        (["> $"], "2024-03-01T01:00:00.000001", "timestamptz", (Bound("2024-03-01T01:00:00.000001", False), None)),
        (["> $"], "2024-03-01T01:00:00.000000001", "timestamp", (Bound("2024-03-01T01:00:00.000000001", False), None)),
    ],
)
def test_bounds_reduce_to_the_loosest_floor_and_the_tightest_ceiling(
    expressions: list[str], stored: str | None, kind: str, expected: tuple[Bound | None, Bound | None]
) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = resolve(bounds(*expressions), stored, kind, connection, run_started_at="2024-06-01T00:00:00")
    assert found == expected


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        (["> $"], None),
        ([">= coalesce($, '2024-01-01')"], None),
        ([">= coalesce($, DATE '2024-01-01')"], CursorType.DATE),
        ([">= coalesce($, 5)"], CursorType.INT),
        ([">= $ - interval 2 hour"], None),
        ([">= coalesce($, TIMESTAMP '2024-01-01') - interval 2 hour"], CursorType.TIMESTAMP),
    ],
)
def test_without_a_contract_the_type_comes_from_the_bound_itself(
    expressions: list[str], expected: CursorType | None
) -> None:
    with duckdb.connect() as connection:
        assert bound_type(bounds(*expressions), connection) is expected
        lower, upper = resolve(bounds(*expressions), None, None, connection)
    assert (lower is None) is (expected is None)
    assert upper is None


FLOORS = [
    "{c} > {w}",
    "{c} >= {w}",
    "{w} <= {c}",
    "{c} >= {w} - 2",
    "{c} > {w} / 2",
    "{c} >= coalesce({w}, 3)",
    "{c} > {w} * 0.7",
]
CEILINGS = ["{c} <= {w} + 3", "{c} < {w} + 3", "least({w} + 4, 6) >= {c}", "{c} < {w} * 1.5"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(-3, 12)), max_size=10),
    st.one_of(st.none(), st.integers(-2, 9)),
    st.lists(st.sampled_from(FLOORS), min_size=1, max_size=3),
    st.lists(st.sampled_from(CEILINGS), max_size=2),
)
def test_reading_only_the_slice_gives_the_pipeline_the_same_rows(
    values: list[int | None], stored: int | None, floors: list[str], ceilings: list[str]
) -> None:
    terms = [term.format(c="c", w=WM) for term in [*floors, *ceilings]]
    sql = f"select c, i from staging.src_crm__s where {' and '.join(terms)}"
    with Parser() as parser, duckdb.connect() as connection:
        found, failed = find_comparisons(parser, parser.parse(sql), RELATIONS)
        assert not failed
        connection.execute("CREATE SCHEMA staging; CREATE TABLE staging.src_crm__s (c BIGINT, i INT)")
        for number, value in enumerate(values):
            connection.execute("INSERT INTO staging.src_crm__s VALUES ($1, $2)", [value, number])
        text = None if stored is None else str(stored)
        bound = bind(sql, {"crm.s": value_sql(text, "bigint")}, "", "")
        expected = sorted(map(repr, connection.execute(bound).fetchall()))
        lower, upper = resolve([c.bound for c in found], text, "bigint", connection)
        if lower is not None:
            connection.execute(
                f"DELETE FROM staging.src_crm__s WHERE NOT c >{'=' if lower.inclusive else ''} {lower.value}"
            )
        if upper is not None:
            connection.execute(
                f"DELETE FROM staging.src_crm__s WHERE NOT c <{'=' if upper.inclusive else ''} {upper.value}"
            )
        assert sorted(map(repr, connection.execute(bound).fetchall())) == expected
