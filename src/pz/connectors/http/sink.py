"""The write side of a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import AbortSemantics, NativeCopy, OutputSpec, PermanentError, WriteSession
from pz.connectors.http.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OUTPUT_SCHEMA", "HttpSink"]

OUTPUT_SCHEMA: Mapping[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}


class HttpSink:
    """See `Sink`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def abort_semantics(self) -> AbortSemantics:
        """What was sent stays."""
        return AbortSemantics.NONE

    def native_copy(self, output: OutputSpec) -> NativeCopy | None:
        """There is none."""
        return None

    def begin_write(self, output: OutputSpec, schema: pa.Schema) -> WriteSession:
        """See `Sink`."""
        raise PermanentError("writing over http is not there yet")

    def close(self) -> None:
        """See `Sink`."""
