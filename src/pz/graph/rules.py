"""Rules that a single dataset or output must keep: cursors, windows, date tokens in paths, keys, partitioning.

All offline and without the SQL; what needs the connector is the planner's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pz.connectors.contract import WriteStrategy
from pz.cursors import CursorError, CursorType, canonical, compare, parse_window
from pz.errors import Code, Problem, Problems, Severity
from pz.graph.bindings import Dataset, Output
from pz.project.model import SyncDecl, SyncMode

__all__ = ["check_dataset", "check_output", "contract_cursor_type", "told_cursor_type", "unverified_cursor"]

CURSOR_TYPES = "int, bigint, decimal, date, timestamp or timestamptz"
_FILE_CONNECTORS = frozenset({"localfiles", "s3", "azureblob", "gcs", "sftp"})
_GRAINS = ("year", "month", "day", "hour", "minute")
_TOKEN_GRAINS = {"yyyy": 0, "yy": 0, "MM": 1, "dd": 2, "HH": 3, "mm": 4}
_TOKEN = re.compile(r"\{([A-Za-z]\w*)\}")


def contract_cursor_type(columns: Mapping[str, str], cursor: str) -> CursorType | None:
    """The type that the contract gives a cursor; None when it is absent or of a type that cannot be a cursor."""
    kind = next((kind for name, kind in columns.items() if name.lower() == cursor.lower()), None)
    return None if kind is None else CursorType.from_duckdb(kind)


def told_cursor_type(options: Mapping[str, Any]) -> CursorType | None:
    """The type that a connector's own option gives the cursor of a dataset without a contract; None without one."""
    told = options.get("cursor_type")
    return CursorType.from_duckdb(told) if isinstance(told, str) else None


def check_dataset(dataset: Dataset, connector: str, problems: Problems) -> None:
    """Report what is wrong with the read of a dataset."""
    report = _Reporter(dataset.where.file, dataset.where.line, problems)
    sync = dataset.read.sync
    if sync.mode is SyncMode.INCREMENTAL and sync.cursor is not None:
        if sync.location is not None:
            report = _Reporter(sync.location.file, sync.location.line, problems)
        kind = _check_cursor(dataset, sync.cursor, report)
        _check_window(dataset, kind, report)
    _check_read_path(dataset, connector, report)
    _check_read_options(dataset, report)


def check_output(output: Output, connector: str, problems: Problems) -> None:
    """Report what is wrong with the write of an output."""
    report = _Reporter(output.where.file, output.where.line, problems)
    write, what = output.write, f"output '{output.name}'"
    merge = write.strategy is WriteStrategy.MERGE
    if merge and not write.keys:
        report(Code.PZ0209, f"{what}: write.strategy 'merge' needs keys", "declare keys: with the columns of its key")
    if write.keys and not merge:
        message = f"{what}: keys belong to write.strategy 'merge', not '{write.strategy}'"
        report(Code.PZ0211, message, "use strategy: merge, or drop keys")
    _check_partition_by(output, connector, report)


class _Reporter:
    """Errors at one place."""

    def __init__(self, file: str, line: int | None, problems: Problems) -> None:
        self._file, self._line, self._problems = file, line, problems

    def __call__(self, code: Code, message: str, hint: str | None = None) -> None:
        self._problems.error(code, message, file=self._file, line=self._line, hint=hint)

    def note(self, code: Code, message: str, hint: str | None = None) -> None:
        self._problems.add(Problem(code, message, self._file, self._line, hint, Severity.NOTE))


def _check_cursor(dataset: Dataset, cursor: str, report: _Reporter) -> CursorType | None:
    """The cursor's type as far as it is known before the first run."""
    columns, what = dataset.read.columns, f"dataset '{dataset.key}': cursor '{cursor}'"
    if columns is None:
        return _option_cursor_type(dataset, report)
    kind = contract_cursor_type(columns, cursor)
    if not any(name.lower() == cursor.lower() for name in columns):
        report(Code.PZ0212, f"{what} is not among its columns:", f"add it to columns: as {CURSOR_TYPES}")
    elif kind is None:
        report(Code.PZ0212, f"{what} has a type in columns: that no cursor can have", f"use {CURSOR_TYPES}")
    return kind


def _option_cursor_type(dataset: Dataset, report: _Reporter) -> CursorType | None:
    """Without a contract, some connectors are told the cursor's type by an option of their own."""
    if isinstance(dataset.read.options.get("cursor_type"), str):
        return told_cursor_type(dataset.read.options)
    report.note(
        Code.PZ0212,
        unverified_cursor(dataset.key, dataset.read.sync.cursor),
        "declare columns: to have it checked here, or ask the source with --connect",
    )
    return None


def unverified_cursor(dataset: str, cursor: str | None) -> str:
    """The note on a cursor of which nothing is known offline; who asks the source takes it back."""
    return f"dataset '{dataset}': cursor '{cursor}' is not verified until the source is read"


def _check_window(dataset: Dataset, kind: CursorType | None, report: _Reporter) -> None:
    sync, what = dataset.read.sync, f"dataset '{dataset.key}'"
    windowed = [name for name in ("max_window", "initial", "until") if getattr(sync, name) is not None]
    for name in ("max_window", "initial") if windowed else ():
        if name not in windowed:
            message = f"{what}: sync.{windowed[0]} needs sync.{name}"
            report(Code.PZ0213, message, "a window has initial and max_window; until may end it")
    if windowed and isinstance(dataset.read.options.get("query"), str):  # a web API's query is a mapping
        message = f"{what}: a query cannot be read in windows"
        report(Code.PZ0213, message, "read the table by its name, or bound the query in its own text")
    if kind is None:
        if (windowed or sync.lookback is not None) and dataset.read.columns is None:
            message = f"{what}: a window or lookback needs to know the type of cursor '{sync.cursor}'"
            report(Code.PZ0213, message, f"declare columns: with the cursor as {CURSOR_TYPES}")
        return
    _check_window_values(sync, kind, what, report)


def _check_window_values(sync: SyncDecl, kind: CursorType, what: str, report: _Reporter) -> None:
    for name, text in (("max_window", sync.max_window), ("lookback", sync.lookback)):
        if text is not None:
            try:
                parse_window(text, kind, zero=name == "lookback")
            except CursorError as error:
                report(Code.PZ0213, f"{what}: sync.{name}: {error}", _window_hint(kind))
    initial = _cursor_value("initial", sync.initial, kind, what, report)
    if sync.until == "now" and not kind.temporal:
        report(
            Code.PZ0213, f"{what}: sync.until: now is for date and timestamp cursors", f"write a value of type {kind}"
        )
    elif sync.until != "now":
        until = _cursor_value("until", sync.until, kind, what, report)
        if initial is not None and until is not None and compare(until, initial, kind) <= 0:
            message = f"{what}: sync.until must be after sync.initial"
            report(Code.PZ0213, message, "a window is (initial, until]: initial itself is not part of it")


def _cursor_value(name: str, text: str | None, kind: CursorType, what: str, report: _Reporter) -> str | None:
    if text is None:
        return None
    try:
        return canonical(text, kind)
    except CursorError as error:
        report(Code.PZ0213, f"{what}: sync.{name}: {error}", f"write a value of type {kind}")
        return None


def _window_hint(kind: CursorType) -> str:
    if kind is CursorType.DATE:
        return "write whole days, like 7d"
    return "write a duration, like 6h" if kind.temporal else "write a whole number, like 10000"


def _check_read_path(dataset: Dataset, connector: str, report: _Reporter) -> None:
    """A path with date tokens is a bounded window over a date or timestamp cursor."""
    if not _check_tokens(dataset.read.options, connector, f"dataset '{dataset.key}'", report):
        return
    sync, what = dataset.read.sync, f"dataset '{dataset.key}': its path has date tokens"
    kind = None if sync.cursor is None else contract_cursor_type(dataset.read.columns or {}, sync.cursor)
    if sync.mode is not SyncMode.INCREMENTAL or (kind is not None and not kind.temporal):
        report(
            Code.PZ0217, f"{what} but it has no date or timestamp cursor", "declare sync: { mode: incremental, ... }"
        )
    elif sync.initial is None or sync.max_window is None:
        report(Code.PZ0221, f"{what} but it is not read in windows", "add initial and max_window to sync:")


def _check_tokens(options: Mapping[str, Any], connector: str, what: str, report: _Reporter) -> bool:
    """Whether the ``path`` option has date tokens that fit together; reports those that do not."""
    path = options.get("path")
    tokens = _TOKEN.findall(path) if isinstance(path, str) else []
    if not tokens or (connector not in _FILE_CONNECTORS and not set(tokens) & set(_TOKEN_GRAINS)):
        return False
    hint = "use {yyyy} or {yy}, {MM}, {dd}, {HH}, {mm}: from coarse to fine, without a gap"
    unknown = [token for token in tokens if token not in _TOKEN_GRAINS]
    if unknown:
        report(Code.PZ0218, f"{what}: path has an unknown token {{{unknown[0]}}}", hint)
        return False
    grains = list(dict.fromkeys(_TOKEN_GRAINS[token] for token in tokens))
    if grains != list(range(len(grains))):
        spelled = ", ".join(_GRAINS[grain] for grain in grains)
        report(Code.PZ0218, f"{what}: the date tokens of its path are not a run from the year down: {spelled}", hint)
        return False
    return True


def _check_read_options(dataset: Dataset, report: _Reporter) -> None:
    options, what = dataset.read.options, f"dataset '{dataset.key}'"
    files = options.get("files_per_partition")
    if files is not None and (not isinstance(files, int) or isinstance(files, bool) or files < 1):
        report(Code.PZ0222, f"{what}: files_per_partition must be a whole number of at least 1")
    if options.get("cursor_order") == "desc" and options.get("max_pages") is not None:
        message = f"{what}: cursor_order desc with max_pages would skip the rows behind the last page for ever"
        report(Code.PZ0229, message, "drop max_pages, or read in ascending order")


def _check_partition_by(output: Output, connector: str, report: _Reporter) -> None:
    what = f"output '{output.name}'"
    tokens = _check_tokens(output.write.options, connector, what, report)
    declared = output.write.options.get("partition_by")
    if declared is None:
        if tokens:
            report(
                Code.PZ0219, f"{what}: its path has date tokens but there is no partition_by", "name the date column"
            )
        return
    columns = [declared] if isinstance(declared, str) else declared
    well_formed = isinstance(columns, list | tuple) and all(isinstance(c, str) and c.strip() for c in columns)
    if not well_formed or not columns or len({c.lower() for c in columns}) != len(columns):
        report(Code.PZ0219, f"{what}: partition_by must be a column or a list of different columns")
    elif tokens and len(columns) != 1:
        report(Code.PZ0219, f"{what}: a path with date tokens takes exactly one partition_by column")
