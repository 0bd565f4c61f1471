"""What the pairing matrix promises of one flow, in plain Python: what its destination must hold, and may hold.

`Promise` plays the source (every version that a row ever had) and keeps account of attempts; it shares no code with the
engine. A version of a row is named by ``(id, at)``; ``at`` is the position of the source transaction that made it, and
the cursor. `broken` compares the destination and the stored state with it, at any moment, also right after a death.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pz.connectors.contract import OnDelete, ReadShape, WriteStrategy
from pz.state.sync_state import SNAPSHOT_PENDING
from pz.testing.server import Server
from sweep_scenarios import Scenario

__all__ = ["Promise", "stored_position"]

Row = dict[str, Any]
Version = tuple[int, int]


class Promise:
    """The source of a flow and what its destination owes to it.

    ``floor``   the newest version of each key that is known to have been delivered: never an older one again
    ``gone``    keys whose deletion is known to have been delivered, with its position
    ``least``   how often an appended version must be there; ``most`` how often it may be
    ``chain``   versions that some attempt since the last fresh start could have read
    """

    def __init__(self, scenario: Scenario, number: str) -> None:
        self.scenario = scenario
        self.number = number
        self.current: dict[int, Row] = {}
        self.clock = 0
        self.floor: dict[int, int] = {}
        self.gone: dict[int, int] = {}
        self.least: Counter[Version] = Counter()
        self.most: Counter[Version] = Counter()
        self.chain: set[Version] = set()
        self._rows: dict[Version, Row] = {}
        self._deleted: dict[int, int] = {}
        self._half_written = False
        self._counted: set[str] = set()

    # --- the cell

    @property
    def key(self) -> str:
        """The dataset's key in the state files."""
        return f"src{self.number}.orders{self.number}"

    @property
    def appends(self) -> bool:
        """Whether rows are only added."""
        return self.scenario.strategy is WriteStrategy.APPEND

    @property
    def stateful(self) -> bool:
        """Whether something is remembered between runs."""
        return self.scenario.shape is not ReadShape.FULL

    @property
    def propagates(self) -> bool:
        """Whether a row deleted at the source goes at the destination."""
        deletes = self.scenario.on_delete in {OnDelete.DELETE, OnDelete.SOFT}
        return deletes or self.scenario.strategy is WriteStrategy.REPLACE

    @property
    def streams(self) -> bool:
        """Whether the destination shows rows as they are sent."""
        return self.scenario.sink == "reference_api"

    # --- what happens

    def mutate(self, server: Server, inserts: int, updates: Iterable[int], deletes: Iterable[int], base: int) -> None:
        """One source transaction: new rows from id ``base`` on; ``updates`` and ``deletes`` index the present ids."""
        at = server.head() + 1
        present = sorted(self.current)
        changed = {present[n % len(present)] for n in updates} if present else set()
        dropped = ({present[n % len(present)] for n in deletes} if present else set()) - changed
        fresh = [key for key in range(base, base + inserts) if key not in self.current]
        if not (fresh or changed or dropped):
            return
        rows = {key: {"id": key, "name": f"{key} at {at}", "at": at} for key in (*fresh, *sorted(changed))}
        server.mutate(
            f"orders{self.number}",
            insert=[rows[key] for key in fresh],
            update=[rows[key] for key in sorted(changed)],
            delete=[{"id": key} for key in sorted(dropped)],
        )
        assert server.head() == at
        self.clock = at
        self.current |= rows
        self._rows |= {(key, at): row for key, row in rows.items()}
        for key in dropped:
            del self.current[key]
            self._deleted[key] = at

    def attempt(self, stored: int | None, *, full_refresh: bool, retry: bool, since: int, times: int) -> None:
        """A run or a retry is about to try the flow, at most ``times``; the chain began at source position ``since``."""
        fresh = stored is None or full_refresh or not self.stateful
        readable = {(key, row["at"]) for key, row in self.current.items() if fresh or row["at"] > (stored or 0)}
        self.chain = self.chain | readable if retry else readable
        self._half_written = self.streams and self.scenario.strategy is WriteStrategy.REPLACE
        # One transaction with a mark: what is unchanged lands once in a chain, however often it is tried.
        if not (retry and self.clock == since and not self.streams and not self.scenario.native):
            self.most.update(dict.fromkeys(self.chain, times))

    def succeeded(self, since: int, origin: str) -> None:
        """A chain that began at ``since`` ended well: everything that stood still since then has been delivered."""
        still = {key: row["at"] for key, row in self.current.items() if row["at"] <= since}
        self._half_written = False
        if self.appends and self.scenario.shape is ReadShape.FULL:
            if origin not in self._counted:
                self.least.update((key, at) for key, at in still.items())
        else:
            self.least |= Counter((key, at) for key, at in still.items())
        self._counted.add(origin)
        if self.propagates:
            self.gone |= {k: at for k, at in self._deleted.items() if at <= since}
        self.floor |= still

    # --- what must hold

    def broken(self, server: Server, stored: int | None) -> str | None:
        """What is wrong with the destination now, None when every promise holds; ``stored`` is the state's position."""
        found = server.target(f"out{self.number}").to_pylist()
        alive = [row for row in found if row.get("_pz_deleted_at") is None]
        rows = [{name: value for name, value in row.items() if name != "_pz_deleted_at"} for row in alive]
        foreign = [row for row in rows if self._rows.get((row["id"], row["at"])) != row]
        if foreign:
            return f"rows that never existed: {foreign[:3]}"
        held = Counter((row["id"], row["at"]) for row in rows)
        if stored is not None:
            ahead = [(k, r["at"]) for k, r in self.current.items() if r["at"] <= stored and not held[k, r["at"]]]
            if ahead:
                return f"state is at {stored}, but missing are {ahead[:5]}"
        return self._broken_append(held) if self.appends else self._broken_once(held, stored)

    def _broken_append(self, held: Counter[Version]) -> str | None:
        missing, extra = self.least - held, held - self.most
        if missing or extra:
            return f"missing {dict(missing)}; repeated without cause {dict(extra)}"
        return None

    def _broken_once(self, held: Counter[Version], stored: int | None) -> str | None:
        ids = Counter(key for key, _ in held)
        twice = [key for key, count in ids.items() if count > 1] + [v for v, count in held.items() if count > 1]
        if twice:
            return f"keys that are there twice: {twice[:5]}"
        present = dict(held.keys())
        older = {k: at for k, at in present.items() if at < max(self.floor.get(k, 0), self.gone.get(k, 0))}
        if older:
            return f"an older version over a newer one: {older}, known were {self.floor} and deleted {self.gone}"
        lost = [key for key in self.floor if key not in present and not self._may_lack(key)]
        if lost and not self._half_written:
            return f"lost: {lost[:5]}"
        if stored is None or not self.propagates:
            return None
        undead = [k for k, at in self._deleted.items() if k in present and k not in self.current and at <= stored]
        return f"state is at {stored}, but these were deleted before: {undead[:5]}" if undead else None

    def _may_lack(self, key: int) -> bool:
        return self.propagates and self._deleted.get(key, 0) > self.floor[key]

    def behind(self, stored: int | None, since: int) -> str | None:
        """After success: whether the state lags behind what was delivered."""
        if not self.stateful:
            return None
        due = max((row["at"] for row in self.current.values() if row["at"] <= since), default=0)
        return f"state is at {stored} after a success up to {due}" if due > (stored or 0) else None


def stored_position(root: Path, key: str) -> int | None:
    """The source position in the stored watermark or token of a dataset.

    None when nothing is stored, or (it comes to the same) that a capture has to begin with a snapshot again.
    """
    for name, section in (("watermarks.json", "watermarks"), ("sync-state.json", "tokens")):
        file = root / ".pz" / "state" / name
        entries: Mapping[str, Any] = json.loads(file.read_text())[section] if file.exists() else {}
        if key in entries:
            entry = entries[key]
            if entry.get("token") == SNAPSHOT_PENDING:
                return None
            return int(entry["value"] if "value" in entry else entry["token"].rpartition("~")[2])
    return None
