"""One suite for every connector: what the contract demands, tried out, and a record of what was found.

    report = run_conformance(fixture)          # a `Fixture` says where to read and write
    assert report.ok, report.render()

A check passes, fails, or does not apply. A *known gap* is declared in the fixture with the error that it gives today: it
is reported as such, it fails when another error comes, and it fails when the gap has closed. The `Answers` of a report
say what no flag does (which types come back as they went, what an abort leaves); a fixture may pin them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import Capability, ConnectionSpec, Connector, DatasetSpec, OutputSpec
from pz.frozen import frozen

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Answers", "CheckResult", "Fixture", "NotApplicable", "Report", "Verdict", "run_conformance"]


class NotApplicable(Exception):
    """A check that this connector or fixture has no use for; the reason is the message."""


@frozen(slots=False)
class Fixture:
    """Where the suite may read and write. Everything optional narrows what is checked.

    ``dataset`` holds exactly ``rows``; ``variants`` are other ways to read the same rows. ``feed`` and ``changes``
    are datasets to read as such. ``output(name)`` gives an append output to a target that does not exist yet, and
    ``read_back`` what that target holds. ``write_options`` gives an output's options where they follow from its
    strategy. ``broken`` is a connection that cannot work. ``touched`` names files that planning may change below the
    base directory. ``settled`` pins the answers.
    """

    connector: Connector
    connection: ConnectionSpec
    dataset: DatasetSpec | None = None
    rows: pa.Table | None = None
    cursor: str | None = None
    variants: tuple[DatasetSpec, ...] = ()
    feed: DatasetSpec | None = None
    changes: DatasetSpec | None = None
    output: Callable[[str], OutputSpec] | None = None
    write_options: Callable[[OutputSpec], Mapping[str, Any]] | None = None
    read_back: Callable[[OutputSpec], pa.Table] | None = None
    broken: ConnectionSpec | None = None
    secrets: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    gaps: Mapping[str, str] = field(default_factory=dict)
    settled: Answers | None = None


@frozen(slots=False)
class Answers:
    """What was found about a connector. None: not asked, because it does not apply."""

    capabilities: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    read_ways: tuple[str, ...] = ()
    write_ways: tuple[str, ...] = ()
    abort: str | None = None
    rows_left_by_abort: int | None = None
    target_left_by_abort: bool | None = None
    visible_before_commit: bool | None = None
    applies_lower_bound: bool | None = None
    types: Mapping[str, str] = field(default_factory=dict)


class Verdict(StrEnum):
    """What became of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "not applicable"
    GAP = "known gap"


@frozen
class CheckResult:
    """One check, what it promises, and its verdict."""

    name: str
    promise: str
    verdict: Verdict
    detail: str = ""


@frozen(slots=False)
class Report:
    """The whole suite over one connector."""

    connector: str
    results: tuple[CheckResult, ...]
    answers: Answers

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The failed checks."""
        return tuple(result for result in self.results if result.verdict is Verdict.FAILED)

    def render(self) -> str:
        """One line a check, failures with their reason."""
        lines = [f"connector {self.connector}"]
        for result in self.results:
            lines.append(f"  {result.verdict:<14}  {result.name}: {result.promise}")
            if result.detail:
                lines.append(f"                  {result.detail}")
        return "\n".join(lines)


Check = Callable[["Case"], None]


@dataclass
class Case:
    """What a check works with: the fixture, and the answers as they are found."""

    fixture: Fixture
    found: dict[str, Any] = field(default_factory=dict)
    _names: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    def needs(self, flag: Capability) -> None:
        """Skip the check unless the connector has this capability."""
        if not self.fixture.connector.capabilities & flag:
            raise NotApplicable(f"no {flag.name}")

    def dataset(self) -> DatasetSpec:
        """The dataset to read."""
        if self.fixture.dataset is None:
            raise NotApplicable("nothing to read")
        return self.fixture.dataset

    def rows(self) -> pa.Table:
        """What it holds."""
        if self.fixture.rows is None:
            raise NotApplicable("nothing to read")
        return self.fixture.rows

    def output(self) -> OutputSpec:
        """An append output to a target that does not exist."""
        if self.fixture.output is None:
            raise NotApplicable("nothing to write to")
        return self.fixture.output(f"conformance_{next(self._names)}")

    def target(self, output: OutputSpec) -> pa.Table:
        """What a target holds."""
        if self.fixture.read_back is None:
            raise NotApplicable("targets cannot be read back")
        return self.fixture.read_back(output)

    def free_of_secrets(self, text: str) -> None:
        """Fail when a text shows a secret of the fixture."""
        for secret in self.fixture.secrets:
            assert secret not in text, "a message shows a secret"

    @contextmanager
    def without_effects(self) -> Iterator[None]:
        """Fail when the body opens a network connection or changes a file below the base directory."""
        before = self._files()
        with _offline():
            yield
        assert self._files() == before, "planning changed files"

    def _files(self) -> dict[str, tuple[int, int]]:
        base = self.fixture.connection.base_dir
        return {
            str(path.relative_to(base)): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in base.rglob("*")
            if path.is_file() and path.name not in self.fixture.touched
        }


def run_conformance(fixture: Fixture) -> Report:
    """Put a connector through the suite."""
    from pz.testing.conformance_reads import READ_CHECKS
    from pz.testing.conformance_static import STATIC_CHECKS
    from pz.testing.conformance_writes import WRITE_CHECKS

    case = Case(fixture)
    case.found["capabilities"] = tuple(flag.name for flag in fixture.connector.capabilities if flag.name)
    results = [_judge(check, case) for check in (*STATIC_CHECKS, *READ_CHECKS, *WRITE_CHECKS)]
    answers = Answers(**case.found)
    results += _unknown_gaps(fixture, results)
    if fixture.settled is not None:
        results.append(_compare(answers, fixture.settled))
    return Report(fixture.connector.name, tuple(results), answers)


def _judge(check: Check, case: Case) -> CheckResult:
    name = check.__name__
    promise = (check.__doc__ or "").strip().splitlines()[0].rstrip(".")
    gap = case.fixture.gaps.get(name)
    try:
        check(case)
    except NotApplicable as reason:
        return CheckResult(name, promise, Verdict.SKIPPED, str(reason))
    except Exception as failure:  # noqa: BLE001 - any exception of a connector is a finding, not ours to pass on
        text = f"{type(failure).__name__}: {failure}"
        if gap is not None and gap in text:
            return CheckResult(name, promise, Verdict.GAP, gap)
        return CheckResult(name, promise, Verdict.FAILED, text)
    if gap is not None:
        return CheckResult(name, promise, Verdict.FAILED, f"the known gap has closed: {gap!r}; take it out")
    return CheckResult(name, promise, Verdict.PASSED)


def _unknown_gaps(fixture: Fixture, results: list[CheckResult]) -> list[CheckResult]:
    named = {result.name for result in results}
    return [
        CheckResult(name, "a known gap names a check", Verdict.FAILED, "there is no such check")
        for name in fixture.gaps
        if name not in named
    ]


def _compare(found: Answers, settled: Answers) -> CheckResult:
    differing = [
        f"{name}: {getattr(found, name)!r} instead of {getattr(settled, name)!r}"
        for name in Answers.__dataclass_fields__
        if getattr(found, name) != getattr(settled, name)
    ]
    verdict = Verdict.FAILED if differing else Verdict.PASSED
    return CheckResult("answers_are_as_recorded", "the record of answers holds", verdict, "; ".join(differing))


@contextmanager
def _offline() -> Iterator[None]:
    """Let no socket connect meanwhile."""
    real = socket.socket.connect

    def refuse(*_: Any) -> None:
        raise AssertionError("planning opened a network connection")

    socket.socket.connect = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        socket.socket.connect = real  # type: ignore[method-assign]
