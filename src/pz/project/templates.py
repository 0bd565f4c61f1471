"""From a pipeline's template to SQL, and to what it reads, references and writes.

    source(conn, entity, ...)   staging.src_<conn>__<entity>      what the SQL reads; options are the read declaration
    ref(pipeline)               staging.<pipeline>, or __pz_cte__<pipeline> when it is ephemeral
    sink(conn, entity, ...)     nothing: only after a leading INSERT INTO, which is cut off
    watermark(conn, entity)     '__pz_watermark__:<conn>.<entity>'
    var(name), env(NAME)        the value
    this                        staging.<this pipeline>
    run_id, run_started_at      __pz_run_id__, __pz_run_started_at__

The sentinels are replaced when the run is known. All faulty calls of a template are reported, not only the first; what
stops the rendering itself is one PZ0104.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from pz.errors import Code, Problems
from pz.frozen import frozen
from pz.project.calls import FUNCTIONS, WATERMARK_PREFIX, Calls, RefCall, SinkCall, SourceCall, WatermarkCall
from pz.project.model import Materialization, PipelineDecl, Project
from pz.project.nearmiss import near_miss
from pz.project.sqlscan import without_end
from pz.project.template_marks import MARK, find_sink_prefix, sink_marks, unmark, without_sink_marks

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = [
    "RUN_ID",
    "RUN_STARTED_AT",
    "WATERMARK_PREFIX",
    "RefCall",
    "Rendered",
    "SinkCall",
    "SourceCall",
    "WatermarkCall",
    "render",
]

RUN_ID = "__pz_run_id__"
RUN_STARTED_AT = "__pz_run_started_at__"

CONSTANTS = ("this", "run_id", "run_started_at")

_CALLABLE = f"a template may call {', '.join(f'{name}()' for name in FUNCTIONS)} and use {', '.join(CONSTANTS)}"
_SINK_HINT = "begin the pipeline with INSERT INTO {{ sink(...) }}, or a list of them in [ ], and the query behind it"
_UNDEFINED = re.compile(r"'(\w+)' is undefined")
_SHORTEST_SECRET = 4
_LONGEST_MESSAGE = 300

Call = TypeVar("Call", bound=Hashable)


@frozen
class Rendered:
    """A rendered pipeline: the query (no INSERT INTO, no semicolon at its end) and its calls, each listed once.

    ``lines`` has for every line of ``sql`` the line of the template that it came from.
    """

    name: str
    sql: str
    sources: tuple[SourceCall, ...] = ()
    refs: tuple[RefCall, ...] = ()
    sinks: tuple[SinkCall, ...] = ()
    watermarks: tuple[WatermarkCall, ...] = ()
    uses_run_constants: bool = False
    variables: frozenset[str] = frozenset()
    lines: tuple[int, ...] = ()

    def template_line(self, sql_line: int) -> int | None:
        """The line of the template behind a line of ``sql`` (both from 1); None beyond its end."""
        return self.lines[sql_line - 1] if 0 < sql_line <= len(self.lines) else None


def render(project: Project, pipeline: PipelineDecl, environ: Mapping[str, str], problems: Problems) -> Rendered:
    """Render one pipeline. Never raises for what the template holds: look at ``problems`` for errors.

    After an error the result holds what was understood, so that later stages may still look at it; ``sql`` is empty
    when the rendering itself was stopped.
    """
    calls = Calls(project, pipeline, environ, problems)
    marked = _rendered(pipeline, calls)
    if marked is None:
        return _result(pipeline.name, "", (), calls)
    text, lines = unmark(marked)
    text = _take_sinks(text, pipeline, calls)
    sql = without_end(text)
    if MARK in sql:  # what sink() returned was taken apart
        calls.problem(Code.PZ0208, "the value of sink() was changed before it was printed", None, _SINK_HINT)
        sql = ""
    elif not without_end(sql) and not calls.failed:
        code = Code.PZ0208 if calls.sinks else Code.PZ0104
        line = calls.sinks[0].location.line if calls.sinks else None
        calls.problem(code, "the pipeline holds no query", line, "write a SELECT")
    return _result(pipeline.name, sql, lines, calls)


def _result(name: str, sql: str, lines: tuple[int, ...], calls: Calls) -> Rendered:
    return Rendered(
        name=name,
        sql=sql,
        sources=_once(calls.sources),
        refs=_once(calls.refs),
        sinks=tuple(calls.sinks),
        watermarks=_once(calls.watermarks),
        uses_run_constants=RUN_ID in sql or RUN_STARTED_AT in sql,
        variables=frozenset(calls.variables),
        lines=lines[: sql.count("\n") + 1],
    )


def _once(calls: Iterable[Call]) -> tuple[Call, ...]:
    kept: list[Call] = []
    for call in calls:
        if call not in kept:
            kept.append(call)
    return tuple(kept)


def _rendered(pipeline: PipelineDecl, calls: Calls) -> str | None:
    """The text with its marks; None after a problem that stopped the rendering."""
    from pz.project.sandbox import Sandbox
    from pz.project.template_syntax import instrument

    template: Template | None = None
    sandbox = Sandbox()
    try:
        tree = sandbox.parse(pipeline.text)
        for repeated in instrument(tree, frozenset(FUNCTIONS)):
            code = Code.PZ0208 if repeated.function == "sink" else Code.PZ0201
            message = f"{repeated.function}() is given '{repeated.argument}' twice"
            calls.problem(code, message, repeated.line, "keep one of the two")
        template = sandbox.compiled(tree, pipeline.name)
        context = template.new_context({**calls.functions, **_constants(pipeline)})
        chunks: list[str] = []
        for chunk in template.root_render_func(context):
            sandbox.charge_output(len(chunk))
            chunks.append(chunk)
        return "".join(chunks)
    except Exception as error:  # noqa: BLE001 - expressions can raise anything, and all of it is the author's to correct
        _report(error, template, calls)
        return None


def _constants(pipeline: PipelineDecl) -> dict[str, str]:
    return {"this": f"staging.{pipeline.name}", "run_id": RUN_ID, "run_started_at": RUN_STARTED_AT}


def _report(error: Exception, template: Template | None, calls: Calls) -> None:
    """Turn whatever stopped a rendering into PZ0104, without values that env() gave out."""
    if isinstance(error, RecursionError | MemoryError):
        message = "it is nested too deeply"
    else:
        message = str(error).partition("\n")[0] or type(error).__name__
    for value in calls.revealed:
        if len(value) >= _SHORTEST_SECRET:
            message = message.replace(value, "***")
    message = message[:_LONGEST_MESSAGE]
    name = _UNDEFINED.match(message)
    close = near_miss(name[1], (*FUNCTIONS, *CONSTANTS)) if name else None
    hint = f"did you mean '{close}'?" if close else _hint(message)
    calls.problem(Code.PZ0104, f"the template cannot be rendered: {message}", _line_of(error, template), hint)


def _hint(message: str) -> str:
    from pz.project.sandbox import FILTERS

    if message.startswith("No filter named"):
        return f"the filters are {', '.join(FILTERS)}"
    if message.lower().startswith(("unexpected '", "unexpected end", "unexpected char", "expected token", "unclosed")):
        return "each {{ needs a }}, each {% a %}, each bracket and quote within them its other half"
    return _CALLABLE


def _line_of(error: Exception, template: Template | None) -> int | None:
    """The line of the template that an error comes from: the innermost frame that is the template's own code."""
    from jinja2 import TemplateSyntaxError

    if template is None:
        return error.lineno if isinstance(error, TemplateSyntaxError) else None
    line: int | None = None
    trace = error.__traceback__
    while trace is not None:
        own: object = trace.tb_frame.f_globals.get("__jinja_template__")
        if own is template:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _take_sinks(text: str, pipeline: PipelineDecl, calls: Calls) -> str:
    """Cut off the leading INSERT INTO, keeping its line breaks; every sink() elsewhere is PZ0208."""
    prefix = find_sink_prefix(text)
    taken: tuple[int, ...] = ()
    if prefix is not None:
        taken = tuple(number for number in prefix.sinks if number < len(calls.sinks))
        cut = text[prefix.start : prefix.end]
        text = text[: prefix.start] + "\n" * cut.count("\n") + text[prefix.end :]
    misplaced = set(range(len(calls.sinks))) - set(taken)
    for number in sorted(misplaced | sink_marks(text)):
        line = calls.sinks[number].location.line if number < len(calls.sinks) else None
        message = "sink() stands only in INSERT INTO {{ sink(...) }} at the head of the pipeline"
        calls.problem(Code.PZ0208, message, line, _SINK_HINT)
    if pipeline.materialization is Materialization.EPHEMERAL and taken:
        line = calls.sinks[taken[0]].location.line
        message = f"ephemeral pipeline '{pipeline.name}' cannot write to a sink"
        calls.problem(Code.PZ0208, message, line, "make it a table or a view")
    return without_sink_marks(text)
