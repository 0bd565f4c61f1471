"""``{{ watermark }}`` and ``{{ window_upper }}`` in the query, the path and the body of a dataset.

A binding without a value (first run, full refresh, no window) takes the whole parameter, or the whole key of a body, with
it. A lower bound is rounded down and an upper bound up to what the API's spelling can tell: reading too much is cut away by
the engine, reading too little would lose rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from pz.connectors.contract import Bound, DatasetSpec
from pz.connectors.http.headers import spelled
from pz.cursors import CursorType
from pz.errors import Code, PermanentError
from pz.frozen import frozen

__all__ = ["ABSENT", "Bindings", "binding_faults", "format_faults"]

NAMES = frozenset({"watermark", "window_upper"})
_BINDING = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEPS = {
    "iso": timedelta(seconds=1),
    "iso_ms": timedelta(milliseconds=1),
    "iso_us": timedelta(microseconds=1),
    "date": timedelta(days=1),
    "epoch": timedelta(seconds=1),
    "epoch_ms": timedelta(milliseconds=1),
}
_DIRECTIVES = (
    ("%f", timedelta(microseconds=1)),
    ("%S", timedelta(seconds=1)),
    ("%M", timedelta(minutes=1)),
    ("%H", timedelta(hours=1)),
    ("%d", timedelta(days=1)),
)

ABSENT = object()
"""What a template gives when one of its bindings has no value."""


def binding_faults(value: object, where: str) -> Iterator[str]:
    """Unknown names and stray braces inside a nested option value; offline."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from binding_faults(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from binding_faults(inner, where)
    elif isinstance(value, str):
        names = _BINDING.findall(value)
        unknown = sorted(set(names) - NAMES)
        if unknown:
            yield f"{where}: unknown binding {', '.join(unknown)}; known are watermark and window_upper"
        rest = _BINDING.sub("", value)
        if "{{" in rest or "}}" in rest:
            yield f"{where}: malformed binding; write {{{{ watermark }}}} or {{{{ window_upper }}}}"


def format_faults(options: Mapping[str, Any]) -> Iterator[str]:
    """Faults of ``cursor_format`` and ``cursor_zone``; offline."""
    shape = options.get("cursor_format")
    if shape is not None and shape not in _STEPS and _granule(str(shape)) is None:
        yield "cursor_format is one of iso, iso_ms, iso_us, date, epoch, epoch_ms, or a pattern such as %Y-%m-%d %H:%M"
    zone = options.get("cursor_zone")
    if zone is not None:
        try:
            ZoneInfo(str(zone))
        except (KeyError, ValueError, OSError):
            yield "cursor_zone is a zone name such as Europe/Berlin"
        if shape is None or str(shape) in {"iso", "iso_ms", "iso_us", "epoch", "epoch_ms"}:
            yield "cursor_zone goes with cursor_format: date or a pattern; the others name an instant"


def _granule(shape: str) -> timedelta | None:
    if shape in _STEPS:
        return _STEPS[shape]
    found = [step for directive, step in _DIRECTIVES if directive in shape]
    return min(found) if found and "%Y" in shape else None


@frozen(slots=False)
class Bindings:
    """The values of one read, spelled for the API."""

    values: Mapping[str, str | None]

    @classmethod
    def of(cls, dataset: DatasetSpec) -> Bindings:
        """From the bounds of a dataset. Without a cursor type a bound is passed on as it is."""
        options = dataset.options
        shape = str(options.get("cursor_format", "iso"))
        zone = ZoneInfo(str(options["cursor_zone"])) if "cursor_zone" in options else None
        kind = None if dataset.cursor_type is None else CursorType(dataset.cursor_type)
        exclusive = options.get("bounds") == "exclusive"

        def spell(bound: Bound | None, *, up: bool) -> str | None:
            if bound is None:
                return None
            widen = exclusive and bound.inclusive
            if kind is None or not kind.temporal:
                return _widened(bound.value, kind, up) if widen else bound.value
            return _moment(bound.value, kind, shape, zone, up=up, widen=widen)

        return cls({"watermark": spell(dataset.lower, up=False), "window_upper": spell(dataset.upper, up=True)})

    def fill(self, value: object) -> object:
        """The value with its bindings replaced; ABSENT when one of them has none. Mappings and lists lose such parts."""
        if isinstance(value, Mapping):
            filled = {key: self.fill(inner) for key, inner in value.items()}
            return {key: inner for key, inner in filled.items() if inner is not ABSENT}
        if isinstance(value, list):
            return [inner for inner in map(self.fill, value) if inner is not ABSENT]
        return self._text(value) if isinstance(value, str) else value

    def query(self, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The query of the dataset as name and value; a list gives its name several times."""
        found: list[tuple[str, str]] = []
        for name, value in options.items():
            filled = self.fill(value)
            for item in filled if isinstance(filled, list) else [filled]:
                if item is not ABSENT and item is not None:
                    found.append((name, spelled(item)))
        return found

    def path(self, text: str, subject: str) -> str:
        """The path with its bindings, each percent-encoded. Raises PermanentError PZ0760 when one has no value."""
        from urllib.parse import quote

        def value(match: re.Match[str]) -> str:
            found = self.values.get(match.group(1))
            if found is None:
                raise PermanentError(
                    f"{subject}: its path needs {match.group(1)}, which has no value yet",
                    code=Code.PZ0760,
                    hint="give sync.initial (and a window or until), or move the binding to the query",
                )
            return quote(found, safe="")

        return _BINDING.sub(value, text)

    def _text(self, text: str) -> object:
        names = _BINDING.findall(text)
        if any(self.values.get(name) is None for name in names):
            return ABSENT
        return _BINDING.sub(lambda match: str(self.values[match.group(1)]), text)


def _widened(value: str, kind: CursorType | None, up: bool) -> str:
    """A number one further out, so that an API that excludes its bounds still gives the row at the bound."""
    if kind is None:
        return value
    return format(Decimal(value) + (1 if up else -1), "f")


def _moment(value: str, kind: CursorType, shape: str, zone: ZoneInfo | None, *, up: bool, widen: bool) -> str:
    step = _granule(shape) or timedelta(seconds=1)
    if kind is CursorType.DATE and shape == "iso":
        day = datetime.fromisoformat(value).date()
        moved = day + timedelta(days=1 if up else -1) if widen else day
        return moved.isoformat()
    moment, exact = _parsed(value)
    ticks, rest = divmod(moment - _EPOCH, step) if step < timedelta(days=1) else _days(moment, zone)
    if up and (rest or not exact):
        ticks += 1
    ticks += (1 if up else -1) if widen else 0
    return _spell(ticks, step, shape, zone)


def _days(moment: datetime, zone: ZoneInfo | None) -> tuple[int, timedelta]:
    local = moment.astimezone(zone or UTC).replace(tzinfo=UTC)
    return divmod(local - _EPOCH, timedelta(days=1))


def _parsed(value: str) -> tuple[datetime, bool]:
    """The moment in UTC, cut to microseconds, and whether nothing was cut."""
    whole, _, fraction = value.partition(".")
    moment = datetime.fromisoformat(whole if "T" in whole else f"{whole}T00:00:00").replace(tzinfo=UTC)
    micros = (fraction + "000000")[:6]
    return moment + timedelta(microseconds=int(micros or 0)), not fraction[6:].strip("0")


def _spell(ticks: int, step: timedelta, shape: str, zone: ZoneInfo | None) -> str:
    if shape in {"epoch", "epoch_ms"}:
        return str(ticks)
    moment = _EPOCH + ticks * step
    if shape == "date":
        return moment.date().isoformat()
    if shape in {"iso", "iso_ms", "iso_us"}:
        timespec = {"iso": "seconds", "iso_ms": "milliseconds", "iso_us": "microseconds"}[shape]
        return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"
    local = moment if step >= timedelta(days=1) else moment.astimezone(zone or UTC)
    return local.strftime(shape)
