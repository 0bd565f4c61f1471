"""What the methods of the Python API are given: an argument of another type is told by its name, before anything begins.

The annotations say what is taken. Without this, the text "no" would be a true `full_refresh`, and a list of flows an error from
somewhere below.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import ParamSpec, TypeVar

from pz.connectors.contract import CancelToken

__all__ = ["Selection", "checked", "united"]

P = ParamSpec("P")
T = TypeVar("T")

Selection = str | Iterable[str]
"""A selector, or several that unite."""


def checked(method: Callable[P, T]) -> Callable[P, T]:
    """The method, which raises TypeError for an argument that is not what its annotation says."""

    @functools.wraps(method)
    def call(*given: P.args, **named: P.kwargs) -> T:
        signature = _signature(method)
        for name, value in signature.bind(*given, **named).arguments.items():
            parameter = signature.parameters[name]
            several = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            for each in value if several else (value,):
                _require(f"*{name}" if several else name, each, str(parameter.annotation))
        return method(*given, **named)

    return call


def united(select: Selection | None) -> str | None:
    """What all selectors choose together; None without any."""
    return select if select is None or isinstance(select, str) else " ".join(select) or None


_signature = functools.cache(inspect.signature)


def _require(name: str, value: object, annotation: str) -> None:
    kinds = [_KINDS[kind] for kind in annotation.split(" | ") if kind in _KINDS]
    if not kinds or any(fits(value) for fits, _ in kinds):
        return
    wanted = " or ".join(dict.fromkeys(words for _, words in kinds))
    hint = ": give them one by one, as in run('a', 'b')" if name == "*flows" else ""
    raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}{hint}")


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _is_number(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_selection(value: object) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(each, str) for each in value)


_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "str": (_is(str), "a text"),
    "bool": (_is(bool), "True or False"),
    "int": (_is_number, "a whole number"),
    "None": (lambda value: value is None, "None"),
    "Selection": (_is_selection, "a text or a list of texts"),
    "Mapping[str, Any]": (_is(Mapping), "a mapping of names to values"),
    "Mapping[str, str]": (_is(Mapping), "a mapping of names to texts"),
    "EventHandler": (callable, "a function"),
    "CancelToken": (_is(CancelToken), "a pz.CancelToken"),
    "timedelta": (_is(timedelta), "a datetime.timedelta"),
    "os.PathLike[str]": (_is(os.PathLike), "a path"),
}
