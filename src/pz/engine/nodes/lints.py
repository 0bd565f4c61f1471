"""Two warnings about guessed types: whole numbers that became floating point, and dates whose day and month were guessed.

Only for files read without a ``columns:`` contract. A probe that fails is a note, never an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pz.connectors.contract import NativeScan
from pz.engine.nodes.landing import Landing
from pz.errors import Code
from pz.events import AmbiguousDateInferenceDetected, LossyIntegerInferenceDetected
from pz.sqltext import quote
from pz.staging.results import first_row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

__all__ = ["warn_about_inference"]

EXACT_LIMIT = 2**53
WIDEST_INTEGER = 2**127
# Formats in which only a value above 12 can tell the day from the month.
DAY_OR_MONTH_FIRST = re.compile(r"%[dm].?%[dm]")


def warn_about_inference(context: NodeContext, landing: Landing, scan: NativeScan) -> None:
    """Look at the landed table and say what was guessed in a way that may have changed values."""
    import duckdb

    try:
        with context.cursor() as cursor:
            _lossy_integers(context, landing, cursor)
            if scan.sniffer is not None:
                _ambiguous_dates(context, landing, cursor, scan.sniffer)
    except duckdb.Error:
        context.run.note(f"dataset '{landing.node.key}': the guessed types could not be looked at")


def _columns(cursor: DuckDBPyConnection, landing: Landing, *types: str) -> list[str]:
    return [row[0] for row in cursor.execute(f"DESCRIBE {landing.table}").fetchall() if row[1] in types]


def _lossy_integers(context: NodeContext, landing: Landing, cursor: DuckDBPyConnection) -> None:
    suspects = []
    for name in _columns(cursor, landing, "DOUBLE"):
        column = quote(name)
        row = first_row(
            cursor.execute(
                f"SELECT bool_and(isfinite({column}) AND {column} = trunc({column}) AND abs({column}) < {WIDEST_INTEGER}), "
                f"max(abs({column})) > {EXACT_LIMIT} FROM {landing.table} WHERE {column} IS NOT NULL"
            )
        )
        if row and row[0] and row[1]:
            suspects.append(name)
    if suspects:
        context.run.bus.publish(
            LossyIntegerInferenceDetected(run_id=context.run.run_id, node_id=landing.node.id, columns=tuple(suspects))
        )
        context.run.note(
            f"dataset '{landing.node.key}': whole numbers beyond 2^53 in {', '.join(suspects)} were read as DOUBLE and may "
            "have lost digits; declare the column as bigint, hugeint or varchar under columns:",
            severity="warning",
            code=Code.PZ0523,
        )


def _ambiguous_dates(context: NodeContext, landing: Landing, cursor: DuckDBPyConnection, sniffer: str) -> None:
    row = first_row(cursor.execute(f"SELECT DateFormat, TimestampFormat FROM {sniffer}"))
    formats = {"DATE": row[0], "TIMESTAMP": row[1]} if row else {}
    for kind, found in formats.items():
        if not found or not DAY_OR_MONTH_FIRST.search(str(found)):
            continue
        guessed = [name for name in _columns(cursor, landing, kind) if _never_above_twelve(cursor, landing, name)]
        if guessed:
            context.run.bus.publish(
                AmbiguousDateInferenceDetected(
                    run_id=context.run.run_id, node_id=landing.node.id, columns=tuple(guessed), format=str(found)
                )
            )
            context.run.note(
                f"dataset '{landing.node.key}': {', '.join(guessed)} was read as {found}, and no value tells the day from the "
                "month; use ISO dates, or read the column as varchar and parse it",
                severity="warning",
                code=Code.PZ0524,
            )


def _never_above_twelve(cursor: DuckDBPyConnection, landing: Landing, name: str) -> bool:
    column = quote(name)
    row = first_row(cursor.execute(f"SELECT max(day({column})) <= 12 FROM {landing.table} WHERE {column} IS NOT NULL"))
    return bool(row and row[0])
