"""The named checks that seeded defects must run into: small stories over the public API, each with its own ending.

Every check passes on the product as it is (`test_every_check_passes_without_a_defect`). They raise AssertionError, or let an
error of the product through, when something is broken.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import many_parts
import pz
from deaths import dying, watching
from many_parts import BROKEN, COUNTS, UNSTABLE
from projects import write
from promises import Promise, stored_position
from pz import durable
from pz.engine.locking import hold_locks
from pz.errors import Code, PzError, StateError
from pz.runs.model import RunStatus
from pz.staging.delivery_ledger import DeliveryLedger
from pz.staging.fingerprint import Fingerprint
from pz.staging.prior_run import NotReused
from pz.staging.session import StagingSession
from pz.testing.oracle import assert_equal
from pz.testing.script import Fault
from pz.testing.server import Server
from sweep_scenarios import PROJECT, SCENARIOS, create_flows

__all__ = ["CHECKS", "Check"]

Check = Callable[[Path], None]


class Story:
    """A project with one flow of a cell, its model, and what happens to it."""

    def __init__(self, root: Path, *cells: str, **connection: Any) -> None:
        self.root = root / "project"
        chosen = [next(s for s in SCENARIOS if s.name == cell) for cell in cells]
        create_flows(self.root, chosen, {"retry": {"max_attempts": 2, "base_delay": "1ms"}, **connection})
        self.flows = [Promise(scenario, str(number)) for number, scenario in enumerate(chosen)]
        for flow in self.flows:
            flow.mutate(self.server, 12, [], [], 0)
        self.opened = pz.open_project(self.root, environ={})
        self._began = self.flows[0].clock

    @property
    def server(self) -> Server:
        return Server(self.root / "far")

    @property
    def flow(self) -> Promise:
        return self.flows[0]

    def position(self) -> int | None:
        return stored_position(self.root, self.flow.key)

    def change(self, number: int) -> None:
        self.flow.mutate(self.server, 3, [1, 4, 5], [2], 100 * number)

    def run(self, *, ends: int = 0, full_refresh: bool = False) -> None:
        self._began = self.flow.clock
        self._try(lambda: self.opened.run("flow0", full_refresh=full_refresh), ends, retry=False, refresh=full_refresh)

    def retry(self, *, ends: int = 0) -> None:
        self._try(self.opened.retry, ends, retry=True, refresh=False)

    def die(self, point: str, nth: int = 1, *, retry: bool = False) -> None:
        """Run (or retry) and die at a point."""
        with dying(self.root, lambda name, passage, total: (name, passage) == (point, nth)) as dead:
            (self.retry if retry else self.run)()
        assert dead, f"{point}:{nth} was not passed"
        self.holds()

    def holds(self) -> None:
        broken = self.flow.broken(self.server, self.position())
        assert broken is None, broken

    def _try(self, call: Callable[[], Any], ends: int, *, retry: bool, refresh: bool) -> None:
        self.flow.attempt(self.position(), full_refresh=refresh, retry=retry, since=self._began, times=1)
        result = call()
        assert result.exit_code == ends, (result.summary, [n.error for n in result.nodes if n.error])
        if ends == 0:
            self.flow.succeeded(self._began, f"{self._began}")
        self.holds()
        if ends == 0:
            lag = self.flow.behind(self.position(), self._began)
            assert lag is None, lag

    def fails(self, fault: Fault) -> None:
        self.server.script.add(fault)
        self.run(ends=1)
        self.server.script.clear()

    def calls(self, op: str) -> int:
        return len(self.server.script.calls(op, "out0"))


# --- deaths


def dies_after_the_commit_and_is_retried(root: Path) -> None:
    """The attempt is in doubt; the destination tells that it committed; nothing is sent again."""
    story = Story(root, "incremental-append")
    story.die("sink_commit.after")
    story.retry()
    assert story.calls("commit") == 1, "sent again although it had committed"


def dies_after_the_commit_where_nothing_can_be_asked(root: Path) -> None:
    """The mark alone keeps the slice from landing twice."""
    story = Story(root, "incremental-append", settle="unavailable")
    story.die("sink_commit.after")
    story.retry()


def dies_after_the_commit_and_the_source_changes(root: Path) -> None:
    """What came meanwhile is not counted as delivered, whether the retry reads anew or takes over what was staged."""
    story = Story(root, "feed-append")
    story.die("sink_commit.after")
    story.change(2)
    story.retry()
    story.run()


def dies_after_the_commit_and_is_read_anew(root: Path) -> None:
    """The same where nothing staged can be taken over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pz.engine.prior.reuse_node", lambda *_: NotReused("it is gone"))
        dies_after_the_commit_and_the_source_changes(root)


def dies_before_the_state_and_is_run(root: Path) -> None:
    """The next run stores the state first and appends nothing twice."""
    story = Story(root, "incremental-append")
    story.die("advance_state.before")
    story.opened.run("flow0")
    assert_equal(story.server.target("out0"), list(story.flow.current.values()))


def dies_between_partitions_and_is_retried(root: Path) -> None:
    story = Story(root, "incremental-merge")
    story.die("complete_partition.after", 2)
    story.retry()
    reads = story.server.script.reads("orders0")
    assert reads["0"] == reads["1"] == 1, f"a finished partition was read again: {reads}"


def dies_behind_a_checkpoint_and_is_retried(root: Path) -> None:
    story = Story(root, "full-replace")
    story.die("write_checkpoint.after")
    story.retry()
    assert len(story.server.script.calls("resume", "orders0")) == 1


def dies_in_a_streamed_delivery_and_is_retried(root: Path) -> None:
    """The confirmed prefix is not sent again, nothing behind it is left out."""
    story = Story(root, "incremental-append-streaming")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pz.engine.nodes.sink_write.BATCH_ROWS", 3)
        story.die("record_delivery.after", 3)
        story.retry()
    assert_equal(story.server.target("out0"), list(story.flow.current.values()))


def other_content_starts_over(root: Path) -> None:
    """What was confirmed of one relation says nothing of another."""
    (root / "run1").mkdir(parents=True)
    with StagingSession.create(root / "run1", memory_limit_bytes=100_000_000) as session, session.cursor() as cursor:
        ledger = DeliveryLedger("0123456789abcdef", "run1")
        ledger.begin_delivery(cursor, Fingerprint(10, "1"))
        ledger.acknowledge(cursor, 5)
        assert ledger.begin_delivery(cursor, Fingerprint(10, "1")) == 5
        assert ledger.begin_delivery(cursor, Fingerprint(10, "2")) == 0


def dies_twice_and_is_retried(root: Path) -> None:
    story = Story(root, "feed-merge-streaming")
    story.die("complete_load.after")
    story.die("sink_commit.after", retry=True)
    story.retry()


def dies_before_anything_is_finished(root: Path) -> None:
    story = Story(root, "full-merge-plain")
    story.die("complete_load.before")
    story.retry()


# --- faults


def fails_at_the_output_and_keeps_the_state(root: Path) -> None:
    story = Story(root, "feed-append")
    story.fails(Fault("commit", "permanent"))
    assert story.position() is None
    story.retry()
    assert len(story.server.script.calls("read", "orders0")) == 1, "the load was read again"


def fails_then_the_source_changes(root: Path) -> None:
    """The chain keeps its slice; what changed since belongs to the next one."""
    story = Story(root, "incremental-merge")
    story.fails(Fault("read", "permanent", partition="2"))
    story.change(1)
    story.retry()
    reads = story.server.script.reads("orders0")
    assert reads["0"] == reads["1"] == 1, f"finished partitions were read again: {reads}"
    story.run()


def loses_the_answer_to_a_commit(root: Path) -> None:
    story = Story(root, "incremental-append")
    story.fails(Fault("commit", "unknown", moment="after"))
    story.retry()
    assert story.calls("commit") == 1, "sent again although it had committed"


def permanent_failures_are_final(root: Path) -> None:
    story = Story(root, "full-append-streaming")
    story.fails(Fault("write_batch", "permanent"))
    assert story.calls("begin_write") == 1, "a permanent failure was tried again"


def transient_failures_are_tried_again(root: Path) -> None:
    story = Story(root, "incremental-merge")
    story.server.script.add(Fault("begin_write", "transient"))
    story.run()


def a_part_that_changes_is_not_done(root: Path) -> None:
    opened = _many(root, 5, 50)
    UNSTABLE.add(3)
    try:
        assert opened.run(everything=True).exit_code == 1
    finally:
        UNSTABLE.clear()
    COUNTS.clear()
    assert opened.retry().exit_code == 0
    assert COUNTS["opened"] == 1


def a_broken_part_does_not_hold_up_the_others(root: Path) -> None:
    opened = _many(root, 40, 400)
    BROKEN.add(7)
    try:
        assert opened.run(everything=True).exit_code == 1
    finally:
        BROKEN.clear()
    COUNTS.clear()
    assert opened.retry().exit_code == 0
    assert COUNTS["opened"] == 1
    [file] = (root / "many" / "out" / "numbers").glob("*.parquet")
    import pyarrow.parquet as pq

    assert sorted(pq.read_table(file).column("id").to_pylist()) == list(range(400))


def _many(root: Path, parts: int, rows: int) -> pz.api.OpenProject:
    from test_costs import CONNECTIONS, PIPELINE

    files = {"project.yml": PROJECT, "connections.yml": CONNECTIONS % (parts, rows), "pipelines/n.sql": PIPELINE}
    return pz.open_project(write(root / "many", files), environ={})


# --- ordinary life


def three_runs(cell: str) -> Check:
    """Runs with changes in between, and a full refresh where that is harmless."""

    def check(root: Path) -> None:
        story = Story(root, cell)
        story.run()
        for number in (1, 2):
            story.change(number)
            story.run()

    check.__name__ = f"three_runs_of_{cell}".replace("-", "_")
    return check


def a_full_refresh_starts_over(root: Path) -> None:
    story = Story(root, "incremental-merge")
    story.run()
    story.server.drop_target("out0")
    story.flow.floor.clear()
    story.run(full_refresh=True)


def rows_change_while_they_are_read(root: Path) -> None:
    """They belong to the next slice."""
    story = Story(root, "incremental-merge")

    def passed(point: str, nth: int, total: int) -> None:
        if (point, nth) == ("complete_partition.after", 1):
            story.change(1)
            story.change(2)

    with watching(passed):
        story.run()
    story.run()


def rows_change_twice_before_a_run(root: Path) -> None:
    """A window of changes collapses to the last event of each key."""
    story = Story(root, "cdc-delete")
    story.run()
    story.change(1)
    story.change(2)
    story.run()


def a_snapshot_follows_deletions(root: Path) -> None:
    """A captured table is read anew after rows of it went: the output loses them though no change tells of them."""
    story = Story(root, "cdc-soft")
    story.run()
    story.change(1)
    story.run(full_refresh=True)


# --- two at once


def is_refused_beside_its_like(root: Path) -> None:
    story = Story(root, "full-replace")
    refused: list[str] = []

    def passed(point: str, nth: int, total: int) -> None:
        if (point, nth) == ("complete_partition.after", 1):
            durable.watch(None)
            try:
                story.opened.run("flow0")
            except PzError as failure:
                refused.append(str(failure.code))

    with watching(passed), _hasty():
        story.run()
    assert refused == ["PZ0701"], refused


def a_live_run_is_not_retried(root: Path) -> None:
    story = Story(root, "full-replace")
    refused: list[str] = []

    def passed(point: str, nth: int, total: int) -> None:
        if (point, nth) == ("complete_partition.after", 1):
            durable.watch(None)
            try:
                story.opened.retry()
            except PzError as failure:
                refused.append(str(failure.code))

    with watching(passed), _hasty():
        story.run()
    assert refused == ["PZ0503"], refused


def _hasty() -> Any:
    patched = pytest.MonkeyPatch.context()
    monkeypatch = patched.__enter__()
    import pz.engine.run

    present = vars(pz.engine.run)["hold_locks"]
    if present is hold_locks:
        monkeypatch.setattr("pz.engine.run.hold_locks", functools.partial(hold_locks, wait=0.1))

    class Leaving:
        def __enter__(self) -> None: ...

        def __exit__(self, *raised: Any) -> None:
            patched.__exit__(*raised)

    return Leaving()


def a_rival_changed_the_state(root: Path) -> None:
    story = Story(root, "incremental-merge")
    story.run()
    story.change(1)
    path = story.root / ".pz" / "state" / "watermarks.json"
    from test_two_at_once import _set_behind_their_back

    def passed(point: str, nth: int, total: int) -> None:
        if (point, nth) == ("sink_commit.after", 1):
            durable.watch(None)
            _set_behind_their_back(story.root, story.flow.key, "7")

    with watching(passed):
        result = story.opened.run("flow0")
    assert result.exit_code == 1
    assert json.loads(path.read_text())["watermarks"][story.flow.key]["value"] == "7"


# --- files


def damaged_state_is_refused(root: Path) -> None:
    story = Story(root, "incremental-merge")
    story.run()
    path = story.root / ".pz" / "state" / "watermarks.json"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", whole.replace(b'"value": "', b'"value": "9')):
        path.write_bytes(content)
        with pytest.raises(StateError) as refused:
            story.opened.run("flow0")
        assert refused.value.code is Code.PZ0706
        assert path.read_bytes() == content


def a_damaged_record_stands_in_the_way(root: Path) -> None:
    """An older run is never taken for the last one because a file of the last is unreadable."""
    story = Story(root, "incremental-merge")
    story.fails(Fault("read", "permanent", partition="2"))
    story.fails(Fault("read", "permanent", partition="2"))
    newest = max(story.root.glob(".pz/runs/*/run.json"), key=lambda path: json.loads(path.read_text())["number"])
    newest.write_bytes(newest.read_bytes()[:40])
    with pytest.raises(PzError) as refused:
        story.opened.retry()
    assert refused.value.code is Code.PZ0707


def files_reach_the_disk_in_order(root: Path) -> None:
    """Content before name, name before the next step: for every file that is written aside and renamed."""
    story = Story(root, "incremental-merge")
    events: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        events.append(("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def noted_rename(source: Any, target: Any) -> None:
        events.append(("rename", f"{source}\n{target}"))
        rename(source, target)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", noted_fsync)
        patched.setattr(os, "replace", noted_rename)
        story.run()
    seen: dict[str, int] = {}
    for at, (kind, what) in enumerate(events):
        source, _, target = what.partition("\n")
        if kind != "rename" or target.endswith(".owner"):  # an owner is named in messages, and evidence of nothing
            continue
        seen[Path(target).name] = seen.get(Path(target).name, 0) + 1
        assert ("fsync", source) in events[:at], f"{target} was renamed before its content was flushed"
        following = events[at + 1 : at + 2]
        assert following == [("fsync", str(Path(target).parent))], (
            f"the directory of {target} was not flushed: {following}"
        )
    assert set(seen) >= {"run.json", "run_results.json", "watermarks.json", "staging.duckdb", ".counter.json"}, seen


# --- changes of the project


def an_edited_pipeline_is_delivered_again(root: Path) -> None:
    """A committed output whose SQL changed since is not carried forward."""
    story = Story(root, "full-replace", "full-merge-plain")
    story.server.script.add(Fault("commit", "permanent", entity="out1"))
    assert story.opened.run(everything=True).exit_code == 1
    story.server.script.clear()
    sql = story.root / "pipelines" / "flow0.sql"
    sql.write_text(sql.read_text().replace("SELECT *", "SELECT id, 'edited' AS name, \"at\""))
    assert story.opened.retry().exit_code == 0
    assert {row["name"] for row in story.server.target("out0").to_pylist()} == {"edited"}


def a_moved_connection_is_read_anew(root: Path) -> None:
    """What was staged from one place is never delivered for another."""
    story = Story(root, "full-replace")
    story.fails(Fault("commit", "permanent"))
    other = Server(story.root / "near")
    story.flow.scenario.declare_source(other, "0")
    other.insert("orders0", [{"id": 1, "name": "from another place", "at": 1}])
    path = story.root / "connections.yml"
    declared = json.loads(path.read_text())
    declared["src0"]["path"] = "near"
    path.write_text(json.dumps(declared))
    assert story.opened.retry().exit_code == 0
    assert [row["name"] for row in story.server.target("out0").to_pylist()] == ["from another place"]


def state_is_bound_to_its_place(root: Path) -> None:
    story = Story(root, "incremental-merge")
    story.run()
    other = Server(story.root / "near")
    story.flow.scenario.declare_source(other, "0")
    path = story.root / "connections.yml"
    declared = json.loads(path.read_text())
    declared["src0"]["path"] = "near"
    path.write_text(json.dumps(declared))
    with pytest.raises(StateError):
        story.opened.run("flow0")


def a_flow_selected_away_holds_the_state(root: Path) -> None:
    """One dataset, two outputs: delivered to one of them, it is not delivered."""
    story = Story(root, "incremental-merge")
    path = story.root / "connections.yml"
    declared = json.loads(path.read_text())
    declared["dst0"]["entities"]["more"] = declared["dst0"]["entities"]["out0"]
    path.write_text(json.dumps(declared))
    folder = story.root / "pipelines"
    (folder / "base.sql").write_text("SELECT * FROM {{ source('src0', 'orders0') }}")
    (folder / "flow0.sql").write_text("INSERT INTO {{ sink('dst0', 'out0') }} SELECT * FROM {{ ref('base') }}")
    (folder / "more.sql").write_text("INSERT INTO {{ sink('dst0', 'more') }} SELECT * FROM {{ ref('base') }}")
    result = story.opened.run(select="flow0")
    assert result.status is RunStatus.SUCCESS
    assert story.position() is None


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        dies_after_the_commit_and_is_retried,
        dies_after_the_commit_where_nothing_can_be_asked,
        dies_after_the_commit_and_the_source_changes,
        dies_after_the_commit_and_is_read_anew,
        dies_before_the_state_and_is_run,
        dies_between_partitions_and_is_retried,
        dies_behind_a_checkpoint_and_is_retried,
        dies_in_a_streamed_delivery_and_is_retried,
        other_content_starts_over,
        dies_twice_and_is_retried,
        dies_before_anything_is_finished,
        fails_at_the_output_and_keeps_the_state,
        fails_then_the_source_changes,
        loses_the_answer_to_a_commit,
        permanent_failures_are_final,
        transient_failures_are_tried_again,
        a_part_that_changes_is_not_done,
        a_broken_part_does_not_hold_up_the_others,
        three_runs("incremental-append-over-read"),
        three_runs("incremental-append"),
        three_runs("feed-append"),
        three_runs("cdc-delete"),
        three_runs("full-replace"),
        a_full_refresh_starts_over,
        rows_change_while_they_are_read,
        rows_change_twice_before_a_run,
        a_snapshot_follows_deletions,
        is_refused_beside_its_like,
        a_live_run_is_not_retried,
        a_rival_changed_the_state,
        damaged_state_is_refused,
        a_damaged_record_stands_in_the_way,
        files_reach_the_disk_in_order,
        an_edited_pipeline_is_delivered_again,
        a_moved_connection_is_read_anew,
        state_is_bound_to_its_place,
        a_flow_selected_away_holds_the_state,
    )
}


def install(folder: Path) -> Path:
    """Make the connectors of the checks installed ones."""
    return many_parts.install(folder)
