"""Every statement of docs/ledger.md works on the staging file of a run that was killed."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

import staging_scenarios
from pz import durable
from pz.staging import meta
from pz.staging.session import StagingSession

PAGE = Path(__file__).parents[1] / "docs" / "ledger.md"
FENCE = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def statements() -> list[str]:
    fences = FENCE.findall(PAGE.read_text())
    return [statement.strip() for fence in fences for statement in fence.split(";") if statement.strip()]


def test_the_page_can_be_followed_on_an_unfinished_run(tmp_path: Path) -> None:
    run_dir = tmp_path / ".pz" / "runs" / "run1"
    run_dir.mkdir(parents=True)
    durable.rearm("record_delivery.before:3=raise")
    try:
        staging_scenarios.run([str(run_dir), str(tmp_path / "destination")])
    except durable.FailpointError:
        pass
    finally:
        durable.rearm()
    with duckdb.connect() as shell:
        answers = {}
        for statement in statements():
            text = statement.replace(".pz/runs/<id>", str(run_dir))
            answers[statement.split("FROM")[-1].split()[0].strip(";)")] = shell.execute(text).fetchall()
    assert answers["pz_meta.node_done"][0][1:4] == (["src_shop__orders"], [len(staging_scenarios.EXPECTED)], "13")
    assert answers["pz_meta.sink_attempts"] == [(staging_scenarios.SINK, "run1", 1, "begun")]
    assert answers["pz_meta.sink_deliveries"][0][1] == staging_scenarios.CHUNK
    assert answers["staging.src_shop__orders"] == [(len(staging_scenarios.EXPECTED),) * 2]
    assert answers["pz_meta.partition_plan"] == []


def test_the_page_names_every_table(tmp_path: Path) -> None:
    with StagingSession.create(tmp_path, memory_limit_bytes=10**8) as session, session.cursor() as cursor:
        tables = cursor.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'pz_meta'").fetchall()
    page = PAGE.read_text()
    assert [name for (name,) in tables if name not in page and name != "meta"] == []
    assert {state for state in meta.AttemptState if f"| `{state}` |" in page} == set(meta.AttemptState)
