"""Random histories keep the guarantees: a state machine over the public API against a plain-Python model.

Two flows of two cells of the pairing matrix share a project. Its sources change, it is run, retried, refreshed, selected
from, hit by faults, killed at durable steps and run twice at once, all in one process. After every step, `promises.Promise`
looks at the destinations and the stored state; after every run without trouble, everything must have arrived.

A death is simulated without any teardown (`deaths`); in `RealDeaths` it is the SIGKILL of a child.

`make test` runs 200 histories of 50 steps, `make soak` ten times as many (`PZ_MODEL_EXAMPLES`, `PZ_MODEL_STEPS`).
`PZ_MODEL_SEED=<n> pytest tests/test_model.py -k part0` repeats a failure that names that seed.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import pz
from deaths import Killed, dying, watching
from promises import Promise, stored_position
from pz import durable
from pz.engine.locking import hold_locks
from pz.engine.result import RunResult
from pz.errors import Code, PzError
from pz.oslock import is_free
from pz.runs.directory import number_of, run_paths
from pz.testing.faults import WarmInterpreter
from pz.testing.reference import distribution_path
from pz.testing.script import Fault
from pz.testing.server import Server
from sweep_scenarios import SCENARIOS, create_flows

SEED = int(os.environ.get("PZ_MODEL_SEED", "20240229"))
EXAMPLES = int(os.environ.get("PZ_MODEL_EXAMPLES", "2000"))
STEPS = int(os.environ.get("PZ_MODEL_STEPS", "50"))
PARTS = 8
"""Seeds of their own, so that several processes share the work."""
RETRY = {"max_attempts": 2, "base_delay": "1ms", "max_delay": "2ms"}
LAST_POINT = 90
NOTHING = "nothing to retry"
INSTANTS = (durable.Step.CREATE_RUN_DIR.value, durable.Step.ADVANCE_STATE.value)
BUSY = (Code.PZ0701, Code.PZ0503)

FAULTS = (
    Fault("probe", "permanent"),
    Fault("plan_read", "transient", times=0),
    Fault("read", "transient"),
    Fault("batch", "transient", nth=2, times=0),
    Fault("batch", "permanent", nth=3),
    Fault("batch", "unexpected"),
    Fault("read_end", "permanent"),
    Fault("begin_write", "transient", times=0),
    Fault("write_batch", "transient"),
    Fault("write_batch", "permanent", moment="after"),
    Fault("commit", "transient"),
    Fault("commit", "permanent"),
    Fault("commit", "unknown"),
    Fault("commit", "unknown", moment="after"),
    Fault("settle", "transient"),
    Fault("close", "transient", times=0),
)


@dataclass(frozen=True)
class Kill:
    """Die at the nth passage of any point."""

    nth: int


@dataclass(frozen=True)
class Beside:
    """Let something else happen at the nth passage of any point: another run, a retry, a change of the source."""

    nth: int
    what: str
    flow: int


Trouble = Fault | Kill | Beside | None

flows = st.sampled_from([(0,), (1,), (0, 1)])
passages = st.integers(1, LAST_POINT)
faults = st.sampled_from(FAULTS)
besides = st.builds(Beside, passages, st.sampled_from(["run", "retry", "mutate"]), st.integers(0, 1))
places = st.lists(st.integers(0, 30), max_size=3)


@dataclass(frozen=True)
class Chain:
    """What the model knows of a run on disk: its flows, their source positions when the chain began, how it reads."""

    flows: tuple[int, ...]
    since: tuple[int, ...]
    full_refresh: bool
    origin: str


class Histories(RuleBasedStateMachine):
    """One history, in the project at ``root``."""

    seed: ClassVar[int] = SEED
    seen: ClassVar[Counter[str]] = Counter()
    """What became of runs and retries, over all histories: so that a test can tell that something happened."""

    warm: ClassVar[WarmInterpreter | None] = None
    """When set, a kill is a SIGKILL of a child."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self._home = Path(tempfile.mkdtemp(prefix="pz-model-", dir=memory if os.access(memory, os.W_OK) else None))
        self.root = self._home / "project"
        self.promises: tuple[Promise, ...] = ()
        self._chains: dict[str, Chain] = {}
        self._fresh_id = 0

    @initialize(cells=st.lists(st.integers(0, len(SCENARIOS) - 1), min_size=2, max_size=2))
    def begin(self, cells: list[int]) -> None:
        self.promises = tuple(Promise(SCENARIOS[cell], str(number)) for number, cell in enumerate(cells))
        note(f"cells: {[promise.scenario.name for promise in self.promises]}; PZ_MODEL_SEED={self.seed}")
        create_flows(self.root, [promise.scenario for promise in self.promises], {"retry": RETRY})
        for flow in (0, 1):
            self._mutate(flow, 12, [], [])

    def teardown(self) -> None:
        durable.watch(None)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def server(self) -> Server:
        return Server(self.root / "far")

    # --- what happens

    @rule(flow=st.integers(0, 1), inserts=st.integers(0, 4), updates=places, deletes=places)
    def change_the_source(self, flow: int, inserts: int, updates: list[int], deletes: list[int]) -> None:
        self._mutate(flow, inserts, updates, deletes)

    @rule(flow=st.integers(0, 1))
    def bring_rows_back(self, flow: int) -> None:
        """Keys that were deleted come again."""
        self.promises[flow].mutate(self.server, 3, [], [], 0)

    @rule(chosen=flows)
    def run(self, chosen: tuple[int, ...]) -> None:
        self._run(chosen, None)

    @rule(chosen=flows)
    def run_from_the_beginning(self, chosen: tuple[int, ...]) -> None:
        self._run(chosen, None, full_refresh=True)

    @rule(chosen=flows, trouble=faults, refresh=st.booleans())
    def run_into_a_fault(self, chosen: tuple[int, ...], trouble: Fault, refresh: bool) -> None:
        self._run(chosen, trouble, full_refresh=refresh)

    @rule(chosen=flows, nth=passages, refresh=st.booleans())
    def run_and_die(self, chosen: tuple[int, ...], nth: int, refresh: bool) -> None:
        self._run(chosen, Kill(nth), full_refresh=refresh)

    @rule(chosen=flows, trouble=besides)
    def run_beside_something(self, chosen: tuple[int, ...], trouble: Beside) -> None:
        self._run(chosen, trouble)

    @rule(refresh=st.sampled_from([False, False, True]))
    def retry(self, refresh: bool) -> None:
        self._retry(None, full_refresh=refresh)

    @rule(trouble=st.one_of(faults, besides))
    def retry_with_trouble(self, trouble: Trouble) -> None:
        self._retry(trouble)

    @rule(nth=passages)
    def retry_and_die(self, nth: int) -> None:
        self._retry(Kill(nth))

    @rule(chosen=flows, first=passages, second=passages)
    def die_die_and_retry(self, chosen: tuple[int, ...], first: int, second: int) -> None:
        self._run(chosen, Kill(first))
        self._retry(Kill(second))
        self._retry(None)

    @rule(chosen=flows, nth=passages, refresh=st.booleans(), updates=places, deletes=places)
    def die_change_and_retry(
        self, chosen: tuple[int, ...], nth: int, refresh: bool, updates: list[int], deletes: list[int]
    ) -> None:
        """What a retry reads anew is more than what the dead run may have delivered."""
        self._run(chosen, Kill(nth), full_refresh=refresh)
        for flow in chosen:
            self._mutate(flow, 2, updates, deletes)
        self._retry(None)

    @rule(keep=st.sampled_from([0, 1, 2, None, None, None, None, None]))
    def clean(self, keep: int | None) -> None:
        if keep is not None:
            pz.open_project(self.root, environ={}).clean(keep_last=keep)

    @invariant()
    def every_promise_holds(self) -> None:
        for promise in self.promises:
            broken = promise.broken(self.server, stored_position(self.root, promise.key))
            assert broken is None, f"{promise.scenario.name}: {broken} (PZ_MODEL_SEED={self.seed})"

    # --- how it happens

    def _mutate(self, flow: int, inserts: int, updates: Sequence[int], deletes: Sequence[int]) -> None:
        self._fresh_id += inserts
        self.promises[flow].mutate(self.server, inserts, updates, deletes, 100 + self._fresh_id - inserts)

    def _run(
        self, chosen: tuple[int, ...], trouble: Trouble, *, full_refresh: bool = False, refused: tuple[Code, ...] = ()
    ) -> None:
        since = tuple(promise.clock for promise in self.promises)
        chain = Chain(chosen, since, full_refresh, "")
        self._attempt(chain, retry=False, full_refresh=full_refresh, trouble=trouble)
        names = [f"flow{flow}" for flow in chosen]
        self._execute(
            lambda: pz.open_project(self.root, environ={}).run(*names, full_refresh=full_refresh),
            ["run", *names, *(["--full-refresh"] if full_refresh else [])],
            chain,
            trouble,
            refused,
        )

    def _retry(self, trouble: Trouble, *, full_refresh: bool = False, refused: tuple[Code, ...] = ()) -> None:
        last = self._last_run()
        if last is None:
            return
        if self._newest() != last:
            refused = (*refused, Code.PZ0504)  # it died before it began, and the one before it may be done
        chain = self._chains[last]
        if full_refresh:
            since = tuple(promise.clock for promise in self.promises)
            chain = Chain(chain.flows, since, True, f"{chain.origin}+{last}")
        self._attempt(chain, retry=not full_refresh, full_refresh=full_refresh, trouble=trouble)
        self._execute(
            lambda: pz.open_project(self.root, environ={}).retry(full_refresh=full_refresh),
            ["retry", *(["--full-refresh"] if full_refresh else [])],
            chain,
            trouble,
            refused,
        )

    def _attempt(self, chain: Chain, *, retry: bool, full_refresh: bool, trouble: Trouble) -> None:
        for flow in chain.flows:
            promise = self.promises[flow]
            promise.attempt(
                stored_position(self.root, promise.key),
                full_refresh=full_refresh or chain.full_refresh,
                retry=retry,
                since=chain.since[flow],
                times=RETRY["max_attempts"] if isinstance(trouble, Fault) and promise.streams else 1,  # type: ignore[arg-type]
            )

    def _execute(
        self,
        call: Callable[[], RunResult],
        arguments: list[str],
        chain: Chain,
        trouble: Trouble,
        refused: tuple[Code, ...],
    ) -> None:
        before = self._recorded()
        if isinstance(trouble, Fault):
            self.server.script.add(trouble)
        if isinstance(trouble, Kill) and self.warm:
            result = self._killed(arguments, trouble)
        else:
            result = self._in_process(call, trouble, chain)
        self.server.script.clear()
        self.seen["succeeded" if result == 0 else "failed" if result == 1 else str(result).split()[0]] += 1
        self.seen[f"with {type(trouble).__name__}"] += 1
        for run_id in set(self._recorded()) - set(before) - set(self._chains):
            self._chains[run_id] = (
                chain if chain.origin else Chain(chain.flows, chain.since, chain.full_refresh, run_id)
            )
        if result == NOTHING:
            result, chain = 0, self._chains[str(self._last_run())]
        if result == 0:
            self._settled(chain, before)
        elif trouble is None and not str(result).startswith(refused):
            raise AssertionError(f"without any trouble {arguments} ended with {result} (PZ_MODEL_SEED={self.seed})")

    def _settled(self, chain: Chain, before: dict[str, int]) -> None:
        """It ended well: everything up to the chain's beginning is there, and the state says so."""
        new = [run for run in self._recorded() if run not in before and self._chains[run].flows == chain.flows]
        origin = chain.origin or new[0]
        for flow in chain.flows:
            promise = self.promises[flow]
            promise.succeeded(chain.since[flow], origin)
            stored = stored_position(self.root, promise.key)
            broken = promise.broken(self.server, stored) or promise.behind(stored, chain.since[flow])
            assert broken is None, f"{promise.scenario.name} after a success: {broken} (PZ_MODEL_SEED={self.seed})"

    def _in_process(self, call: Callable[[], RunResult], trouble: Trouble, chain: Chain) -> int | str:
        """The exit code; what refused it, or ``killed``."""
        try:
            with self._watched(trouble, chain):
                done = call()
            return NOTHING if done.nothing_to_do else done.exit_code
        except PzError as refused:
            return f"{refused.code} {refused.problems[0].message}"
        except Killed:
            return "killed"

    @contextmanager
    def _watched(self, trouble: Trouble, chain: Chain) -> Iterator[None]:
        if isinstance(trouble, Kill):
            with dying(self.root, lambda name, nth, total: total == trouble.nth) as dead:
                yield
            if dead:
                raise Killed
        elif isinstance(trouble, Beside):
            with self._something_beside(trouble, chain):
                yield
        else:
            yield

    @contextmanager
    def _something_beside(self, trouble: Beside, chain: Chain) -> Iterator[None]:
        locked = False

        def passed(name: str, nth: int, total: int) -> None:
            nonlocal locked
            locked = locked or name.startswith(durable.Step.WRITE_RUN_RECORD)
            # Inside these two, everybody waits for half a minute: the run holds what all runs need for an instant.
            if total >= trouble.nth and not name.startswith(INSTANTS):
                durable.watch(None)
                self._beside(trouble, chain, locked=locked)

        with watching(passed):
            yield

    def _output_is_free(self, flow: int) -> bool:
        return all(is_free(lock) for lock in (self.root / ".pz" / "locks").glob(f"output_dst{flow}_out{flow}-*.lock"))

    def _beside(self, trouble: Beside, chain: Chain, *, locked: bool) -> None:
        """Whatever is done while a run holds its locks is refused with a code, or has nothing to do with it."""
        if trouble.what == "mutate":
            if self.promises[trouble.flow].scenario.read.get("probe") == "silent":
                return  # it cannot tell its highest cursor: what changes while it is read may be missed (documented)
            self._mutate(trouble.flow, 2, [3, 4], [1])
            # The run may read what was changed, or has read it already.
            self._attempt(chain, retry=True, full_refresh=False, trouble=None)
            return
        # A retry writes, and locks, only outputs that the chain has not delivered yet.
        free = trouble.what == "run" and (trouble.flow not in chain.flows or self._output_is_free(trouble.flow))
        if not locked or free:
            if trouble.what == "run":
                self._run((trouble.flow,), None, refused=() if locked else BUSY)
            else:
                self._retry(None, refused=BUSY)
            return
        opened = pz.open_project(self.root, environ={})
        try:
            result = opened.run(f"flow{trouble.flow}") if trouble.what == "run" else opened.retry()
        except PzError as refused:
            if refused.code not in BUSY:
                raise AssertionError(f"{trouble.what} beside a run of the same flow: {refused}") from refused
            self.seen["refused beside"] += 1
        else:
            assert result.nothing_to_do, f"{trouble.what} beside a run of the same flow: {result.summary}"

    def _killed(self, arguments: list[str], trouble: Kill) -> int | str:
        """A child that dies at a durable step; which one, the number decides."""
        steps = [step for step in durable.Step if step not in {durable.Step.APPEND_AUDIT, durable.Step.SWEEP_RETENTION}]
        step, nth = steps[trouble.nth % len(steps)], trouble.nth % 3 // 2 + 1
        assert self.warm is not None
        side = "after" if trouble.nth % 2 else "before"
        ended = self.warm.run(arguments, self.root, failpoint=f"{step}.{side}:{nth}=kill")
        if ended.code == 0:
            return NOTHING if NOTHING in ended.stdout + ended.stderr else 0
        return "killed" if ended.killed else f"exit {ended.code}: {ended.stderr[-500:]}"

    def _recorded(self) -> dict[str, int]:
        """Runs that said what they were to do, with their numbers."""
        found = {}
        for record in (self.root / ".pz" / "runs").glob("*/run.json"):
            content = json.loads(record.read_text())
            found[content["runId"]] = content["number"]
        return found

    def _newest(self) -> str:
        return max(run_paths(self.root / ".pz"), key=lambda path: number_of(path) or 0).name

    def _last_run(self) -> str | None:
        found = self._recorded()
        return max(found, key=lambda run: found[run]) if found else None


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference connectors are installed; a run that finds a lock taken says so soon."""
    monkeypatch.syspath_prepend(str(distribution_path()))
    monkeypatch.setattr("pz.engine.run.hold_locks", functools.partial(hold_locks, wait=0.1))


def explore(machine: type[Histories], examples: int, steps: int, seed: int = SEED) -> None:
    machine.seed = seed
    wanted = settings(
        max_examples=examples,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if os.environ.get("PZ_MODEL_SHRINK") else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=wanted)
    print(f"{machine.__name__}: {dict(machine.seen)}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "part",
    range(PARTS),
    ids=lambda part: f"part{part}",
)
def test_histories_keep_the_guarantees(part: int) -> None:
    explore(Histories, 200 // PARTS, 50, SEED + part)
    assert all(Histories.seen[what] for what in ("succeeded", "failed", "killed", "refused beside"))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_long_histories_keep_the_guarantees() -> None:
    explore(Histories, EXAMPLES, STEPS)


class RealDeaths(Histories):
    """The same, with children that die by SIGKILL."""

    seen: ClassVar[Counter[str]] = Counter()


@pytest.mark.slow
def test_histories_with_real_deaths_keep_the_guarantees() -> None:
    with WarmInterpreter() as warm:
        RealDeaths.warm = warm
        explore(RealDeaths, 4, 15)
    assert RealDeaths.seen["killed"]
