"""Reads one block key by key: a wrong shape is reported with the block's code, and the default is used instead."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from pz.durations import parse_duration
from pz.errors import Code, Problems
from pz.project.keys import Keys, names
from pz.project.model import Location
from pz.project.nearmiss import did_you_mean, near_miss
from pz.project.yaml_source import Block, Item, Listing, Scalar

__all__ = ["Fields"]

_DURATION_FORM = "a whole number and one of ms, s, m, h, d, such as 30s"

Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """One block of a file. ``what`` names it in messages (``engine``, ``connection 'lake'``); keys follow a dot.

    Getters return None for an absent or empty key, and after reporting a wrong one.
    """

    def __init__(self, block: Block, keys: Keys, code: Code, what: str, file: str, problems: Problems) -> None:
        self.block = block
        self.keys = keys
        self.code = code
        self.what = what
        self.file = file
        self.problems = problems

    @property
    def location(self) -> Location:
        """Where the block begins."""
        return Location(self.file, self.block.line)

    def get(self, key: str) -> Item | None:
        """The raw item; None when absent or without a value."""
        item = self.block.entries.get(key)
        return None if item is None or (isinstance(item, Scalar) and item.empty) else item

    def path(self, key: str) -> str:
        """How messages name a key of this block."""
        return f"{self.what}.{key}" if self.what else key

    def wrong(self, key: str, expected: str, *, hint: str | None = None) -> None:
        """Report that a key must be something else than it is."""
        item = self.block.entries.get(key)
        found = f", not {item.kind}" if item is not None else ""
        self.report(key, f"'{self.path(key)}' must be {expected}{found}", hint=hint)

    def report(self, key: str, message: str, *, hint: str | None = None, code: Code | None = None) -> None:
        """Report any other problem with a key; without a better hint, say what the key is for."""
        line = self.block.line_of(key)
        purpose = next((f"{known.name}: {known.doc}" for known in self.keys if known.name == key), "")
        self.problems.error(code or self.code, message, file=self.file, line=line, hint=hint or purpose)

    def refuse_unknown(self) -> None:
        """Report every key that the table does not hold, with a near miss."""
        known = names(self.keys)
        for key in self.block.entries:
            if key not in known:
                where = f" in '{self.what}'" if self.what else ""
                self.report(key, f"unknown key '{key}'{where}", hint=did_you_mean(key, known))

    def require(self, code: Code | None = None) -> None:
        """Report required keys that are missing or empty."""
        for key in self.keys:
            if key.required and self.get(key.name) is None:
                self.report(
                    key.name, f"'{self.path(key.name)}' is missing", hint=f"add {key.name}: {key.doc}", code=code
                )

    def scalar(self, key: str) -> Scalar | None:
        """Any single value."""
        item = self.get(key)
        if item is None or isinstance(item, Scalar):
            return item
        self.wrong(key, "a single value")
        return None

    def text(self, key: str) -> str | None:
        """A single value as it was written, whatever its type; never blank."""
        item = self.scalar(key)
        if item is None or item.text.strip():
            return None if item is None else item.text
        self.report(key, f"'{self.path(key)}' is blank")
        return None

    def whole(self, key: str, low: int, high: int | None = None) -> int | None:
        """A whole number within bounds; quoted numbers are text."""
        item = self.get(key)
        if item is None:
            return None
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        quoted = isinstance(item, Scalar) and not item.plain and item.text.isdigit()
        if not isinstance(item, Scalar) or isinstance(item.value, bool) or not isinstance(item.value, int):
            self.wrong(key, f"a whole number {bounds}", hint="write the number without quotes" if quoted else None)
            return None
        if item.value < low or (high is not None and item.value > high):
            self.report(key, f"'{self.path(key)}' must be a whole number {bounds}")
            return None
        return item.value

    def flag(self, key: str) -> bool | None:
        """``true`` or ``false``."""
        item = self.get(key)
        if item is None:
            return None
        if isinstance(item, Scalar) and isinstance(item.value, bool):
            return item.value
        self.wrong(key, "true or false", hint="write true or false in lower case without quotes, or leave the key out")
        return None

    def duration(self, key: str, *, positive: bool = False) -> timedelta | None:
        """A duration such as ``30s``."""
        item = self.get(key)
        if item is None:
            return None
        try:
            span = parse_duration(item.text if isinstance(item, Scalar) else "")
        except ValueError:
            span = None
        if span is None or (positive and not span):
            kind = "positive duration" if positive else "duration"
            self.report(key, f"'{self.path(key)}' must be a {kind}", hint=_DURATION_FORM)
            return None
        return span

    def choice(self, key: str, kind: type[Choice]) -> Choice | None:
        """One word of a vocabulary."""
        word = self.word(key, tuple(str(member) for member in kind))
        return None if word is None else kind(word)

    def word(self, key: str, allowed: tuple[str, ...]) -> str | None:
        """As `choice`, for a vocabulary without an enum."""
        item = self.get(key)
        if item is None or (isinstance(item, Scalar) and item.text in allowed):
            return item.text if isinstance(item, Scalar) else None
        listed = " or ".join(f"'{word}'" for word in allowed) if len(allowed) < 3 else ", ".join(allowed)
        close = near_miss(item.text, allowed) if isinstance(item, Scalar) else None
        hint = f"did you mean '{close}'?" if close else f"use {listed}"
        self.report(key, f"'{self.path(key)}' must be {listed}", hint=hint)
        return None

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of distinct words; a single one stands for a list of one."""
        item = self.get(key)
        if item is None:
            return None
        entries = item.items if isinstance(item, Listing) else (item,)
        texts = [entry.text for entry in entries if isinstance(entry, Scalar) and entry.text.strip()]
        if isinstance(item, Block) or len(texts) != len(entries) or not texts:
            self.report(key, f"'{self.path(key)}' must be a list of names")
            return None
        if len(set(texts)) != len(texts):
            self.report(key, f"'{self.path(key)}' names one thing twice")
            return None
        return tuple(texts)

    def inner(self, key: str, keys: Keys, code: Code | None = None) -> Fields | None:
        """A nested block, its unknown keys already reported."""
        item = self.get(key)
        if item is None:
            return None
        code = code or self.code
        if not isinstance(item, Block):
            self.report(key, f"'{self.path(key)}' must be a mapping, not {item.kind}", code=code)
            return None
        fields = Fields(item.at(self.block.line_of(key)), keys, code, self.path(key), self.file, self.problems)
        fields.refuse_unknown()
        return fields
