"""The verbs for real: whole processes over scaffolded projects."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from cli_support import Answer
from pz.project.scaffold import create
from pz.state.locks import RunLocks, output_lock

PZ = [sys.executable, "-m", "pz"]
ENV = {key: value for key, value in os.environ.items() if key not in {"CI", "PZ_DEBUG"}}


def pz(root: Path, *arguments: str) -> Answer:
    done = subprocess.run([*PZ, *arguments], cwd=root, env=ENV, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    create(tmp_path / "demo", "minimal")
    return tmp_path / "demo"


def break_source(root: Path) -> bytes:
    source = root / "data" / "people.csv"
    good = source.read_bytes()
    source.write_bytes(good + b"not-a-number,x,2024-01-01\n")
    return good


def test_a_run_prints_its_nodes_and_delivers(minimal: Path) -> None:
    got = pz(minimal, "run")
    assert got.code == 0
    *nodes, summary = got.out.splitlines()
    assert {line.split()[1] for line in nodes} == {"src_here__people", "joined_in_2024", "lake.joined_in_2024"}
    assert re.fullmatch(r"run \S+: 3 succeeded, 0 failed, 0 skipped \(\S+run_results\.json\)", summary)
    assert list(minimal.glob("output/**/*.parquet"))


def test_json_lines_begin_with_the_start_and_end_with_the_end(minimal: Path) -> None:
    got = pz(minimal, "run", "--log-format", "json")
    events = [json.loads(line) for line in got.out.splitlines()]
    assert events[0]["event"] == "run_started"
    assert [e["event"] for e in events if e["event"] not in {"retention_swept"}][-1] == "run_completed"
    completed = [e["nodeId"] for e in events if e["event"] == "node_completed"]
    assert len(completed) == len(set(completed)) == events[0]["nodeCount"]
    assert got.err.splitlines()[-1].startswith("run ")


def test_a_failed_run_says_what_failed_and_retry_continues(minimal: Path) -> None:
    good = break_source(minimal)
    failed = pz(minimal, "run")
    assert failed.code == 1
    words = {line.split()[1]: line.split()[0] for line in failed.out.splitlines() if line[0] not in " hnrw"}
    assert words["src_here__people"] == "FAIL"
    assert re.search(r"^  error PZ\d{4}: ", failed.out, re.MULTILINE)
    (minimal / "data" / "people.csv").write_bytes(good)
    again = pz(minimal, "retry")
    assert again.code == 0
    nothing = pz(minimal, "retry")
    assert (nothing.code, nothing.err) == (0, "")
    assert re.fullmatch(r"note: nothing to retry: the last run, \S+, succeeded\n", nothing.out)


def test_a_preview_is_no_run(minimal: Path) -> None:
    good = break_source(minimal)
    assert pz(minimal, "run").code == 1
    (minimal / "data" / "people.csv").write_bytes(good)
    shown = pz(minimal, "show", "joined_in_2024", "--format", "json", "--limit", "2")
    assert set(json.loads(shown.out)[0]) == {"id", "name", "joined"}
    assert len(json.loads(pz(minimal, "runs", "--json").out)) == 1
    assert list((minimal / ".pz" / "tmp").iterdir()) == []
    assert pz(minimal, "retry").code == 0
    assert not pz(minimal, "show", "nope").out


def test_an_ephemeral_pipeline_is_listed_as_inlined_and_can_be_looked_at(minimal: Path) -> None:
    (minimal / "pipelines" / "joined_in_2024.sql").unlink()
    (minimal / "pipelines" / "named.sql").write_text("SELECT id, name FROM {{ source('here', 'people') }}")
    (minimal / "pipelines" / "configs").mkdir()
    (minimal / "pipelines" / "configs" / "named.yml").write_text("pipeline: named\nmaterialization: ephemeral\n")
    (minimal / "pipelines" / "all.sql").write_text(
        "INSERT INTO {{ sink('lake', 'all', strategy: 'replace') }} SELECT * FROM {{ ref('named') }}"
    )
    assert "no nodes: named" in pz(minimal, "ls").err
    shown = pz(minimal, "show", "named", "--format", "json", "--limit", "1")
    assert set(json.loads(shown.out)[0]) == {"id", "name"}
    refused = pz(minimal, "run", "named")
    assert refused.err.startswith("error PZ0210: pipeline 'named' is ephemeral")


def test_a_plan_prints_what_it_writes_and_filters_by_selection(minimal: Path) -> None:
    printed = json.loads(pz(minimal, "plan", "--json").out)
    assert printed == json.loads((minimal / ".pz" / "target" / "plan.json").read_text())
    one = json.loads(pz(minimal, "plan", "--select", "src_here__people", "--json").out)
    assert [node["name"] for node in one["nodes"]] == ["src_here__people"]
    assert "guarantee=" in pz(minimal, "plan").out


def test_selections_of_one_command_line_unite(minimal: Path) -> None:
    (minimal / "pipelines" / "other.sql").write_text("SELECT 1 AS one")
    for verb in ("ls", "plan"):
        found = json.loads(pz(minimal, verb, "--select", "other", "-s", "src_here__people", "--json").out)
        nodes = found if isinstance(found, list) else found["nodes"]
        assert {node["name"] for node in nodes} == {"other", "src_here__people"}
    assert pz(minimal, "compile", "-s", "other", "-s", "joined_in_2024").code == 0
    ran = json.loads(
        pz(minimal, "run", "-s", "other", "-s", "src_here__people", "--log-format", "json").out.split("\n")[0]
    )
    assert ran["nodeCount"] == 2
    assert pz(minimal, "test", "-s", "other", "-s", "nope").code == 2


def test_validate_reports_all_problems_with_places(minimal: Path) -> None:
    assert pz(minimal, "validate") == Answer(0, "valid: no errors, 0 warnings\n", "")
    (minimal / "pipelines" / "bad.sql").write_text("select {{ var('region') }}")
    (minimal / "pipelines" / "worse.sql").write_text("select {{ nope() }}")
    got = pz(minimal, "validate")
    assert got.code == 2
    assert "pipelines/bad.sql" in got.err
    assert "pipelines/worse.sql" in got.err


def test_a_folder_without_a_project_is_refused_by_every_verb(tmp_path: Path) -> None:
    for verb in ("run", "test", "plan", "ls", "compile", "validate", "retry", "runs", "state show", "clean", "show x"):
        got = pz(tmp_path, *verb.split())
        assert (got.code, got.out) == (2, ""), verb
        assert got.err.startswith("error PZ0101: "), verb


def test_a_project_folder_that_cannot_be_written_has_its_code(minimal: Path) -> None:
    (minimal / ".pz").write_text("a file where a folder belongs")
    for verb in ("run", "plan", "compile", "show joined_in_2024"):
        got = pz(minimal, *verb.split())
        assert got.code == 2, verb
        assert re.match(r"error PZ(0531|0702|0533)", got.err), (verb, got.err)


def slow(root: Path) -> Path:
    """A project whose only pipeline does not end by itself."""
    (root / "pipelines" / "joined_in_2024.sql").write_text(
        "INSERT INTO {{ sink('lake', 'n', format: 'parquet', strategy: 'replace') }}\n"
        "SELECT count(*) AS n FROM range(1000000000000) r(i), {{ source('here', 'people') }} WHERE hash(i) = 7\n"
    )
    return root


def started(process: subprocess.Popen[str]) -> None:
    """Wait until the pipeline runs."""
    assert process.stdout is not None
    for line in process.stdout:
        if '"node_started"' in line and '"Pipeline"' in line:
            return


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_ends_a_run_in_order(number: signal.Signals, minimal: Path) -> None:
    with subprocess.Popen(
        [*PZ, "run", "--log-format", "json"],
        cwd=slow(minimal), env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        started(process)
        process.send_signal(number)
        out, errors = process.communicate()
    assert process.returncode == 3
    assert "Traceback" not in errors
    events = [json.loads(line) for line in out.splitlines()]
    assert [e["status"] for e in events if e["event"] == "run_completed"] == ["fatal"]
    (listed,) = json.loads(pz(minimal, "runs", "--json").out)
    assert (listed["status"], listed["cancelled"]) == ("fatal", True)
    assert " fatal (cancelled) " in pz(minimal, "runs").out
    assert ": fatal (cancelled): " in pz(minimal, "runs", "show").out


def test_a_second_signal_ends_at_once_and_leaves_a_dead_run(minimal: Path) -> None:
    env = {**ENV, "PZ_FAILPOINT": "finish_run.before=hang,write_results.before:3=hang"}
    with subprocess.Popen(
        [*PZ, "run", "--log-format", "json"],
        cwd=slow(minimal), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        started(process)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "stopping" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert json.loads(pz(minimal, "runs", "--json").out)[0]["status"] == "dead"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_run_that_waits_for_another_says_so_and_then_runs(form: str, minimal: Path) -> None:
    """JSON lines still begin with run_started: the waiting is told on standard error."""
    command = [*PZ, "run", "--log-format", form]
    with (
        RunLocks.acquire(minimal / ".pz", "the-other-run", [output_lock("lake.joined_in_2024")]) as held,
        subprocess.Popen(command, cwd=minimal, env=ENV, stdout=PIPE, stderr=PIPE, text=True) as process,
    ):
        told = process.stdout if form == "text" else process.stderr
        assert told is not None
        line = told.readline()
        held.release()
        out, _ = process.communicate()
    assert re.match(r"note: waiting up to 30 s for output 'lake\.joined_in_2024', held by run the-other-run", line)
    assert process.returncode == 0
    assert form == "text" or json.loads(out.splitlines()[0])["event"] == "run_started"


def on_a_terminal(root: Path, *arguments: str) -> tuple[int, str]:
    """Run with a pseudo-terminal of 100 by 30 as standard output."""
    master, slave = pty.openpty()
    env = {**ENV, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen([*PZ, *arguments], cwd=root, env=env, stdout=slave, stderr=slave, stdin=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    return process.wait(), seen.decode()


def test_a_terminal_shows_the_tree_and_ends_with_the_summary(minimal: Path) -> None:
    code, seen = on_a_terminal(minimal, "run")
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "")
    assert "└── joined_in_2024  3/3" in plain
    assert plain.splitlines()[-1].startswith("run ")
    assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l"), "the cursor is visible again"


@pytest.mark.parametrize("verb", ["ls", "runs"])
def test_tables_on_a_terminal_fit_it(verb: str, minimal: Path) -> None:
    code, seen = on_a_terminal(minimal, verb)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "")
    assert max(map(len, plain.splitlines())) <= 100


def test_a_plan_that_is_too_wide_for_the_terminal_is_stacked(minimal: Path) -> None:
    code, seen = on_a_terminal(minimal, "plan")
    assert code == 0
    lines = seen.replace("\r", "").splitlines()
    assert lines[0] == "src_here__people [SourceLoad]"
    assert any(line.startswith("  guarantee=effectively-once") for line in lines)
