"""The plain view: what a pipe, a log file and CI get to read."""

from __future__ import annotations

from dataclasses import replace

from cli_support import AT, LOAD, OUTLINE, RUN, Capture, completed, scripted_run
from pz.cli.output import Stream
from pz.cli.render.console import ConsoleRenderer
from pz.codes import CODES, Code
from pz.events import (
    BreakerStateChanged,
    ConnectorLog,
    Event,
    MergeKeyDuplicatesDetected,
    Notice,
    RunStarted,
)


def printed(events: list[Event], verbosity: int = 0) -> list[str]:
    out = Capture()
    renderer = ConsoleRenderer(Stream(out), verbosity)
    for event in events:
        renderer.handle(event)
    renderer.finish()
    return out.getvalue().splitlines()


def test_a_run_reads_as_one_line_per_finished_node_with_the_error_below() -> None:
    assert printed(scripted_run()) == [
        "note: reusing staged data for 1 source load(s)",
        "warning PZ0223: pipeline 'x' is not loaded",
        f"hint: {CODES[Code.PZ0223].hint}",
        "note: crm.orders: attempt 1 of 3 failed, next in 1000 ms: connection reset",
        "ok crm.orders 4800 rows 812 ms",
        "ok stg_orders 4790 rows 33 ms",
        "FAIL stg_orders.not_null 2 rows 4 ms",
        "  error PZ0510: 2 row(s) violate not_null(id)",
        "  {id=NULL}",
        f"  hint: {CODES[Code.PZ0510].hint}",
        "skip lake.orders 0 rows 0 ms",
    ]


def test_quiet_leaves_failures_and_warnings() -> None:
    assert printed(scripted_run(), -1) == [
        "warning PZ0223: pipeline 'x' is not loaded",
        f"hint: {CODES[Code.PZ0223].hint}",
        "FAIL stg_orders.not_null 2 rows 4 ms",
        "  error PZ0510: 2 row(s) violate not_null(id)",
        "  {id=NULL}",
        f"  hint: {CODES[Code.PZ0510].hint}",
    ]


def test_verbose_adds_starts_kinds_and_the_end() -> None:
    lines = printed(scripted_run(), 1)
    assert lines[0] == f"start run {RUN}: 4 nodes of shop"
    assert "start crm.orders [SourceLoad]" in lines
    assert "ok crm.orders 4800 rows 812 ms [SourceLoad]" in lines
    assert lines[-2:] == [
        f"end run {RUN}: completed_with_failures 900 ms",
        "note: removed the staging of 2 runs (3.0 MiB)",
    ]
    assert not any(line.startswith("moved") for line in lines)


def test_twice_verbose_adds_progress() -> None:
    assert "moved crm.orders 1200 of 4800 rows" in printed(scripted_run(), 2)


def test_the_first_word_says_how_a_success_came_about() -> None:
    load, stg, _, sink = OUTLINE
    assert printed(
        [
            completed(load, rows=3, provenance="reused"),
            completed(sink, rows=3, provenance="carried_forward"),
            completed(stg, rows=3, fused=True),
        ]
    ) == [
        "reused crm.orders 3 rows 5 ms",
        "carried lake.orders 3 rows 5 ms",
        "fused stg_orders 3 rows 5 ms",
    ]


def test_a_failed_delivery_that_may_be_visible_says_so() -> None:
    event = completed(
        OUTLINE[3], "failed", rows=340, error_code=Code.PZ0501.value, error_message="the server hung up",
        delivery={"abortSemantics": "none", "rowsVisible": 340, "resumedRows": 0},
    )  # fmt: skip
    assert "  delivery stopped: up to 340 row(s) already visible at the destination (abort: none)" in printed([event])


def test_a_failed_delivery_that_discards_all_needs_no_such_line() -> None:
    event = completed(
        OUTLINE[3], "failed", error_code=Code.PZ0501.value, error_message="x",
        delivery={"abortSemantics": "discards_all", "rowsVisible": 0},
    )  # fmt: skip
    assert not any("delivery stopped" in line for line in printed([event]))


def test_what_connections_report_is_a_note() -> None:
    events: list[Event] = [
        BreakerStateChanged(run_id=RUN, at=AT, connection="crm", state="open"),
        ConnectorLog(run_id=RUN, at=AT, connection="crm", message="slow"),
    ]
    assert printed(events) == ["note: connection 'crm': circuit breaker open", "note: connection 'crm': slow"]


def test_what_was_found_in_the_data_is_said_once() -> None:
    notice = Notice(run_id=RUN, at=AT, severity="warning", message="3 rows share a key", code=Code.PZ0522.value)
    found = MergeKeyDuplicatesDetected(run_id=RUN, at=AT, node_id=LOAD, keys=("id",), groups=2, extra_rows=3)
    assert printed([found, notice])[0] == "warning PZ0522: 3 rows share a key"


def test_control_characters_in_a_message_cannot_steer_the_terminal() -> None:
    event = completed(OUTLINE[0], "failed", error_code=Code.PZ0501.value, error_message="\x1b[2Jgone\rover")
    assert "  error PZ0501: \\x1b[2Jgone\\x0dover" in printed([event])


def test_views_and_checks_name_no_rows_that_nobody_counted() -> None:
    """``ok some_view 0 rows`` once read as if the view were empty, and a check's 0 rows as no violation."""
    load, view, check, _ = OUTLINE
    outline = (load, replace(view, counted=False), replace(check, counted=False))
    start = RunStarted(run_id=RUN, at=AT, project_name="shop", node_count=3, outline=outline)
    assert printed([start, completed(load), completed(view), completed(check, "failed"), completed(check, rows=2)]) == [
        "ok crm.orders 0 rows 5 ms",
        "ok stg_orders 5 ms",
        "FAIL stg_orders.not_null 5 ms",
        "ok stg_orders.not_null 2 rows 5 ms",
    ]


def test_a_later_pass_does_not_repeat_what_an_earlier_one_said() -> None:
    """``--until-caught-up`` once printed the same warning and hint with every pass."""
    start = RunStarted(run_id=RUN, at=AT, project_name="shop", node_count=1, outline=OUTLINE[:1])
    same = Notice(run_id=RUN, at=AT, severity="warning", message="no cursor value", code=Code.PZ0712.value)
    other = replace(same, message="another")
    lines = printed([start, same, start, same, other, start, same, other])
    assert [line for line in lines if line.startswith("warning")] == [
        "warning PZ0712: no cursor value",
        "warning PZ0712: another",
    ]
