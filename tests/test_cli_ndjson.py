"""The machine's view: one JSON object a line on standard output, everything else on standard error."""

from __future__ import annotations

import json
from types import MappingProxyType

from cli_support import OUTLINE, FakeProject, completed, invoke, scripted_run
from pz.cli.render.ndjson import to_line


def test_the_stream_is_the_events_in_order_with_their_envelope() -> None:
    answer = invoke("run", "--log-format", "json", project=FakeProject(scripted_run()))
    objects = [json.loads(line) for line in answer.out.splitlines()]
    assert [o["event"] for o in objects] == [
        "run_started", "notice", "notice", "node_started", "node_progress", "retry_scheduled", "node_completed",
        "node_started", "node_completed", "node_started", "node_completed", "node_completed", "run_completed",
        "retention_swept",
    ]  # fmt: skip
    assert all(list(o)[:4] == ["version", "event", "at", "runId"] for o in objects)


def test_a_line_is_this_text_and_stays_this_text() -> None:
    assert to_line(scripted_run()[0]) == (
        '{"version":1,"event":"run_started","at":"2026-07-10T12:00:00.000Z","runId":"20260710T120000000Z-ab12",'
        '"projectName":"shop","nodeCount":4}'
    )
    assert to_line(completed(OUTLINE[0], rows=3)) == (
        '{"version":1,"event":"node_completed","at":"2026-07-10T12:00:00.000Z","runId":"20260710T120000000Z-ab12",'
        '"nodeId":"0000000000000001","kind":"SourceLoad","status":"success","rows":3,"durationMs":5,"errorCode":null,'
        '"errorMessage":null,"timings":null,"name":"crm.orders"}'
    )


def test_blocks_appear_only_where_they_apply() -> None:
    wire = json.loads(to_line(completed(OUTLINE[0], partitions=MappingProxyType({"total": 3, "completed": 3}))))
    assert wire["partitions"] == {"total": 3, "completed": 3}
    assert "delivery" not in wire


def test_notes_and_the_summary_go_to_standard_error() -> None:
    answer = invoke("run", "--log-format", "json", project=FakeProject(scripted_run()))
    assert "note: reusing staged data for 1 source load(s)" in answer.err
    assert answer.err.splitlines()[-1].startswith("run 20260710T120000000Z-ab12: 1 succeeded")


def test_a_line_is_ascii_and_has_no_line_break_inside() -> None:
    line = to_line(completed(OUTLINE[0], "failed", error_message="ü\u2028\nx"))
    assert line.isascii()
    assert "\n" not in line
