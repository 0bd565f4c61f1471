"""Where the records of a json page are: by pointer, without building what is not needed; or by JSONPath, with parents.

A record stays the text that the server sent wherever that is possible, so that no digit of a number is lost on the way.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from pz.connectors.http.pagination import MISSING
from pz.errors import Code, PermanentError
from pz.frozen import frozen

if TYPE_CHECKING:
    import msgspec

__all__ = ["Document", "Selector", "array_of", "parts_of", "selector_faults", "shallow", "value_texts"]

_RELATIVE = re.compile(r"([1-9][0-9]?)(/.*)")


def selector_faults(options: Mapping[str, Any]) -> Iterator[str]:
    """Faults of ``items`` and ``parents``; offline."""
    items = str(options.get("items", ""))
    if items.startswith("$"):
        if not _compiles(items):
            yield "items is no valid JSONPath"
    elif items and not items.startswith("/"):
        yield "items is a JSON pointer that begins with /, or a JSONPath that begins with $"
    parents = options.get("parents")
    if isinstance(parents, Mapping):
        if not items.startswith("$"):
            yield "parents needs a JSONPath in items"
        for name, pointer in parents.items():
            if not str(pointer).startswith("/") and not _RELATIVE.fullmatch(str(pointer)):
                yield f"parents.{name} is a pointer such as /id, or a relative one such as 4/id"


def _compiles(path: str) -> bool:
    import jsonpath

    try:
        jsonpath.compile(path)
    except (jsonpath.JSONPathError, ValueError, RecursionError):
        return False
    return True


@frozen(slots=False)
class Selector:
    """A dataset's ``items`` and ``parents`` without faults."""

    pointer: tuple[str, ...] = ()
    path: str | None = None
    parents: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    may_be_missing: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Selector:
        """From options of which `selector_faults` found none."""
        items = str(options.get("items", ""))
        parents = {str(name): _upward(str(pointer)) for name, pointer in options.get("parents", {}).items()}
        missing = options.get("items_missing") == "empty"
        if items.startswith("$"):
            return cls((), items, parents, missing)
        return cls(parts_of(items), None, {}, missing)


def parts_of(pointer: str) -> tuple[str, ...]:
    """The steps of a JSON pointer, unescaped (RFC 6901, 4)."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _upward(pointer: str) -> tuple[int, tuple[str, ...]]:
    """Levels to go up from a record, and the way down again. The object around a record's array is two levels up."""
    relative = _RELATIVE.fullmatch(pointer)
    return (int(relative.group(1)), parts_of(relative.group(2))) if relative else (2, parts_of(pointer))


@functools.cache
def _levels() -> tuple[Any, Any]:
    """Decoders of one level: of an object and of an array, with their values left as text."""
    import msgspec

    return msgspec.json.Decoder(dict[str, msgspec.Raw]), msgspec.json.Decoder(list[msgspec.Raw])


@functools.cache
def _exact() -> Any:
    import msgspec

    return msgspec.json.Decoder(float_hook=Decimal)


@functools.cache
def _writer() -> Any:
    import msgspec

    return msgspec.json.Encoder(decimal_format="number")


@contextmanager
def shallow(subject: str) -> Iterator[None]:
    """Refuse what is nested deeper than the parsers go (a thousand levels) as what it is."""
    try:
        yield
    except RecursionError as error:
        raise PermanentError(f"{subject}: the response is nested too deeply", code=Code.PZ0765) from error


class Document:
    """One json body. Raises PermanentError PZ0765, telling no value, where it is not what was declared."""

    def __init__(self, body: bytes, subject: str) -> None:
        self._body = body.removeprefix(b"\xef\xbb\xbf")
        self._subject = subject

    @property
    def empty(self) -> bool:
        """Whether there is nothing in the body: an empty page, not a malformed one."""
        return not self._body.strip()

    def check(self) -> None:
        """Raise `msgspec.DecodeError` unless the body is one whole json value."""
        import msgspec

        msgspec.json.decode(self._body, type=msgspec.Raw)

    def at(self, pointer: Sequence[str]) -> Any:
        """The decoded value a pointer leads to; MISSING when it leads nowhere. Fractions are exact decimals."""
        found = self.raw(pointer)
        return MISSING if found is None else self._decoded(found)

    def array(self, selector: Selector) -> bytes | msgspec.Raw:
        """The records as the text of one json array."""
        if selector.path is not None:
            return b"[" + b",".join(self._by_path(selector)) + b"]"
        found = self.raw(selector.pointer)
        if found is None:
            if selector.may_be_missing:
                return b"[]"
            raise self._not_as_declared(
                "the pointer in items leads nowhere", "correct items, or set items_missing: empty"
            )
        first = bytes(memoryview(found)[:64]).lstrip()[:1]
        if first == b"[":
            return cast("msgspec.Raw", found)
        if first == b"{":
            return b"[" + bytes(found) + b"]"
        if bytes(found).strip() == b"null":
            return b"[]"
        raise self._not_as_declared("what items leads to is neither a list nor an object")

    def raw(self, pointer: Sequence[str]) -> Any:
        """The text that a pointer leads to, None for nowhere; one level at a time, building nothing beside the way."""
        import msgspec

        objects, arrays = _levels()
        here: Any = self._body
        for part in pointer:
            first = bytes(memoryview(here)[:64]).lstrip()[:1]
            try:
                if first == b"{":
                    here = objects.decode(here).get(part)
                elif first == b"[" and re.fullmatch(r"0|[1-9][0-9]*", part):
                    items = arrays.decode(here)
                    here = items[int(part)] if int(part) < len(items) else None
                else:
                    return None
            except msgspec.DecodeError as error:
                raise self._not_as_declared("the response is not json") from error
            if here is None:
                return None
        return here

    def _by_path(self, selector: Selector) -> list[bytes]:
        import jsonpath

        assert selector.path is not None
        root = self._decoded(self._body)
        found = []
        for match in jsonpath.compile(selector.path).finditer(root):
            found.append(_writer().encode(self._with_parents(match.obj, root, tuple(match.parts), selector)))
        if not found and not selector.may_be_missing and not _leads_somewhere(selector.path, root):
            raise self._not_as_declared(
                "the JSONPath in items leads nowhere", "correct items, or set items_missing: empty"
            )
        return found

    def _decoded(self, text: Any) -> Any:
        import msgspec

        try:
            return _exact().decode(text)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise self._not_as_declared("the response is not valid json") from error

    def _with_parents(self, record: Any, root: Any, way: tuple[str | int, ...], selector: Selector) -> Any:
        if not selector.parents:
            return record
        if not isinstance(record, dict):
            raise self._not_as_declared("a record is no object, so nothing can be copied into it")
        copied = {}
        for name, (levels, down) in selector.parents.items():
            if name in record:
                raise self._not_as_declared(
                    f"a record has '{name}' of its own", "give the column in parents another name"
                )
            if levels > len(way):
                raise self._not_as_declared(f"parents.{name} goes up further than the document")
            copied[name] = _walk(root, (*way[: len(way) - levels], *down))
        return {**copied, **record}

    def _not_as_declared(self, what: str, hint: str | None = None) -> PermanentError:
        return PermanentError(f"{self._subject}: {what}", code=Code.PZ0765, hint=hint)


def array_of(text: bytes | msgspec.Raw) -> list[Any]:
    """The elements of a json array, each as its text."""
    found: list[Any] = _levels()[1].decode(text)
    return found


def value_texts(array: Any, way: Sequence[str]) -> list[bytes | None]:
    """For each element of a json array the text at the end of a way; None where there is none."""
    if len(way) == 1:
        import msgspec

        shape = msgspec.defstruct("Element", [("v", msgspec.Raw | None, msgspec.field(name=way[0], default=None))])
        try:
            return [None if row.v is None else bytes(row.v) for row in _list_of(shape).decode(array)]
        except msgspec.ValidationError:
            pass  # an element that is no object: the long way tells what it holds, which is nothing
    found = [Document(bytes(element), "").raw(way) for element in array_of(array)]
    return [None if text is None else bytes(text) for text in found]


def _list_of(shape: Any) -> Any:
    import msgspec

    return msgspec.json.Decoder(list[shape])


def _walk(value: Any, way: Sequence[str | int]) -> Any:
    """The value at the end of a way; None where it ends early."""
    for part in way:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and str(part).isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _leads_somewhere(path: str, root: Any) -> bool:
    """Whether the way up to the first wildcard or filter exists: an empty list there is an empty page, not a fault."""
    import jsonpath

    fixed = re.match(r"\$(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[(?:'[^']*'|\"[^\"]*\"|[0-9]+)\])*", path)
    start = fixed.group(0) if fixed else "$"
    return any(True for _ in jsonpath.compile(start).finditer(root))
