"""Two warnings about guessed types: whole numbers that became floating point, and dates whose day and month were guessed.

Only for files read without a ``columns:`` contract. A probe that fails is a note, never an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pz.connectors.contract import NativeScan
from pz.errors import Code
from pz.events import AmbiguousDateInferenceDetected, LossyIntegerInferenceDetected
from pz.graph.model import SourceNode
from pz.sqltext import quote
from pz.staging.results import first_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

    _Look = Callable[[NodeContext, SourceNode, DuckDBPyConnection, NativeScan], None]

__all__ = ["warn_about_dates", "warn_about_inference"]

EXACT_LIMIT = 2**53
WIDEST_INTEGER = 2**127
# Formats in which only a value above 12 can tell the day from the month. A year of four digits is always followed by the month.
DAY_OR_MONTH_FIRST = re.compile(r"%[dmy]")


def warn_about_inference(context: NodeContext, node: SourceNode, scan: NativeScan) -> None:
    """Look at the landed table and say what was guessed in a way that may have changed values."""
    _look(context, node, scan, _lossy_integers, _ambiguous_dates)


def warn_about_dates(context: NodeContext, node: SourceNode, scan: NativeScan) -> None:
    """The same for the dates of a relation that is not staged: it is read again, but only where a format may be ambiguous."""
    _look(context, node, scan, _ambiguous_dates)


def _look(context: NodeContext, node: SourceNode, scan: NativeScan, *at: _Look) -> None:
    import duckdb

    try:
        with context.cursor() as cursor:
            for look in at:
                look(context, node, cursor, scan)
    except duckdb.Error:
        context.run.note(f"dataset '{node.key}': the guessed types could not be looked at")


def _table(node: SourceNode) -> str:
    return f"staging.{quote(node.relation)}"


def _columns(cursor: DuckDBPyConnection, node: SourceNode, type_: str) -> list[str]:
    return [row[0] for row in cursor.execute(f"DESCRIBE {_table(node)}").fetchall() if row[1] == type_]


def _lossy_integers(context: NodeContext, node: SourceNode, cursor: DuckDBPyConnection, _scan: NativeScan) -> None:
    suspects = []
    for name in _columns(cursor, node, "DOUBLE"):
        column = quote(name)
        row = first_row(
            cursor.execute(
                f"SELECT bool_and(isfinite({column}) AND {column} = trunc({column}) AND abs({column}) < {WIDEST_INTEGER}), "
                f"max(abs({column})) > {EXACT_LIMIT} FROM {_table(node)} WHERE {column} IS NOT NULL"
            )
        )
        if row and row[0] and row[1]:
            suspects.append(name)
    if suspects:
        context.run.bus.publish(
            LossyIntegerInferenceDetected(run_id=context.run.run_id, node_id=node.id, columns=tuple(suspects))
        )
        context.run.note(
            f"dataset '{node.key}': whole numbers beyond 2^53 in {', '.join(suspects)} were read as DOUBLE and may "
            "have lost digits; declare the column as bigint, hugeint or varchar under columns:",
            severity="warning",
            code=Code.PZ0523,
        )


def _ambiguous_dates(context: NodeContext, node: SourceNode, cursor: DuckDBPyConnection, scan: NativeScan) -> None:
    if scan.sniffer is None:
        return
    row = first_row(cursor.execute(f"SELECT DateFormat, TimestampFormat FROM {scan.sniffer}"))
    formats = {"DATE": row[0], "TIMESTAMP": row[1]} if row else {}
    for kind, found in formats.items():
        if not found or not DAY_OR_MONTH_FIRST.match(str(found)):
            continue
        guessed = [name for name in _columns(cursor, node, kind) if _never_above_twelve(cursor, node, name)]
        if guessed:
            context.run.bus.publish(
                AmbiguousDateInferenceDetected(
                    run_id=context.run.run_id, node_id=node.id, columns=tuple(guessed), format=str(found)
                )
            )
            context.run.note(
                f"dataset '{node.key}': {', '.join(guessed)} was read as {found}, and no value tells the day from the "
                "month",
                severity="warning",
                code=Code.PZ0524,
            )


def _never_above_twelve(cursor: DuckDBPyConnection, node: SourceNode, name: str) -> bool:
    column = quote(name)
    row = first_row(cursor.execute(f"SELECT max(day({column})) <= 12 FROM {_table(node)} WHERE {column} IS NOT NULL"))
    return bool(row and row[0])
