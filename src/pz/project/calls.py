"""The functions that a template may call, as data: who called what, where, with which declaration.

A faulty call is reported with its line and rendered as well as can be, so that the next one is looked at too. A call
whose connection or arguments are not understood is not recorded.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pz.errors import Code, Problems
from pz.frozen import frozen
from pz.project.declarations import entity_name_problem, parse_read, parse_write
from pz.project.identifiers import source_relation
from pz.project.model import EntityDecl, Location, Materialization, PipelineDecl, Project, ReadDecl, WriteDecl
from pz.project.nearmiss import did_you_mean, near_miss
from pz.project.template_marks import LINE_ARGUMENT, sink_mark
from pz.project.yaml_source import Block, Item, from_python, plain_value
from pz.sqltext import literal, unfit

__all__ = ["FUNCTIONS", "WATERMARK_PREFIX", "Calls", "RefCall", "SinkCall", "SourceCall", "WatermarkCall"]

WATERMARK_PREFIX = "__pz_watermark__:"

FUNCTIONS = ("source", "ref", "sink", "watermark", "var", "env")


@frozen
class SourceCall:
    """``source()``; ``decl`` is None when the call declares nothing."""

    connection: str
    entity: str
    decl: ReadDecl | None
    location: Location


@frozen
class SinkCall:
    """``sink()``; ``decl`` is None when the call declares nothing."""

    connection: str
    entity: str
    decl: WriteDecl | None
    location: Location


@frozen
class RefCall:
    """``ref()``."""

    pipeline: str
    location: Location


@frozen
class WatermarkCall:
    """``watermark()``."""

    connection: str
    entity: str
    location: Location


class Calls:
    """What one rendering calls. ``functions`` are the callables to hand to the template."""

    def __init__(
        self, project: Project, pipeline: PipelineDecl, environ: Mapping[str, str], problems: Problems
    ) -> None:
        self._project = project
        self._pipeline = pipeline
        self._environ = environ
        self._problems = problems
        self._declared: dict[tuple[str, str, str], object] = {}
        self.sources: list[SourceCall] = []
        self.refs: list[RefCall] = []
        self.sinks: list[SinkCall] = []
        self.watermarks: list[WatermarkCall] = []
        self.variables: set[str] = set()
        self.revealed: set[str] = set()
        self.failed = False

    @property
    def functions(self) -> dict[str, Any]:
        """The functions by the name that a template calls them by."""
        return {name: getattr(self, name) for name in FUNCTIONS}

    def problem(self, code: Code, message: str, line: int | None, hint: str = "") -> None:
        """Report an error at a line of this pipeline."""
        self.failed = True
        self._problems.error(code, message, file=self._pipeline.location.file, line=line, hint=hint)

    def source(self, *args: object, **options: object) -> str:
        """``source(conn, entity, ...)``."""
        line = _line(options)
        names = self._entity("source", Code.PZ0201, args, line)
        if names is None:
            return "staging.unknown"
        block = self._options("source", Code.PZ0201, names, options, line)
        decl = None if block is None else parse_read(block, ".".join(names), self._file, self._problems, in_call=True)
        self.sources.append(SourceCall(*names, decl, Location(self._file, line)))
        return f"staging.{source_relation(*names)}"

    def sink(self, *args: object, **options: object) -> str:
        """``sink(conn, entity, ...)``: a mark that says where in the text it stands."""
        line = _line(options)
        names = self._entity("sink", Code.PZ0208, args, line)
        if names is None:
            return sink_mark(None)
        block = self._options("sink", Code.PZ0208, names, options, line)
        decl = None if block is None else parse_write(block, ".".join(names), self._file, self._problems, in_call=True)
        self.sinks.append(SinkCall(*names, decl, Location(self._file, line)))
        return sink_mark(len(self.sinks) - 1)

    def watermark(self, *args: object, **options: object) -> str:
        """``watermark(conn, entity)``."""
        line = _line(options)
        names = self._entity("watermark", Code.PZ0201, args, line)
        if options:
            self.problem(Code.PZ0201, "watermark() takes no options", line, "declare the read at its source()")
        if names is None:
            return "NULL"
        self.watermarks.append(WatermarkCall(*names, Location(self._file, line)))
        return literal(f"{WATERMARK_PREFIX}{'.'.join(names)}")

    def ref(self, *args: object, **options: object) -> str:
        """``ref(pipeline)``."""
        line = _line(options)
        name = self._single("ref", Code.PZ0201, args, options, line)
        if name is None:
            return "staging.unknown"
        target = self._project.pipelines.get(name)
        if target is None:
            hint = _suggestion(name, self._project.pipelines) or f"add pipelines/{name}.sql, or correct the name"
            self.problem(Code.PZ0201, f"ref() names an unknown pipeline '{name}'", line, hint)
            return "staging.unknown"
        self.refs.append(RefCall(name, Location(self._file, line)))
        return f"__pz_cte__{name}" if target.materialization is Materialization.EPHEMERAL else f"staging.{name}"

    def var(self, *args: object, **options: object) -> object:
        """``var(name)``: a copy, so that no template can change what another one sees."""
        line = _line(options)
        name = self._single("var", Code.PZ0104, args, options, line)
        if name is None:
            return ""
        if name not in self._project.vars:
            hint = _suggestion(name, self._project.vars) or f"declare {name} below vars: in project.yml"
            self.problem(Code.PZ0104, f"var() names an unknown variable '{name}'", line, hint)
            return ""
        self.variables.add(name)
        value = self._project.vars[name]
        fault = unfit(value)
        if fault is not None:
            self.problem(Code.PZ0104, f"variable '{name}' {fault}", line, "remove the character")
            return ""
        return copy.deepcopy(value)

    def env(self, *args: object, **options: object) -> str:
        """``env(NAME)``. The value ends up in the compiled SQL: this is no place for secrets."""
        line = _line(options)
        name = self._single("env", Code.PZ0104, args, options, line)
        if name is None:
            return ""
        if name not in self._environ:
            self.problem(
                Code.PZ0103, f"environment variable '{name}' is not set", line, f"set {name} in the environment"
            )
            return ""
        fault = unfit(self._environ[name])
        if fault is not None:
            self.problem(Code.PZ0103, f"environment variable '{name}' {fault}", line, f"set {name} to text in UTF-8")
            return ""
        self.revealed.add(self._environ[name])
        return self._environ[name]

    @property
    def _file(self) -> str:
        return self._pipeline.location.file

    def _single(
        self, function: str, code: Code, args: tuple[object, ...], options: Mapping[str, object], line: int | None
    ) -> str | None:
        if len(args) == 1 and isinstance(args[0], str) and not options:
            return args[0]
        self.problem(code, f"{function}() takes one name, as text", line, f"write {function}('name'), with the quotes")
        return None

    def _entity(self, function: str, code: Code, args: tuple[object, ...], line: int | None) -> tuple[str, str] | None:
        """Connection and entity of a call, or None after a problem."""
        if len(args) != 2 or not all(isinstance(arg, str) for arg in args):
            form = f"{function}('connection', 'entity'" + (")" if function == "watermark" else ", option: value)")
            message = f"{function}() takes a connection and an entity, both as text"
            self.problem(code, message, line, f"write {form}, with the quotes")
            return None
        connection, entity = str(args[0]), str(args[1])
        trouble = entity_name_problem(entity)
        if trouble is not None:
            self.problem(Code.PZ0344, f"{function}(): {trouble}", line, "spell it as the remote system does")
        if connection not in self._project.connections:
            known = self._project.connections
            hint = _suggestion(connection, known) or f"add {connection} to connections.yml, or correct the name"
            self.problem(Code.PZ0201, f"{function}() names an unknown connection '{connection}'", line, hint)
            return None
        return (connection, entity) if trouble is None else None

    def _options(
        self, function: str, code: Code, names: tuple[str, str], options: Mapping[str, object], line: int | None
    ) -> Block | None:
        """The options of a call as a block; None when it has none. Reports PZ0341 when they stand elsewhere too."""
        if not options:
            return None
        entries: dict[str, Item] = {}
        for name, value in options.items():
            try:
                entries[name] = from_python(value, line)
            except TypeError:
                message = f"{function}(): option '{name}' has no value that a template can pass"
                self.problem(code, message, line, "put text in quotes; lists are [..], mappings {..}")
        block = Block(entries, line, dict.fromkeys(entries, line))
        self._refuse_second_surface(function, names, block, line)
        return block

    def _refuse_second_surface(self, function: str, names: tuple[str, str], block: Block, line: int | None) -> None:
        label = ".".join(names)
        entity = self._project.connections[names[0]].entities.get(names[1])
        side, written = _yaml_side(function, entity)
        if written is not None:
            where = f"{written.file}:{written.line}" if written.line else written.file
            message = f"'{label}' has options at this {function}() and under {side}: in {where}"
            self.problem(Code.PZ0341, message, line, "keep one place: there is no precedence between the two")
        content = plain_value(block)
        if self._declared.setdefault((function, *names), content) != content:
            message = f"two {function}() calls give '{label}' different options"
            self.problem(Code.PZ0341, message, line, "give the options once")


def _yaml_side(function: str, entity: EntityDecl | None) -> tuple[str, Location | None]:
    side = "read" if function == "source" else "write"
    decl = None if entity is None else entity.read if function == "source" else entity.write
    return side, None if decl is None else decl.location


def _line(options: dict[str, object]) -> int | None:
    line = options.pop(LINE_ARGUMENT, None)
    return line if isinstance(line, int) else None


def _suggestion(name: str, known: Mapping[str, object]) -> str | None:
    return did_you_mean(name, known) if near_miss(name, known) is not None else None
