"""The text of a pipeline: where it ends, ephemeral pipelines spliced into it, and sentinels replaced before it runs.

The user's own text is kept as far as possible, comments and line breaks included: it is what error messages point at
and what `pz compile` shows. Only a pipeline that calls watermark() runs from DuckDB's print of its tree, because each of
its comparisons has to let everything pass while there is no stored value.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from pz.graph.sqltree import Parser, SqlFault, SqlNode, string_constant, walk
from pz.project.sqlscan import significant
from pz.project.templates import RUN_ID, RUN_STARTED_AT, WATERMARK_PREFIX
from pz.sqltext import literal, quote

__all__ = [
    "EPHEMERAL_PREFIX",
    "RUN_ID",
    "RUN_STARTED_AT",
    "bind",
    "bind_constants",
    "inline",
    "watermark_key",
    "watermark_sentinel",
]

EPHEMERAL_PREFIX = "__pz_cte__"


def inline(parser: Parser, sql: str, bodies: Mapping[str, str]) -> str:
    """Return ``sql`` with ephemeral pipelines (name -> SQL without an end) as its first CTEs, ``__pz_cte__<name>``.

    Copes with a leading comment and with WITH or WITH RECURSIVE in front. Raises `SqlFault` if no form parses.
    """
    if not bodies:
        return sql
    ctes = ",\n".join(f"{quote(EPHEMERAL_PREFIX + n)} AS (\n{body}\n)" for n, body in bodies.items())
    spliced = _splice(sql, ctes)
    try:
        parser.parse(spliced)
    except SqlFault:
        spliced = f"WITH {ctes}\nSELECT * FROM (\n{sql}\n)"
        parser.parse(spliced)
    return spliced


def watermark_sentinel(key: str) -> str:
    """The text constant, quotes included, that a rendered watermark() call leaves for a dataset key."""
    return literal(WATERMARK_PREFIX + key)


def watermark_key(node: object) -> str | None:
    """The dataset key of a sentinel in the tree; None for any other node."""
    text = string_constant(node)
    return text.removeprefix(WATERMARK_PREFIX) if text is not None and text.startswith(WATERMARK_PREFIX) else None


def bind_constants(sql: str, run_id: str, run_started_at: str) -> str:
    """Replace the sentinels of run_id and run_started_at."""
    return sql.replace(RUN_ID, run_id).replace(RUN_STARTED_AT, run_started_at)


def bind(sql: str, watermarks: Mapping[str, str], run_id: str, run_started_at: str) -> str:
    """Return the SQL to execute.

    ``watermarks`` gives an SQL expression per dataset key: a typed literal of the stored value, or a typed NULL where
    there is none (`watermarks.value_sql`); a key left out is an untyped NULL. Every comparison becomes
    ``(bound IS NULL OR cursor op bound)``, so that without a stored value everything passes.
    """
    if WATERMARK_PREFIX in sql:
        with Parser() as parser:
            statement = parser.parse(sql)
            for node in list(walk(statement)):
                if node.get("class") == "COMPARISON" and node["type"] in _OPEN_ENDED:
                    _let_pass_without_value(parser, node)
            keys = {key for node in walk(statement) if (key := watermark_key(node)) is not None}
            sql = parser.print(statement)
        for key in sorted(keys):
            sql = sql.replace(watermark_sentinel(key), f"({watermarks.get(key, 'NULL')})")
    return bind_constants(sql, run_id, run_started_at)


_OPEN_ENDED = {
    "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO",
}


def _let_pass_without_value(parser: Parser, comparison: SqlNode) -> None:
    """Turn a comparison with a watermark into ``(bound IS NULL OR comparison)``, in place."""
    bounds = [side for side in (comparison["left"], comparison["right"]) if _holds_watermark(side)]
    if len(bounds) != 1:
        return
    either = parser.expression("(a IS NULL OR b)")
    either["children"][0]["children"] = bounds
    either["children"][1] = dict(comparison)
    comparison.clear()
    comparison.update(either)


def _holds_watermark(node: SqlNode) -> bool:
    return any(watermark_key(inner) is not None for inner in walk(node))


def _splice(sql: str, ctes: str) -> str:
    """Put CTEs before all others: after WITH [RECURSIVE] where the text begins so, else behind a WITH of their own."""
    tokens = significant(sql)
    words = [(sql[start:end].upper(), end) for start, end in itertools.islice(tokens, 2)]
    if not words or words[0][0] != "WITH":
        return f"WITH {ctes}\n{sql}"
    at = words[1][1] if words[1:] and words[1][0] == "RECURSIVE" else words[0][1]
    return f"{sql[:at]} {ctes},{sql[at:]}"
