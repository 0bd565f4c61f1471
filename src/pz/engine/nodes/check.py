"""Checks: assertions on a pipeline's staged relation.

A failed check fails its node with the number of violations, up to five sample rows (unless switched off) and the query
that lists the offending rows, with where to run it. It never blocks a sink: gate with ``pz test && pz run``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pz.engine.nodes.accepted_values import accepted_literals
from pz.errors import Code, NodeError, Problem
from pz.frozen import frozen
from pz.graph.checks import freshness_problem, one_query
from pz.graph.model import CheckNode
from pz.project.model import CheckDecl, CheckKind
from pz.sqltext import literal, quote
from pz.staging.results import first_row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["CheckQueries", "queries", "run_check"]

SAMPLES = 5
LONGEST_VALUE = 200  # characters of a sample's value: a document in a column would fill results, events and console


@frozen
class CheckQueries:
    """``count`` gives the number of violations, ``rows`` shows ``finds``; both are plain SQL on staging."""

    count: str
    rows: str
    finds: str = "the rows"

    @property
    def has_samples(self) -> bool:
        """Whether single rows violate, not the relation as a whole."""
        return self.finds == "the rows"


def queries(check: CheckDecl, relation: str, accepted: Sequence[str] = ()) -> CheckQueries:
    """The SQL of a check on a FROM-able relation; ``accepted`` are literals of the column's type."""
    if check.kind is CheckKind.ACCEPTED_VALUES:
        return _accepted_values(check, relation, accepted)
    build = {
        CheckKind.NOT_NULL: _not_null,
        CheckKind.UNIQUE: _unique,
        CheckKind.ROW_COUNT: _row_count,
        CheckKind.FRESHNESS: _freshness,
        CheckKind.CUSTOM_SQL: _custom_sql,
    }
    return build[check.kind](check, relation)


def run_check(cursor: DuckDBPyConnection, node: CheckNode, *, staging: Path, samples: bool) -> int:
    """Run a check; returns 0. ``staging`` is the run's database as seen from the project's folder.

    Raises:
        NodeError: PZ0510 with count, samples and the statements that show the rows; PZ0401 for a column without an age.
    """
    relation = f"staging.{quote(node.pipeline)}"
    asked = queries(node.check, relation, _typed(cursor, node, relation))
    violations = int(_scalar(cursor, asked.count) or 0)
    if violations == 0:
        return 0
    show = samples if node.check.sample_values is None else node.check.sample_values
    found = _samples(cursor, asked) if show and asked.has_samples else ""
    place = node.location
    raise NodeError(
        Problem(
            Code.PZ0510,
            f"check '{node.name}' on '{node.pipeline}' found {_explain(cursor, node.check, node.pipeline, violations)}{found}",
            place.file if place else None,
            place.line if place else None,
            hint=f"to see {asked.finds}, in DuckDB's shell: {_attached(staging)} {asked.rows}",
        )
    )


def _attached(staging: Path) -> str:
    """The statements that open a run's staging the only way in which ``staging.x`` is not ambiguous."""
    return f"ATTACH {literal(staging.as_posix())} AS run (READ_ONLY); USE run;"


def _scalar(cursor: DuckDBPyConnection, sql: str) -> Any:
    row = first_row(cursor.execute(sql))
    return row[0] if row else None


def _typed(cursor: DuckDBPyConnection, node: CheckNode, relation: str) -> tuple[str, ...]:
    """The accepted values in the type of the column; refuses a column that freshness cannot judge."""
    if node.check.kind not in (CheckKind.ACCEPTED_VALUES, CheckKind.FRESHNESS):
        return ()
    (_, type_name, *_), *_ = cursor.execute(
        f"DESCRIBE SELECT {quote(node.check.columns[0])} FROM {relation}"
    ).fetchall()
    if node.check.kind is CheckKind.ACCEPTED_VALUES:
        return accepted_literals(cursor, node.check, str(type_name))
    problem = freshness_problem(node, str(type_name))
    if problem is not None:
        raise NodeError(problem)
    return ()


def _samples(cursor: DuckDBPyConnection, asked: CheckQueries) -> str:
    """A few rows as DuckDB spells their values: Python has no type for some, and asks for pytz for others."""
    result = cursor.execute(f"SELECT COLUMNS(*)::VARCHAR FROM (SELECT * FROM ({asked.rows}\n) LIMIT {SAMPLES})")
    names = [column[0] for column in result.description or []]
    rows = [
        "{" + ", ".join(f"{name}={_shown(value)}" for name, value in zip(names, row, strict=True)) + "}"
        for row in result.fetchall()
    ]
    return "; for example " + ", ".join(rows) if rows else ""


def _shown(value: str | None) -> str:
    if value is None:
        return "NULL"
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]}... ({len(value)} characters)"


def _explain(cursor: DuckDBPyConnection, check: CheckDecl, pipeline: str, violations: int) -> str:
    if check.kind is CheckKind.ROW_COUNT:
        count = _scalar(cursor, f"SELECT count(*) FROM staging.{quote(pipeline)}")
        low, high = check.minimum, check.maximum
        wanted = " and ".join(
            part
            for part in (f"at least {low}" if low is not None else "", f"at most {high}" if high is not None else "")
            if part
        )
        return f"{count} row(s) where {wanted} were expected"
    if check.kind is CheckKind.FRESHNESS:
        newest = _scalar(cursor, f"SELECT max({quote(check.columns[0])})::VARCHAR FROM staging.{quote(pipeline)}")
        if newest is None:
            return "no value to judge by (the relation is empty or the column is NULL throughout)"
        return f"data older than the allowed age (newest: {newest})"
    return f"{violations} violation(s)"


def _not_null(check: CheckDecl, relation: str) -> CheckQueries:
    condition = " OR ".join(f"{quote(name)} IS NULL" for name in check.columns)
    rows = f"SELECT * FROM {relation} WHERE {condition}"
    return CheckQueries(f"SELECT count(*) FROM {relation} WHERE {condition}", rows)


def _unique(check: CheckDecl, relation: str) -> CheckQueries:
    keys = ", ".join(quote(name) for name in check.columns)
    rows = f"SELECT {keys}, count(*) AS occurrences FROM {relation} GROUP BY {keys} HAVING count(*) > 1"
    return CheckQueries(f"SELECT count(*) FROM ({rows})", rows)


def _row_count(check: CheckDecl, relation: str) -> CheckQueries:
    outside = [f"count(*) < {check.minimum}"] if check.minimum is not None else []
    outside += [f"count(*) > {check.maximum}"] if check.maximum is not None else []
    rows = f"SELECT count(*) AS row_count FROM {relation}"
    return CheckQueries(f"SELECT ({' OR '.join(outside)})::INT FROM {relation}", rows, "the number of rows")


def _freshness(check: CheckDecl, relation: str) -> CheckQueries:
    if check.max_age is None:
        raise ValueError("a freshness check has a max_age: the loader refuses it otherwise")
    now = datetime.now(UTC).replace(tzinfo=None)
    oldest = (now - min(check.max_age, now - datetime.min)).isoformat(sep=" ")
    column = quote(check.columns[0])
    newest = f"SELECT max({column}) AS newest FROM {relation}"
    # A naive timestamp and a date are read as UTC; TimeZone of the session is UTC, so the cast of an instant agrees.
    count = f"SELECT coalesce(newest::TIMESTAMP < TIMESTAMP '{oldest}', true)::INT FROM ({newest})"
    return CheckQueries(count, newest, "the newest value")


def _accepted_values(check: CheckDecl, relation: str, accepted: Sequence[str]) -> CheckQueries:
    column = quote(check.columns[0])
    condition = f"{column} IS NOT NULL" + (f" AND {column} NOT IN ({', '.join(accepted)})" if accepted else "")
    rows = f"SELECT DISTINCT {column} FROM {relation} WHERE {condition}"
    return CheckQueries(f"SELECT count(*) FROM {relation} WHERE {condition}", rows)


def _custom_sql(check: CheckDecl, relation: str) -> CheckQueries:
    rows = check.sql or ""
    return CheckQueries(one_query(rows), rows)
