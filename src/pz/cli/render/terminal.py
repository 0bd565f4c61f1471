"""Rich consoles over our own streams, so that nothing that rich prints can raise or colour what it must not."""

from __future__ import annotations

from typing import IO, cast

from rich.console import Console

from pz.cli.output import Output, Stream

__all__ = ["console_for"]


class _File:
    """The part of a text file that rich uses, over a `Stream` that never raises."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        return getattr(self._stream.file, "encoding", None) or "ascii"

    def write(self, text: str) -> int:
        self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Every write is flushed already."""

    def isatty(self) -> bool:
        return self._stream.is_terminal

    def fileno(self) -> int:
        return self._stream.file.fileno() if self._stream.file is not None else -1


def console_for(output: Output) -> Console:
    """A console on standard output."""
    return Console(
        file=cast("IO[str]", _File(output.out)),
        force_terminal=output.live,
        no_color=not output.color,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not output.live,
    )
