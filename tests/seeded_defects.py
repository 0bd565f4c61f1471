"""Defects for `test_seeded_defects`: each replaces one function, as a slip of the pen might, and names what must catch it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import tenacity

from pz import durable, jsonfile
from pz.engine import advance, evidence, heal, prior, reading, retry, run
from pz.engine.nodes import changes, landing, partitions, sink_write
from pz.engine.outcome import Outcome
from pz.errors import OutcomeUnknown
from pz.oslock import OsLock
from pz.runs import history
from pz.runs.model import RunStatus
from pz.staging import completion, delivery_ledger, grouping, part_writer, partition_ledger, prior_run
from pz.staging.meta import AttemptState, Ledger, NodeDone
from pz.state import advancement, windows
from pz.state.stores import local

__all__ = ["DEFECTS", "Defect"]


@dataclass(frozen=True)
class Defect:
    """What is broken, and the check that notices."""

    seed: Callable[[pytest.MonkeyPatch], None]
    caught_by: str


DEFECTS: dict[str, Defect] = {}


def seeded(caught_by: str) -> Callable[[Callable[[pytest.MonkeyPatch], None]], Callable[[pytest.MonkeyPatch], None]]:
    def keep(seed: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
        DEFECTS[seed.__name__] = Defect(seed, caught_by)
        return seed

    return keep


def put(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any) -> None:
    """Replace what is there; a name that does not exist is a mistake of the defect."""
    monkeypatch.setattr(owner, name, value)


# --- files


@seeded("files_reach_the_disk_in_order")
def content_is_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, durable, "fsync_file", lambda path: None)


@seeded("files_reach_the_disk_in_order")
def directories_are_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, durable, "fsync_dir", lambda path: None)


@seeded("files_reach_the_disk_in_order")
def state_is_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, local, "write_atomic", lambda path, data, name: path.write_bytes(data))


@seeded("damaged_state_is_refused")
def damaged_state_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = local.LocalStore.read

    def read(self: local.LocalStore) -> Any:
        with contextlib.suppress(Exception):
            return whole(self)
        return {}

    put(monkeypatch, local.LocalStore, "read", read)


@seeded("damaged_state_is_refused")
def checksums_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, jsonfile, "_digest_or_none", lambda document: AnyText())


@seeded("a_damaged_record_stands_in_the_way")
def a_damaged_last_run_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    put(
        monkeypatch,
        history,
        "latest",
        lambda state_dir: next((entry for entry in history.list_runs(state_dir) if not entry.damage), None),
    )


class AnyText(str):
    """Equals whatever it is compared with."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


# --- locks and races


@seeded("is_refused_beside_its_like")
def no_lock_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, run, "hold_locks", lambda *positional, **named: contextlib.nullcontext())


@seeded("is_refused_beside_its_like")
def locks_let_everybody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, OsLock, "acquire", lambda self, wait=0.0, owner=None: True)


@seeded("a_live_run_is_not_retried")
def the_run_has_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, history, "is_live", lambda path: False)
    put(monkeypatch, retry, "hold", lambda path, run_id: OsLock(path / "other.lock"))


@seeded("a_rival_changed_the_state")
def state_is_written_over_whatever_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, local.LocalStore, "_check_seen", lambda self, entries, key, seen: None)


# --- state


@seeded("fails_at_the_output_and_keeps_the_state")
def state_moves_though_the_output_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, advancement, "_not_committed", lambda sink, result: None)


@seeded("a_flow_selected_away_holds_the_state")
def outputs_that_did_not_run_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = advancement._decide_one

    def decide_one(source: Any, outputs: Any, results: Any, *others: Any) -> Any:
        return whole(source, tuple(sink for sink in outputs if sink.id in results), results, *others)

    put(monkeypatch, advancement, "_decide_one", decide_one)


@seeded("rows_change_while_they_are_read")
def the_candidate_is_not_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, reading.DatasetSlice, "candidate", lambda self, landed, kind: str(int(landed or 0) + 1))


@seeded("rows_change_while_they_are_read")
def no_upper_bound_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = windows.resolve_slice

    def resolved(*positional: Any, **named: Any) -> Any:
        return replace(whole(*positional, **named), upper=None)

    put(monkeypatch, reading, "resolve_slice", resolved)


@seeded("three_runs_of_incremental_append_over_read")
def bounds_are_left_to_the_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, landing.Landing, "where", property(lambda self: None))


@seeded("three_runs_of_incremental_append")
def state_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, reading._Resolver, "_use", lambda self, node, entry: self._used.update({node.key: entry}))
    put(monkeypatch, reading, "resolve_slice", _from_the_beginning(windows.resolve_slice))


def _from_the_beginning(whole: Any) -> Any:
    return lambda node, stored, **named: whole(node, None, **named)


@seeded("three_runs_of_feed_append")
def tokens_are_not_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, reading._Resolver, "_use", lambda self, node, entry: self._used.update({node.key: entry}))


@seeded("three_runs_of_feed_append")
def tokens_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, advance, "candidates_of", lambda graph, done: {})


@seeded("a_full_refresh_starts_over")
def a_full_refresh_reads_from_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reading._Resolver.__init__

    def begin(self: Any, *positional: Any) -> None:
        whole(self, *positional)
        self._full_refresh = False

    put(monkeypatch, reading._Resolver, "__init__", begin)


@seeded("state_is_bound_to_its_place")
def state_of_another_place_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, reading, "check_binding", lambda *positional, **named: ())


@seeded("dies_before_the_state_and_is_run")
def dead_runs_are_not_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, run, "heal", lambda prepared, own_run, held=frozenset(): ())


@seeded("dies_before_the_state_and_is_run")
def healing_forgets_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, heal, "_unchanged", lambda now_stored, recorded: False)


# --- reuse and retry


@seeded("dies_between_partitions_and_is_retried")
def finished_partitions_are_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, prior.PriorRun, "_may_continue", lambda self, node: False)


@seeded("fails_then_the_source_changes")
def a_retry_pins_a_slice_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, prior.PriorRun, "slice_of", lambda self, node, stored, entry: None)


@seeded("fails_at_the_output_and_keeps_the_state")
def finished_loads_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, prior.PriorRun, "reuse_load", lambda self, context, node: None)


@seeded("an_edited_pipeline_is_delivered_again")
def what_was_done_under_a_name_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_done(self: prior.PriorRun, node: Any) -> bool:
        return any((str(r.kind), r.name) == (str(node.kind), node.name) for r in self.succeeded.values())

    put(monkeypatch, prior.PriorRun, "is_done", is_done)


@seeded("a_moved_connection_is_read_anew")
def places_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, retry, "_same_place", lambda prepared, chain: frozenset(prepared.graph.by_id))


@seeded("dies_before_anything_is_finished")
def a_dead_run_counts_as_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    put(
        monkeypatch,
        history.RunEntry,
        "status",
        property(lambda self: RunStatus.SUCCESS if self.results is None else _ended(self.results.status)),
    )


def _ended(status: RunStatus) -> RunStatus:
    return RunStatus.SUCCESS if status is RunStatus.RUNNING else status


@seeded("dies_before_anything_is_finished")
def the_record_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, run, "write_record", lambda path, record: None)


@seeded("dies_before_anything_is_finished")
def a_begun_load_counts_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = evidence.evidence_of

    def everything(entry: Any) -> Any:
        found = whole(entry)
        from pz.runs.model import NodeResult, NodeStatus

        done = {n.id: NodeResult(n.id, n.kind, n.name, NodeStatus.SUCCESS) for n in found.record.nodes}
        return replace(found, results=done)

    put(monkeypatch, prior, "evidence_of", everything)


# --- partitions


@seeded("dies_between_partitions_and_is_retried")
def rows_move_without_their_record(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, partition_ledger.PartitionLedger, "_record", lambda self, tx, moved: None)


@seeded("three_runs_of_full_replace")
def the_record_comes_without_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = partition_ledger.PartitionLedger._move

    def move(self: Any, tx: Any, arrival: Any, where: Any) -> Any:
        moved = whole(self, tx, arrival, where)
        tx.execute(f"DELETE FROM {self.main}")
        return moved

    put(monkeypatch, partition_ledger.PartitionLedger, "_move", move)
    put(monkeypatch, partition_ledger.PartitionLedger, "_accounted", lambda self, cursor: 10**9)


@seeded("dies_behind_a_checkpoint_and_is_retried")
def checkpoints_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, part_writer.PartWriter, "save", lambda self, token: None)


@seeded("dies_behind_a_checkpoint_and_is_retried")
def tokens_are_trusted_over_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prefix is dropped, and its token is believed all the same."""
    put(monkeypatch, prior_run, "_prefix_is_whole", lambda *positional: True)
    put(monkeypatch, prior_run, "_copy_table", lambda tx, alias, table, rows, first=False: None)
    put(
        monkeypatch,
        part_writer.PartWriter,
        "_trusted",
        lambda self: next(iter(Ledger(self._cursor).checkpoints(self._node_id, self._partition_id)), None),
    )


@seeded("a_part_that_changes_is_not_done")
def files_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, partitions, "_verify", lambda part: None)


@seeded("a_broken_part_does_not_hold_up_the_others")
def what_waits_in_a_group_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, grouping.Grouping, "flush", lambda self: grouping.Outcome())


# --- delivery


@seeded("dies_after_the_commit_and_is_retried")
def attempts_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, delivery_ledger.DeliveryLedger, "in_doubt", lambda self, cursor, but=None: ())


@seeded("dies_after_the_commit_and_is_retried")
def the_destination_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, sink_write._Delivery, "_already_there", lambda self: None)


@seeded("dies_after_the_commit_and_is_retried")
def a_retry_does_not_know_the_attempts_of_its_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, prior, "copy_deliveries", lambda session, path, sinks: 0)


@seeded("dies_after_the_commit_where_nothing_can_be_asked")
def marks_carry_the_run_and_not_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sink_write._Delivery._slice

    def own(self: Any, content: Any) -> Any:
        found = whole(self, content)
        return None if found is None else replace(found, origin=self.context.run.record.run_id)

    put(monkeypatch, sink_write._Delivery, "_slice", own)


@seeded("loses_the_answer_to_a_commit")
def an_unknown_outcome_counts_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = delivery_ledger.DeliveryLedger.end_attempt

    def two_valued(self: Any, cursor: Any, ordinal: int, state: AttemptState) -> None:
        whole(self, cursor, ordinal, AttemptState.ABORTED if state is AttemptState.UNKNOWN else state)

    put(monkeypatch, delivery_ledger.DeliveryLedger, "end_attempt", two_valued)


@seeded("loses_the_answer_to_a_commit")
def an_unknown_outcome_counts_as_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sink_write._Delivery._attempt

    def hopeful(self: Any, content: Any, deletes: Any) -> Outcome:
        with contextlib.suppress(OutcomeUnknown):
            return whole(self, content, deletes)
        return Outcome()

    put(monkeypatch, sink_write._Delivery, "_attempt", hopeful)


@seeded("permanent_failures_are_final")
def everything_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, tenacity, "retry_if_exception_type", lambda kind: tenacity.retry_if_exception(bool))


@seeded("transient_failures_are_tried_again")
def nothing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, tenacity, "stop_after_attempt", lambda most: lambda state: True)


@seeded("dies_in_a_streamed_delivery_and_is_retried")
def counts_run_ahead_of_what_was_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = delivery_ledger.DeliveryLedger.acknowledge

    def ahead(self: Any, cursor: Any, rows: int, **named: Any) -> None:
        whole(self, cursor, rows + 1 if rows < 12 else rows, **named)

    put(monkeypatch, delivery_ledger.DeliveryLedger, "acknowledge", ahead)


@seeded("other_content_starts_over")
def fingerprints_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def resume_point(self: Any, cursor: Any, fingerprint: Any) -> int | None:
        known = Ledger(cursor).delivery(self.node_id)
        return None if known is None else known.acknowledged_rows

    put(monkeypatch, delivery_ledger.DeliveryLedger, "resume_point", resume_point)


@seeded("dies_in_a_streamed_delivery_and_is_retried")
def the_drain_has_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def shuffled(relation: str, columns: Any, *, offset: int = 0) -> str:
        return f"SELECT * FROM {relation} ORDER BY hash(id + {offset}) OFFSET {offset}"

    put(monkeypatch, sink_write, "drain_sql", shuffled)


@seeded("dies_in_a_streamed_delivery_and_is_retried")
def nothing_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, sink_write._Delivery, "_acknowledge", lambda self, session: None)


@seeded("three_runs_of_cdc_delete")
def deletes_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, sink_write._Delivery, "_apply_deletes", lambda self, session, deletes: None)


@seeded("a_snapshot_follows_deletions")
def a_snapshot_removes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, sink_write._Delivery, "_retain", lambda self, session: None)


@seeded("rows_change_twice_before_a_run")
def the_first_event_of_a_key_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, changes, "LAST_EVENTS", changes.LAST_EVENTS.replace("DESC", "ASC"))


@seeded("three_runs_of_full_replace")
def counts_are_taken_for_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relation loses a row on its way to the output, and nobody counts."""
    put(monkeypatch, sink_write._Delivery, "_drain", lambda self, offset: f"SELECT * FROM {self.relation} OFFSET 1")


@seeded("dies_twice_and_is_retried")
def a_finished_load_forgets_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = NodeDone

    def forgetful(*positional: Any) -> Any:
        return replace(whole(*positional), token=None)

    put(monkeypatch, completion, "NodeDone", forgetful)


@seeded("dies_after_the_commit_and_is_read_anew")
def an_earlier_commit_stands_for_what_is_read_now(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sink_write._Delivery._already_there

    def forgetful(self: sink_write._Delivery) -> Outcome | None:
        found = whole(self)
        return None if found is None else Outcome(found.rows)

    put(monkeypatch, sink_write._Delivery, "_already_there", forgetful)
