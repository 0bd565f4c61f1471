"""A frozen record is what the standard frozen dataclass is; each promise is tried on both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any

import pytest

import pz
from pz.frozen import frozen


@frozen
class Ours:
    """With a slot each."""

    name: str
    sizes: list[int] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)

    @property
    def shown(self) -> str:
        return f"{self.name}!"


@dataclass(frozen=True, slots=True)
class Theirs:
    name: str
    sizes: list[int] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)

    @property
    def shown(self) -> str:
        return f"{self.name}!"


KINDS: list[Any] = [Ours, Theirs]


@pytest.mark.parametrize("kind", KINDS)
def test_fields_defaults_and_text(kind: Any) -> None:
    made = kind("a", [1], note="n")
    assert repr(made) == f"{kind.__name__}(name='a', sizes=[1])"
    assert dataclasses.asdict(made) == {"name": "a", "sizes": [1], "note": "n"}
    assert [each.name for each in dataclasses.fields(made)] == ["name", "sizes", "note"]
    assert kind("a").sizes == []
    assert kind("a").sizes is not kind("a").sizes
    assert made.shown == "a!"
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("kind", KINDS)
def test_equal_are_records_of_one_class_with_equal_values(kind: Any) -> None:
    assert kind("a", [1], "n") == kind("a", [1], "other")
    assert kind("a") != kind("b")
    assert kind("a") != ("a", [], "")
    assert kind("a", (1,)) in {kind("a", (1,), "n")}
    for other in KINDS:
        assert (kind("a") == other("a")) is (kind is other)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_can_be_assigned_or_deleted(kind: Any) -> None:
    made = kind("a")
    for name in ("name", "unknown"):
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(made, name, "b")
        with pytest.raises((FrozenInstanceError, TypeError)):
            delattr(made, name)
    assert made == kind("a")


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_copy_a_copy_and_a_pickle(kind: Any) -> None:
    made = kind("a", [1])
    assert dataclasses.replace(made, name="b") == kind("b", [1])
    deep = copy.deepcopy(made)
    assert deep == made
    assert deep.sizes is not made.sizes
    assert copy.copy(made).sizes is made.sizes
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("kind", KINDS)
def test_a_pattern_takes_it_apart(kind: Any) -> None:
    match kind("a", [1]):
        case Ours(name, sizes) | Theirs(name, sizes):
            assert (name, sizes) == ("a", [1])
        case _:
            pytest.fail("no pattern fits")


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_call_is_refused_in_pythons_words(kind: Any) -> None:
    with pytest.raises(
        TypeError, match=re.escape(f"{kind.__name__}.__init__() missing 1 required positional argument: 'name'")
    ):
        kind()
    with pytest.raises(TypeError, match="unexpected keyword argument 'nam'"):
        kind(nam="a")
    assert list(inspect.signature(kind).parameters) == ["name", "sizes", "note"]


def standard(**options: bool) -> Any:
    return dataclass(frozen=True, **options)


@pytest.mark.parametrize("make", [frozen, standard])
def test_inheritance_keywords_and_what_a_class_writes_itself(make: Callable[..., Any]) -> None:
    @make(slots=False, kw_only=True)
    class Base:
        first: int = 1

        def __repr__(self) -> str:
            return "own words"

    @make(slots=False, kw_only=True)
    class Below(Base):
        second: int
        doubled: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.doubled.append(self.second * 2)

    below: Any = Below
    with pytest.raises(TypeError):
        below(1, 2)
    made = below(second=2)
    assert (made.first, made.second, made.doubled) == (1, 2, [4])
    assert repr(Base()) == "own words"
    assert "second=2" in repr(made)
    assert made != Base()


@pytest.mark.parametrize("make", [frozen, standard])
def test_without_eq_identity_counts(make: Callable[..., Any]) -> None:
    @make(eq=False, slots=False)
    class Lock:
        name: str

    lock: Any = Lock
    made = lock("a")
    assert made != lock("a")
    assert made in {made}


def test_the_product_has_no_other_frozen_records() -> None:
    """One of the standard kind costs several times as much whenever anything is started."""
    root = Path(pz.__file__).parent
    others = [
        path.name
        for path in root.rglob("*.py")
        if "scaffolds" not in path.parts and "installed" not in path.parts and "@dataclass(frozen" in path.read_text()
    ]
    assert others == []


@pytest.mark.parametrize("decorate", [frozen, dataclass(frozen=True, slots=True)])
def test_a_field_may_have_any_name(decorate: Any) -> None:
    class Named:
        put: int
        missing: int = 2
        self: int = 3
        __dunder: int = 4
        make_default: list[int] = field(default_factory=list)

    made = decorate(Named)(1, self=5)
    assert dataclasses.asdict(made) == {"put": 1, "missing": 2, "self": 5, "_Named__dunder": 4, "make_default": []}


@pytest.mark.parametrize("decorate", [frozen, dataclass(frozen=True, slots=True)])
def test_a_record_of_one_number_that_is_none_equals_itself(decorate: Any) -> None:
    class One:
        value: float

    class Two:
        value: float
        other: int = 0

    for kind in (decorate(One), decorate(Two)):
        assert kind(math.nan) == kind(math.nan)
        assert kind(float("nan")) != kind(math.nan)
        assert kind(math.nan) in {kind(math.nan)}


class _NotTaken:
    a: int = field(default=1, init=False)


class _ForInit:
    a: dataclasses.InitVar[int]


class _OwnHash:
    a: int = field(hash=False)


class _HashAlone:
    a: int = field(compare=False, hash=True)


class _OutOfOrder:
    a: int = 1
    b: int = field()


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        (_NotTaken, "a has init=False"),
        (_ForInit, "a is an InitVar"),
        (_OwnHash, "a has a hash of its own"),
        (_HashAlone, "a has a hash of its own"),
        (_OutOfOrder, "b has no default and stands behind a, which has one"),
    ],
)
def test_what_is_not_honoured_is_refused_when_the_class_is_defined(plain: type[Any], told: str) -> None:
    """Before: taken and ignored, or a SyntaxError when the first record was made."""
    with pytest.raises(TypeError, match=told):
        frozen(plain)


def test_what_is_inherited_is_refused_where_it_is_not_honoured() -> None:
    @frozen
    class Base:
        a: int = 1

    class Below(Base):
        b: int

    with pytest.raises(TypeError, match="b has no default"):
        frozen(Below)
    assert frozen(kw_only=True)(Below)(b=2).b == 2  # type: ignore[call-arg]
