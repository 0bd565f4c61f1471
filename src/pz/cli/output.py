"""Where the command line prints: two streams that a reader may close, a disk may fill and a locale may limit.

Nothing printed may end a run. A closed pipe (``pz run | head``) silences the stream and the exit code still says what
became of the run; any other failure is remembered in ``failure`` so that the verb can end with an error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

__all__ = ["Output", "Stream", "printable"]

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Return the text without control characters, so that a name or a message cannot steer the terminal."""
    return text.translate(_CONTROL)


class Stream:
    """One output stream; ``write`` never raises, and after the first failure it does nothing."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self.failure: OSError | None = None
        self.open = file is not None
        if file is not None and hasattr(file, "reconfigure"):
            file.reconfigure(errors="backslashreplace")

    @property
    def file(self) -> TextIO | None:
        """The file behind the stream, None when the process was started without one."""
        return self._file

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at it."""
        return self._file is not None and not self._file.closed and self._file.isatty()

    @property
    def unicode(self) -> bool:
        """Whether line drawing and marks outside ASCII can be written."""
        return "utf" in (getattr(self._file, "encoding", None) or "ascii").lower()

    def line(self, text: str = "") -> None:
        """Write a line and flush it."""
        self.write(text + "\n")

    def write(self, text: str) -> None:
        """Write text and flush it."""
        if not self.open or self._file is None:
            return
        try:
            self._file.write(text)
            self._file.flush()
        except BrokenPipeError:
            self._silence()
        except (OSError, ValueError) as failure:  # ValueError: the file was closed under our feet
            self.failure = failure if isinstance(failure, OSError) else OSError(str(failure))
            self._silence()

    def _silence(self) -> None:
        """Stop writing; the descriptor is pointed at nowhere so that the flush at exit cannot fail again."""
        self.open = False
        with contextlib.suppress(OSError, ValueError, AttributeError):
            assert self._file is not None
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)


class Output:
    """Standard output and standard error of one invocation, and how they may be decorated.

    ``abandoned`` is set when a stream blocks for good; the process then ends without the flush at exit. ``run_finished``
    says that the exit code is a run's, which output that could not be written does not change.
    """

    def __init__(self, out: TextIO | None, err: TextIO | None, environ: dict[str, str] | None = None) -> None:
        self.out = Stream(out)
        self.err = Stream(err)
        self.abandoned = False
        self.run_finished = False
        self._environ = dict(os.environ) if environ is None else environ

    @classmethod
    def of_process(cls) -> Output:
        """The streams that the process has right now."""
        return cls(sys.stdout, sys.stderr)

    @property
    def live(self) -> bool:
        """Whether standard output is a terminal that can redraw: not CI, not ``TERM=dumb``."""
        return self.out.is_terminal and not self._environ.get("CI") and self._environ.get("TERM") != "dumb"

    @property
    def color(self) -> bool:
        """Whether standard output may be coloured; ``NO_COLOR`` (any text) says no."""
        return self.live and not self._environ.get("NO_COLOR")
