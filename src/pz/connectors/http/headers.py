"""Header names and values: which ones can be sent, and which are the connector's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = ["header_faults", "is_value", "lowered", "name_fault", "spelled"]

_NAME = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


def spelled(value: object) -> str:
    """An option value as text, the way YAML spells it: ``true``, ``1.5``, whatever the locale."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """The same headers under names that can be compared."""
    return {name.lower(): value for name, value in headers.items()}


def is_value(text: str) -> bool:
    """Whether a header can have this value."""
    return text.isascii() and (text.isprintable() or not text) and text == text.strip()


def name_fault(name: str) -> str | None:
    """What is wrong with the name of a header that a project names."""
    if not name or not set(name) <= _NAME:
        return f"'{name}' is no header name"
    return f"'{name}' is set by the connector" if name.lower() in _OURS else None


def header_faults(headers: object) -> Iterator[str]:
    """Faults of an option ``headers`` that a schema does not see; offline."""
    for name, value in (headers if isinstance(headers, Mapping) else {}).items():
        fault = name_fault(str(name))
        if fault is not None:
            yield f"headers: {fault}"
        elif not is_value(spelled(value)):
            yield f"headers: the value of '{name}' must be printable ASCII without blanks around it"
