"""Does the SQL bind? EXPLAIN of every pipeline against empty tables, made from the contracts of what it reads.

Nothing outside is touched: external access is off. A dataset without ``columns:`` has no table, so what is below it
cannot be tried; neither can what is below a pipeline that reads files or URLs by itself. One note for each says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pz.errors import Code, Problem, Severity
from pz.graph.checks import freshness_problem, one_query
from pz.graph.model import CheckNode, Graph, PipelineNode, SinkNode, SourceNode
from pz.graph.rules import contract_cursor_type
from pz.graph.sql import bind_constants, watermark_sentinel
from pz.graph.watermarks import value_sql
from pz.project.model import CheckKind, Location, SyncMode
from pz.project.nearmiss import did_you_mean
from pz.sqlfaults import line_of, shortened
from pz.sqltext import qualified, quote

if TYPE_CHECKING:
    import duckdb

__all__ = ["dry_compile"]

_RUN_ID = "20000101T000000000Z-0000"
_RUN_STARTED_AT = "2000-01-01T00:00:00.000000"
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")


def dry_compile(graph: Graph) -> tuple[Problem, ...]:
    """PZ0401 errors for pipelines and custom_sql checks that do not bind and for columns of checks, merge keys and
    ``dedupe_by`` that are not there; notes for what could not be tried.

    Parents come first, and a pipeline that binds leaves an empty table of its result for those below it. What is below
    a failure is left out: its errors would only be echoes.
    """
    return tuple(_Trial(graph).problems())


class _Trial:
    """One in-memory database with the empty tables that could be made so far."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._untried: dict[str, str] = {}  # node id -> the dataset or file that is missing, or "" below a failure
        self._left_out: dict[str, list[tuple[str, Location | None]]] = {}  # reason -> what was not tried

    @cached_property
    def _database(self) -> duckdb.DuckDBPyConnection:
        """Made for the first thing that can be tried: where no dataset declares columns, that may be nothing."""
        import duckdb

        made = duckdb.connect(":memory:", config={"python_enable_replacements": False})
        made.execute("SET enable_external_access = false")
        made.execute("SET TimeZone = 'UTC'")
        made.execute("CREATE SCHEMA staging")  # durable: ok - in memory
        return made

    def problems(self) -> Iterator[Problem]:
        """Try everything, in order."""
        try:
            for node in self._graph.nodes:
                if isinstance(node, SourceNode):
                    yield from self._source(node)
                elif isinstance(node, PipelineNode):
                    yield from self._pipeline(node)
                elif isinstance(node, CheckNode) and node.check.kind is CheckKind.CUSTOM_SQL:
                    yield from self._check(node)
                elif isinstance(node, CheckNode):
                    yield from self._columns(node, node.pipeline, node.check.columns, "column")
                elif isinstance(node, SinkNode):
                    yield from self._columns(node, node.pipeline, node.write.keys, "merge key")
                    by = (node.write.dedupe_by,) if node.write.dedupe_by else ()
                    yield from self._columns(node, node.pipeline, by, "dedupe_by")
        finally:
            if "_database" in vars(self):
                self._database.close()
        yield from self._notes()

    def _source(self, node: SourceNode) -> Iterator[Problem]:
        import duckdb

        columns = node.read.columns
        if columns is None:
            self._untried[node.id] = f"dataset '{node.key}' declares no columns"
            return
        # The types are DuckDB's own text and were checked when the project was loaded.
        body = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
        try:
            self._database.execute(
                f"CREATE TABLE {qualified('staging', node.relation)} ({body})"
            )  # durable: ok - in memory
        except duckdb.Error as failure:
            self._untried[node.id] = ""
            message = f"no table can be made from the columns: of dataset '{node.key}': {shortened(failure)}"
            yield _at(Problem(Code.PZ0401, message), node.read.location or node.location, None)

    def _pipeline(self, node: PipelineNode) -> Iterator[Problem]:
        import duckdb

        why = self._missing(node.parents)
        if why is not None:
            self._untried[node.id] = why
            self._leave_out(f"pipeline '{node.name}'", why, node.location)
            return
        sql = bind_constants(node.sql, _RUN_ID, _RUN_STARTED_AT)
        for key, value in self._watermarks(node):
            sql = sql.replace(watermark_sentinel(key), value)
        try:
            self._database.execute(f"EXPLAIN {sql}")
            self._database.execute(
                f"CREATE TABLE {qualified('staging', node.name)} AS (\n{sql}\n) WITH NO DATA"
            )  # durable: ok - in memory
        except duckdb.PermissionException:
            self._untried[node.id] = why = f"pipeline '{node.name}' reads files by itself"
            self._leave_out(f"pipeline '{node.name}'", why, node.location)
        except duckdb.Error as failure:
            self._untried[node.id] = ""
            problem = Problem(Code.PZ0401, f"the SQL does not compile: {shortened(failure)}", hint=self._hint(failure))
            line = line_of(failure)
            yield _at(problem, node.location, None if line is None else node.file_line(line))

    def _check(self, node: CheckNode) -> Iterator[Problem]:
        import duckdb

        why = self._missing(node.parents)
        if why is not None:
            self._leave_out(f"check '{node.name}'", why, node.location)
            return
        try:
            self._database.execute(f"EXPLAIN {one_query(node.check.sql or '')}")
        except duckdb.PermissionException:
            self._leave_out(f"check '{node.name}'", f"check '{node.name}' reads files by itself", node.location)
        except duckdb.Error as failure:
            message = f"the SQL of check '{node.name}' does not compile: {shortened(failure)}"
            syntax = isinstance(failure, duckdb.ParserException)
            hint = "a check is one query, whose rows are the violations" if syntax else None
            if "{{" in (node.check.sql or ""):
                hint = f"a check is no template; write staging.{node.pipeline}"
            yield _at(Problem(Code.PZ0401, message, hint=hint), node.location, None)

    def _columns(
        self,
        node: CheckNode | SinkNode,
        pipeline: str,
        names: Sequence[str],
        what: str,
    ) -> Iterator[Problem]:
        """Names of columns that the pipeline above does not have."""
        if not names or self._missing(node.parents) is not None:
            return
        rows = self._database.execute(f"DESCRIBE {qualified('staging', pipeline)}").fetchall()
        types = {str(row[0]).lower(): str(row[1]) for row in rows}
        known = [str(row[0]) for row in rows]
        where = (node.check.location if isinstance(node, CheckNode) else node.write.location) or node.location
        for name in names:
            if name.lower() not in types:
                message = f"{what} '{name}' of '{node.name}' is not a column of pipeline '{pipeline}'"
                yield _at(Problem(Code.PZ0401, message, hint=did_you_mean(name, known)), where, None)
            elif isinstance(node, SinkNode) and name not in known:  # the target may tell case apart
                spelled = next(column for column in known if column.lower() == name.lower())
                message = f"{what} '{name}' of '{node.name}' is spelled '{spelled}' in pipeline '{pipeline}'"
                yield _at(Problem(Code.PZ0401, message, hint=f"write '{spelled}'"), where, None)
            elif isinstance(node, CheckNode) and node.check.kind is CheckKind.FRESHNESS:
                ageless = freshness_problem(node, types[name.lower()])
                yield from () if ageless is None else (ageless,)

    def _hint(self, failure: Exception) -> str | None:
        """How to read a table that DuckDB does not know, when that is what is wrong."""
        found = _NO_TABLE.search(str(failure))
        if found is None:
            return None
        pipelines = {node.name.lower(): node.name for node in self._graph.nodes if isinstance(node, PipelineNode)}
        meant = pipelines.get(found[1].lower())
        if meant is not None:
            return f"write {{{{ ref('{meant}') }}}} in its place"
        return "tables are read by {{ source('connection', 'entity') }} and pipelines by {{ ref('pipeline') }}"

    def _leave_out(self, what: str, why: str, location: Location | None) -> None:
        if why:
            self._left_out.setdefault(why, []).append((what, location))

    def _notes(self) -> Iterator[Problem]:
        """One note for each reason, however much is below it."""
        for why, left in self._left_out.items():
            what, location = left[0]
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            message = f"{what}{more}: the SQL is not tried before the run, because {why}"
            hint = "declare `columns:` to have it checked here" if why.startswith("dataset") else ""
            yield _at(Problem(Code.PZ0401, message, hint=hint, severity=Severity.NOTE), location, None)

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


def _at(problem: Problem, location: Location | None, line: int | None) -> Problem:
    return problem if location is None else problem.at(location.file, line if line is not None else location.line)
