"""The Jinja environment of pipelines: only values and control flow, nothing that reaches out, nothing that never ends.

Attributes are allowed by name and type, filters by name. A meter counts loop passes, characters and list items, so that
a template that would run or grow without end fails with `LimitExceeded` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

from jinja2 import StrictUndefined, Template, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Namespace

from pz.project.template_syntax import ColonArguments
from pz.sqltext import literal

__all__ = ["FILTERS", "LimitExceeded", "Sandbox", "spell"]

MAX_STEPS = 100_000
MAX_OUTPUT = 10_000_000
MAX_TEXT = 1_000_000
MAX_ITEMS = 100_000
MAX_BITS = 4096

FILTERS = (
    "abs", "capitalize", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "join", "last", "length",
    "count", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "select",
    "selectattr", "sort", "string", "sum", "title", "tojson", "trim", "unique", "upper", "wordcount",
)  # fmt: skip

_TEXT_METHODS = frozenset(
    {
        "capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isdigit", "isnumeric", "lower", "lstrip",
        "removeprefix", "removesuffix", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
    }
)  # fmt: skip
_LIST_METHODS = frozenset({"append", "count", "index"})
_MAPPING_METHODS = frozenset({"get", "items", "keys", "values"})


class LimitExceeded(Exception):
    """The template runs too long or grows too large."""


class Sandbox(SandboxedEnvironment):
    """One environment per rendering: it carries that rendering's meter."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            extensions=[ColonArguments],
            optimized=False,
            finalize=_finalize,
            cache_size=0,
            keep_trailing_newline=True,
        )
        self._steps = 0
        self._output = 0
        self.globals = {"range": self._range, "namespace": Namespace}
        allowed = {name: self._guarded(self.filters[name]) for name in FILTERS}
        self.filters = {**allowed, "join": self._join, "replace": self._replace, "sum": self._sum}

    def compiled(self, tree: nodes.Template, name: str) -> Template:
        """A template from an instrumented tree."""
        return Template.from_code(self, self.compile(tree, name, name), self.make_globals(None))

    def spend(self, steps: int) -> None:
        """Charge work to the meter."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise LimitExceeded(f"the template takes more than {MAX_STEPS} steps")

    def charge_output(self, characters: int) -> None:
        """Charge rendered text to the meter."""
        self._output += characters
        if self._output > MAX_OUTPUT:
            raise LimitExceeded(f"the template renders more than {MAX_OUTPUT} characters")

    def concatenate(self, *values: object) -> str:
        """The ``~`` operator."""
        return self._join([spell(value) for value in values])

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow by type and name; methods of anything else are out of reach."""
        if attr.startswith("_"):
            return False
        if isinstance(obj, str):
            return attr in _TEXT_METHODS
        if isinstance(obj, list | tuple):
            return attr in _LIST_METHODS
        if isinstance(obj, Mapping):
            return attr in _MAPPING_METHODS
        return isinstance(obj, LoopContext | Namespace | Macro) and super().is_safe_attribute(obj, attr, value)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As in Jinja, with metered forms of the two text methods that can grow their input."""
        if isinstance(obj, str) and attribute in ("replace", "join"):
            return partial(self._replace, obj) if attribute == "replace" else lambda items: self._join(items, obj)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators that can grow their operands without bound."""
        if operator == "%" and isinstance(left, str | bytes):
            raise SecurityError("'%' formats no text here: use ~ to put text together")
        if operator == "+":
            self._check_size(_size(left) + _size(right))
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            self._check_bits(left.bit_length() * abs(right))
        return super().call_binop(context, operator, left, right)

    def _check_product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int):
            self._check_bits(left.bit_length() + right.bit_length())
        for sized, factor in ((left, right), (right, left)):
            if isinstance(factor, int):
                self._check_size(_size(sized) * max(factor, 0))

    def _check_bits(self, bits: int) -> None:
        if bits > MAX_BITS:
            raise LimitExceeded("the template computes a number that is too large")

    def _check_size(self, size: int) -> None:
        if size > MAX_TEXT:
            raise LimitExceeded(f"the template builds a value larger than {MAX_TEXT}")
        self.spend(size // 1024)

    def _range(self, *bounds: int) -> range:
        numbers = range(*bounds)
        if len(numbers) > MAX_ITEMS:
            raise LimitExceeded(f"a range holds more than {MAX_ITEMS} numbers")
        self.spend(len(numbers) // 8)
        return numbers

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that charges the size of what it is given."""
        subject = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def charged(*args: Any, **kwargs: Any) -> Any:
            self.spend(1 + _size(args[subject]) // 8 if len(args) > subject else 1)
            return function(*args, **kwargs)

        return charged

    def _join(self, value: Iterable[Any], d: str = "") -> str:
        pieces: list[str] = []
        size = 0
        for item in value:
            pieces.append(spell(item))
            size += len(pieces[-1]) + len(d)
            self.spend(1)
            if size > MAX_TEXT:
                raise LimitExceeded(f"the template builds a value larger than {MAX_TEXT}")
        return d.join(pieces)

    def _replace(self, s: str, old: str, new: str, count: int = -1) -> str:
        text = spell(s)
        times = text.count(old) if count < 0 else min(count, text.count(old))
        self._check_size(len(text) + times * max(len(new) - len(old), 0))
        return text.replace(old, new, count)

    def _sum(self, value: Iterable[Any]) -> Any:
        numbers = list(value)
        if not all(isinstance(number, int | float) for number in numbers):
            raise TypeError("sum takes numbers only")
        self.spend(1 + len(numbers) // 8)
        return sum(numbers)


def _size(value: object) -> int:
    return len(value) if isinstance(value, str | bytes | Sequence | Mapping) else 0


@pass_context
def _finalize(context: Context, value: object) -> str:
    """What ``{{ value }}`` prints; also keeps Jinja from evaluating constants before the meter runs."""
    text = spell(value)
    environment = context.environment
    assert isinstance(environment, Sandbox)
    environment.charge_output(len(text))
    return text


def spell(value: object) -> str:
    """A value as text in SQL: text as it is, ``true`` and ``false``, ``NULL``; lists and mappings as DuckDB writes them."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | dict) or value is None or isinstance(value, int | float):
        return _nested(value)
    if isinstance(value, Undefined):
        return str(value)  # nothing for an `if` without `else`; any other one raises, naming what is undefined
    raise TypeError(f"a {type(value).__name__} cannot be printed; call it, or print its parts")


def _nested(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return literal(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_nested(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(str(key))}: {_nested(item)}" for key, item in value.items()) + "}"
    return literal(spell(value))
