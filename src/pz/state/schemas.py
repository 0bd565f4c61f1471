"""``.pz/state/schemas.json``: the columns that each contract-less dataset had when they were last accepted.

A baseline is compared only with an observation made the same way: when the pushed columns or the predicate changed (another
``hints`` digest), the baseline is replaced silently. Drift is reported again on every run until it is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pz.connectors.contract import Column
from pz.errors import Code, Problem, StateError
from pz.frozen import frozen
from pz.state.stores.local import LocalStore

__all__ = [
    "Drift",
    "Observed",
    "accept",
    "compare",
    "observe",
    "observed_from_json",
    "observed_to_json",
    "schema_store",
]


@frozen
class Observed:
    """The columns of a landed dataset, in order, and the digest of the read hints they were read with."""

    columns: tuple[Column, ...]
    hints: str


@frozen
class Drift:
    """How an observation differs from its baseline: names, and ``name: OLD -> NEW``; each in order of the columns."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.retyped)

    def __str__(self) -> str:
        kinds = (("added", self.added), ("removed", self.removed), ("retyped", self.retyped))
        return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds if names)


def schema_store(state_dir: Path) -> LocalStore:
    """The baselines of the project whose ``.pz`` is given."""
    return LocalStore(state_dir / "state" / "schemas.json", "schemas")


def compare(baseline: Iterable[Column], observed: Iterable[Column]) -> Drift:
    """Compare by exact name and exact type text; the order of the columns is no drift."""
    old = {column.name: column.type for column in baseline}
    new = {column.name: column.type for column in observed}
    return Drift(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        retyped=tuple(f"{name}: {old[name]} -> {new[name]}" for name in new if name in old and old[name] != new[name]),
    )


def observe(store: LocalStore, key: str, observed: Observed, run_id: str) -> Drift:
    """Compare what landed with the baseline; seed it when there is none or it was read otherwise.

    Not to be called under the policy ``ignore``, for a dataset with a contract, or for a reused load.
    Raises `StateError` as `LocalStore` does.
    """
    stored = store.read().get(key)
    if stored is None or stored.get("hintsHash") != observed.hints:
        store.put(key, {**observed_to_json(observed), "runId": run_id}, seen=stored)
        return Drift()
    return compare(observed_from_json(stored).columns, observed.columns)


def accept(
    store: LocalStore, observations: Mapping[str, Observed], keys: Iterable[str], run_id: str
) -> tuple[str, ...]:
    """Make observations of the last run the baselines (no keys: all of them); return the keys that changed.

    Raises `StateError` PZ0127, before anything changes, for a key of which that run observed nothing.
    """
    wanted = tuple(keys) or tuple(sorted(observations))
    missing = [key for key in wanted if key not in observations]
    if missing:
        raise StateError(Problem(Code.PZ0127, f"the last run observed no columns of '{key}'") for key in missing)
    stored = store.read()
    changed = []
    for key in wanted:
        new, old = observed_to_json(observations[key]), stored.get(key)
        if old is None or {**old, "runId": None} != {**new, "runId": None}:
            store.put(key, {**new, "runId": run_id}, seen=old)
            changed.append(key)
    return tuple(changed)


def observed_to_json(observed: Observed) -> dict[str, Any]:
    """The observation as baselines and the ``observed_schema`` block of a result hold it."""
    columns = [{"name": column.name, "type": column.type} for column in observed.columns]
    return {"columns": columns, "hintsHash": observed.hints}


def observed_from_json(content: Mapping[str, Any]) -> Observed:
    """The observation that `observed_to_json` made the content of. Raises `StateError` PZ0706 when it is none."""
    try:
        columns = tuple(Column(str(column["name"]), str(column["type"])) for column in content["columns"])
        return Observed(columns, str(content["hintsHash"]))
    except (KeyError, TypeError) as failure:
        raise StateError(
            Problem(Code.PZ0706, "a recorded schema is malformed; `pz schema accept` it anew")
        ) from failure
