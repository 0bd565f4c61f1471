"""A run's staging database: one DuckDB file, many cursors.

The file is attached as ``run`` to an in-memory main database, because opening ``staging.duckdb`` directly would name the
catalogue ``staging`` and make every ``staging.x`` ambiguous. Cursors do not inherit ``USE``; take them from
`StagingSession.cursor` only.

Two traps. While the file is attached, nothing else in this process may open and close it (POSIX drops a process's locks
on a file when any of its descriptors is closed), so it is fsynced before it is attached and after it is detached. And a
new DuckDB file is void while its first header pages are written: it is made under another name and renamed when whole.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pz.codes import Code
from pz.connectors.contract import CancelToken
from pz.durable import Step, fsync_dir, fsync_file, promote, step
from pz.errors import Cancelled, NodeError, Problem, StateError, os_problem
from pz.interrupter import Interrupter
from pz.sqltext import literal
from pz.staging import meta
from pz.staging.redaction import redact, redact_statement
from pz.staging.transaction import Transaction, transaction

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["STAGING_FILE", "StagingSession", "check_file", "opening_failure"]

STAGING_FILE = "staging.duckdb"
CATALOG = "run"
_MAGIC = slice(8, 12)
_INTERRUPT_EVERY = 0.05
_SCARCE = 1_000_000_000
_SMALL_ROW_GROUP = 30_720


class StagingSession:
    """An open staging database. Thread-safe; each thread works on cursors of its own.

    Made by `create` (a new run) or `open_read_only` (results, notebooks, `pz show`). `close` must be called, after every
    thread that holds a cursor has ended.
    """

    def __init__(self, root: DuckDBPyConnection, run_dir: Path, temp_directory: Path, *, read_only: bool) -> None:
        self.run_dir = run_dir
        self.path = run_dir / STAGING_FILE
        self.read_only = read_only
        self._root = root
        self._temp_directory = temp_directory
        self._cursors: list[DuckDBPyConnection] = []
        self._lock = threading.Lock()
        self._setup_lock = threading.Lock()
        self._setup_done: set[str] = set()
        self._closed = False

    @classmethod
    def create(
        cls,
        run_dir: Path,
        *,
        memory_limit_bytes: int,
        threads: int | None = None,
        temp_directory: Path | None = None,
    ) -> StagingSession:
        """Create ``<run_dir>/staging.duckdb`` with the schemas ``staging`` and ``pz_meta``, and open it.

        Raises StateError (PZ0708; PZ0532 when the disk is full). A process that dies in here leaves at most a file under
        another name, which nothing reads.
        """
        temp = temp_directory or run_dir / "tmp"
        aside = run_dir / f".{STAGING_FILE}.new"
        path = run_dir / STAGING_FILE
        if path.exists():
            raise StateError(Problem(Code.PZ0708, f"{path} exists already; a run never writes into another's staging"))
        with _reported(path):
            root = _connect(memory_limit_bytes, threads, temp)
            try:
                _give_birth(root, aside, run_dir.name)
                promote(aside, path, Step.CREATE_STAGING)
                root.execute(f"ATTACH {literal(str(path))} AS {CATALOG} ({_layout(memory_limit_bytes)})")
            except BaseException:
                root.close()
                _discard(aside)
                raise
        return cls(root, run_dir, temp, read_only=False)

    @classmethod
    def open_read_only(cls, run_dir: Path, *, memory_limit_bytes: int | None = None) -> StagingSession:
        """Open a finished (or dead) run's staging database for reading; a killed run's log is replayed.

        Raises StateError: PZ0708 when the file is absent, damaged, not ours or another run's, PZ0533 while a process
        writes to it.
        """
        path = run_dir / STAGING_FILE
        temp = Path(tempfile.gettempdir()) / f"pz-{uuid.uuid4().hex}"
        with _reported(path):
            check_file(path)
            root = _connect(memory_limit_bytes, None, temp)
            try:
                root.execute(f"ATTACH {literal(str(path))} AS {CATALOG} (TYPE duckdb, READ_ONLY)")
                meta.check_owner(root, CATALOG, run_dir.name)
            except BaseException:
                root.close()
                raise
        return cls(root, run_dir, temp, read_only=True)

    @contextmanager
    def cursor(self) -> Iterator[DuckDBPyConnection]:
        """A connection of its own to the database, with ``USE run``; closed when the block ends."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the staging session is closed")
            made = self._root.cursor()
            self._cursors.append(made)
        try:
            made.execute(f"USE {CATALOG}")
            yield made
        finally:
            with self._lock:
                self._cursors.remove(made)
            made.close()

    def open_cursor(self) -> DuckDBPyConnection:
        """A cursor with ``USE run`` that the caller closes: for those who cannot work inside a block."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the staging session is closed")
            made = self._root.cursor()
        made.execute(f"USE {CATALOG}")
        return made

    def transaction(self, cursor: DuckDBPyConnection, name: Step) -> AbstractContextManager[Transaction]:
        """Run a block in one transaction as the durable step ``name``: committed at its end, else rolled back."""
        return transaction(cursor, name)

    def flush_folder(self) -> None:
        """Make the name of DuckDB's log file survive power loss: DuckDB flushes its content, and makes it anew at will.

        A commit on which something outside will rely (an attempt at an output) is not durable before this.
        """
        fsync_dir(self.run_dir)

    @contextmanager
    def interruptible(self, cursor: DuckDBPyConnection, cancel: CancelToken) -> Iterator[None]:
        """Interrupt what runs on ``cursor`` when ``cancel`` fires; the block then raises `Cancelled`."""
        cancel.raise_if_set()
        interrupter = Interrupter(cursor.interrupt, _INTERRUPT_EVERY, exclusive=True)
        forget = cancel.on_cancel(interrupter.start)
        try:
            yield
        except Exception as failure:  # an interrupt surfaces as DuckDB's or as Arrow's error, hence the text
            if cancel.cancelled and "interrupt" in str(failure).lower():
                raise Cancelled from failure
            raise
        finally:
            forget()
            interrupter.end()

    def run_setup(self, statements: Iterable[str]) -> None:
        """Run set-up statements in order, each distinct text once in the life of the session.

        A failed one is issued again by the next caller. Raises NodeError (PZ0311) that shows a redacted statement; the
        engine's own error is its ``__cause__``.
        """
        import duckdb

        for statement in statements:
            with self._setup_lock:
                if statement in self._setup_done:
                    continue
                try:
                    with self.cursor() as cursor:
                        cursor.execute(statement)
                except duckdb.Error as failure:
                    raise NodeError(Problem(Code.PZ0311, _setup_failure(statement, failure))) from failure
                self._setup_done.add(statement)

    def close(self) -> None:
        """Checkpoint (so that no log file is left), detach, fsync. Closing twice is harmless.

        A checkpoint that fails, say on a full disk, loses nothing: what was committed stays in the log file. Raises
        StateError where the disk does not take the last flush.
        """
        import duckdb

        with self._lock:
            if self._closed:
                return
            self._closed = True
            for cursor in self._cursors:
                cursor.interrupt()
        with suppress(duckdb.Error):
            if not self.read_only:
                self._root.execute(f"CHECKPOINT {CATALOG}")
            self._root.execute(f"DETACH {CATALOG}")
        self._root.close()
        shutil.rmtree(self._temp_directory, ignore_errors=True)  # durable: ok - DuckDB's spill, of no later use
        if not self.read_only:
            try:
                fsync_file(self.path)
                fsync_dir(self.run_dir)
            except FileNotFoundError:
                pass  # removed while it was open: nothing is left to be flushed, and the run tells of that
            except OSError as failure:
                raise StateError(os_problem(failure, self.path, Code.PZ0708)) from failure

    def __enter__(self) -> StagingSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_file(path: Path) -> None:
    """Refuse, before DuckDB sees it, what is not a DuckDB file: DuckDB would guess other formats and load extensions."""
    if not path.is_file():
        raise StateError(Problem(Code.PZ0708, f"{path} does not exist"))
    with path.open("rb") as content:
        head = content.read(_MAGIC.stop)
    if head[_MAGIC] != b"DUCK":
        raise StateError(Problem(Code.PZ0708, f"{path} is not a staging database, or was cut off"))


_MEMORY_WORDS = ("out of memory", "memory value", "could not allocate")


def opening_failure(path: Path, failure: Exception) -> StateError:
    """The coded error for whatever opening or creating a staging file raised."""
    text = str(failure)
    if (isinstance(failure, OSError) and failure.errno == errno.ENOSPC) or "No space left" in text:
        return StateError(Problem(Code.PZ0532, f"the disk is full: {path}"))
    if "Conflicting lock" in text or "Could not set lock" in text or "file handle conflict" in text:
        return StateError(Problem(Code.PZ0533, f"{path} is open in a process that writes to it"))
    reason = redact(failure).splitlines()[0] if redact(failure) else type(failure).__name__
    hint = _MEMORY_HINT if any(words in text.lower() for words in _MEMORY_WORDS) else None
    return StateError(Problem(Code.PZ0708, f"{path} cannot be opened: {reason}", hint=hint))


_MEMORY_HINT = "correct engine.duckdb.memory_limit: it is too small, or more than there can be"


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError) as failure:
        raise opening_failure(path, failure) from failure


def _connect(memory_limit_bytes: int | None, threads: int | None, temp_directory: Path) -> DuckDBPyConnection:
    """An in-memory DuckDB that takes nothing from its surroundings: no downloads, no stored secrets, no local zone.

    ``preserve_insertion_order`` stays on. Off, DuckDB would need less memory for some large writes, but a pipeline that
    ends in ORDER BY would reach its file in another order, differently in each run; with the limit set, the buffers that
    keep the order count against it and spill.
    """
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(temp_directory),
        "autoinstall_known_extensions": "false",
        "allow_persistent_secrets": "false",
        "python_enable_replacements": "false",  # SQL names tables, never variables of the calling program
    }
    if memory_limit_bytes is not None:
        config["memory_limit"] = f"{memory_limit_bytes}B"
    if threads is not None:
        config["threads"] = str(threads)
    root = duckdb.connect(":memory:", config=config)
    root.execute("SET GLOBAL TimeZone = 'UTC'")
    root.execute(
        "SET GLOBAL arrow_lossless_conversion = true"
    )  # else bit, timetz and 128-bit numbers change in batches
    return root


def _layout(memory_limit_bytes: int) -> str:
    """How the file is attached for writing.

    A table's last row group is rewritten at each checkpoint of the file, and held in memory whole meanwhile, partly beside
    DuckDB's limit; so it is smaller where memory is scarce. Elsewhere larger ones are read a little faster.
    """
    return "TYPE duckdb" + (f", ROW_GROUP_SIZE {_SMALL_ROW_GROUP}" if memory_limit_bytes < _SCARCE else "")


def _give_birth(root: DuckDBPyConnection, aside: Path, run_id: str) -> None:
    """Make the file under another name, whole: schemas, tables, checkpoint, closed."""
    _discard(aside)
    root.execute(f"ATTACH {literal(str(aside))} AS {CATALOG} (TYPE duckdb)")
    root.execute(f"USE {CATALOG}")
    with step(Step.CREATE_META):
        meta.create(root, run_id)
        root.execute(f"CHECKPOINT {CATALOG}")
        root.execute("USE memory")
        root.execute(f"DETACH {CATALOG}")


def _discard(aside: Path) -> None:
    for leftover in (aside, aside.with_name(aside.name + ".wal")):
        leftover.unlink(missing_ok=True)  # durable: ok - a file that never got its name


def _setup_failure(statement: str, failure: Exception) -> str:
    reason = redact(failure).splitlines()
    return f"set-up statement failed: {redact_statement(statement)}: {reason[0] if reason else type(failure).__name__}"
