"""Frozen records: what ``dataclass(frozen=True, slots=True)`` makes, at a quarter of what that costs when it is imported.

The standard decorator compiles six functions for every class; for the records of one run that was a seventh of a short
run. Here ``__init__`` alone is compiled, when the first record is made; the other five are made without. Fields, inheritance,
`dataclasses.replace`, ``fields``, ``asdict``, pattern matching, copying: as there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

__all__ = ["frozen"]

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...


@overload
def frozen(*, slots: bool = ..., kw_only: bool = ..., eq: bool = ...) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, slots: bool = True, kw_only: bool = False, eq: bool = True) -> Any:
    """Make a frozen record of a class. ``slots`` is off where a cached property needs a place, ``eq`` where identity counts."""

    def make(plain: type[T]) -> type[T]:
        own = set(vars(plain))
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(plain)
        fields = dataclasses.fields(made)
        methods: dict[str, Any] = {"__init__": _first(made, fields), "__repr__": _repr}
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        methods |= {"__getstate__": _state, "__setstate__": _restore} if slots else {}
        methods |= _comparison([each.name for each in fields if each.compare]) if eq else {}
        for name, function in methods.items():
            if name not in own:
                setattr(made, name, function)
        return made  # type: ignore[no-any-return]  # with slots it is another class than the one given

    return make if cls is None else make(cls)


def _first(made: type[Any], fields: tuple[Field[Any], ...]) -> Any:
    """What makes the first record, and the function that makes all further ones: a run has classes that it makes none of."""

    def __init__(self: Any, /, *given: Any, **named: Any) -> None:
        made.__init__ = _init(made, fields)
        made.__init__(self, *given, **named)

    return __init__


def _init(made: type[Any], fields: tuple[Field[Any], ...]) -> Any:
    """The one function that differs from class to class."""
    known: dict[str, Any] = {"put": object.__setattr__, "missing": MISSING}
    before, behind, body = ["self"], list[str](), list[str]()
    for each in fields:
        name, given = each.name, each.name
        if each.default_factory is not MISSING:
            known[f"make_{name}"] = each.default_factory
            given = f"make_{name}() if {name} is missing else {name}"
            parameter = f"{name}=missing"
        elif each.default is not MISSING:
            known[f"default_{name}"] = each.default
            parameter = f"{name}=default_{name}"
        else:
            parameter = name
        (behind if each.kw_only else before).append(parameter)
        body.append(f" put(self, {name!r}, {given})")
    parameters = [*before, *(["*", *behind] if behind else [])]
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass"), known)
    init = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _comparison(names: list[str]) -> dict[str, Any]:
    """Equality and hash by the values of these fields, between records of the very same class."""
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda self: ()

    def equal(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": hashed}


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"cannot assign to or delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
