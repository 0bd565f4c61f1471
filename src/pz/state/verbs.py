"""`pz state`: what a person may do to watermarks, with a line in the audit for each change.

Every verb holds the dataset's lock and refuses while any run is in flight, so that no run works with a value that changes
under it. Tokens are not for editing: a feed starts over with ``--full-refresh``, a cdc dataset with `pz cdc drop`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pz.cursors import CursorError, CursorType, canonical, check_range, compare
from pz.errors import Code, Problem, StateError, os_problem
from pz.frozen import frozen
from pz.runs.directory import is_live, run_paths
from pz.runs.history import find, list_runs
from pz.runs.model import NodeResult, RunResults, RunStatus
from pz.state.audit import AuditLine, append_audit
from pz.state.entries import Entry, Token, Watermark, entry_from_json, value_from_json
from pz.state.locks import RunLocks, dataset_lock
from pz.state.sync_state import token_store
from pz.state.watermarks import watermark_store

__all__ = ["MANUAL", "Change", "ShownState", "clear", "rollback", "set_value", "show"]

MANUAL = "manual"
MOST_NAMED = 3


@frozen
class ShownState:
    """One dataset's state for display; the value of a token is never shown (``value`` is None then)."""

    key: str
    kind: str
    cursor: str | None
    type: str | None
    value: str | None
    run_id: str | None


@frozen
class Change:
    """What a verb did, or would do (``dry_run``). ``notes`` are for the user."""

    action: str
    key: str
    before: str | None
    after: str | None
    dry_run: bool
    notes: tuple[str, ...] = ()


def show(state_dir: Path, key: str | None = None) -> tuple[ShownState, ...]:
    """The stored state, ordered by key. Raises `StateError` PZ0513 for a key without any, PZ0706 for a damaged file."""
    found = [_shown(name, "watermark", entry) for name, entry in watermark_store(state_dir).raw.read().items()]
    found += [_shown(name, "token", entry) for name, entry in token_store(state_dir).raw.read().items()]
    chosen = tuple(sorted((s for s in found if key in {None, s.key}), key=lambda s: (s.key, s.kind)))
    if key is not None and not chosen:
        raise _missing(state_dir, key)
    return chosen


def set_value(
    state_dir: Path,
    key: str,
    value: str,
    *,
    reason: str | None = None,
    dry_run: bool = False,
    appends: Collection[str] = (),
) -> Change:
    """Give an existing watermark another value of its own type, in either direction; stamped as manual.

    ``appends`` are outputs that keep every row that they are given: a note says what they get again. Also repairs an
    entry whose value is garbage. Raises `StateError`: PZ0513 no entry, PZ0515 the value does not parse,
    is none that the cursor can have, or is the current one, PZ0517 a run is in flight.
    """
    with _editing(state_dir, key) as stored:
        _, type_ = _axis(key, stored)
        new = _parsed(value, type_)
        if stored.get("value") == new:
            raise _refused(f"the watermark of '{key}' is {new} already", "there is nothing to set")
        notes = _moved(stored.get("value"), new, type_, appends)
        changed = {**stored, "value": new, "runId": MANUAL}
        line = _line("set", key, stored, after=new, reason=reason)
        return _apply(state_dir, key, stored, changed, line, dry_run, notes)


def _moved(before: object, new: str, type_: CursorType, appends: Collection[str]) -> tuple[str, ...]:
    """The note that a later value passes rows over, or an earlier one repeats rows.

    Raises `StateError` PZ0515 for a value that no row can have.
    """
    try:
        known = canonical(before, type_)
    except CursorError:  # garbage, which this repairs
        known = None
    try:
        check_range(new, type_, known)
    except CursorError as failure:
        raise _refused(
            str(failure), "nothing above it could ever be read; give a value that the cursor can have"
        ) from failure
    if known is None:
        return ()
    if compare(new, known, type_) < 0:
        return _again(f"{new} is earlier than {known}: the rows between the two", appends)
    return (f"{new} is later than {known}: rows between the two that were not read yet will never be read",)


def _again(what: str, appends: Collection[str]) -> tuple[str, ...]:
    """The note that appends get rows a second time; none where there is no append."""
    if not appends:
        return ()
    named = ", ".join(f"'{name}'" for name in sorted(appends))
    outputs, get = ("output", "gets") if len(appends) == 1 else ("outputs", "get")
    return (f"{what} are read again, and {outputs} {named} {get} them again, beside those that are there",)


def rollback(
    state_dir: Path,
    key: str,
    to_run: str,
    *,
    reason: str | None = None,
    dry_run: bool = False,
    appends: Collection[str] = (),
) -> Change:
    """Take a watermark back to what an earlier run recorded for it, and with it to the place that the run read.

    A value means something only there: the next run refuses it (PZ0705) if the project reads another place by now. Raises
    `StateError`: PZ0514 when the run recorded nothing usable, PZ0515 when that is not backward, PZ0513, PZ0517.
    """
    with _editing(state_dir, key) as stored:
        cursor, type_ = _axis(key, stored)
        current = Watermark(cursor, type_, _parsed(str(stored.get("value")), type_))
        recorded, notes = _recorded(state_dir, key, to_run, current)
        order = compare(recorded, current.value, type_)
        if order == 0:
            raise _refused(f"run {to_run} recorded the current value of '{key}'", _elsewhere(state_dir, key, current))
        if order > 0:
            raise _refused(
                f"run {to_run} recorded a later value of '{key}' than the current one",
                f"to move forward, use `pz state set {key} --value {recorded}`",
            )
        changed, moved = _at_its_place(state_dir, key, to_run, {**stored, "value": recorded, "runId": to_run})
        notes += (*moved, *_again(f"the rows above {recorded}", appends))
        line = _line("rollback", key, stored, after=recorded, target=to_run, reason=reason)
        return _apply(state_dir, key, stored, changed, line, dry_run, notes)


def _at_its_place(
    state_dir: Path, key: str, run_id: str, entry: Mapping[str, Any]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The entry with the location and path that a run read the dataset at, and a note when those are others.

    Raises `StateError` PZ0514 when the run, one of an earlier version, does not tell and the path may have been another.
    """
    run = find(state_dir, run_id)
    record = None if run is None else run.record
    where = None if record is None else record.places.get(key)
    if where is None:
        used = {} if record is None else record.used.get(key) or {}
        if not entry.get("dataset") or used.get("dataset") == entry.get("dataset"):
            return entry, ()
        said = f"run {run_id} did not record which path of '{key}' it read"
        raise StateError(Problem(Code.PZ0514, said, hint=f"move it with `pz state set {key} --value ...`"))
    here = {name: entry.get(name, "") for name in where}
    if here == dict(where):
        return entry, ()
    bare = {name: value for name, value in entry.items() if name not in where}
    told = f"run {run_id} read '{key}' at another place than the present state is of; the value is kept with that place"
    return {**bare, **{name: text for name, text in where.items() if text}}, (told,)


def clear(
    state_dir: Path, key: str, *, reason: str | None = None, dry_run: bool = False, appends: Collection[str] = ()
) -> Change:
    """Forget a watermark, however broken its entry is: the next run reads the dataset as if for the first time.

    Raises `StateError` PZ0513 and PZ0517.
    """
    with _editing(state_dir, key) as stored:
        line = _line("clear", key, stored, reason=reason)
        return _apply(state_dir, key, stored, None, line, dry_run, _again("all rows", appends))


@contextmanager
def _editing(state_dir: Path, key: str) -> Iterator[Mapping[str, Any]]:
    """Hold the dataset's lock, make sure that no run is in flight, and hand out the stored entry."""
    try:
        locks = RunLocks.acquire(state_dir, f"pz state {key}", [dataset_lock(key)], wait=0)
    except StateError as failure:
        if failure.code is not Code.PZ0701:
            raise
        raise StateError(Problem(Code.PZ0517, failure.problems[0].message)) from failure
    with locks:
        live = sorted(path.name for path in run_paths(state_dir) if is_live(path))
        if live:
            raise StateError(Problem(Code.PZ0517, f"run {live[0]} is in flight", hint="try again when it ended"))
        stored = watermark_store(state_dir).raw.read().get(key)
        if stored is None:
            raise _missing(state_dir, key)
        yield stored


def _apply(
    state_dir: Path,
    key: str,
    stored: Mapping[str, Any],
    changed: Mapping[str, Any] | None,
    line: AuditLine,
    dry_run: bool,
    notes: tuple[str, ...] = (),
) -> Change:
    if not dry_run:
        store = watermark_store(state_dir).raw
        if changed is None:
            store.remove(key, seen=stored)
        else:
            store.put(key, changed, seen=stored)
        notes += _audited(state_dir, line)
    return Change(line.action, key, line.before, line.after, dry_run, notes)


def _audited(state_dir: Path, line: AuditLine) -> tuple[str, ...]:
    """Append to the audit; the change is made, so a failure to write it down is a note."""
    try:
        append_audit(state_dir, line)
    except OSError as failure:
        problem = os_problem(failure, state_dir / "state" / "audit.jsonl", Code.PZ0529)
        return (f"the change is not in the audit: {problem.message} ({problem.code})",)
    return ()


def _recorded(state_dir: Path, key: str, run_id: str, current: Watermark) -> tuple[str, tuple[str, ...]]:
    """The value that a run recorded for a dataset on this axis, with a note when the run was not wholly successful."""
    cursor, type_ = current.cursor, current.type
    run = find(state_dir, run_id)
    results = None if run is None else run.results
    if results is None:
        hint = _elsewhere(state_dir, key, current)
        raise StateError(Problem(Code.PZ0514, f"there is no run {run_id} with readable results", hint=hint))
    recorded = _watermark_in(results, key)
    if recorded is None:
        hint = _elsewhere(state_dir, key, current)
        raise StateError(Problem(Code.PZ0514, f"run {run_id} recorded no usable watermark of '{key}'", hint=hint))
    if (recorded.cursor, recorded.type) != (cursor, type_):
        said = (
            f"run {run_id} recorded cursor '{recorded.cursor}' ({recorded.type}) for '{key}', not '{cursor}' ({type_})"
        )
        raise StateError(Problem(Code.PZ0514, said, hint=_elsewhere(state_dir, key, current)))
    complete = results.status is RunStatus.SUCCESS
    return recorded.value, () if complete else (f"run {run_id} ended as {results.status}",)


def _watermark_in(results: RunResults, key: str) -> Watermark | None:
    """What a run recorded for a dataset, if it can be used."""
    node = next((n for n in results.nodes if (n.watermark or {}).get("dataset") == key), None)
    return None if node is None else _watermark_of(node)


def _elsewhere(state_dir: Path, key: str, current: Watermark) -> str:
    """The hint that names the newest runs that could be gone back to, with what they recorded: earlier values alone."""
    found = ((run.run_id, _watermark_in(run.results, key)) for run in list_runs(state_dir) if run.results is not None)
    usable = [f"{run} ({at.value})" for run, at in found if at is not None and _is_before(at, current)]
    if not usable:
        return f"no run recorded an earlier one; move it with `pz state set {key} --value ...`"
    return f"the newest that recorded an earlier one: {', '.join(usable[:MOST_NAMED])}"


def _is_before(recorded: Watermark, current: Watermark) -> bool:
    same_axis = (recorded.cursor, recorded.type) == (current.cursor, current.type)
    return same_axis and compare(recorded.value, current.value, current.type) < 0


def _watermark_of(node: NodeResult) -> Watermark | None:
    if node.watermark is None:
        return None
    try:
        value = value_from_json(node.watermark)
    except ValueError:
        return None
    return value if isinstance(value, Watermark) else None


def _axis(key: str, stored: Mapping[str, Any]) -> tuple[str, CursorType]:
    cursor, type_ = stored.get("cursor"), stored.get("type")
    if not isinstance(cursor, str) or type_ not in tuple(CursorType):
        raise _refused(f"the entry of '{key}' has no cursor of a known type", f"use `pz state clear {key}`")
    return cursor, CursorType(type_)


def _parsed(value: str, type_: CursorType) -> str:
    try:
        return canonical(value, type_)
    except CursorError as failure:
        raise _refused(str(failure), f"the watermark is a {type_}; set it to one, or clear it") from failure


def _line(
    action: str,
    key: str,
    stored: Mapping[str, Any],
    *,
    after: str | None = None,
    target: str | None = None,
    reason: str | None = None,
) -> AuditLine:
    text = {
        name: None if stored.get(name) is None else str(stored[name]) for name in ("cursor", "type", "value", "runId")
    }
    return AuditLine(
        action,
        key,
        text["cursor"],
        text["type"],
        text["value"],
        text["runId"],
        after=after,
        target=target,
        reason=reason,
    )


def _shown(key: str, kind: str, content: Mapping[str, Any]) -> ShownState:
    try:
        entry: Entry | None = entry_from_json(content)
    except ValueError:
        entry = None
    if entry is None:
        return ShownState(key, f"{kind} (unusable)", None, None, None, None)
    if isinstance(entry.value, Token):
        return ShownState(key, kind, None, None, None, entry.run_id)
    return ShownState(key, kind, entry.value.cursor, entry.value.type, entry.value.value, entry.run_id)


def _missing(state_dir: Path, key: str) -> StateError:
    if key in token_store(state_dir).raw.read():
        hint = "it has a token: start it over with --full-refresh, or with `pz cdc drop` for a cdc dataset"
        return StateError(Problem(Code.PZ0513, f"'{key}' has no stored watermark", hint=hint))
    hint = "list what there is with `pz state show`; the first run stores one, and `sync: { initial: ... }` says where it begins"
    return StateError(Problem(Code.PZ0513, f"'{key}' has no stored watermark", hint=hint))


def _refused(message: str, hint: str) -> StateError:
    return StateError(Problem(Code.PZ0515, message, hint=hint))
