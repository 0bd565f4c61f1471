"""From any exception to what an operator reads: a code and a message free of secrets.

Our own messages are written secret-free and trusted; a connector's message is published as it is, by contract; DuckDB's
loses its echo of the statement and its quoted literals; anything else is foreign and only its type is named.
"""

from __future__ import annotations

from pz.errors import Code, ConnectorError, OutcomeUnknown, PzError, TransientError, os_problem
from pz.frozen import frozen

__all__ = ["Failure", "describe"]

MEMORY_HINT = "lower engine.threads, engine.batch_bytes or engine.duckdb.threads, or raise engine.duckdb.memory_limit"


@frozen
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
    problem = os_problem(failure, failure.filename, Code.PZ0501)
    return Failure(problem.code, problem.message)


def _duckdb_failure(failure: BaseException) -> Failure:
    from pz.staging.redaction import redact

    text = redact(failure)
    if "No space left on device" in text:
        return Failure(Code.PZ0532, "disk full while writing the staging database")
    hint = MEMORY_HINT if type(failure).__name__ == "OutOfMemoryException" else None
    return Failure(Code.PZ0501, text, hint)
