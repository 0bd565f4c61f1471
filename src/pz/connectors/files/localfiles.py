"""The connector ``localfiles``: csv, tsv, json and parquet files below a directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pz.connectors.contract import (
    CONTRACT_MAJOR,
    Capability,
    ConnectionReport,
    ConnectionSpec,
    ConnectorError,
    DatasetSpec,
    OutputSpec,
)
from pz.connectors.files.formats import read_path, read_schema, write_path, write_schema
from pz.connectors.files.paths import FileRoot
from pz.connectors.localpath import spelled_path

if TYPE_CHECKING:
    from pz.connectors.files.reading import FileSource, SchemaCache
    from pz.connectors.files.writing import FileSink

__all__ = ["LocalFiles"]

_CONNECTION_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "root": {
            "type": "string",
            "minLength": 1,
            "description": "Directory that relative paths start from and may not leave; itself relative to the project. "
            "Without it, paths are relative to the project.",
            "examples": ["data", "/srv/lake"],
        }
    },
}

_READ_PATH = {
    "type": "string",
    "minLength": 1,
    "description": "File or glob, relative to the root. Default `<entity>.<format>`. An absolute path ignores the root.",
    "examples": ["flights.csv", "in/**/*.csv.gz"],
}

_WRITE_PATH = {
    "type": "string",
    "minLength": 1,
    "description": "Directory to write to, relative to the root. Default: the entity's name. "
    "replace writes `<entity>.<ext>` there, append a further file per run.",
    "examples": ["out"],
}


class LocalFiles:
    """Reads and writes files of the machine that pz runs on.

    What reads and what writes is imported when a connection is opened: every run checks the options of all that there are.
    """

    name: ClassVar[str] = "localfiles"
    contract_major: ClassVar[int] = CONTRACT_MAJOR
    capabilities: ClassVar[Capability] = (
        Capability.NATIVE_SCAN
        | Capability.NATIVE_COPY
        | Capability.REPLACE_WRITES
        | Capability.BOUNDED_WINDOW
        | Capability.PARTITIONED_READ
        | Capability.STABLE_PARTITION_IDS
        | Capability.COLUMN_PRUNING
        | Capability.PREDICATE_PUSHDOWN
    )
    gives: ClassVar[str] = "csv, tsv, json and parquet files on this machine"

    @cached_property
    def _cache(self) -> SchemaCache:
        from pz.connectors.files.reading import SchemaCache

        return SchemaCache()

    def connection_schema(self) -> Mapping[str, Any]:
        """The option ``root``."""
        return _CONNECTION_SCHEMA

    def dataset_schema(self) -> Mapping[str, Any]:
        """Path, format and what the format needs."""
        return read_schema(_READ_PATH)

    def output_schema(self) -> Mapping[str, Any]:
        """Directory, format and what the format needs."""
        return write_schema(_WRITE_PATH)

    def validate(self, connection: ConnectionSpec) -> Sequence[str]:
        """The root must be something that can be a path."""
        try:
            FileRoot.at(connection)
        except ConnectorError as error:
            return (f"root: {error.message}",)
        return ()

    def location(self, connection: ConnectionSpec) -> Mapping[str, str]:
        """The root as the project spells it, so that moving the project does not change the place."""
        return {"root": spelled_path(str(connection.options.get("root", ".")))}

    def dataset_location(self, dataset: DatasetSpec) -> Mapping[str, str]:
        """The path or glob."""
        return {"path": spelled_path(read_path(dataset.entity, dataset.options))}

    def target_location(self, output: OutputSpec) -> Mapping[str, str]:
        """The directory."""
        return {"path": spelled_path(write_path(output.entity, output.options))}

    def check_connection(self, connection: ConnectionSpec) -> ConnectionReport:
        """A root that is there and can be listed, or that a write will create."""
        directory = FileRoot.at(connection).directory
        if not directory.exists():
            return ConnectionReport(True, "the root does not exist yet; a write creates it")
        try:
            next(iter(Path(directory).iterdir()), None)
        except OSError as error:
            return ConnectionReport(False, f"the root cannot be listed: {error.strerror}")
        return ConnectionReport(True)

    def open_source(self, connection: ConnectionSpec) -> FileSource:
        """The read side."""
        from pz.connectors.files.reading import FileSource

        return FileSource(FileRoot.at(connection), self._cache)

    def open_sink(self, connection: ConnectionSpec) -> FileSink:
        """The write side."""
        from pz.connectors.files.writing import FileSink

        return FileSink(FileRoot.at(connection))
