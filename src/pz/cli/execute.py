"""What run, test and retry share: signals, the view of the event stream, the summary, the exit code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pz.cli.command import Invocation
from pz.cli.failures import explain, report
from pz.cli.options import LogFormat
from pz.cli.output import Output, Stream, printable
from pz.cli.render.console import ConsoleRenderer, RemarkRenderer
from pz.cli.render.ndjson import NdjsonRenderer, to_line
from pz.cli.render.pump import EventPump, Renderer
from pz.cli.signals import StopSignals
from pz.connectors.contract import CancelToken
from pz.events import Event, Handler, Notice, RunRefused

if TYPE_CHECKING:
    from pz.api import RunResult

__all__ = ["Action", "execute"]


Action = Callable[[Handler, CancelToken], "RunResult"]

_STOPPING = "stopping; a second signal ends the process at once"


def execute(cli: Invocation, log_format: LogFormat, action: Action) -> int:
    """Perform ``action`` under a view and stop signals, print what it came to, return the exit code."""
    cancel = CancelToken()
    pump = EventPump(renderer_for(cli, log_format))
    announce = _announcer(cli.output, pump, log_format)
    with StopSignals(cancel, announce=announce, last_words=lambda: _show_cursor(cli.output)):
        try:
            result = action(pump.publish, cancel)
        except BaseException as failure:  # noqa: BLE001 - reported like every other, once the view has let go
            _drain(pump, cli.output)
            if log_format is LogFormat.JSON:
                _tell_refusal(failure, cli.output)
            return report(failure, cli.output)
        _drain(pump, cli.output)
        _conclude(cli, log_format, result)
    cli.output.run_finished = True
    return result.exit_code


def _tell_refusal(failure: BaseException, output: Output) -> None:
    """The end of a stream that has no ``run_completed``; a view that is stuck gets no more."""
    if output.abandoned:
        return
    problems, code = explain(failure)
    for problem in problems:
        event = RunRefused(
            run_id="",
            severity=problem.severity,
            code=problem.code,
            message=problem.message,
            hint=problem.advice,
            exit_code=int(code),
            file=problem.file,
            line=problem.line,
        )
        output.out.line(to_line(event))


def renderer_for(cli: Invocation, log_format: LogFormat) -> Renderer:
    """The view that fits the format and the terminal."""
    output = cli.output
    if log_format is LogFormat.JSON:
        return _Both(NdjsonRenderer(output.out), RemarkRenderer(output.err, cli.verbosity))
    if output.live and cli.verbosity <= 1:
        from pz.cli.render.live import LiveRenderer
        from pz.cli.render.terminal import console_for

        return LiveRenderer(console_for(output), cli.verbosity)
    return ConsoleRenderer(output.out, cli.verbosity)


class _Both:
    """Two views of one stream."""

    def __init__(self, *views: Renderer) -> None:
        self._views = views

    def handle(self, event: Event) -> None:
        for view in self._views:
            view.handle(event)

    def tick(self) -> None:
        for view in self._views:
            view.tick()

    def finish(self) -> None:
        for view in self._views:
            view.finish()


def _announcer(output: Output, pump: EventPump, log_format: LogFormat) -> Callable[[], None]:
    if log_format is LogFormat.TEXT and output.live:
        return lambda: pump.publish(Notice(run_id="", severity="note", message=_STOPPING))
    return lambda: output.err.line(f"note: {_STOPPING}")


def _show_cursor(output: Output) -> None:
    if output.live:
        output.out.write("\x1b[?25h\n")


def _drain(pump: EventPump, output: Output) -> None:
    """Let the view show what is left; one that is stuck is abandoned with a warning, and so is the exit by the book."""
    if not pump.close():
        output.abandoned = True
        _aside(output.err, "warning: the output could not be written in time; the run itself is not affected")
    elif pump.failure is not None:
        output.err.line(f"warning: the view failed ({type(pump.failure).__name__}); the run itself is not affected")
    elif pump.dropped:
        output.err.line(f"warning: {pump.dropped} event(s) were not shown: the output was too slow")


def _aside(stream: Stream, text: str) -> None:
    """Write in a thread, so that a stream which blocks cannot hold the exit up."""
    thread = threading.Thread(target=stream.line, args=(text,), daemon=True)
    thread.start()
    thread.join(1.0)


def _conclude(cli: Invocation, log_format: LogFormat, result: RunResult) -> None:
    """The summary; the view has shown everything else, also why there was nothing to do."""
    output = cli.output
    if output.abandoned:
        _aside(output.err, printable(str(result.summary)))
    elif not result.nothing_to_do:
        (output.err if log_format is LogFormat.JSON else output.out).line(printable(str(result.summary)))
