"""What is new since the last run, where that is little: the same values as from any other read, and no library for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from postgres_server import Database
from postgres_support import as_text, cancelled_when_busy, dataset, read, source_of
from pz.connectors.contract import Bound, CancelToken, ReadHints
from pz.connectors.postgres import few
from pz.connectors.postgres.few import FewRows
from pz.connectors.postgres.partitions import WholePartition
from pz.errors import Cancelled, Code, PermanentError
from running import run
from test_postgres_types import CASES, DECLARED, Case, Declared, declared_table
from test_run_postgres import demo

ALL = Bound("0", inclusive=True)

UNUSED = {
    *("adbc_driver_manager", "adbc_driver_postgresql", "duckdb_extension_postgres_scanner", "httpcore", "httpx"),
    *("jsonschema", "numpy", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pydantic", "rich"),
    *("typer", "pz.cli.plan", "pz.cli.state", "pz.connectors.duckdb.connector", "pz.connectors.http.connector"),
    *("pz.connectors.files.reading", "pz.connectors.files.writing", "pz.engine.nodes.check", "pz.engine.nodes.fused"),
    *("pz.engine.nodes.copy_through", "pz.engine.retry", "pz.engine.show", "pz.graph.manifest", "pz.testing"),
}
"""What a run without news has no use for; each costs a start between a millisecond and a quarter of a second."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.ddl)
def test_every_type_is_read_as_by_any_other_read(database: Database, case: Case) -> None:
    database.run(*case.setup, f"CREATE TABLE t (k int PRIMARY KEY, v {case.ddl})")
    with database.connect() as connection:
        for k, value in enumerate([*case.values, None]):
            connection.execute(f"INSERT INTO t VALUES (%s, %s::text::{case.ddl})", [k, value])
    source = source_of(database)
    data = dataset(cursor="k", lower=ALL)
    [part] = source.plan_read(data, ReadHints())
    assert isinstance(part, FewRows)
    found = read(source, data, partitions=[part])
    other = read(source, dataset())
    assert found.schema == other.schema
    assert as_text(found.sort_by("k")) == as_text(other.sort_by("k"))
    source.close()


@pytest.mark.parametrize("case", DECLARED, ids=str)
def test_every_declared_conversion_is_that_of_any_other_read(database: Database, case: Declared) -> None:
    columns = declared_table(database, case, [*case.values, None])
    source = source_of(database)
    data = dataset(cursor="k", lower=ALL, columns=columns)
    [part] = source.plan_read(data, ReadHints())
    assert isinstance(part, FewRows)
    found = read(source, data, partitions=[part])
    other = read(source, dataset(columns=columns))
    assert found.schema == other.schema
    assert as_text(found.sort_by("k")) == as_text(other.sort_by("k"))
    source.close()
    for value in case.refused:
        declared_table(database, case, [value])
        with pytest.raises(PermanentError) as refused:
            read(source_of(database), data)
        assert not value or value not in str(refused.value)


def test_zeros_behind_the_last_digit_say_nothing(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT n AS k, round(n / 8.0, 60) AS v FROM generate_series(1, 3) n")
    found = read(source_of(database), dataset(cursor="k", lower=ALL))
    assert [str(v) for v in found.sort_by("k").column("v").to_pylist()] == ["0.125000000", "0.250000000", "0.375000000"]


def test_signs_of_the_copy_format_are_values_like_others(database: Database) -> None:
    values = ["", "\\N", "\\", "a\tb\nc\rd", "\\t", "\b\f\v", "é🦉", None]
    database.run("CREATE TABLE t (k int NOT NULL, v text)")
    with database.connect() as connection:
        for k, value in enumerate(values):
            connection.execute("INSERT INTO t VALUES (%s, %s)", [k, value])
    found = read(source_of(database), dataset(cursor="k", lower=ALL))
    assert found.sort_by("k").column("v").to_pylist() == values


def test_bounds_filters_and_columns_are_the_readers(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT n AS id, n * 2 AS twice, 'x' AS s FROM generate_series(1, 10) n")
    data = dataset(cursor="id", lower=Bound("3", False), upper=Bound("8", True))
    found = read(source_of(database), data, ReadHints(columns=("twice",), predicate="(id <> 5)"))
    assert found.column_names == ["twice"]
    assert sorted(found.column("twice").to_pylist()) == [8, 12, 14, 16]


@pytest.mark.parametrize("limit", ["FEW", "BYTES", "DEAREST"])
def test_more_than_a_few_are_left_to_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    database.run("CREATE TABLE t AS SELECT n AS k FROM generate_series(1, 9) n", "ANALYZE t")
    monkeypatch.setattr(few, limit, {"FEW": 8, "BYTES": 10, "DEAREST": 0.01}[limit])
    source = source_of(database)
    data = dataset(cursor="k", lower=ALL)
    [part] = source.plan_read(data, ReadHints())
    assert isinstance(part, WholePartition)
    assert sorted(read(source, data, partitions=[part]).column("k").to_pylist()) == list(range(1, 10))
    source.close()


def test_an_estimate_that_is_wrong_loses_no_row(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics of an empty table, and rows since."""
    database.run("CREATE TABLE t (k int NOT NULL)", "INSERT INTO t VALUES (1)", "ANALYZE t")
    database.run("INSERT INTO t SELECT generate_series(2, 50)")
    monkeypatch.setattr(few, "FEW", 40)
    source = source_of(database)
    data = dataset(cursor="k", lower=Bound("1", False))
    [part] = source.plan_read(data, ReadHints())
    assert isinstance(part, WholePartition)
    assert read(source, data, partitions=[part]).num_rows == 49
    source.close()


@pytest.mark.parametrize("value", ["NaN", "0.0123456789", "1e30"])
def test_a_value_that_does_not_fit_is_refused_without_being_shown(database: Database, value: str) -> None:
    database.run("CREATE TABLE t (k int NOT NULL, v numeric)", f"INSERT INTO t VALUES (1, '{value}')")
    with pytest.raises(PermanentError) as caught:
        read(source_of(database), dataset(cursor="k", lower=ALL))
    assert caught.value.code is Code.PZ0740
    assert "'v'" in caught.value.message
    assert value not in f"{caught.value.message} {caught.value.hint}"


def slow(database: Database, seconds: int) -> None:
    """A table of one row whose read takes this long, which the server does not expect."""
    database.run(
        "CREATE TYPE shade AS ENUM ('dark')",
        "CREATE FUNCTION words(shade) RETURNS text COST 1 LANGUAGE plpgsql "
        f"AS $$ BEGIN PERFORM pg_sleep({seconds}); RETURN 'x'; END $$",
        "CREATE CAST (shade AS text) WITH FUNCTION words(shade)",
        "CREATE TABLE t (k int NOT NULL, v shade)",
        "INSERT INTO t VALUES (1, 'dark')",
    )


def test_a_few_rows_may_take_longer_than_a_look_at_the_catalogue(database: Database) -> None:
    slow(database, 2)
    source = source_of(database, command_timeout_seconds=1)
    data = dataset(cursor="k", lower=ALL)
    [part] = source.plan_read(data, ReadHints())
    assert isinstance(part, FewRows)
    assert as_text(read(source, data, partitions=[part])) == [("1", "x")]
    source.close()


def test_a_cancelled_run_ends_the_read_of_a_few_rows(database: Database) -> None:
    slow(database, 600)
    source, cancel = source_of(database), CancelToken()
    source.use_cancel(cancel)
    with cancelled_when_busy(database, cancel), pytest.raises(Cancelled):
        list(source.plan_read(dataset(cursor="k", lower=ALL), ReadHints()))
    source.close()


def imported_by_a_run(root: Path) -> set[str]:
    program = (
        "import sys\nfrom pz.__main__ import main\nsys.argv = ['pz', 'run', '--all']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('modules', *sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.native
@pytest.mark.parametrize("strategy", ["strategy: 'merge', keys: ['id']", "strategy: 'append', duplicates: 'accept'"])
def test_a_run_without_news_imports_no_more_than_it_needs(tmp_path: Path, database: Database, strategy: str) -> None:
    pytest.importorskip("pgpq", reason="of the extra `native`; rows go as text without it, by other libraries")
    database.run(
        "CREATE TABLE t AS SELECT n AS id, n / 4.0 AS price, n > 2 AS paid, now()::timestamp AS at FROM generate_series(1, 3) n",
        "CREATE TABLE target (LIKE t, PRIMARY KEY (id))",
    )
    sql = f"INSERT INTO {{{{ sink('pg', 'target', {strategy}) }}}} SELECT * FROM {{{{ source('pg', 't') }}}}"
    entities = {"t": {"read": {"sync": {"mode": "incremental", "cursor": "at"}}}}
    assert run(demo(tmp_path, database.options, sql, entities=entities)).exit_code == 0
    imported = imported_by_a_run(tmp_path)
    assert imported & UNUSED == set()
    assert {"psycopg", "pz.connectors.postgres.few"} <= imported
    assert database.rows("SELECT count(*) FROM target") == [(3,)]
