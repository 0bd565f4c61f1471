"""A write that DuckDB does itself: the connector's statements in one transaction, then its files promoted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pz.connectors.contract import NativeCopy, OutputSpec, Sink
from pz.connectors.databases import make_database
from pz.durable import Step, fsync_dir, make_dirs, promote, step
from pz.engine.nodes.explain import explained
from pz.errors import PermanentError
from pz.staging.results import first_row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from pz.engine.context import NodeContext

__all__ = ["NativeWrite"]

RELATION, ROWS = "{relation}", "{rows}"


@dataclass
class NativeWrite:
    """One native write of a relation. ``before`` are statements that come first in the transaction; ``observe`` sees the
    cursor right after the statement that moved the rows.

    Afterwards ``committing`` says whether the commit was entered: what fails before it has left nothing behind.
    """

    before: Sequence[str] = ()
    observe: Callable[[DuckDBPyConnection], None] | None = None
    committing: bool = False

    def run(
        self, context: NodeContext, cursor: DuckDBPyConnection, sink: Sink, output: OutputSpec, relation: str
    ) -> int:
        """Write ``relation`` through the sink's native statements; returns the rows written."""
        with explained(sink):
            copy = sink.native_copy(output)
        if copy is None:
            raise PermanentError(f"'{output.connection}.{output.entity}' offers no native write any more")
        if copy.landed is not None:
            return copy.landed
        with explained(sink):
            for database in copy.databases:
                make_database(database)
            context.run.staging.run_setup(copy.setup)
        for leftover in copy.stale:
            leftover.unlink(missing_ok=True)  # durable: ok - a dead attempt's temporary file, under this output's lock
        for directory in copy.directories:
            make_dirs(directory)
        try:
            with explained(sink):
                written = self._in_one_transaction(context, cursor, copy, relation)
        except BaseException:  # whatever ends the write, an interrupt too: nobody has seen these files
            _discard(copy)
            raise
        if written or copy.promotes_empty:
            for aside, final in copy.moves:
                promote(aside, final)
        else:
            _discard(copy)
        for database in copy.databases:
            fsync_dir(database.parent)
        return written

    def _in_one_transaction(
        self, context: NodeContext, cursor: DuckDBPyConnection, copy: NativeCopy, relation: str
    ) -> int:
        rows = 0
        with context.run.staging.transaction(cursor, Step.SINK_COMMIT), step(Step.SINK_WRITE):
            for statement in self.before:
                cursor.execute(statement)
            for statement in copy.statements:
                context.cancel.raise_if_set()
                result = cursor.execute(statement.replace(RELATION, relation))
                if RELATION in statement:
                    row = first_row(result)
                    rows = int(row[0]) if row and isinstance(row[0], int) else rows
                    if self.observe is not None:
                        self.observe(cursor)
            for statement in copy.counted:
                cursor.execute(statement.replace(ROWS, str(rows)))
            self.committing = True
        return rows


def _discard(copy: NativeCopy) -> None:
    for aside, _ in copy.moves:
        aside.unlink(missing_ok=True)  # durable: ok - a temporary file that nobody has seen
