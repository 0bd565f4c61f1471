"""What is remembered of a dataset between runs: a watermark or a token, and where it was earned.

Two kinds of state, one shape of entry: the value, the run that stored it, the location digest of the source, and the
digests of the outputs that had everything up to the value when it was stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from pz.cursors import CursorError, CursorType, canonical
from pz.errors import Code, Problem, StateError
from pz.frozen import frozen
from pz.state.stores.local import LocalStore

__all__ = ["Binding", "Entry", "EntryStore", "Token", "Value", "Watermark", "entry_from_json", "entry_to_json"]


@frozen
class Watermark:
    """The highest cursor value that all outputs have; ``value`` is canonical text of ``type``."""

    cursor: str
    type: CursorType
    value: str


@frozen
class Token:
    """What a source wants to be handed next time. Opaque, and never shown."""

    token: str = field(repr=False)

    @property
    def digest(self) -> str:
        """What may be shown and compared in its place."""
        return hashlib.sha256(self.token.encode()).hexdigest()


Value = Watermark | Token

_TEXTS = ("dataset", "shape", "slot")
_BY_OUTPUT = ("paths", "definitions")
"""Fields of a binding that are left out where they say nothing."""


@frozen
class Binding:
    """Where state is earned: the source's location digest and the digest of each output, by ``connection.entity``.

    ``dataset`` is the digest of where the dataset lies below the location, empty where its name says that. ``shape`` says
    which way of reading a token is of (``feed`` or ``cdc``; empty for watermarks, and in entries from before it was kept),
    ``slot`` what the project named the place where the source keeps what is captured. ``paths`` has the digest of where an
    output lies below its location where its name does not say that, ``definitions`` the node id that each output had: what it
    was given was made by that SQL from that read.
    """

    location: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    dataset: str = ""
    shape: str = ""
    slot: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)


@frozen
class Entry:
    """The stored state of one dataset."""

    value: Value
    run_id: str
    binding: Binding = Binding()


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """The entry as state files and ``run.json`` hold it."""
    where: dict[str, Any] = {
        "location": entry.binding.location,
        "outputs": dict(sorted(entry.binding.outputs.items())),
    }
    texts = {name: getattr(entry.binding, name) for name in _TEXTS}
    where |= {name: text for name, text in texts.items() if text}
    by_output = {name: dict(sorted(getattr(entry.binding, name).items())) for name in _BY_OUTPUT}
    where |= {name: each for name, each in by_output.items() if each}
    return {**value_to_json(entry.value), "runId": entry.run_id, **where}


def value_to_json(value: Value) -> dict[str, Any]:
    """The value alone; for a watermark this is also the block in ``run_results.json``."""
    if isinstance(value, Token):
        return {"token": value.token}
    return {"cursor": value.cursor, "type": value.type.value, "value": value.value}


def entry_from_json(content: Mapping[str, Any]) -> Entry:
    """The entry that `entry_to_json` made the content of; ValueError when it is none."""
    location, outputs, run_id = content.get("location", ""), content.get("outputs", {}), content.get("runId")
    texts = {name: content.get(name, "") for name in _TEXTS}
    by_output = {name: content.get(name, {}) for name in _BY_OUTPUT}
    if not all(isinstance(text, str) for text in (location, *texts.values())) or not all(
        isinstance(each, dict) for each in (outputs, *by_output.values())
    ):
        raise ValueError("its binding is malformed")
    if not isinstance(run_id, str):
        raise ValueError("its run is malformed")
    return Entry(value_from_json(content), run_id, Binding(location, outputs, **texts, **by_output))


def value_from_json(content: Mapping[str, Any]) -> Value:
    """The watermark or token in a mapping; ValueError when there is none, or its value is not canonical."""
    if isinstance(token := content.get("token"), str):
        return Token(token)
    cursor, type_, value = content.get("cursor"), content.get("type"), content.get("value")
    if not isinstance(cursor, str) or not isinstance(value, str) or type_ not in tuple(CursorType):
        raise ValueError("its cursor, type or value is malformed")
    cursor_type = CursorType(type_)
    try:
        return Watermark(cursor, cursor_type, canonical(value, cursor_type))
    except CursorError as failure:
        raise ValueError(f"its value is no {type_}") from failure


class EntryStore:
    """Typed entries over one state file."""

    def __init__(self, path: Path, section: str) -> None:
        self.raw = LocalStore(path, section)

    def read(self) -> dict[str, Entry]:
        """All entries. One malformed entry makes the whole file unusable (PZ0706, naming it)."""
        return {key: self._parsed(key, content, entry_from_json) for key, content in self.raw.read().items()}

    def save(self, key: str, entry: Entry, *, seen: Entry | None) -> bool:
        """Store an entry if the stored one is still the one ``seen``; False when there was nothing to change.

        The value alone decides whether there is something to change: an idle run does not rewrite the file to put its
        own name there. Raises `StateError` as `LocalStore.put` does.
        """
        stored = self.raw.read().get(key)
        if stored is not None and _same(stored, entry):
            return False
        return self.raw.put(key, entry_to_json(entry), seen=None if seen is None else entry_to_json(seen))

    def _parsed(self, key: str, content: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], Entry]) -> Entry:
        try:
            return parse(content)
        except ValueError as failure:
            problem = Problem(
                Code.PZ0706,
                f"the entry '{key}' of {self.raw.path} cannot be used: {failure}",
                hint=f"set or clear it with `pz state set {key} --value ...` or `pz state clear {key}`",
            )
            raise StateError(problem) from failure


def _same(stored: Mapping[str, Any], entry: Entry) -> bool:
    ours = entry_to_json(entry)
    return {**stored, "runId": None} == {**ours, "runId": None}
