"""The deletes of a merge that change capture feeds, in SQL that PostgreSQL and DuckDB both understand.

    by key              rows whose keys the source deleted                          `Deletes.by_key`
    after a snapshot    rows whose keys a snapshot of the whole table does not hold `Deletes.all_but`

``on_delete: delete`` takes the rows away, ``soft`` stamps those that are not stamped yet. What a snapshot takes away is limited
to a share of the target, so that a wrong target, or a source that lost its rows, does not empty it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pz.connectors.contract import OnDelete, OutputSpec
from pz.errors import Code, PermanentError
from pz.frozen import frozen
from pz.sqltext import quote

__all__ = ["DELETED_AT", "LIMIT", "LIMIT_SCHEMA", "Deletes", "refuse_beyond_limit"]

DELETED_AT = "_pz_deleted_at"
"""The column that a soft delete stamps, NULL while the row is alive."""

LIMIT = "snapshot_delete_limit"
"""The write option of a sink whose sessions are a `RetainingSession`."""

DEFAULT_LIMIT = 0.5

LIMIT_SCHEMA: Mapping[str, Any] = {
    "type": "number",
    "minimum": 0,
    "maximum": 1,
    "description": "Share of the target that a snapshot of a captured table may remove "
    f"(default {DEFAULT_LIMIT}; 1 for all).",
}
"""The option for a sink's output schema."""


@frozen
class Deletes:
    """Statements that delete in one table; ``table`` is its quoted name. Other relations are quoted names, too."""

    output: OutputSpec
    table: str

    def by_key(self, keys: str, merged: str) -> str:
        """Delete, or stamp, the rows with these keys.

        Keys that the target takes for the same, as ``a`` and ``A`` where case does not count, may be both deleted and
        ``merged``: the row that was merged stays.
        """
        gone = f"{self._same('s')} AND NOT EXISTS (SELECT 1 FROM {merged} AS m WHERE {self._same('m')})"
        if self._soft:
            return f"{self._stamp} FROM {keys} AS s WHERE {gone} AND {self._living}"
        return f"DELETE FROM {self.table} AS t USING {keys} AS s WHERE {gone}"

    def all_but(self, kept: str) -> str:
        """Delete, or stamp, the rows whose keys are not among these; a row with NULL in a key never is."""
        gone = f"{self._living} AND NOT EXISTS (SELECT 1 FROM {kept} AS s WHERE {self._same('s')})"
        return f"{self._stamp if self._soft else f'DELETE FROM {self.table} AS t'} WHERE {gone}"

    def count_living(self) -> str:
        """Count the rows that `all_but` may take from. Asked before the merge, which adds to them."""
        return f"SELECT count(*) FROM {self.table} AS t WHERE {self._living}"

    @property
    def _soft(self) -> bool:
        return self.output.on_delete is OnDelete.SOFT

    @property
    def _stamp(self) -> str:
        return f"UPDATE {self.table} AS t SET {quote(DELETED_AT)} = now()"

    @property
    def _living(self) -> str:
        return f"t.{quote(DELETED_AT)} IS NULL" if self._soft else "true"

    def _same(self, other: str) -> str:
        return " AND ".join(f"t.{quote(key)} = {other}.{quote(key)}" for key in self.output.keys)


def refuse_beyond_limit(options: Mapping[str, Any], target: str, removed: int, before: int) -> None:
    """Raise PermanentError PZ0749 when a snapshot removed more of the ``before`` rows than the output's options allow.

    ``target`` starts the message. The caller rolls back.
    """
    limit = float(options.get(LIMIT, DEFAULT_LIMIT))
    if removed > limit * before:
        raise PermanentError(
            f"{target}: {removed} of {before} row(s) are not in the snapshot, more than the limit of {limit:.0%}",
            hint=f"if they are to go, set {LIMIT}: 1 on the output; else check that the target is the right one",
            code=Code.PZ0749,
        )
