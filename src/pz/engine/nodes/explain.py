"""DuckDB's errors in a connector's words: what a native statement's failure means, typed for the retry loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pz.connectors.contract import ExplainingErrors, Sink, Source
from pz.errors import NodeError

__all__ = ["explained"]


@contextmanager
def explained(*sides: Source | Sink) -> Iterator[None]:
    """Let the sides that can explain a failed native statement do so; the first that has something to say wins."""
    import duckdb

    try:
        yield
    except (duckdb.Error, NodeError) as failure:
        cause = failure.__cause__ if isinstance(failure, NodeError) else failure
        if isinstance(cause, duckdb.Error) and not isinstance(cause, duckdb.InterruptException):
            for side in sides:
                meaning = side.explain(cause) if isinstance(side, ExplainingErrors) else None
                if meaning is not None:
                    raise meaning from failure
        raise
