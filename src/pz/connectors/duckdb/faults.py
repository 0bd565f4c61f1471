"""DuckDB's errors about a database file, told again: what to do, without SQL and row values."""

from __future__ import annotations

import re

from pz.connectors.contract import ConnectorError, PermanentError, TransientError
from pz.errors import Code

__all__ = ["explain"]

_OURS = re.compile(r"(?:^|\nError: )Invalid Input Error: \[pz (PZ\d{4})\] (.*)")
_SCHEMA = re.compile(r"Schema with name (.+?) does not exist")
_MADE_BY = re.compile(r"was created with (an? )?(.+?)\.\s")
_RETYPED = re.compile(r"column '.+' is .+, not ")
_TABLE = re.compile(r"Table with name (.+?) does not exist")


def explain(error: Exception, path: str) -> ConnectorError | None:
    """Say what DuckDB's error means for the file at ``path``; None for an error that says nothing about it."""
    text = str(error)
    if ours := _OURS.search(text):
        return PermanentError(ours[2].strip(), code=Code(ours[1]), hint=_way_out(ours[2]))
    return _about_file(text, path) or _about_content(text, path)


def _way_out(differences: str) -> str | None:
    """What helps where a table does not fit: a policy adds columns, and nothing changes the type of one that is there."""
    hints = []
    if "it has no column '" in differences:
        hints.append("leave the new column out, add it to the table, or let `schema_policy: additive` add it")
    if _RETYPED.search(differences):
        hints.append(
            "cast to the table's type in the pipeline, or change the type there (ALTER TABLE), or drop the table and run with "
            "--full-refresh; no schema_policy changes a type"
        )
    return "; ".join(hints) or None


def _about_file(text: str, path: str) -> ConnectorError | None:
    if "Could not set lock on file" in text or "Conflicting lock" in text:
        return TransientError(f"DuckDB file '{path}' is held by another process", code=Code.PZ0533)
    if "Unique file handle conflict" in text or "already attached" in text:
        return PermanentError(
            f"DuckDB file '{path}' is used by two connections at once",
            code=Code.PZ0533,
            hint="let one connection stand for one file",
        )
    if "not a valid DuckDB database file" in text or "Could not read from file" in text:
        return PermanentError(f"'{path}' is not a DuckDB database file", code=Code.PZ0781)
    if "version number" in text or "newer version of DuckDB" in text:
        return _of_another_version(text, path)
    if "database does not exist" in text:
        return PermanentError(f"DuckDB file '{path}' does not exist", code=Code.PZ0353)
    if "Cannot open file" in text or "Cannot open database" in text:
        hint = "create its directory, and let this user write there"
        denied = "Permission denied" in text or "Read-only file system" in text
        code = Code.PZ0531 if denied else Code.PZ0353
        return PermanentError(f"DuckDB file '{path}' cannot be opened", code=code, hint=hint)
    if "corrupt" in text.lower() or "checksum" in text.lower():
        return PermanentError(f"DuckDB file '{path}' is damaged", code=Code.PZ0781)
    return None


def _of_another_version(text: str, path: str) -> ConnectorError:
    import duckdb

    made = _MADE_BY.search(text)
    by = ("a " if made[1] else "") + made[2] if made else "another version of DuckDB"
    return PermanentError(
        f"DuckDB file '{path}' was made by {by}, which DuckDB {duckdb.__version__} here cannot read",
        code=Code.PZ0781,
        hint="install a `duckdb` that reads it, or export it with the one that made it (EXPORT DATABASE) and import it",
    )


def _about_content(text: str, path: str) -> ConnectorError | None:
    if schema := _SCHEMA.search(text):
        hint = f"create it first: CREATE SCHEMA {schema[1]}"
        return PermanentError(f"DuckDB file '{path}' has no schema '{schema[1]}'", code=Code.PZ0780, hint=hint)
    if table := _TABLE.search(text):
        return PermanentError(f"DuckDB file '{path}' has no table '{table[1]}'", code=Code.PZ0353)
    if "is not an table" in text or "is not a table" in text:
        hint = "write to a table, and let the view read it"
        return PermanentError("the target is a view, which cannot be written to", code=Code.PZ0780, hint=hint)
    if "read-only mode" in text:
        return PermanentError(f"DuckDB file '{path}' is open for reading only", code=Code.PZ0531)
    if text.startswith("Constraint Error"):
        hint = "correct or filter the rows in the pipeline, or change the constraint"
        return PermanentError("a row breaks a constraint of the target table", code=Code.PZ0780, hint=hint)
    if "No space left" in text:
        return PermanentError(f"the disk is full where DuckDB file '{path}' lies", code=Code.PZ0532)
    if text.startswith("TransactionContext Error"):
        return TransientError("another transaction changed the same table at the same time")
    return None
