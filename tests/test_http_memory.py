"""A body of lines that is larger than the memory it may take."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

from http_server import Api, Reply
from projects import write

RUN = """
import json, sys, pz
opened = pz.open_project(sys.argv[1], environ={})
budget = opened.plan().budget.total
result = opened.run(everything=True)
# Not getrusage: a process inherits the peak of the one that started it, which here holds the whole body.
(peak,) = (int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"budget": budget, "peak": peak, "rows": {node.name: node.rows for node in result.nodes}}))
"""

PROJECT = """
name: big
version: "1"
engine:
  batch_bytes: 1048576
  duckdb:
    memory_limit: 200MB
    threads: 1
"""

PIPELINE = """
SELECT count(*) AS records FROM {{{{ source('api', 'lines', path: '/lines', format: '{format_}',
  columns: {{id: 'bigint', note: 'varchar'}}) }}}}
"""
LINES = 200_000
LINES_OF_A_GIBIBYTE = 1_080_000
LONG = [pytest.mark.soak, pytest.mark.timeout(1200)]


def body(format_: str, lines: int) -> bytes:
    """Lines of 1 KB that do not compress."""
    draw = random.Random(7)
    notes = [draw.randbytes(500).hex() for _ in range(1_000)]
    whole = BytesIO()  # a list of the lines would take as much again
    if format_ == "csv":
        whole.write(b"id,note\n")
    line = "{},{}\n" if format_ == "csv" else '{{"id":{},"note":"{}"}}\n'
    for n in range(lines):
        whole.write(line.format(n, notes[n % 1_000][n % 7 :]).encode())
    return whole.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_", "lines", "most"),
    [
        ("ndjson", LINES, 0.8),
        ("csv", LINES, 0.8),
        pytest.param("ndjson", LINES_OF_A_GIBIBYTE, 1.0, marks=LONG),
        pytest.param("csv", LINES_OF_A_GIBIBYTE, 1.0, marks=LONG),
    ],
)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_a_large_body_of_lines_stays_well_within_the_budget_of_the_plan(
    format_: str, lines: int, most: float, tmp_path: Path
) -> None:
    """A fifth of the budget is left: that is more than the noise of the allocators. What a longer body adds is bounded."""
    content = body(format_, lines)
    assert lines < LINES_OF_A_GIBIBYTE or len(content) >= 2**30
    with Api() as api:
        kind = "text/csv" if format_ == "csv" else "application/x-ndjson"
        api.on("GET", "/lines", Reply(200, {"Content-Type": kind}, content))
        connections = f"api:\n  connector: http\n  base_url: {api.url}\n  max_response_mb: 2048\n"
        pipeline = PIPELINE.format(format_=format_)
        write(tmp_path, {"project.yml": PROJECT, "connections.yml": connections, "pipelines/big.sql": pipeline})
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=False, timeout=1000
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == {"src_api__lines": lines, "big": 1}
    assert len(content) > told["budget"] / 3
    print(f"peak {told['peak'] / 2**20:.0f} MiB of {told['budget'] / 2**20:.0f}")
    assert told["peak"] <= most * told["budget"]
