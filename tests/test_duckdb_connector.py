"""A DuckDB file as source and sink, on both ways of moving, inside a run's DuckDB and alone."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from duck_types import TYPES, create_table, fingerprint
from file_support import columns_of, connect
from pz.connectors.contract import (
    BatchOptions,
    Bound,
    CancelToken,
    Column,
    ConnectionSpec,
    ConnectorError,
    DatasetSpec,
    NativeCopy,
    OnDelete,
    OutputSpec,
    PermanentError,
    ReadHints,
    SchemaPolicy,
    Settlement,
    Slice,
    TransientError,
    WriteAttempt,
    WriteStrategy,
)
from pz.connectors.databases import make_database
from pz.connectors.duckdb.connector import DuckDb
from pz.connectors.duckdb.faults import explain
from pz.errors import Code

Rows = list[tuple[Any, ...]]
WAYS = ("native", "session", "shared session")


def spec(base: Path, **kept: Any) -> ConnectionSpec:
    return ConnectionSpec("Ware House", {"path": "w.duckdb"}, base, **kept)


def storage_checksum(header: bytes) -> bytes:
    """The checksum in front of a DuckDB file's first header."""
    result = 5381
    for (word,) in struct.iter_unpack("<Q", header):
        result ^= word * 0xBF58476D1CE4E5B9 & 2**64 - 1
    return struct.pack("<Q", result)


def target(base: Path, sql: str) -> None:
    """Prepare the file."""
    with duckdb.connect(str(base / "w.duckdb")) as connection:
        connection.execute(sql)


def shown(base: Path, sql: str) -> Rows:
    with duckdb.connect(str(base / "w.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def output(strategy: WriteStrategy, entity: str = "t", **more: Any) -> OutputSpec:
    return OutputSpec("Ware House", entity, strategy, {}, **more)


def run_native(connection: duckdb.DuckDBPyConnection, copy: NativeCopy, relation: str) -> None:
    if copy.landed is not None:
        return
    for statement in copy.setup:
        connection.execute(statement)
    connection.execute("BEGIN")
    rows = 0
    try:
        for statement in copy.statements:
            result = connection.execute(statement.replace("{relation}", relation))
            if "{relation}" in statement:
                (rows,) = result.fetchone() or (0,)
        for statement in copy.counted:
            connection.execute(statement.replace("{rows}", str(rows)))
    except duckdb.Error:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def write(base: Path, way: str, wanted: OutputSpec, sql: str, deletes: str | None = None) -> None:
    """Write the rows of a query one way; errors as the engine would tell them."""
    connection = connect()
    connection.execute(f"CREATE TABLE staged AS {sql}")
    wanted = replace(wanted, columns=columns_of(connection, "staged"))
    sink = DuckDb().open_sink(spec(base))
    try:
        copy = sink.native_copy(wanted) if way == "native" else None
        if copy is not None:
            run_native(connection, copy, "staged")
        else:
            _write_session(connection, sink, wanted, way, deletes)
    except duckdb.Error as error:
        explained = sink.explain(error)
        if explained is None:
            raise
        raise explained from error
    finally:
        connection.close()


def _write_session(
    connection: duckdb.DuckDBPyConnection, sink: Any, wanted: OutputSpec, way: str, deletes: str | None
) -> None:
    if way == "shared session":
        sink.use_database(connection.cursor)
    reader = connection.cursor().sql("SELECT * FROM staged").to_arrow_reader(2)
    session = sink.begin_write(wanted, reader.schema)
    try:
        for batch in reader:
            session.write_batch(batch)
        if deletes is not None:
            for batch in connection.cursor().sql(deletes).to_arrow_reader(2):
                session.apply_deletes(batch)
        session.commit()
    finally:
        session.close()


every_way = pytest.mark.parametrize("way", WAYS)


class TestWriting:
    @every_way
    @pytest.mark.parametrize("strategy", list(WriteStrategy))
    def test_a_missing_target_is_created_also_without_rows(
        self, strategy: WriteStrategy, way: str, tmp_path: Path
    ) -> None:
        keys = ("k",) if strategy is WriteStrategy.MERGE else ()
        write(tmp_path, way, output(strategy, keys=keys), "SELECT 1::INTEGER AS k, 1.50::DECIMAL(9,2) AS d LIMIT 0")
        assert shown(tmp_path, "SELECT column_name, column_type FROM (DESCRIBE t)") == [
            ("k", "INTEGER"),
            ("d", "DECIMAL(9,2)"),
        ]

    @every_way
    def test_append_binds_by_name_and_missing_columns_keep_their_default(self, way: str, tmp_path: Path) -> None:
        target(
            tmp_path, "CREATE TABLE t (a INTEGER, b INTEGER, c VARCHAR DEFAULT 'd'); INSERT INTO t VALUES (1, 2, 'x')"
        )
        write(tmp_path, way, output(WriteStrategy.APPEND), "SELECT 20::INTEGER AS b, 10::INTEGER AS a")
        assert shown(tmp_path, "SELECT * FROM t ORDER BY a") == [(1, 2, "x"), (10, 20, "d")]

    @every_way
    @pytest.mark.parametrize("strategy", [WriteStrategy.APPEND, WriteStrategy.MERGE])
    def test_an_extra_column_is_refused_by_name_and_nothing_is_written(
        self, strategy: WriteStrategy, way: str, tmp_path: Path
    ) -> None:
        target(tmp_path, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")
        keys = ("a",) if strategy is WriteStrategy.MERGE else ()
        with pytest.raises(PermanentError, match="no column 'extra'") as caught:
            write(tmp_path, way, output(strategy, keys=keys), "SELECT 2::INTEGER AS a, 3 AS extra")
        assert caught.value.code is Code.PZ0780
        assert "let `schema_policy: additive` add it" in (caught.value.hint or "")
        assert shown(tmp_path, "SELECT * FROM t") == [(1,)]

    @every_way
    def test_a_retyped_column_is_refused_naming_both_types(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a INTEGER, b DATE)")
        with pytest.raises(PermanentError) as caught:
            write(tmp_path, way, output(WriteStrategy.APPEND), "SELECT 1.5::DOUBLE AS a, 'x' AS b")
        assert caught.value.code is Code.PZ0780
        assert "'a' is INTEGER, not DOUBLE" in caught.value.message
        assert "'b' is DATE, not VARCHAR" in caught.value.message
        assert "drop the table and run with --full-refresh; no schema_policy changes a type" in (
            caught.value.hint or ""
        )
        assert "additive" not in (caught.value.hint or "")

    @every_way
    @pytest.mark.parametrize("policy", [SchemaPolicy.ADDITIVE, SchemaPolicy.EVOLVE])
    def test_no_policy_changes_a_type_and_the_hint_offers_none(
        self, policy: SchemaPolicy, way: str, tmp_path: Path
    ) -> None:
        target(tmp_path, "CREATE TABLE t (a DOUBLE)")
        wanted = output(WriteStrategy.APPEND, schema_policy=policy)
        with pytest.raises(PermanentError, match="'a' is DOUBLE, not DECIMAL") as caught:
            write(tmp_path, way, wanted, "SELECT 1.5::DECIMAL(10, 2) AS a")
        assert "additive" not in (caught.value.hint or "")

    @every_way
    def test_a_wider_target_column_takes_the_rows(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a BIGINT)")
        write(tmp_path, way, output(WriteStrategy.APPEND), "SELECT 1::INTEGER AS a")
        assert shown(tmp_path, "SELECT * FROM t") == [(1,)]

    @every_way
    def test_a_policy_may_add_columns(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")
        wanted = output(WriteStrategy.APPEND, schema_policy=SchemaPolicy.ADDITIVE)
        write(tmp_path, way, wanted, "SELECT 2::INTEGER AS a, 'n' AS new")
        assert shown(tmp_path, "SELECT * FROM t ORDER BY a") == [(1, None), (2, "n")]

    @every_way
    def test_replace_leaves_exactly_the_new_rows_and_columns(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (old INTEGER); INSERT INTO t VALUES (1)")
        write(tmp_path, way, output(WriteStrategy.REPLACE), "SELECT * FROM (VALUES (1, 'x'), (2, 'y')) AS v(a, b)")
        assert shown(tmp_path, "SELECT * FROM t ORDER BY a") == [(1, "x"), (2, "y")]
        write(tmp_path, way, output(WriteStrategy.REPLACE), "SELECT 1 AS a LIMIT 0")
        assert shown(tmp_path, "SELECT * FROM t") == []

    @every_way
    def test_merge_updates_and_inserts_by_key(self, way: str, tmp_path: Path) -> None:
        target(
            tmp_path,
            "CREATE TABLE t (v VARCHAR, k INTEGER, n INTEGER DEFAULT 7); INSERT INTO t VALUES ('old', 1, 1), ('kept', 9, 1)",
        )
        rows = "SELECT * FROM (VALUES (1, 'new'), (2, NULL)) AS s(k, v)"
        for _ in range(2):
            write(tmp_path, way, output(WriteStrategy.MERGE, keys=("k",)), rows)
            assert shown(tmp_path, "SELECT k, v, n FROM t ORDER BY k") == [(1, "new", 1), (2, None, 7), (9, "kept", 1)]

    @every_way
    def test_merge_into_a_table_with_a_primary_key(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (k INTEGER PRIMARY KEY, v VARCHAR); INSERT INTO t VALUES (1, 'old')")
        write(
            tmp_path,
            way,
            output(WriteStrategy.MERGE, keys=("k",)),
            "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS s(k, v)",
        )
        assert shown(tmp_path, "SELECT * FROM t ORDER BY k") == [(1, "a"), (2, "b")]

    @every_way
    def test_one_row_per_key_survives_the_last_in_the_order_of_all_columns(self, way: str, tmp_path: Path) -> None:
        rows = "SELECT * FROM (VALUES (1, 'a', 5), (1, 'c', 1), (1, 'b', 9), (2, 'x', 1)) AS s(k, v, n)"
        write(tmp_path, way, output(WriteStrategy.MERGE, keys=("k",)), rows)
        assert shown(tmp_path, "SELECT * FROM t ORDER BY k") == [(1, "c", 1), (2, "x", 1)]

    @every_way
    def test_one_row_per_key_survives_the_highest_by_the_declared_column(self, way: str, tmp_path: Path) -> None:
        rows = "SELECT * FROM (VALUES (1, 'a', 5), (1, 'c', NULL), (1, 'b', 9), (1, 'a', 9)) AS s(k, v, n)"
        write(tmp_path, way, output(WriteStrategy.MERGE, keys=("k",), dedupe_by="n"), rows)
        assert shown(tmp_path, "SELECT * FROM t") == [(1, "b", 9)]

    @every_way
    def test_merge_of_keys_alone_inserts_the_new_ones(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a INTEGER, b VARCHAR); INSERT INTO t VALUES (1, 'x')")
        rows = "SELECT * FROM (VALUES (1, 'x'), (1, 'y')) AS s(a, b)"
        write(tmp_path, way, output(WriteStrategy.MERGE, keys=("a", "b")), rows)
        assert shown(tmp_path, "SELECT * FROM t ORDER BY b") == [(1, "x"), (1, "y")]

    @every_way
    def test_composite_keys_do_not_run_together(self, way: str, tmp_path: Path) -> None:
        rows = "SELECT * FROM (VALUES ('a_b', 'c', 1), ('a', 'b_c', 2)) AS s(x, y, n)"
        write(tmp_path, way, output(WriteStrategy.MERGE, keys=("x", "y")), rows)
        assert len(shown(tmp_path, "SELECT * FROM t")) == 2

    @every_way
    def test_identifiers_of_any_kind_are_kept_exactly(self, way: str, tmp_path: Path) -> None:
        names = ["Order", "select", "my col", 'a"b', "ÄÖ", "it's", "{relation2}"]
        listed = ", ".join(f'{i} AS "{name.replace(chr(34), chr(34) * 2)}"' for i, name in enumerate(names))
        for strategy in WriteStrategy:
            keys = ("Order",) if strategy is WriteStrategy.MERGE else ()
            entity = f'T "{strategy}" é'
            for _ in range(2):
                write(tmp_path, way, output(strategy, entity, keys=keys), f"SELECT {listed}")
            quoted = entity.replace('"', '""')
            assert [row[0] for row in shown(tmp_path, f'DESCRIBE "{quoted}"')] == names

    @every_way
    def test_a_name_in_braces_is_a_name(self, way: str, tmp_path: Path) -> None:
        write(tmp_path, way, output(WriteStrategy.APPEND, "{rows}"), 'SELECT 1 AS "{rows}"')
        assert shown(tmp_path, 'SELECT "{rows}" FROM "{rows}"') == [(1,)]

    @every_way
    def test_a_schema_is_used_but_not_created(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE SCHEMA mart")
        write(tmp_path, way, output(WriteStrategy.APPEND, "mart.t"), "SELECT 1 AS a")
        assert shown(tmp_path, "SELECT * FROM mart.t") == [(1,)]
        with pytest.raises(PermanentError) as caught:
            write(tmp_path, way, output(WriteStrategy.APPEND, "nosuch.t"), "SELECT 1 AS a")
        assert caught.value.code is Code.PZ0780
        assert "CREATE SCHEMA nosuch" in (caught.value.hint or "")

    def test_a_file_of_another_version_names_both_versions(self, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a INTEGER)")
        content = bytearray((tmp_path / "w.duckdb").read_bytes())
        content[12] = 250  # the version of the storage, behind a checksum and the magic bytes
        content[:8] = storage_checksum(bytes(content[8:4096]))
        (tmp_path / "w.duckdb").write_bytes(content)
        with pytest.raises(PermanentError) as caught:
            write(tmp_path, "session", output(WriteStrategy.APPEND), "SELECT 1 AS a")
        assert caught.value.code is Code.PZ0781
        assert caught.value.message == (
            f"DuckDB file 'w.duckdb' was made by a newer version of DuckDB, which DuckDB {duckdb.__version__} here cannot read"
        )

    def test_a_file_of_a_version_that_duckdb_knows_names_it(self) -> None:
        text = (
            "IO Error: Trying to read a database file with version number 51, but we can only read versions between 64 and 68.\n"
            "The database file was created with DuckDB version v0.8.1.\n\nThe storage"
        )
        explained = explain(duckdb.IOException(text), "w.duckdb")
        assert explained is not None
        assert "was made by DuckDB version v0.8.1, which DuckDB " in explained.message

    def test_a_directory_where_the_file_belongs_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "w.duckdb").mkdir()
        with pytest.raises(PermanentError, match=r"'w\.duckdb' is a directory") as caught:
            write(tmp_path, "native", output(WriteStrategy.APPEND), "SELECT 1 AS a")
        assert caught.value.code is Code.PZ0724

    def test_a_file_where_the_directory_belongs_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "below").write_text("a file")
        with pytest.raises(PermanentError, match=r"leads through '.*below', which is no directory") as caught:
            write(tmp_path / "below", "native", output(WriteStrategy.APPEND), "SELECT 1 AS a")
        assert caught.value.code is Code.PZ0724

    def test_an_entity_of_three_parts_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(PermanentError) as caught:
            DuckDb().open_sink(spec(tmp_path)).native_copy(output(WriteStrategy.APPEND, "a.b.c"))
        assert caught.value.code is Code.PZ0353

    @every_way
    def test_a_broken_constraint_leaves_the_target_alone_and_shows_no_value(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a VARCHAR UNIQUE); INSERT INTO t VALUES ('secret')")
        with pytest.raises(PermanentError) as caught:
            write(tmp_path, way, output(WriteStrategy.APPEND), "SELECT * FROM (VALUES ('ok'), ('secret')) AS v(a)")
        assert "secret" not in caught.value.message
        assert shown(tmp_path, "SELECT * FROM t") == [("secret",)]

    def test_an_aborted_session_leaves_nothing_behind(self, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")
        schema = pa.schema([("a", pa.int32())])
        session = DuckDb().open_sink(spec(tmp_path)).begin_write(output(WriteStrategy.REPLACE), schema)
        session.write_batch(pa.record_batch([pa.array([2], pa.int32())], schema=schema))
        session.abort()
        session.close()
        assert shown(tmp_path, "SELECT * FROM t") == [(1,)]


@pytest.mark.parametrize("way", ["session", "shared session"])
class TestDeletes:
    def test_deletes_go_after_the_upserts_in_one_transaction(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (k INTEGER, v VARCHAR); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        wanted = output(WriteStrategy.MERGE, keys=("k",), on_delete=OnDelete.DELETE)
        write(tmp_path, way, wanted, "SELECT 1 AS k, 'new' AS v", "SELECT * FROM (VALUES (2), (8)) AS d(k)")
        assert shown(tmp_path, "SELECT * FROM t ORDER BY k") == [(1, "new"), (3, "c")]

    @pytest.mark.parametrize("on_delete", [OnDelete.DELETE, OnDelete.SOFT])
    def test_a_row_merged_under_another_spelling_of_its_key_stays(
        self, way: str, on_delete: OnDelete, tmp_path: Path
    ) -> None:
        target(tmp_path, "CREATE TABLE t (k VARCHAR COLLATE NOCASE, v INTEGER, _pz_deleted_at TIMESTAMPTZ)")
        target(tmp_path, "INSERT INTO t (k, v) VALUES ('a', 1), ('b', 1)")
        wanted = output(WriteStrategy.MERGE, keys=("k",), on_delete=on_delete)
        write(tmp_path, way, wanted, "SELECT 'A' AS k, 2 AS v", "SELECT unnest(['a', 'b']) AS k")
        assert shown(tmp_path, "SELECT k, v FROM t WHERE _pz_deleted_at IS NULL") == [("a", 2)]

    def test_soft_deletes_mark_the_row_and_a_later_upsert_revives_it(self, way: str, tmp_path: Path) -> None:
        wanted = output(WriteStrategy.MERGE, keys=("k",), on_delete=OnDelete.SOFT)
        write(tmp_path, way, wanted, "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS s(k, v)")
        write(tmp_path, way, wanted, "SELECT 3 AS k, 'c' AS v", "SELECT 2::INTEGER AS k")
        alive = "SELECT k, _pz_deleted_at IS NULL FROM t ORDER BY k"
        assert shown(tmp_path, alive) == [(1, True), (2, False), (3, True)]
        write(tmp_path, way, wanted, "SELECT 2 AS k, 'back' AS v")
        assert shown(tmp_path, alive) == [(1, True), (2, True), (3, True)]

    def test_soft_deletes_into_a_table_without_the_marker_need_the_policy(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (k INTEGER, v VARCHAR)")
        wanted = output(WriteStrategy.MERGE, keys=("k",), on_delete=OnDelete.SOFT)
        with pytest.raises(PermanentError, match="_pz_deleted_at"):
            write(tmp_path, way, wanted, "SELECT 1 AS k, 'a' AS v")
        write(tmp_path, way, replace(wanted, schema_policy=SchemaPolicy.ADDITIVE), "SELECT 1 AS k, 'a' AS v")
        assert shown(tmp_path, "SELECT * FROM t") == [(1, "a", None)]


class TestMarks:
    @staticmethod
    def attempt(run: str, ordinal: int, fingerprint: str = "2:abc") -> OutputSpec:
        attempt = WriteAttempt("n" * 16, run, ordinal, "run-1")
        return output(WriteStrategy.APPEND, attempt=attempt, slice=Slice("proj", "run-1", "n" * 16, fingerprint))

    @every_way
    def test_the_mark_commits_with_the_data(self, way: str, tmp_path: Path) -> None:
        write(tmp_path, way, self.attempt("run-1", 1), "SELECT * FROM (VALUES (1), (2)) AS v(a)")
        marks = "SELECT project, output, slice, run, ordinal, rows FROM _pz_slices"
        assert shown(tmp_path, marks) == [("proj", "t", f"run-1:{'n' * 16}:2:abc", "run-1", 1, 2)]
        sink = DuckDb().open_sink(spec(tmp_path))
        assert sink.settle(self.attempt("run-2", 1), "run-1", 1) is Settlement.COMMITTED
        assert sink.settle(self.attempt("run-2", 1), "run-1", 2) is Settlement.NOT_COMMITTED

    @every_way
    def test_a_slice_that_landed_is_not_delivered_twice(self, way: str, tmp_path: Path) -> None:
        for run in ("run-1", "run-2"):
            write(tmp_path, way, self.attempt(run, 1), "SELECT * FROM (VALUES (1), (2)) AS v(a)")
        assert shown(tmp_path, "SELECT a FROM t ORDER BY a") == [(1,), (2,)]

    @every_way
    def test_a_failed_write_leaves_no_mark(self, way: str, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a INTEGER UNIQUE); INSERT INTO t VALUES (1)")
        with pytest.raises(ConnectorError):
            write(tmp_path, way, self.attempt("run-1", 1), "SELECT 1::INTEGER AS a")
        sink = DuckDb().open_sink(spec(tmp_path))
        assert sink.settle(self.attempt("run-2", 1), "run-1", 1) is Settlement.NOT_COMMITTED

    def test_what_cannot_be_told_is_unknown(self, tmp_path: Path) -> None:
        sink = DuckDb().open_sink(spec(tmp_path))
        assert sink.settle(output(WriteStrategy.APPEND), "run-1", 1) is Settlement.UNKNOWN
        assert sink.settle(self.attempt("run-2", 1), "run-1", 1) is Settlement.NOT_COMMITTED


class TestReading:
    @staticmethod
    def native(base: Path, wanted: DatasetSpec, hints: ReadHints | None = None) -> Rows:
        scan = DuckDb().open_source(spec(base, written=False)).native_scan(wanted, hints or ReadHints())
        with connect() as connection:
            for statement in scan.setup:
                connection.execute(statement)
            return connection.execute(f"SELECT * FROM {scan.relation}").fetchall()

    @staticmethod
    def batches(base: Path, wanted: DatasetSpec, hints: ReadHints | None = None) -> Rows:
        source = DuckDb().open_source(spec(base, written=False))
        (partition,) = source.plan_read(wanted, hints or ReadHints())
        cancel = CancelToken()
        found = [tuple(row.values()) for batch in partition.read(BatchOptions(), cancel) for row in batch.to_pylist()]
        cancel.cancel()  # must leave the closed cursor of a finished read alone
        return found

    def test_tables_views_and_schemas_are_read(self, tmp_path: Path) -> None:
        target(
            tmp_path, "CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 1 AS a; CREATE VIEW v AS SELECT a + 1 AS b FROM s.t"
        )
        for read in (self.native, self.batches):
            assert read(tmp_path, DatasetSpec("c", "s.t", {})) == [(1,)]
            assert read(tmp_path, DatasetSpec("c", "v", {})) == [(2,)]

    def test_a_contract_reads_exactly_its_columns(self, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t AS SELECT 1 AS a, 2 AS b, 3 AS c")
        assert self.native(tmp_path, DatasetSpec("c", "t", {}, {"c": "BIGINT", "a": "INTEGER"})) == [(3, 1)]

    @pytest.mark.parametrize(
        ("lower", "upper", "expected"),
        [
            (None, None, [1, 2, 3, None]),
            (Bound("1", False), None, [2, 3, None]),
            (Bound("2", True), None, [2, 3, None]),
            (Bound("1", False), Bound("2", True), [2, None]),
            (Bound("1", True), Bound("2", False), [1, None]),
        ],
    )
    def test_bounds_are_applied_and_rows_without_a_cursor_left_to_the_engine(
        self, lower: Bound | None, upper: Bound | None, expected: list[int | None], tmp_path: Path
    ) -> None:
        target(tmp_path, "CREATE TABLE t AS SELECT * FROM (VALUES (1), (2), (3), (NULL)) AS v(a)")
        wanted = DatasetSpec("c", "t", {}, None, "a", "int", lower, upper)
        for read in (self.native, self.batches):
            assert [row[0] for row in read(tmp_path, wanted)] == expected

    def test_columns_and_filters_are_pushed(self, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t AS SELECT * FROM (VALUES (1, 'x'), (2, 'y')) AS v(a, b)")
        for read in (self.native, self.batches):
            assert read(tmp_path, DatasetSpec("c", "t", {}), ReadHints(("a",), "b = 'y' OR a = 7")) == [(2,)]

    def test_the_probe_tells_what_only_the_file_knows(self, tmp_path: Path) -> None:
        target(
            tmp_path,
            "CREATE TABLE t AS SELECT * FROM (VALUES ('2024-01-02 03:04:05+02'::TIMESTAMPTZ, 1), (NULL, 2)) AS v(moment, n)",
        )
        probe = DuckDb().open_source(spec(tmp_path)).probe(DatasetSpec("c", "t", {}, None, "moment"))
        assert probe.columns == (Column("moment", "TIMESTAMP WITH TIME ZONE"), Column("n", "INTEGER"))
        assert (probe.rows, probe.upper, probe.null_cursors) == (2, "2024-01-02T01:04:05.000000", 1)

    def test_the_probe_refuses_a_contract_that_the_table_does_not_keep(self, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t AS SELECT 'x' AS a, 1::INTEGER AS b")
        source = DuckDb().open_source(spec(tmp_path))
        assert source.probe(DatasetSpec("c", "t", {}, {"b": "BIGINT"})).columns == (Column("b", "BIGINT"),)
        with pytest.raises(PermanentError) as caught:
            source.probe(DatasetSpec("c", "t", {}, {"a": "INTEGER", "z": "DATE"}))
        assert caught.value.code is Code.PZ0331
        assert "'a' is VARCHAR, declared INTEGER" in caught.value.message
        assert "no column 'z'" in caught.value.message

    def test_a_missing_table_is_named(self, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t (a INTEGER)")
        source = DuckDb().open_source(spec(tmp_path))
        with pytest.raises(PermanentError, match="no table 'nope'"):
            source.probe(DatasetSpec("c", "nope", {}))

    def test_a_missing_file_is_refused_while_planning_and_not_created(self, tmp_path: Path) -> None:
        with pytest.raises(PermanentError) as caught:
            DuckDb().open_source(spec(tmp_path)).native_scan(DatasetSpec("c", "t", {}), ReadHints())
        assert caught.value.code is Code.PZ0353
        assert list(tmp_path.iterdir()) == []


class TestFile:
    def test_reader_and_writer_of_one_connection_attach_the_file_by_the_same_statement(self, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t AS SELECT 1 AS a")
        connector = DuckDb()
        scan = connector.open_source(spec(tmp_path)).native_scan(DatasetSpec("c", "t", {}), ReadHints())
        copy = connector.open_sink(spec(tmp_path)).native_copy(output(WriteStrategy.REPLACE, "u"))
        assert copy is not None
        assert scan.setup == copy.setup
        with connect() as connection:
            for statement in scan.setup:
                connection.execute(statement)
            run_native(connection, copy, scan.relation)
        assert shown(tmp_path, "SELECT * FROM u") == [(1,)]

    def test_a_session_works_inside_the_runs_database_while_the_file_is_attached_there(self, tmp_path: Path) -> None:
        target(tmp_path, "CREATE TABLE t AS SELECT 1 AS a")
        sink = DuckDb().open_sink(spec(tmp_path))
        with connect() as run:
            for statement in (
                DuckDb().open_source(spec(tmp_path)).native_scan(DatasetSpec("c", "t", {}), ReadHints()).setup
            ):
                run.execute(statement)
            sink.use_database(run.cursor)
            session = sink.begin_write(output(WriteStrategy.APPEND), pa.schema([("a", pa.int32())]))
            session.write_batch(pa.record_batch({"a": pa.array([2], pa.int32())}))
            session.commit()
            session.close()
            assert sink.probe_output(output(WriteStrategy.APPEND)).columns == (Column("a", "INTEGER"),)
        assert shown(tmp_path, "SELECT * FROM t ORDER BY a") == [(1,), (2,)]

    def test_files_of_similar_names_have_aliases_of_their_own_and_one_file_has_one(self, tmp_path: Path) -> None:
        def attached(connection: str, path: str) -> tuple[str, ...]:
            sink = DuckDb().open_sink(ConnectionSpec(connection, {"path": path}, tmp_path))
            scan = sink.native_copy(output(WriteStrategy.APPEND))
            assert scan is not None
            return tuple(scan.setup)

        assert len({attached("c", path) for path in ("a_b.duckdb", "A_B.duckdb", "a-b.duckdb", "x/a-b.duckdb")}) == 4
        assert attached("one", "a.duckdb") == attached("two", "./x/../a.duckdb")
        places = [
            DuckDb().location(ConnectionSpec("c", {"path": path}, tmp_path))
            for path in ("a", "./a", "a/", "b", "x/../a")
        ]
        assert [place == places[0] for place in places] == [True, True, True, False, False]

    def test_a_file_that_another_process_holds_is_a_passing_fault(self, tmp_path: Path) -> None:
        code = (
            "import duckdb, sys; c = duckdb.connect(sys.argv[1]); c.execute('CREATE TABLE t (a INTEGER)');"
            "print('open', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "w.duckdb")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdin is not None
            holder.stdout.readline()
            try:
                with pytest.raises(TransientError) as caught:
                    DuckDb().open_source(spec(tmp_path)).probe(DatasetSpec("c", "t", {}))
                report = DuckDb().check_connection(spec(tmp_path))
            finally:
                holder.stdin.close()
        assert caught.value.code is Code.PZ0533
        assert "w.duckdb" in caught.value.message
        assert (report.ok, "another process" in (report.message or "")) == (False, True)

    @pytest.mark.parametrize("content", [b"", b"hello" * 5000, b"SQLite format 3\x00" + b"\x00" * 5000])
    def test_a_file_that_is_no_duckdb_database_is_refused(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "w.duckdb").write_bytes(content)
        for ask in self.questions(tmp_path):
            with pytest.raises(PermanentError) as caught:
                ask()
            assert caught.value.code is Code.PZ0781
        assert (tmp_path / "w.duckdb").read_bytes() == content
        assert not DuckDb().check_connection(spec(tmp_path)).ok

    @staticmethod
    def questions(base: Path) -> list[Callable[[], object]]:
        schema = pa.schema([("a", pa.int32())])
        return [
            lambda: DuckDb().open_source(spec(base)).probe(DatasetSpec("c", "t", {})),
            lambda: DuckDb().open_sink(spec(base)).probe_output(output(WriteStrategy.APPEND)),
            lambda: DuckDb().open_sink(spec(base)).begin_write(output(WriteStrategy.APPEND), schema),
        ]

    def test_the_check_predicts_the_run(self, tmp_path: Path) -> None:
        connector = DuckDb()
        assert connector.check_connection(spec(tmp_path)).ok
        nowhere = ConnectionSpec("c", {"path": "no/such/w.duckdb"}, tmp_path)
        assert not connector.check_connection(nowhere).ok
        target(tmp_path, "SELECT 1")
        assert connector.check_connection(spec(tmp_path)).ok

    def test_a_path_inside_the_projects_own_folder_is_refused(self, tmp_path: Path) -> None:
        connector = DuckDb()
        assert connector.validate(ConnectionSpec("c", {"path": ".pz/runs/x/staging.duckdb"}, tmp_path))
        assert connector.validate(ConnectionSpec("c", {"path": "data/../.pz/x.duckdb"}, tmp_path))
        assert not connector.validate(ConnectionSpec("c", {"path": ".pzx/x.duckdb"}, tmp_path))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("type_", TYPES)
def test_every_type_survives_a_duckdb_file(type_: str, way: str, tmp_path: Path) -> None:
    connection = connect()
    connection.execute(create_table(type_))
    expected = connection.execute(fingerprint("t", type_)).fetchall()
    values = ", ".join(f"({i}, CAST({value} AS {type_}))" for i, value in enumerate((*TYPES[type_], "NULL")))
    rows = f"SELECT i::INTEGER AS i, v::{type_} AS v FROM (VALUES {values}) AS x(i, v)"
    write(tmp_path, way, output(WriteStrategy.APPEND), rows)
    with connect() as reader:
        reader.execute(f"ATTACH '{tmp_path}/w.duckdb' AS f (READ_ONLY)")
        assert reader.execute(fingerprint("f.t", type_)).fetchall() == expected


def test_a_folder_that_cannot_be_locked_leaves_a_new_file_to_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network file systems may lock files that are open for writing and no folders."""

    def refuse(folder: int, operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr("pz.connectors.databases.fcntl.flock", refuse)
    make_database(tmp_path / "w.duckdb")
    assert list(tmp_path.iterdir()) == []
