"""Binary COPY passed from one table to another: which chains, which columns, and that a delivery stays what it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import children
import pz
from postgres_proxy import Link, Proxy, Verdict, commits_a_load
from postgres_server import Database
from postgres_support import APPEND, dataset, output, rows_of, sink_of, source_of
from pz.connectors.contract import CancelToken, Column, CopyBlock, CopyingSession, NotCopied, OutputSpec
from pz.connectors.postgres.sink import PostgresSink
from pz.durable import Step
from pz.engine.context import NodeContext
from pz.engine.nodes import copy_through
from pz.errors import PermanentError
from pz.plan.model import Way
from pz.staging.session import StagingSession
from pz.testing.faults import run_fresh
from running import errors, run
from test_postgres_types import CASES, Case
from test_run_postgres import LEDGERS, demo, told

MOVE = "INSERT INTO {{{{ sink('far', 'copy', {options}) }}}} {select}"
ALL = "SELECT * FROM {{ source('pg', 'items') }}"


def chain(
    root: Path,
    database: Database,
    options: str = "strategy: 'append'",
    select: str = ALL,
    *,
    far: dict[str, Any] | None = None,
    near: dict[str, Any] | None = None,
    entities: dict[str, Any] | None = None,
    files: dict[str, str] | None = None,
) -> pz.OpenProject:
    connection = {"connector": "postgres", **(far or database.options), "retry": {"max_attempts": 1}}
    sql = MOVE.format(options=options, select=select)
    return demo(root, near or database.options, sql, far=connection, entities=entities, files=files)


def ways(opened: pz.OpenProject) -> set[str]:
    return {str(node.way) for node in opened.plan().nodes}


@pytest.fixture
def items(database: Database) -> Database:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(8,2))",
        "INSERT INTO items SELECT n, CASE WHEN n % 7 > 0 THEN 'item ' || n END, n / 4.0 FROM generate_series(1, 2000) n",
    )
    return database


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy(database) as running:
        yield running


# --- which chains


def test_a_plain_chain_between_two_tables_passes_through_and_says_so(tmp_path: Path, items: Database) -> None:
    opened = chain(tmp_path, items)
    (read, _, written) = opened.plan().nodes
    assert "fused into far.copy" in read.reason
    assert "PostgreSQL's binary COPY passed on as it comes" in written.reason
    result, said = told(lambda **options: run(opened, **options))
    assert errors(result) == {}
    assert "batches" not in said
    assert [(node.fused, node.rows) for node in result.nodes] == [(True, 2000)] * 3
    assert rows_of(items, "copy") == rows_of(items, "items")
    assert items.rows("SELECT rows FROM _pz_slices") == [(2000,)]


def test_an_attempt_is_durable_before_the_target_hears_of_it(
    tmp_path: Path, items: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB flushes what its log holds and not the log's name: without the folder, power loss could take the attempt."""
    seen: list[str] = []
    monkeypatch.setattr(StagingSession, "flush_folder", lambda session: seen.append("flushed"))
    begin = PostgresSink.begin_write

    def noted(*told: Any) -> Any:
        seen.append("begun")
        return begin(*told)

    monkeypatch.setattr(PostgresSink, "begin_write", noted)
    assert errors(run(chain(tmp_path, items))) == {}
    assert seen[0] == "flushed"
    assert "flushed" in seen[seen.index("begun") :]


@pytest.mark.parametrize(
    "why",
    ["a filter", "an expression", "merge", "a check", "a partition column", "additive", "force_universal", "a file"],
)
def test_what_needs_staging_is_staged(tmp_path: Path, items: Database, why: str) -> None:
    options, select, entities, files = "strategy: 'append'", ALL, None, {}
    if why == "a filter":
        select += " WHERE id > 3"
    elif why == "an expression":
        select = select.replace("*", "id, name, price + 0 AS price")
    elif why == "merge":
        options = "strategy: 'merge', keys: ['id']"
    elif why == "a check":
        files = {"pipelines/configs/p.yml": "pipeline: p\nchecks:\n  - not_null: [id]\n"}
    elif why == "a partition column":
        entities = {"items": {"read": {"partition_column": "id"}}}
    elif why == "additive":
        options += ", schema_policy: 'additive'"
    elif why == "force_universal":
        files = {"project.yml": "name: demo\nversion: '1'\nengine:\n  force_universal: true\n"}
    else:
        select = "SELECT * FROM {{ source('files', 'people') }}"
        files = {"data/people.csv": "id\n1\n"}
    assert str(Way.COPY_THROUGH) not in ways(chain(tmp_path, items, options, select, entities=entities, files=files))


def test_columns_are_chosen_renamed_and_reordered_by_the_pipeline(tmp_path: Path, items: Database) -> None:
    select = ALL.replace("*", 'price, name AS "Der Name", id AS id')
    opened = chain(tmp_path, items, select=select)
    assert ways(opened) == {"copy_through"}
    assert errors(run(opened)) == {}
    assert items.rows('SELECT price, "Der Name", id FROM copy ORDER BY id') == items.rows(
        "SELECT price, name, id FROM items ORDER BY id"
    )


@pytest.mark.parametrize("method", ["truncate", "delete", "swap"])
def test_a_replace_by_every_method(tmp_path: Path, items: Database, method: str) -> None:
    opened = chain(tmp_path, items, f"strategy: 'replace', replace_method: '{method}'")
    for key in (-1, -2):
        assert errors(run(opened)) == {}
        assert rows_of(items, "copy") == rows_of(items, "items")
        items.run("DELETE FROM items WHERE id % 3 = 0", f"INSERT INTO items VALUES ({key}, 'new', 1)")


def test_an_empty_table_makes_an_empty_target(tmp_path: Path, items: Database) -> None:
    items.run("TRUNCATE items")
    result = run(chain(tmp_path, items))
    assert errors(result) == {}
    assert [node.rows for node in result.nodes] == [0, 0, 0]
    assert items.rows("SELECT count(*) FROM copy") == [(0,)]


def test_a_query_passes_through(tmp_path: Path, items: Database) -> None:
    entities = {"items": {"read": {"query": "SELECT id, name FROM items WHERE id < 10 -- few"}}}
    opened = chain(tmp_path, items, entities=entities)
    assert ways(opened) == {"copy_through"}
    assert errors(run(opened)) == {}
    assert rows_of(items, "copy") == rows_of(items, "items WHERE id < 10", "id, name")


@pytest.mark.parametrize("options", ["strategy: 'append'", "strategy: 'replace'"])
def test_a_table_may_be_written_to_itself(tmp_path: Path, items: Database, options: str) -> None:
    items.run("CREATE TABLE copy AS SELECT id, name FROM items")
    entities = {"items": {"read": {"query": "SELECT * FROM copy"}}}
    assert errors(run(chain(tmp_path, items, options, entities=entities))) == {}
    assert items.rows("SELECT count(*) FROM copy") == [(4000 if "append" in options else 2000,)]


def test_defaults_generated_and_identity_columns_of_the_target_are_as_ever(tmp_path: Path, items: Database) -> None:
    items.run(
        "CREATE TABLE copy (id int GENERATED ALWAYS AS IDENTITY, name text, price numeric(8,2) CHECK (price > 0), "
        "twice numeric GENERATED ALWAYS AS (price * 2) STORED, at date DEFAULT '2024-01-01')"
    )
    assert errors(run(chain(tmp_path, items))) == {}
    assert rows_of(items, "copy", "id, name, price") == rows_of(items, "items")
    assert items.rows("SELECT bool_and(twice = price * 2), min(at)::text FROM copy") == [(True, "2024-01-01")]


def test_a_target_that_does_not_fit_is_refused_as_ever(tmp_path: Path, items: Database) -> None:
    items.run("CREATE TABLE copy (id smallint, name text, price numeric(8,2))")
    assert "PZ0741" in str(errors(run(chain(tmp_path, items))))


# --- which columns


def pass_on(database: Database, out: OutputSpec, columns: tuple[str, ...] | None = None) -> int:
    """Write table ``t`` to an output as the engine does when it passes rows on."""
    source, sink = source_of(database), sink_of(database)
    data = dataset()
    read = [Column(column.name, column.type) for column in source.probe(data).columns or ()]
    session = sink.begin_write(replace(out, columns=tuple(read)), source.schema(data))
    assert isinstance(session, CopyingSession)
    try:
        wanted = session.copy_columns()
        names = columns or tuple(column.name for column in wanted)
        for block in source.copy_out(data, names, [column.type for column in wanted], CancelToken()):
            session.write_copied(block)
        return session.commit().rows
    finally:
        session.close()
        source.close()


# What cannot pass to the same type: known to its server alone, or its number hangs on the server's settings.
NOT_THE_SAME = {
    *("citext", "money", "xml", "int4range", "tstzrange", "int4multirange", "tsvector", "pg_lsn", "jsonpath"),
    *("mood", "pair", "hstore", "mood[]", "int2vector", '"char"', '"char"[]', "xml[]", "shade", "shade[]"),
}
# What cannot pass to the type that pz creates for it: digits may be lost, or the source would have to build the array anew.
NOT_CREATED = {
    *(
        "money",
        "numeric",
        "numeric[]",
        "mood[]",
        "jsonb[]",
        "json[]",
        "inet[]",
        "cidr[]",
        "char(3)[]",
        "varchar(3)[]",
        "name[]",
    ),
    *('"char"[]', "oid[]", "money[]", "interval[]", "box[]", "xml[]", "shade[]"),
}
NOT_WRITTEN = {"oid[]", "money[]", "interval[]"}
"""Arrays whose elements are read as text, which does not fit into the same type."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.ddl)
@pytest.mark.parametrize("made", ["the same", "created"])
def test_every_type_passes_unchanged_or_goes_as_batches(database: Database, case: Case, made: str) -> None:
    database.run(*case.setup, f"CREATE TABLE t (k int PRIMARY KEY, v {case.ddl})")
    if made == "the same":
        database.run(f"CREATE TABLE back (k int, v {case.ddl})")
    with database.connect() as connection:
        for k, value in enumerate([*case.values, None]):
            connection.execute(f"INSERT INTO t VALUES (%s, %s::text::{case.ddl})", [k, value])
    if made == "the same" and case.ddl in NOT_WRITTEN:
        with pytest.raises(PermanentError, match="what is written"):
            pass_on(database, output("back", APPEND))
        return
    if case.ddl in (NOT_CREATED if made == "created" else NOT_THE_SAME):
        with pytest.raises(NotCopied, match='"v"'):
            pass_on(database, output("back", APPEND))
        return
    assert pass_on(database, output("back", APPEND)) == len(case.values) + 1
    # As text the target keeps the blanks of a char and the short form of an address, which a cast to text does not.
    printed = {"inet": "abbrev(t.v)", "char(3)": "rpad(t.v, 3)"}.get(case.ddl, "t.v::text")
    before, after = (printed, "back.v::text") if made == "created" else ("t.v::text", "back.v::text")
    differing = f"SELECT {before}, {after} FROM t FULL JOIN back USING (k) WHERE {before} IS DISTINCT FROM {after}"
    assert database.rows(differing) == []
    assert database.rows("SELECT count(*) FROM back") == [(len(case.values) + 1,)]


@pytest.mark.parametrize(
    ("source", "target", "passes"),
    [
        ("int2", "int8", True),
        ("int8", "numeric", False),
        ("float4", "float8", False),
        ("numeric(8,2)", "numeric(12,4)", True),
        ("numeric(8,2)", "numeric", True),
        ("numeric", "numeric(38,9)", False),
        ("json", "jsonb", True),
        ("jsonb", "text", False),
        ("varchar(9)", "char(12)", True),
        ("uuid", "text", False),
        ("timestamp(6)", "timestamp(3)", True),
        ("int[]", "bigint[]", False),
    ],
)
def test_another_type_passes_only_where_nothing_is_lost(
    database: Database, source: str, target: str, passes: bool
) -> None:
    database.run(f"CREATE TABLE t (v {source})", f"CREATE TABLE back (v {target})")
    if passes:
        assert pass_on(database, output("back", APPEND)) == 0
    else:
        with pytest.raises(NotCopied):
            pass_on(database, output("back", APPEND))


def test_what_duckdb_cannot_hold_passes_too(tmp_path: Path, database: Database) -> None:
    database.run(
        "CREATE TABLE items (n numeric(10,2), a int[], t timestamp)",
        "INSERT INTO items VALUES ('NaN', '{{1,2},{3,4}}', '294276-12-31 00:00'), (1.5, '[0:1]={1,2}', 'infinity')",
    )
    assert errors(run(chain(tmp_path, database))) == {}
    assert rows_of(database, "copy", "n::text, a::text, t::text") == rows_of(
        database, "items", "n::text, a::text, t::text"
    )


def test_a_column_that_cannot_pass_sends_the_rows_as_batches_and_the_run_says_which(
    tmp_path: Path, database: Database
) -> None:
    database.run(
        "CREATE TABLE items (id int, n numeric)",
        "INSERT INTO items SELECT n, n * 0.125 FROM generate_series(1, 3000) n",
    )
    result, said = told(lambda **options: run(chain(tmp_path, database), **options))
    assert errors(result) == {}
    assert 'column "n" has another type at the target; rows go as batches' in said
    assert [(node.fused, node.rows) for node in result.nodes] == [(True, 3000)] * 3
    assert rows_of(database, "copy", "id, trim_scale(n)") == rows_of(database, "items", "id, trim_scale(n)")


def test_rows_that_go_as_batches_are_counted_once(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source and output are one node then, with one count."""
    database.run(
        "CREATE TABLE items (id int, n numeric)",
        "INSERT INTO items SELECT n, n * 0.125 FROM generate_series(1, 3000) n",
    )
    counts: list[int] = []
    monkeypatch.setattr(NodeContext, "progress", lambda context, rows, size=0, *, every=10: counts.append(rows))
    assert errors(run(chain(tmp_path, database))) == {}
    assert sum(counts) == 3000


def test_declared_columns_come_as_declared(tmp_path: Path, database: Database) -> None:
    database.run(
        "CREATE TABLE items (i int, n numeric(50,10), u numeric(50,10), t timestamptz)",
        "INSERT INTO items VALUES (1, 1234567890123456789012345678901234567890, 2.5, '2024-01-01 02:00+02')",
    )
    columns = {"i": "bigint", "n": "varchar", "t": "timestamp"}
    assert errors(run(chain(tmp_path, database, entities={"items": {"read": {"columns": columns}}}))) == {}
    assert database.rows("SELECT *, pg_typeof(i)::text FROM copy") == [
        (1, "1234567890123456789012345678901234567890.0000000000", datetime(2024, 1, 1), "bigint")
    ]


def test_columns_whose_names_differ_by_case_alone_are_not_mistaken(tmp_path: Path, database: Database) -> None:
    database.run('CREATE TABLE items ("A" int, a int)', "INSERT INTO items VALUES (1, 2)")
    assert errors(run(chain(tmp_path, database))) == {}
    assert database.rows("SELECT * FROM copy") == [(1, 2)]


# --- a delivery like any other


@LEDGERS
def test_a_commit_whose_answer_is_lost_is_settled_by_looking(
    tmp_path: Path, items: Database, proxy: Proxy, ledger: str
) -> None:
    opened = chain(tmp_path, items, f"strategy: 'append', ledger: {ledger}", far=proxy.options)
    proxy.once(Verdict.LOSE_ANSWER, commits_a_load)
    assert errors(run(opened)) == {}
    assert proxy.fired == 1
    assert rows_of(items, "copy") == rows_of(items, "items")


@LEDGERS
@pytest.mark.parametrize("verdict", [Verdict.LOSE_ANSWER, Verdict.CUT])
def test_an_unknown_outcome_is_settled_by_the_retry(
    tmp_path: Path, items: Database, proxy: Proxy, ledger: str, verdict: Verdict
) -> None:
    opened = chain(tmp_path, items, f"strategy: 'append', ledger: {ledger}", far=proxy.options)
    proxy.once(verdict, commits_a_load, then="refuse")
    assert "PZ0704" in str(errors(run(opened)))
    proxy.heal()
    items.run("INSERT INTO items VALUES (9999, 'late', 1)")
    result, said = told(opened.retry)
    assert errors(result) == {}
    assert ("had committed" in said) == (verdict is Verdict.LOSE_ANSWER)
    # What landed stays as it was read; what did not is read again.
    assert items.rows("SELECT count(*) FROM copy") == [(2000 if verdict is Verdict.LOSE_ANSWER else 2001,)]


@LEDGERS
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_killed_at_its_commit_lands_once(tmp_path: Path, items: Database, ledger: str, moment: str) -> None:
    opened = chain(tmp_path, items, f"strategy: 'append', ledger: {ledger}")
    killed = run_fresh(("run", "--all"), tmp_path, failpoint=f"{Step.SINK_COMMIT}.{moment}=kill")
    assert killed.killed, killed.stderr
    assert errors(opened.retry()) == {}
    assert rows_of(items, "copy") == rows_of(items, "items")


def late_row(link: Link, side: str, kind: bytes, body: bytes) -> bool:
    """A row from the middle of the source's stream."""
    return side == "server" and kind == b"d" and link.copies("TO STDOUT") and b"item 1500" in body


def test_a_source_that_breaks_in_the_middle_leaves_nothing_and_a_retry_reads_it_again(
    tmp_path: Path, items: Database, proxy: Proxy
) -> None:
    opened = chain(tmp_path, items, near=proxy.options)
    proxy.once(Verdict.CUT, late_row)
    result = run(opened)
    assert set(errors(result)) == {"src_pg__items", "p", "far.copy"}
    assert items.rows("SELECT to_regclass('copy')") == [(None,)]
    assert errors(opened.retry()) == {}
    assert rows_of(items, "copy") == rows_of(items, "items")


def test_a_target_that_breaks_in_the_middle_lets_the_source_go(tmp_path: Path, items: Database, proxy: Proxy) -> None:
    opened = chain(tmp_path, items, far=proxy.options)
    proxy.once(Verdict.CUT, lambda link, side, kind, body: side == "client" and kind == b"d")
    assert "far.copy" in errors(run(opened))
    assert items.rows("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pz'") == [(0,)]
    assert errors(opened.retry()) == {}
    assert rows_of(items, "copy") == rows_of(items, "items")


def test_an_error_in_the_source_is_told_without_its_values(tmp_path: Path, items: Database) -> None:
    entities = {"items": {"read": {"query": "SELECT id, 1 / (id - 1999) AS bad FROM items"}}}
    message = str(errors(run(chain(tmp_path, items, entities=entities))))
    assert "22012" in message
    assert items.rows("SELECT to_regclass('copy')") == [(None,)]


def test_the_driver_prints_no_value_while_it_closes_what_broke(
    tmp_path: Path, items: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    items.run("CREATE TABLE texts (v text)", "INSERT INTO texts VALUES ('1'), ('private words')")
    chain(tmp_path, items, entities={"items": {"read": {"query": "SELECT v::int AS v FROM texts"}}})
    code = "import sys, pz; sys.exit(pz.open_project(sys.argv[1]).run(everything=True).exit_code)"
    with children.start(code, tmp_path) as child:
        child.communicate(timeout=60)
    assert child.returncode == 1
    assert "private" not in capfd.readouterr().err


def test_a_source_that_does_not_let_go_of_its_stream_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_through, "LET_GO", 0.05)
    released, ended = Event(), Event()

    def deaf() -> Iterator[CopyBlock]:
        yield CopyBlock(b"x", 1)
        released.wait()
        ended.set()

    stop = CancelToken()
    ahead = copy_through._Ahead(deaf(), stop)
    assert next(iter(ahead)).rows == 1
    ahead.close()
    assert stop.cancelled
    assert not ended.is_set()
    released.set()
    assert ended.wait(60)
