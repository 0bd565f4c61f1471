"""What every load does with its rows, whatever way they came: cut them to the slice, count them, record them.

Staging never holds a row outside the slice: what a connector did not push, the cut removes while the rows land. The row
in ``pz_meta.node_done`` commits in the same transaction as the last rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import Bound, DatasetSpec, ReadHints, find_column
from pz.cursors import CursorError, CursorType, canonical, literal, probe_expression
from pz.engine.outcome import Outcome
from pz.errors import Code, NodeError, Problem
from pz.frozen import frozen
from pz.graph.model import SourceNode
from pz.plan.specs import dataset_spec, read_hints
from pz.project.model import NullCursor
from pz.sqltext import quote
from pz.staging.completion import NodeFacts
from pz.staging.fingerprint import describe
from pz.staging.meta import NodeDone
from pz.staging.results import first_row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext
    from pz.engine.reading import DatasetSlice

__all__ = ["Landing", "watermark_block"]


@frozen(slots=False)
class Landing:
    """One load's target, spec and cut."""

    node: SourceNode
    dataset: DatasetSpec
    hints: ReadHints
    bounds: DatasetSlice | None

    @classmethod
    def of(cls, context: NodeContext, node: SourceNode) -> Landing:
        """The landing of a node in this run: bounds and token as the run resolved them."""
        bounds = context.run.slices.get(node.id)
        dataset = dataset_spec(
            node,
            context.planned.read_shape,
            lower=bounds.lower if bounds else None,
            upper=bounds.upper if bounds else None,
            cursor_type=bounds.cursor_type if bounds and bounds.cursor_type else None,
            prior_sync_state=context.run.tokens.get(node.id),
        )
        return cls(node, dataset, read_hints(node), bounds)

    @property
    def table(self) -> str:
        """The main table, quoted."""
        return f"staging.{quote(self.node.relation)}"

    @property
    def where(self) -> str | None:
        """The condition that a row of the slice fulfils; None when the read has no bounds."""
        if self.bounds is None or self.bounds.cursor_type is None:
            return None
        cursor, kind = quote(self.dataset.cursor or ""), self.bounds.cursor_type
        parts = [_side(cursor, bound, kind, floor) for bound, floor in self._ends() if bound is not None]
        if not parts:
            return None
        inside = " AND ".join(parts)
        return f"({inside} OR {cursor} IS NULL)" if self._nulls_pass else inside

    @property
    def filtered(self) -> str:
        """`where` as a clause to append to a SELECT; empty when the read has no bounds."""
        return "" if self.where is None else f" WHERE {self.where}"

    @property
    def waits_at_its_end(self) -> bool:
        """Whether the mark stays where the window brings no new row: nobody can tell whether rows of it are still to come."""
        if self.bounds is None or self.node.read.sync.max_window is None:
            return False
        ends = self.bounds.bounds
        return ends.upper is not None and not ends.caught_up and not ends.moves_when_empty

    @property
    def _nulls_pass(self) -> bool:
        """Rows without a cursor land always (include, refuse: to be counted) or on the first unbounded-below read."""
        policy = self.node.read.sync.null_cursor
        return policy is not NullCursor.DEFAULT or self.dataset.lower is None

    def _ends(self) -> tuple[tuple[Bound | None, bool], tuple[Bound | None, bool]]:
        return ((self.dataset.lower, True), (self.dataset.upper, False))

    # --- after the rows are there, still in the transaction

    def facts(
        self, cursor: DuckDBPyConnection, *, token: str | None = None, details: Mapping[str, Any] | None = None
    ) -> NodeFacts:
        """What ``node_done`` records of the load beside its tables, from what is now in the main table."""
        candidate, kind = self._candidate(cursor)
        return NodeFacts(
            pushed_columns=self.hints.columns,
            predicate=self.hints.predicate,
            candidate=candidate,
            candidate_type=kind,
            token=token,
            details=json.dumps(details, sort_keys=True) if details else None,
        )

    def outcome(self, done: NodeDone, **blocks: Any) -> Outcome:
        """The outcome of a finished load, with the watermark that it offers."""
        if done.candidate is not None:
            blocks["watermark"] = watermark_block(self.node, done)
        return Outcome(done.rows, blocks)

    def _candidate(self, cursor: DuckDBPyConnection) -> tuple[str | None, str | None]:
        """The highest cursor of the slice, as the engine may store it; None when the slice yields none."""
        if self.bounds is None or self.dataset.cursor is None:
            return None, None
        columns = describe(cursor, self.table)
        held = find_column(columns, self.dataset.cursor)
        landed = None if held is None else held.type
        kind = CursorType.from_duckdb(landed) if landed else None
        self._require_type(landed, kind)
        assert kind is not None
        assert landed is not None
        self._refuse_nulls(cursor)
        highest = f"max({quote(self.dataset.cursor)})"
        row = first_row(cursor.execute(f"SELECT {probe_expression(highest, landed)} FROM {self.table}"))
        try:
            found = canonical(row[0], kind) if row and row[0] is not None else None
        except CursorError as failure:
            raise NodeError(self._problem(Code.PZ0505, f"the highest cursor cannot be stored: {failure}")) from failure
        return self.bounds.candidate(found, kind), str(kind)

    def _require_type(self, landed: str | None, kind: CursorType | None) -> None:
        expected = self.bounds.cursor_type if self.bounds else None
        if kind is None:
            shown = landed or "nothing: the column is missing"
            raise NodeError(self._problem(Code.PZ0505, f"cursor '{self.dataset.cursor}' landed as {shown}"))
        if expected is not None and kind is not expected:
            raise NodeError(
                self._problem(
                    Code.PZ0505, f"cursor '{self.dataset.cursor}' landed as {kind} where {expected} was expected"
                )
            )

    def _refuse_nulls(self, cursor: DuckDBPyConnection) -> None:
        column = quote(self.dataset.cursor or "")
        if self.node.read.sync.null_cursor is not NullCursor.REFUSE:
            return
        row = first_row(cursor.execute(f"SELECT count(*) FROM {self.table} WHERE {column} IS NULL"))
        if row and row[0]:
            raise NodeError(self._problem(Code.PZ0712, f"{row[0]} row(s) have no cursor value"))

    def _problem(self, code: Code, message: str) -> Problem:
        place = self.node.location
        return Problem(
            code, f"dataset '{self.node.key}': {message}", place.file if place else None, place.line if place else None
        )


def watermark_block(node: SourceNode, done: NodeDone) -> dict[str, Any]:
    """The ``watermark`` block of a load's result: what state may advance to, and for which dataset."""
    return {
        "dataset": node.key,
        "cursor": node.read.sync.cursor,
        "type": done.candidate_type,
        "value": done.candidate,
    }


def _side(cursor: str, bound: Bound, kind: CursorType, floor: bool) -> str:
    operator = (">" if floor else "<") + ("=" if bound.inclusive else "")
    return f"{cursor} {operator} {literal(bound.value, kind)}"
