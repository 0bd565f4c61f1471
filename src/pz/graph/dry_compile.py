"""Does the SQL bind? EXPLAIN of every pipeline against empty tables, made from the contracts of what it reads.

Nothing outside is touched: external access is off. A dataset without ``columns:`` has no table, so what is below it
cannot be tried and gets a note; so does a pipeline that reads files or URLs by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pz.errors import Code, Problem, Severity
from pz.graph.model import CheckNode, Graph, PipelineNode, SourceNode
from pz.graph.rules import contract_cursor_type
from pz.graph.sql import bind_constants, watermark_sentinel
from pz.graph.watermarks import value_sql
from pz.project.model import CheckKind, Location, SyncMode
from pz.project.sqlscan import without_end
from pz.sqltext import qualified, quote

if TYPE_CHECKING:
    import duckdb

__all__ = ["dry_compile"]

_RUN_ID = "20000101T000000000Z-0000"
_RUN_STARTED_AT = "2000-01-01T00:00:00.000000"
_NOISE = re.compile(r"^(LINE \d+:|\s*\^|Candidate functions:|\t)")
_LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)


def dry_compile(graph: Graph) -> tuple[Problem, ...]:
    """PZ0401 errors for pipelines and custom_sql checks that do not bind; notes for what could not be tried.

    Parents come first, and a pipeline that binds leaves an empty table of its result for those below it. What is below
    a failure is left out: its errors would only be echoes.
    """
    return tuple(_Trial(graph).problems())


class _Trial:
    """One in-memory database with the empty tables that could be made so far."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._untried: dict[str, str] = {}  # node id -> the dataset or file that is missing, or "" below a failure

    def problems(self) -> Iterator[Problem]:
        """Try everything, in order."""
        import duckdb

        with duckdb.connect(":memory:", config={"python_enable_replacements": False}) as connection:
            connection.execute("SET enable_external_access = false")
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("CREATE SCHEMA staging")  # durable: ok - in memory
            for node in self._graph.nodes:
                if isinstance(node, SourceNode):
                    yield from self._source(connection, node)
                elif isinstance(node, PipelineNode):
                    yield from self._pipeline(connection, node)
                elif isinstance(node, CheckNode) and node.check.kind is CheckKind.CUSTOM_SQL:
                    yield from self._check(connection, node)

    def _source(self, connection: duckdb.DuckDBPyConnection, node: SourceNode) -> Iterator[Problem]:
        import duckdb

        columns = node.read.columns
        if columns is None:
            self._untried[node.id] = f"dataset '{node.key}' has no columns:"
            return
        # The types are DuckDB's own text and were checked when the project was loaded.
        body = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
        try:
            connection.execute(
                f"CREATE TABLE {qualified('staging', node.relation)} ({body})"
            )  # durable: ok - in memory
        except duckdb.Error as failure:
            self._untried[node.id] = ""
            message = f"no table can be made from the columns: of dataset '{node.key}': {_shortened(failure)}"
            yield _at(Problem(Code.PZ0401, message), node.read.location or node.location, None)

    def _pipeline(self, connection: duckdb.DuckDBPyConnection, node: PipelineNode) -> Iterator[Problem]:
        import duckdb

        why = self._missing(node.parents)
        if why is not None:
            self._untried[node.id] = why
            yield from _note(f"pipeline '{node.name}'", why, node.location)
            return
        sql = bind_constants(node.sql, _RUN_ID, _RUN_STARTED_AT)
        for key, value in self._watermarks(node):
            sql = sql.replace(watermark_sentinel(key), value)
        try:
            connection.execute(f"EXPLAIN {sql}")
            connection.execute(
                f"CREATE TABLE {qualified('staging', node.name)} AS (\n{sql}\n) WITH NO DATA"
            )  # durable: ok - in memory
        except duckdb.PermissionException:
            self._untried[node.id] = why = "it reads files by itself"
            yield from _note(f"pipeline '{node.name}'", why, node.location)
        except duckdb.Error as failure:
            self._untried[node.id] = ""
            problem = Problem(Code.PZ0401, f"the SQL does not compile: {_shortened(failure)}")
            line = _line_of(failure)
            yield _at(problem, node.location, None if line is None else node.file_line(line))

    def _check(self, connection: duckdb.DuckDBPyConnection, node: CheckNode) -> Iterator[Problem]:
        import duckdb

        why = self._missing(node.parents)
        if why is not None:
            yield from _note(f"check '{node.name}'", why, node.location)
            return
        try:
            connection.execute(f"EXPLAIN {without_end(node.check.sql or '')}")
        except duckdb.PermissionException:
            yield from _note(f"check '{node.name}'", "it reads files by itself", node.location)
        except duckdb.Error as failure:
            message = f"the SQL of check '{node.name}' does not compile: {_shortened(failure)}"
            yield _at(Problem(Code.PZ0401, message), node.location, None)

    def _missing(self, parents: Iterable[str]) -> str | None:
        """Why something below these parents cannot be tried: the first reason, or "" if there is only a failure."""
        reasons = [self._untried[parent] for parent in parents if parent in self._untried]
        return None if not reasons else next((reason for reason in reasons if reason), "")

    def _watermarks(self, node: PipelineNode) -> Iterator[tuple[str, str]]:
        for parent in node.parents:
            source = self._graph.by_id[parent]
            if isinstance(source, SourceNode) and source.read.sync.mode is SyncMode.INCREMENTAL:
                kind = contract_cursor_type(source.read.columns or {}, source.read.sync.cursor or "")
                yield source.key, value_sql(None, kind)


def _note(what: str, why: str, location: Location | None) -> Iterator[Problem]:
    if why:
        problem = Problem(Code.PZ0401, f"{what} was not tried: {why}", hint="", severity=Severity.NOTE)
        yield _at(problem, location, None)


def _at(problem: Problem, location: Location | None, line: int | None) -> Problem:
    return problem if location is None else problem.at(location.file, line if line is not None else location.line)


def _line_of(failure: Exception) -> int | None:
    match = _LINE.search(str(failure))
    return None if match is None else int(match[1])


def _shortened(failure: Exception) -> str:
    """The first useful lines of a DuckDB message: what is wrong and what it suggests, without the echo of the SQL."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip() and not _NOISE.match(line)]
    return " ".join(lines[:3]).removeprefix("Binder Error: ").removeprefix("Catalog Error: ")
