"""From any exception to what an operator reads: a code and a message free of secrets.

Our own messages are written secret-free and trusted; a connector's message is published as it is, by contract; DuckDB's
loses its echo of the statement and its quoted literals; anything else is foreign and only its type is named.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from pz.errors import Code, ConnectorError, OutcomeUnknown, PzError, TransientError

__all__ = ["Failure", "describe"]

_OS_CODES = {
    errno.EACCES: Code.PZ0531,
    errno.EPERM: Code.PZ0531,
    errno.EROFS: Code.PZ0531,
    errno.ENOSPC: Code.PZ0532,
    errno.EDQUOT: Code.PZ0532,
    errno.EBUSY: Code.PZ0533,
    errno.ETXTBSY: Code.PZ0533,
}
_OS_WORDS = {
    Code.PZ0531: "permission denied",
    Code.PZ0532: "disk full",
    Code.PZ0533: "held by another process",
}
MEMORY_HINT = "lower engine.threads, engine.batch_bytes or engine.duckdb.threads, or raise engine.duckdb.memory_limit"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, publishable."""

    code: Code
    message: str
    hint: str | None = None
    transient: bool = False
    retry_after: float | None = None


def describe(failure: BaseException) -> Failure:
    """The publishable form of any exception."""
    if isinstance(failure, PzError):
        text = "; ".join(problem.message for problem in failure.problems)
        return Failure(failure.code, text, failure.problems[0].advice or None)
    if isinstance(failure, OutcomeUnknown):
        return Failure(failure.code or Code.PZ0704, failure.message, failure.hint)
    if isinstance(failure, ConnectorError):
        retry_after = failure.retry_after if isinstance(failure, TransientError) else None
        transient = isinstance(failure, TransientError)
        return Failure(failure.code or Code.PZ0501, failure.message, failure.hint, transient, retry_after)
    if isinstance(failure, OSError):
        return _os_failure(failure)
    if type(failure).__module__.partition(".")[0] in {"duckdb", "_duckdb"}:
        return _duckdb_failure(failure)
    return Failure(Code.PZ0501, f"unexpected {type(failure).__name__}; set PZ_DEBUG=1 to see where")


def _os_failure(failure: OSError) -> Failure:
    code = _OS_CODES.get(failure.errno or 0)
    place = f": {failure.filename}" if failure.filename else ""
    if code is not None:
        return Failure(code, f"{_OS_WORDS[code]}{place}")
    return Failure(Code.PZ0501, f"{failure.strerror or type(failure).__name__}{place}")


def _duckdb_failure(failure: BaseException) -> Failure:
    from pz.staging.redaction import redact

    text = redact(failure)
    if "No space left on device" in text:
        return Failure(Code.PZ0532, "disk full while writing the staging database")
    hint = MEMORY_HINT if type(failure).__name__ == "OutOfMemoryException" else None
    return Failure(Code.PZ0501, text, hint)
