"""How one side of an entity is read or written: the same rules for YAML blocks and for the arguments of a call.

What the engine does not know is a connector's own option and is kept as it is; the connector's published schema judges
it later. An option one edit away from an engine key draws a warning, since it was most likely meant to be that key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pz.connectors.contract import OnDelete, SchemaPolicy, WriteStrategy
from pz.errors import Code, Problems
from pz.frozen import frozen
from pz.project.columns import parse_columns
from pz.project.fields import Fields
from pz.project.keys import READ, SYNC, SYNC_KEYS, WRITE, Keys, names
from pz.project.model import NullCursor, ReadDecl, SyncDecl, SyncMode, WriteDecl
from pz.project.nearmiss import did_you_mean, near_miss
from pz.project.pacing import parse_retry
from pz.project.yaml_source import Block, plain_value

__all__ = ["entity_name_problem", "misplaced", "parse_read", "parse_write"]

_CONNECTION_LEVEL = {"rate_limit": Code.PZ0318, "max_concurrency": Code.PZ0122}


@frozen
class _Side:
    """What differs between reads and writes while their options are sorted out."""

    keys: Keys
    slip: Code


_READ_SIDE = _Side(READ, Code.PZ0201)
_WRITE_SIDE = _Side(WRITE, Code.PZ0208)


def entity_name_problem(name: str) -> str | None:
    """Why ``name`` is no entity name (PZ0344), or None."""
    if not name:
        return "an entity name is empty"
    if any(character.isspace() or not character.isprintable() for character in name):
        return f"entity name {name!r} holds whitespace or a control character"
    if any(not segment for segment in name.split(".")):
        return f"entity name '{name}' has an empty segment"
    return None


def parse_read(block: Block, what: str, file: str, problems: Problems, *, in_call: bool = False) -> ReadDecl:
    """One read declaration. ``what`` names it in messages, such as ``lake.orders.read``."""
    fields = Fields(block, READ, Code.PZ0101, what, file, problems)
    options = _options(fields, _READ_SIDE, in_call)
    return ReadDecl(
        options=options,
        columns=parse_columns(fields),
        sync=_sync(fields),
        retry=parse_retry(fields),
        location=fields.location,
        lines=block.key_lines,
    )


def parse_write(block: Block, what: str, file: str, problems: Problems, *, in_call: bool = False) -> WriteDecl:
    """One write declaration. Whether merge has its keys is judged at compile, together with what feeds it."""
    fields = Fields(block, WRITE, Code.PZ0334, what, file, problems)
    options = _options(fields, _WRITE_SIDE, in_call)
    strategy = fields.choice("strategy", WriteStrategy) or WriteStrategy.APPEND
    understood = "strategy" not in block.entries or fields.get("strategy") is None or _is_known_strategy(fields)
    if understood and strategy is not WriteStrategy.MERGE:
        _refuse_without_merge(fields, ("on_delete", "dedupe_by"))
    return WriteDecl(
        strategy=strategy,
        keys=fields.words("keys") or (),
        duplicates_accepted=fields.word("duplicates", ("accept",)) is not None,
        dedupe_by=fields.text("dedupe_by"),
        on_delete=fields.choice("on_delete", OnDelete),
        schema_policy=fields.choice("schema_policy", SchemaPolicy) or SchemaPolicy.FAIL_ON_CHANGE,
        retry=parse_retry(fields),
        options=options,
        location=fields.location,
        lines=block.key_lines,
    )


def misplaced(fields: Fields, keys: Iterable[str]) -> None:
    """Report settings that belong on the connection (PZ0122, PZ0318)."""
    for key in keys:
        if key in _CONNECTION_LEVEL:
            message = f"'{fields.path(key)}' does not belong here"
            hint = f"set {key} on the connection: it holds for all that the connection does"
            fields.report(key, message, hint=hint, code=_CONNECTION_LEVEL[key])


def _is_known_strategy(fields: Fields) -> bool:
    return fields.text("strategy") in {str(strategy) for strategy in WriteStrategy}


def _refuse_without_merge(fields: Fields, keys: Iterable[str]) -> None:
    for key in keys:
        if fields.get(key) is not None:
            hint = f"use strategy: merge, or drop {key}"
            fields.report(key, f"'{fields.path(key)}' needs strategy merge", hint=hint)


def _options(fields: Fields, side: _Side, in_call: bool) -> dict[str, Any]:
    known = names(side.keys)
    block = fields.block
    misplaced(fields, block.entries)
    own = [key for key in block.entries if key not in known and key not in _CONNECTION_LEVEL]
    for key in own:
        close = near_miss(key, known)
        if close is not None:
            line = block.line_of(key)
            code = side.slip if in_call else Code.PZ0101
            message = f"'{fields.path(key)}' is passed to the connector as its own option"
            fields.problems.warn(code, message, file=fields.file, line=line, hint=f"did you mean '{close}'?")
    return {key: plain_value(block.entries[key]) for key in own if fields.get(key) is not None}


def _sync(owner: Fields) -> SyncDecl:
    """The ``sync`` block; problems are PZ0334. Window values stay text: the compiler types them by the cursor."""
    item = owner.get("sync")
    if item is None:
        return SyncDecl()
    if not isinstance(item, Block):
        hint = "write sync: { mode: incremental, cursor: <column> }, or leave it out"
        owner.report(
            "sync",
            f"'{owner.path('sync')}' must be a mapping with a mode, not {item.kind}",
            hint=hint,
            code=Code.PZ0334,
        )
        return SyncDecl()
    fields = Fields(
        item.at(owner.block.line_of("sync")), SYNC, Code.PZ0334, owner.path("sync"), owner.file, owner.problems
    )
    fields.require()
    mode = fields.choice("mode", SyncMode)
    if mode is None:
        fields.refuse_unknown()
        return SyncDecl(explicit=True, location=fields.location)
    _refuse_other_modes(fields, mode)
    if mode is SyncMode.INCREMENTAL and fields.get("cursor") is None:
        fields.report(
            "cursor", f"'{fields.path('cursor')}' is missing", hint="name the column that grows with every change"
        )
    return _sync_values(fields, mode)


def _sync_values(fields: Fields, mode: SyncMode) -> SyncDecl:
    return SyncDecl(
        mode=mode,
        explicit=True,
        cursor=fields.text("cursor"),
        initial=fields.text("initial"),
        max_window=fields.text("max_window"),
        until=fields.text("until"),
        lookback=fields.text("lookback"),
        null_cursor=_null_cursor(fields),
        boundary=fields.word("boundary", ("exclusive",)),
        start=fields.word("start", ("from_state",)),
        slot=fields.text("slot"),
        location=fields.location,
    )


def _null_cursor(fields: Fields) -> NullCursor:
    word = fields.word("null_cursor", (str(NullCursor.INCLUDE), str(NullCursor.REFUSE)))
    return NullCursor.DEFAULT if word is None else NullCursor(word)


def _refuse_other_modes(fields: Fields, mode: SyncMode) -> None:
    allowed = ("mode", *SYNC_KEYS[mode])
    for key in fields.block.entries:
        if key in allowed:
            continue
        if key in names(SYNC):
            message = f"'{fields.path(key)}' means nothing in mode '{mode}'"
            fields.report(key, message, hint=f"mode {mode} takes {', '.join(allowed[1:]) or 'no other key'}")
        else:
            fields.report(key, f"unknown key '{key}' in '{fields.what}'", hint=did_you_mean(key, allowed))
