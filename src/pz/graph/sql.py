"""The text of a pipeline: where it ends, ephemeral pipelines spliced into it, and sentinels replaced before it runs.

The user's own text is kept as far as possible, comments and line breaks included: it is what error messages point at
and what `pz compile` shows. Only a pipeline that calls watermark() runs from DuckDB's print of its tree, because each of
its comparisons has to let everything pass while there is no stored value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pz.graph.sqltree import Parser, SqlFault, SqlNode, string_constant, walk
from pz.sqltext import literal, quote

__all__ = [
    "EPHEMERAL_PREFIX",
    "RUN_ID",
    "RUN_STARTED_AT",
    "bind",
    "bind_constants",
    "inline",
    "strip_end",
    "watermark_key",
    "watermark_sentinel",
]

EPHEMERAL_PREFIX = "__pz_cte__"
RUN_ID = "__pz_run_id__"
RUN_STARTED_AT = "__pz_run_started_at__"
_WATERMARK = "__pz_watermark__:"

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*)
    | (?P<block>/\*)
    | [eE]'(?:\\.|''|[^'\\])*'
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | \w+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    end: int


def strip_end(sql: str) -> str:
    """Return the SQL without trailing semicolons, comments and space, so that it can be wrapped in parentheses."""
    end = 0
    for token in _tokens(sql):
        if token.text != ";":
            end = token.end
    trailing = sql[end:]
    return sql if any(t.text != ";" for t in _tokens(trailing)) else sql[:end]


def inline(parser: Parser, sql: str, bodies: Mapping[str, str]) -> str:
    """Return ``sql`` with ephemeral pipelines (name -> SQL) as its first CTEs, named ``__pz_cte__<name>``.

    Copes with a leading comment and with WITH or WITH RECURSIVE in front. Raises `SqlFault` if no form parses.
    """
    if not bodies:
        return sql
    ctes = ",\n".join(f"{quote(EPHEMERAL_PREFIX + n)} AS (\n{strip_end(body)}\n)" for n, body in bodies.items())
    spliced = _splice(sql, ctes)
    try:
        parser.parse(spliced)
    except SqlFault:
        spliced = f"WITH {ctes}\nSELECT * FROM (\n{sql}\n)"
        parser.parse(spliced)
    return spliced


def watermark_sentinel(key: str) -> str:
    """The text constant, quotes included, that a rendered watermark() call leaves for a dataset key."""
    return literal(_WATERMARK + key)


def watermark_key(node: object) -> str | None:
    """The dataset key of a sentinel in the tree; None for any other node."""
    text = string_constant(node)
    return text.removeprefix(_WATERMARK) if text is not None and text.startswith(_WATERMARK) else None


def bind_constants(sql: str, run_id: str, run_started_at: str) -> str:
    """Replace the sentinels of run_id and run_started_at."""
    return sql.replace(RUN_ID, run_id).replace(RUN_STARTED_AT, run_started_at)


def bind(sql: str, watermarks: Mapping[str, str], run_id: str, run_started_at: str) -> str:
    """Return the SQL to execute.

    ``watermarks`` gives an SQL expression per dataset key: a typed literal of the stored value, or a typed NULL where
    there is none (`watermarks.value_sql`); a key left out is an untyped NULL. Every comparison becomes
    ``(bound IS NULL OR cursor op bound)``, so that without a stored value everything passes.
    """
    if _WATERMARK in sql:
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
    tokens = _tokens(sql)
    first = next(tokens, None)
    if first is None or first.text.upper() != "WITH":
        return f"WITH {ctes}\n{sql}"
    second = next(tokens, None)
    recursive = second is not None and second.text.upper() == "RECURSIVE"
    at = second.end if second is not None and recursive else first.end
    return f"{sql[:at]} {ctes},{sql[at:]}"


def _tokens(sql: str) -> Iterator[_Token]:
    """The tokens that mean something, with their ends; comments (nested ones too) and space are skipped."""
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        assert match is not None
        at = _block_end(sql, match.end()) if match["block"] else match.end()
        if match["block"] is None and match["space"] is None:
            yield _Token(match[0], match.end())


def _block_end(sql: str, at: int) -> int:
    """The end of a block comment whose inside starts at ``at``; the end of the text when it is never closed."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(sql, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)
