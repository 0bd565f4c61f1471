"""Where a page lies between the wire and the parser: files of the run's folder that live as long as the page."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Spool"]

_TRIES = 100


class Spool:
    """Folders for pages. Outside of a run (conformance, a connection check) they lie in the system's temporary folder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: Path | None = None

    def use(self, directory: Path) -> None:
        """Make folders below this directory, which need not exist."""
        self._given = directory

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for one reader, gone when the block ends."""
        made = self._made()
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)  # durable: ok - pages live no longer than their reader
            with self._lock:
                self._drop_root()

    def _made(self) -> Path:
        """A new folder. The directory goes with the last folder of any source of the run, also between its making and ours."""
        for _ in range(_TRIES):
            with self._lock, suppress(FileNotFoundError):
                if self._given is not None:
                    self._given.mkdir(parents=True, exist_ok=True)
                return Path(tempfile.mkdtemp(prefix="pz-http-", dir=self._given))
        return Path(tempfile.mkdtemp(prefix="pz-http-", dir=self._given))

    def _drop_root(self) -> None:
        """The directory itself goes with its last folder."""
        if self._given is not None:
            try:
                self._given.rmdir()  # durable: ok - empty by now, or still used by another reader
            except OSError:
                return
