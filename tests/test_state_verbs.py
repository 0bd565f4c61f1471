"""What a person may do to a watermark, and what is written down about it."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from children import run
from pz import durable
from pz.cursors import CursorType
from pz.errors import Code, StateError
from pz.runs.directory import RunDirectory
from pz.runs.model import NodeResult, NodeStatus, RunRecord, RunResults, RunStatus
from pz.runs.records import write_record, write_results
from pz.state.audit import read_audit
from pz.state.entries import Binding, Entry, Token, Watermark
from pz.state.locks import RunLocks, dataset_lock
from pz.state.sync_state import token_store
from pz.state.verbs import MANUAL, ShownState, clear, rollback, set_value, show
from pz.state.watermarks import watermark_store

KEY = "crm.orders"
ENTRY = Entry(Watermark("price", CursorType.DECIMAL, "100.50"), "some-run", Binding("dev", {"lake.orders": "d"}))


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    watermark_store(tmp_path).save(KEY, ENTRY, seen=None)
    token_store(tmp_path).save("api.feed", Entry(Token("secret"), "some-run"), seen=None)
    return tmp_path


def value_of(state_dir: Path) -> str:
    value = watermark_store(state_dir).read()[KEY].value
    assert isinstance(value, Watermark)
    return value.value


def refused(code: Code) -> pytest.RaisesExc[StateError]:
    return pytest.RaisesExc(StateError, check=lambda failure: failure.code is code)


def a_run(state_dir: Path, watermark: dict[str, str] | None, status: RunStatus = RunStatus.SUCCESS) -> str:
    with RunDirectory.create(state_dir) as directory:
        block = None if watermark is None else {"dataset": KEY, **watermark}
        node = NodeResult("0", "SourceLoad", "src_crm__orders", NodeStatus.SUCCESS, watermark=block)
        write_results(directory.path, RunResults(directory.run_id, directory.run_id, status, "", nodes=(node,)))
        return directory.run_id


def recorded(value: str, cursor: str = "price", type_: str = "decimal") -> dict[str, str]:
    return {"cursor": cursor, "type": type_, "value": value}


def test_show_lists_everything_by_key_and_never_a_token(state_dir: Path) -> None:
    assert show(state_dir) == (
        ShownState("api.feed", "token", None, None, None, "some-run"),
        ShownState(KEY, "watermark", "price", "decimal", "100.50", "some-run"),
    )
    assert show(state_dir, KEY)[0].value == "100.50"
    with refused(Code.PZ0513):
        show(state_dir, "crm.other")


def test_set_canonicalises_keeps_the_binding_and_stamps_manual(state_dir: Path) -> None:
    change = set_value(state_dir, KEY, "+250.00", reason="late file")
    assert (change.before, change.after, change.dry_run) == ("100.50", "250.00", False)
    stored = watermark_store(state_dir).read()[KEY]
    assert stored == replace(ENTRY, value=Watermark("price", CursorType.DECIMAL, "250.00"), run_id=MANUAL)
    (line,) = read_audit(state_dir)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "action": "set",
        "key": KEY,
        "cursor": "price",
        "type": "decimal",
        "from": "100.50",
        "fromRunId": "some-run",
        "to": "250.00",
        "reason": "late file",
    }


@pytest.mark.parametrize("value", ["abc", "1,000", "100.50", ""])
def test_a_value_that_does_not_parse_or_is_the_current_one_is_refused(state_dir: Path, value: str) -> None:
    with refused(Code.PZ0515):
        set_value(state_dir, KEY, value)
    assert value_of(state_dir) == "100.50"
    assert read_audit(state_dir) == ()


@pytest.mark.parametrize(
    ("type_", "stored", "value", "fine"),
    [
        ("int", "5", "4294967295", True),
        ("int", "5", "4294967296", False),
        ("int", "5", "-2147483649", False),
        ("bigint", "5", "18446744073709551615", True),
        ("bigint", "5", "18446744073709551616", False),
        ("bigint", "18446744073709551616", "18446744073709551617", True),
        ("date", "2026-01-01", "2026-02-30", False),
        ("timestamp", "2026-01-01T00:00:00.000000", "400000-01-01", False),
    ],
)
def test_a_value_that_no_row_can_have_is_refused(
    state_dir: Path, type_: str, stored: str, value: str, fine: bool
) -> None:
    kind = CursorType(type_)
    watermark_store(state_dir).save("crm.other", Entry(Watermark("c", kind, stored), "r"), seen=None)
    if fine:
        (note,) = set_value(state_dir, "crm.other", value).notes
        assert "never be read" in note
    else:
        with refused(Code.PZ0515):
            set_value(state_dir, "crm.other", value)


def test_only_a_later_value_is_said_to_pass_rows_over(state_dir: Path) -> None:
    assert set_value(state_dir, KEY, "50").notes == ()
    (note,) = set_value(state_dir, KEY, "60", dry_run=True).notes
    assert "60 is later than 50" in note


def test_a_dry_run_says_the_same_and_changes_nothing(state_dir: Path) -> None:
    run = a_run(state_dir, recorded("50.00"))
    for change in (
        set_value(state_dir, KEY, "1", dry_run=True),
        rollback(state_dir, KEY, run, dry_run=True),
        clear(state_dir, KEY, dry_run=True),
    ):
        assert change.dry_run
        assert change.before == "100.50"
    assert value_of(state_dir) == "100.50"
    assert read_audit(state_dir) == ()


def test_rollback_goes_back_to_what_a_run_recorded(state_dir: Path) -> None:
    run = a_run(state_dir, recorded("50.00"), RunStatus.COMPLETED_WITH_FAILURES)
    change = rollback(state_dir, KEY, run)
    assert value_of(state_dir) == "50.00"
    assert change.notes == (f"run {run} ended as completed_with_failures",)
    assert read_audit(state_dir)[0]["target"] == run


@pytest.mark.parametrize(
    ("watermark", "code"),
    [
        (recorded("100.5"), Code.PZ0515),
        (recorded("9999"), Code.PZ0515),
        (recorded("50", cursor="other"), Code.PZ0514),
        (recorded("50", type_="int"), Code.PZ0514),
        (recorded("x"), Code.PZ0514),
        ({}, Code.PZ0514),
        (None, Code.PZ0514),
    ],
)
def test_rollback_refuses_what_is_not_backward_or_not_usable(
    state_dir: Path, watermark: dict[str, str] | None, code: Code
) -> None:
    run = a_run(state_dir, watermark)
    with refused(code):
        rollback(state_dir, KEY, run)
    assert value_of(state_dir) == "100.50"


def test_a_rollback_that_finds_nothing_names_the_runs_that_recorded_something(state_dir: Path) -> None:
    empty = a_run(state_dir, None)
    with refused(Code.PZ0514) as raised:
        rollback(state_dir, KEY, empty)
    assert (
        raised.value.problems[0].advice
        == f"no run recorded an earlier one; move it with `pz state set {KEY} --value ...`"
    )
    first, second = a_run(state_dir, recorded("40.00")), a_run(state_dir, recorded("50.00"))
    a_run(state_dir, recorded("60", cursor="other"))
    later, same = a_run(state_dir, recorded("101.00")), a_run(state_dir, recorded("100.5"))
    with refused(Code.PZ0514) as raised:
        rollback(state_dir, KEY, empty)
    earlier = f"the newest that recorded an earlier one: {second} (50.00), {first} (40.00)"
    assert raised.value.problems[0].advice == earlier, "whoever takes the advice is not refused"
    with refused(Code.PZ0515) as raised:
        rollback(state_dir, KEY, same)
    assert raised.value.problems[0].advice == earlier
    with refused(Code.PZ0515) as raised:
        rollback(state_dir, KEY, later)
    assert raised.value.problems[0].advice == f"to move forward, use `pz state set {KEY} --value 101.00`"


@pytest.mark.parametrize(
    ("places", "used", "dataset"),
    [
        ({KEY: {"location": "dev", "dataset": "old"}}, {}, "old"),
        ({KEY: {"location": "dev", "dataset": "new"}}, {}, "new"),
        ({KEY: {"location": "dev", "dataset": ""}}, {}, ""),
        ({}, {KEY: {"dataset": "new"}}, "new"),
        ({}, {KEY: {"dataset": "old"}}, None),
        ({}, {}, None),
    ],
)
def test_rollback_brings_the_place_back_with_the_value_or_is_refused(
    state_dir: Path, places: dict[str, dict[str, str]], used: dict[str, dict[str, str]], dataset: str | None
) -> None:
    moved = replace(ENTRY, binding=replace(ENTRY.binding, dataset="new"))
    watermark_store(state_dir).save(KEY, moved, seen=ENTRY)
    run = a_run(state_dir, recorded("50.00"))
    record = RunRecord(run, 1, "p", "", "run", (), run, places=places, used=used)
    write_record(state_dir / "runs" / run, record)
    if dataset is None:
        with refused(Code.PZ0514):
            rollback(state_dir, KEY, run)
        return
    change = rollback(state_dir, KEY, run)
    value = Watermark("price", CursorType.DECIMAL, "50.00")
    assert watermark_store(state_dir).read()[KEY] == Entry(value, run, replace(ENTRY.binding, dataset=dataset))
    assert len(change.notes) == (dataset != "new")


def test_rollback_to_a_run_that_is_not_there_is_refused(state_dir: Path) -> None:
    with refused(Code.PZ0514):
        rollback(state_dir, KEY, "20260101T000000000Z-abcd")


def test_clear_forgets_the_entry(state_dir: Path) -> None:
    clear(state_dir, KEY, reason="start over")
    assert watermark_store(state_dir).read() == {}
    assert read_audit(state_dir)[0]["action"] == "clear"
    with refused(Code.PZ0513):
        clear(state_dir, KEY)


def test_set_and_clear_repair_a_broken_entry(state_dir: Path) -> None:
    store = watermark_store(state_dir).raw
    store.put("crm.bad", {"cursor": "id", "type": "int", "value": "garbage", "runId": "r"}, seen=None)
    store.put("crm.worse", {"type": ["x"]}, seen=None)
    assert show(state_dir, "crm.bad")[0].kind == "watermark (unusable)"
    set_value(state_dir, "crm.bad", "7")
    with refused(Code.PZ0515):
        set_value(state_dir, "crm.worse", "7")
    clear(state_dir, "crm.worse")
    assert set(watermark_store(state_dir).read()) == {KEY, "crm.bad"}


@pytest.mark.parametrize("key", ["crm.other", "api.feed"])
def test_a_dataset_without_a_watermark_is_refused_with_the_way_out(state_dir: Path, key: str) -> None:
    with refused(Code.PZ0513) as raised:
        set_value(state_dir, key, "1")
    assert ("--full-refresh" in raised.value.problems[0].advice) == (key == "api.feed")


def test_nothing_is_edited_while_a_run_is_in_flight(state_dir: Path) -> None:
    with RunDirectory.create(state_dir) as live, refused(Code.PZ0517) as raised:
        set_value(state_dir, KEY, "1")
    assert live.run_id in raised.value.problems[0].message
    with RunLocks.acquire(state_dir, "the-run", [dataset_lock(KEY)]), refused(Code.PZ0517) as raised:
        clear(state_dir, KEY)
    assert "the-run" in raised.value.problems[0].message


def test_a_damaged_file_is_refused_and_left_in_place(state_dir: Path) -> None:
    path = watermark_store(state_dir).raw.path
    path.write_bytes(path.read_bytes()[:-20])
    damaged = path.read_bytes()
    with refused(Code.PZ0706):
        clear(state_dir, KEY)
    assert path.read_bytes() == damaged


def test_a_change_that_cannot_be_audited_says_so(state_dir: Path) -> None:
    durable.rearm("append_audit.before=enospc")
    try:
        change = set_value(state_dir, KEY, "1")
    finally:
        durable.rearm()
    assert value_of(state_dir) == "1"
    assert "PZ0532" in change.notes[0]


SET = "import sys; from pathlib import Path; from pz.state.verbs import set_value; set_value(Path(sys.argv[1]), sys.argv[2], '1')"


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    [
        *("advance_state.before=kill", "advance_state=torn", "advance_state.after=kill"),
        *("append_audit.before=kill", "append_audit.after=kill"),
    ],
)
def test_a_death_while_setting_leaves_the_old_value_or_the_new_and_setting_again_works(
    state_dir: Path, end: str
) -> None:
    """The audit never tells of a change that was not made; what it lacks is the last change before the death."""
    assert run(SET, state_dir, KEY, failpoint=end) == -signal.SIGKILL
    changed = end not in {"advance_state.before=kill", "advance_state=torn"}
    assert value_of(state_dir) == ("1" if changed else "100.50")
    told = len(read_audit(state_dir))
    assert told == (end == "append_audit.after=kill")
    set_value(state_dir, KEY, "2")
    assert value_of(state_dir) == "2"
    assert [line["to"] for line in read_audit(state_dir)] == ["1"] * told + ["2"]


def test_a_line_torn_by_a_crash_does_not_hide_the_others(state_dir: Path) -> None:
    set_value(state_dir, KEY, "1")
    path = state_dir / "state" / "audit.jsonl"
    path.write_bytes(path.read_bytes() + b'{"ts": "2026-')
    set_value(state_dir, KEY, "2", reason="first\nsecond\u2028line")
    assert [line["to"] for line in read_audit(state_dir)] == ["1", "2"]
