"""Find connectors by name: the entry-point group ``pz.connectors``, ours and third parties' alike.

A connector's module is imported only when it is asked for, so a project pays for what it uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from pz.connectors.closest import did_you_mean
from pz.connectors.contract import CONTRACT_MAJOR, Capability, Connector
from pz.connectors.options import Side, check_options, check_schemas, coerce_options
from pz.errors import Code, Problem, ProjectError
from pz.frozen import frozen

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "BUILT_IN",
    "EXTRAS",
    "GROUP",
    "Registration",
    "Registry",
    "Side",
    "check_options",
    "check_schemas",
    "coerce_options",
]

GROUP = "pz.connectors"

BUILT_IN: Mapping[str, str] = {
    "localfiles": "pz.connectors.files.localfiles:LocalFiles",
    "duckdb": "pz.connectors.duckdb.connector:DuckDb",
    "postgres": "pz.connectors.postgres.connector:Postgres",
    "http": "pz.connectors.http.connector:Http",
}
"""The connectors that come with this package; also found where its metadata is missing (a source tree)."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "postgres": ("psycopg", "adbc_driver_postgresql"),
    "http": ("httpx", "httpcore", "msgspec", "jsonpath"),
}
"""The modules that a connector of ours imports once it is used; the extra of its name installs them."""


@frozen
class Registration:
    """Where a connector is found. ``package`` is the distribution that brings it, None for our own."""

    name: str
    target: str
    package: str | None = None


class Registry:
    """The known connectors; instances are made once each, on first use.

    ``others`` finds more than ``known``, which come first: it is asked when a name is not among those, or for all names.
    """

    def __init__(
        self, known: Mapping[str, Registration], others: Callable[[], Mapping[str, Registration]] = dict
    ) -> None:
        self._known = dict(known)
        self._others = others
        self._loaded: dict[str, Connector] = {}

    @classmethod
    def default(cls) -> Registry:
        """Our own connectors and those of every installed distribution that declares the entry-point group."""
        return cls({name: Registration(name, target) for name, target in BUILT_IN.items()}, _installed)

    def with_connector(self, name: str, connector: Connector) -> Registry:
        """A registry in which ``name`` is this instance: for tests and for the Python API."""
        other = Registry({**self._known, name: Registration(name, type(connector).__qualname__)}, self._others)
        other._loaded = {**self._loaded, name: connector}
        return other

    @cached_property
    def _all(self) -> Mapping[str, Registration]:
        return {**self._others(), **self._known}

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._all))

    def registration(self, name: str) -> Registration:
        """Where ``name`` comes from. Raises `ProjectError` PZ0305 when it is not installed."""
        found = self._known.get(name) or self._all.get(name)
        if found is None:
            raise ProjectError(self._unknown(name))
        return found

    def get(self, name: str) -> Connector:
        """The connector. Raises `ProjectError` PZ0305 when it is unknown, broken or made for another contract."""
        if name not in self._loaded:
            self._loaded[name] = self._load(self.registration(name))
        return self._loaded[name]

    def able(self, capability: Capability) -> tuple[str, ...]:
        """The names of the connectors that announce a capability; what cannot be loaded is left out."""
        found = []
        for name in self.names():
            with suppress(ProjectError):
                if capability in self.get(name).capabilities:
                    found.append(name)
        return tuple(found)

    def lacks(self, name: str) -> Problem | None:
        """What is missing before a connector of ours can be used: its extra. It can be described without."""
        absent = [module for module in EXTRAS.get(name, ()) if find_spec(module) is None]
        if not absent or self.registration(name).package is not None:
            return None
        message = f"connector '{name}' needs {', '.join(absent)}, not installed here"
        return Problem(
            Code.PZ0305, message, hint=f"pip install 'pz-engine[{name}]', or in a clone pip install '.[{name}]'"
        )

    def _load(self, registration: Registration) -> Connector:
        module, _, attribute = registration.target.partition(":")
        try:
            made = getattr(importlib.import_module(module), attribute)()
        except Exception as error:  # a third party's import may fail in any way; all of them mean "not usable"
            message = f"connector '{registration.name}' cannot be loaded: {type(error).__name__}: {error}"
            raise ProjectError(Problem(Code.PZ0305, message, hint=_install_hint(error))) from error
        if getattr(made, "contract_major", None) != CONTRACT_MAJOR:
            raise ProjectError(_foreign_contract(registration, made))
        return cast("Connector", made)

    def _unknown(self, name: str) -> Problem:
        hint = f"{did_you_mean(name, self.names())} installed connectors: {', '.join(self.names())}".lstrip()
        return Problem(Code.PZ0305, f"connector '{name}' is not installed", hint=hint)


def _installed() -> dict[str, Registration]:
    from importlib.metadata import entry_points  # late: it takes longer than a project of our own connectors to load

    points = entry_points(group=GROUP)
    return {point.name: Registration(point.name, point.value, _package(point)) for point in points}


def _package(point: EntryPoint) -> str | None:
    return point.dist.name if point.dist is not None else None


def _install_hint(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install the package that provides the module '{error.name}'"
    return "install a working version of the connector's package"


def _foreign_contract(registration: Registration, made: object) -> Problem:
    theirs = getattr(made, "contract_major", None)
    message = f"connector '{registration.name}' is made for contract {theirs}, this is contract {CONTRACT_MAJOR}"
    return Problem(Code.PZ0305, message, hint="install a version of the connector that matches this version of pz")
