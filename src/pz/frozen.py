"""Frozen records: what ``dataclass(frozen=True, slots=True)`` makes, at a quarter of what that costs when it is imported.

The standard decorator compiles six functions for every class; for the records of one run that was a seventh of a short
run. Here ``__init__`` alone is compiled, when the first record is made; the other five are made without. Fields, inheritance,
`dataclasses.replace`, ``fields``, ``asdict``, pattern matching, copying: as there. What is not honoured is refused with TypeError
when the class is defined: fields that ``__init__`` does not take, ``InitVar``, and a ``hash`` apart from ``compare``.
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
        _refuse_what_is_not_honoured(made, fields)
        methods: dict[str, Any] = {"__init__": _first(made, fields), "__repr__": _repr}
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        methods |= {"__getstate__": _state, "__setstate__": _restore} if slots else {}
        methods |= _comparison([each.name for each in fields if each.compare]) if eq else {}
        for name, function in methods.items():
            if name not in own:
                setattr(made, name, function)
        return made  # type: ignore[no-any-return]  # with slots it is another class than the one given

    return make if cls is None else make(cls)


def _refuse_what_is_not_honoured(made: type[Any], fields: tuple[Field[Any], ...]) -> None:
    """Raise TypeError for what the standard decorator would do and this one would not."""
    wants = vars(made)["__dataclass_fields__"].values()  # all of them; `dataclasses.fields` leaves pseudo-fields out
    refused = [f"{each.name} is an InitVar" for each in wants if each._field_type is dataclasses._FIELD_INITVAR]  # type: ignore[attr-defined]
    refused += [f"{each.name} has init=False" for each in fields if not each.init]
    refused += [f"{each.name} has a hash of its own" for each in fields if each.hash not in (None, each.compare)]
    behind = ""
    for each in fields:
        if each.kw_only:
            continue
        if each.default is not MISSING or each.default_factory is not MISSING:
            behind = each.name
        elif behind:
            refused.append(f"{each.name} has no default and stands behind {behind}, which has one")
    if refused:
        raise TypeError(f"frozen {made.__qualname__}: {'; '.join(refused)}")


def _first(made: type[Any], fields: tuple[Field[Any], ...]) -> Any:
    """What makes the first record, and the function that makes all further ones: a run has classes that it makes none of."""

    def __init__(self: Any, /, *given: Any, **named: Any) -> None:
        made.__init__ = _init(made, fields)
        made.__init__(self, *given, **named)

    return __init__


def _init(made: type[Any], fields: tuple[Field[Any], ...]) -> Any:
    """The one function that differs from class to class."""
    # Begins with more underscores than any field, so that a field may have any name: `put`, `missing`, `self`.
    own = "_" * (1 + max((len(each.name) - len(each.name.lstrip("_")) for each in fields), default=0))
    put, missing, record = f"{own}put", f"{own}missing", f"{own}self"
    known: dict[str, Any] = {put: object.__setattr__, missing: MISSING}
    before, behind, body = [record], list[str](), list[str]()
    for each in fields:
        name, given = each.name, each.name
        if each.default_factory is not MISSING:
            known[f"{own}make_{name}"] = each.default_factory
            given = f"{own}make_{name}() if {name} is {missing} else {name}"
            parameter = f"{name}={missing}"
        elif each.default is not MISSING:
            known[f"{own}default_{name}"] = each.default
            parameter = f"{name}={own}default_{name}"
        else:
            parameter = name
        (behind if each.kw_only else before).append(parameter)
        body.append(f" {put}({record}, {name!r}, {given})")
    parameters = [*before, *(["*", *behind] if behind else [])]
    if hasattr(made, "__post_init__"):
        body.append(f" {record}.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass"), known)
    init = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


def _comparison(names: list[str]) -> dict[str, Any]:
    """Equality and hash by the values of these fields, between records of the very same class."""
    # Always a tuple: in one, a NaN equals itself.
    values: Callable[[Any], Any] = attrgetter(*names) if len(names) > 1 else lambda self: _one(self, names)

    def equal(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": hashed}


def _one(record: object, names: list[str]) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in names)


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
