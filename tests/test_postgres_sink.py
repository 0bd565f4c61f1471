"""Writing to PostgreSQL: strategies, creation, keys, deletes, what an abort leaves."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from postgres_server import Database
from postgres_support import APPEND, MERGE, REPLACE, Relation, marked, output, rows_of, sink_of, write
from pz.connectors.contract import OnDelete, SchemaPolicy
from pz.errors import Code, ConnectorError, PermanentError

THREE = "SELECT * FROM (VALUES (1, 'one'), (2, NULL), (3, '')) v(id, name)"


def test_append_creates_the_table_and_keeps_null_and_empty_text_apart(database: Database) -> None:
    sink = sink_of(database)
    assert not sink.probe_output(output("t")).exists
    result = write(sink, output("t"), THREE)
    assert (result.rows, result.batches) == (3, 1)
    assert rows_of(database, "t") == [(1, "one"), (2, None), (3, "")]
    write(sink, output("t"), "SELECT 4 AS id, 'four' AS name")
    assert len(rows_of(database, "t")) == 4
    assert sink.probe_output(output("t")).exists


def test_a_table_is_created_though_no_row_comes(database: Database) -> None:
    write(sink_of(database), output("empty", REPLACE), "SELECT 1::BIGINT AS id, now() AS at LIMIT 0")
    kinds = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'empty'"
    assert sorted(database.rows(kinds)) == [("at", "timestamp with time zone"), ("id", "bigint")]


def test_append_matches_columns_by_name_and_leaves_others_to_their_defaults(database: Database) -> None:
    database.run("CREATE TABLE t (name text, extra text DEFAULT 'dflt', id int)")
    write(sink_of(database), output("t"), THREE)
    assert rows_of(database, "t") == [("", "dflt", 3), ("one", "dflt", 1), (None, "dflt", 2)]


@pytest.mark.parametrize("method", ["truncate", "delete", "swap"])
def test_replace_leaves_exactly_the_new_rows_whatever_the_method(database: Database, method: str) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, name text)", "INSERT INTO t VALUES (1, 'old'), (9, 'gone')")
    out = output("t", REPLACE, options={"replace_method": method})
    sink = sink_of(database)
    sink.probe_output(out)
    for _ in range(3):
        write(sink, out, THREE)
        assert rows_of(database, "t") == [(1, "one"), (2, None), (3, "")]
    write(sink, out, "SELECT 1 AS id, 'x' AS name LIMIT 0")
    assert rows_of(database, "t") == []
    assert database.rows("SELECT indexname FROM pg_indexes WHERE tablename = 't'") == [("t_pkey",)]


def test_merge_inserts_updates_and_leaves_other_columns_and_rows_alone(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, name text, note text DEFAULT 'n')",
        "INSERT INTO t VALUES (1, 'old', 'kept'), (7, 'seven', 'kept')",
    )
    write(sink_of(database), output("t", MERGE, keys=("id",)), THREE)
    assert rows_of(database, "t") == [(1, "one", "kept"), (2, None, "n"), (3, "", "n"), (7, "seven", "kept")]


def test_merge_creates_its_target_with_the_keys_as_primary_key(database: Database) -> None:
    out = output("t", MERGE, keys=("a", "b"))
    sink = sink_of(database)
    for name in ("x", "y"):
        write(sink, out, f"SELECT 1 AS a, 'k' AS b, '{name}' AS name")
    assert rows_of(database, "t") == [(1, "k", "y")]
    assert sink.probe_output(out).exists


def test_merge_keeps_one_row_per_key_decided_by_content(database: Database) -> None:
    rows = "SELECT * FROM (VALUES (1, 5, 'b'), (1, 7, 'a'), (1, 6, 'c'), (2, NULL, 'z')) v(id, n, s)"
    write(sink_of(database), output("last", MERGE, keys=("id",)), rows)
    assert rows_of(database, "last") == [(1, 7, "a"), (2, None, "z")]
    write(sink_of(database), output("by", MERGE, keys=("id",), dedupe_by="s"), rows)
    assert rows_of(database, "by") == [(1, 6, "c"), (2, None, "z")]


def test_merge_of_a_key_that_is_all_there_is_changes_nothing(database: Database) -> None:
    out = output("t", MERGE, keys=("id",))
    for _ in range(2):
        write(sink_of(database), out, "SELECT 1 AS id")
    assert rows_of(database, "t") == [(1,)]


@pytest.mark.parametrize(
    "index",
    [
        "CREATE UNIQUE INDEX ON t (id) WHERE NOT gone",
        "CREATE UNIQUE INDEX ON t (abs(id))",
        "CREATE UNIQUE INDEX ON t (id, gone)",
        "CREATE INDEX ON t (id)",
        "ALTER TABLE t ADD UNIQUE (id) DEFERRABLE",
    ],
)
def test_merge_needs_a_unique_index_on_exactly_its_keys(database: Database, index: str) -> None:
    database.run("CREATE TABLE t (id int, gone bool)", index)
    with pytest.raises(PermanentError, match="unique index") as refused:
        sink_of(database).probe_output(output("t", MERGE, keys=("id",)))
    assert refused.value.code is Code.PZ0742


def test_a_merge_into_a_table_that_others_inherit_from_is_refused(database: Database) -> None:
    database.run("CREATE TABLE t (k bigint PRIMARY KEY)", "CREATE TABLE child () INHERITS (t)")
    with pytest.raises(PermanentError, match="inherit from it") as refused:
        sink_of(database).probe_output(output("t", MERGE, keys=("k",)))
    assert refused.value.code is Code.PZ0742


def test_a_unique_index_counts_whatever_the_order_of_its_columns(database: Database) -> None:
    database.run("CREATE TABLE t (a int, b int, c int)", "CREATE UNIQUE INDEX ON t (b, a) INCLUDE (c)")
    write(sink_of(database), output("t", MERGE, keys=("a", "b")), "SELECT 1 AS a, 2 AS b, 3 AS c")
    assert rows_of(database, "t") == [(1, 2, 3)]


def test_deletes_are_applied_after_the_upserts(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, name text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    out = output("t", MERGE, keys=("id",), on_delete=OnDelete.DELETE)
    result = write(sink_of(database), out, "SELECT 4 AS id, 'd' AS name", deletes="SELECT unnest([1, 3, 99]) AS id")
    assert result.rows == 1
    assert rows_of(database, "t") == [(2, "b"), (4, "d")]


def test_soft_deletes_stamp_once_and_an_upsert_clears_the_stamp(database: Database) -> None:
    out = output("t", MERGE, keys=("id",), on_delete=OnDelete.SOFT)
    sink = sink_of(database)
    write(sink, out, "SELECT unnest([1, 2]) AS id, 'x' AS name")
    write(sink, out, "SELECT 1 AS id, 'x' AS name LIMIT 0", deletes="SELECT 1 AS id")
    [(stamp,)] = database.rows("SELECT _pz_deleted_at FROM t WHERE id = 1")
    assert abs((datetime.now(UTC) - stamp).total_seconds()) < 600
    write(sink, out, "SELECT 1 AS id, 'x' AS name LIMIT 0", deletes="SELECT 1 AS id")
    assert database.rows("SELECT _pz_deleted_at FROM t WHERE id = 1") == [(stamp,)]
    write(sink, out, "SELECT 1 AS id, 'again' AS name")
    assert rows_of(database, "t") == [(1, "again", None), (2, "x", None)]


def test_a_soft_delete_needs_its_column_unless_the_policy_lets_it_be_added(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY, name text)")
    out = output("t", MERGE, keys=("id",), on_delete=OnDelete.SOFT)
    with pytest.raises(PermanentError, match="_pz_deleted_at"):
        sink_of(database).probe_output(out)
    additive = output("t", MERGE, keys=("id",), on_delete=OnDelete.SOFT, schema_policy=SchemaPolicy.ADDITIVE)
    write(sink_of(database), additive, "SELECT 1 AS id, 'x' AS name")
    assert rows_of(database, "t") == [(1, "x", None)]
    with pytest.raises(PermanentError, match="has no column"):
        write(sink_of(database), additive, "SELECT 1 AS id, 'x' AS name, 2 AS new")


def test_a_partial_update_leaves_the_unchanged_columns_alone(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, big text NOT NULL, n int)",
        "INSERT INTO t VALUES (1, 'large', 1), (2, 'huge', 2)",
    )
    out = output("t", MERGE, keys=("id",), on_delete=OnDelete.DELETE)
    empty = "SELECT 1 AS id, 'x' AS big, 1 AS n LIMIT 0"
    partial = ("SELECT 1 AS id, NULL::VARCHAR AS big, 10 AS n", ("big",))
    write(sink_of(database), out, empty, partials=[partial])
    assert rows_of(database, "t") == [(1, "large", 10), (2, "huge", 2)]
    gone = ("SELECT 5 AS id, NULL::VARCHAR AS big, 10 AS n", ("big",))
    with pytest.raises(PermanentError, match="not there") as refused:
        write(sink_of(database), out, empty, partials=[partial, gone])
    assert refused.value.code is Code.PZ0745
    assert "REPLICA IDENTITY FULL" in str(refused.value.hint)
    assert rows_of(database, "t") == [(1, "large", 10), (2, "huge", 2)]


@pytest.mark.parametrize("strategy", [APPEND, REPLACE, MERGE])
def test_an_abort_leaves_no_trace(database: Database, strategy: object) -> None:
    relation = Relation(THREE)
    for table in ("absent", "present"):
        if table == "present":
            database.run(
                "CREATE TABLE present (id int PRIMARY KEY, name text)", "INSERT INTO present VALUES (9, 'old')"
            )
        before = database.rows("SELECT relname, relfilenode FROM pg_class ORDER BY 1")
        out = output(table, strategy, keys=("id",) if strategy is MERGE else (), columns=relation.columns)  # type: ignore[arg-type]
        session = sink_of(database).begin_write(out, relation.table.schema)
        session.write_batch(relation.batches()[0])
        session.abort()
        session.close()
        with pytest.raises(RuntimeError):
            session.commit()
        assert database.rows("SELECT relname, relfilenode FROM pg_class ORDER BY 1") == before
    assert rows_of(database, "present") == [(9, "old")]


def test_a_session_that_is_only_closed_is_rolled_back(database: Database) -> None:
    relation = Relation(THREE)
    session = sink_of(database).begin_write(output("t", columns=relation.columns), relation.table.schema)
    session.write_batch(relation.batches()[0])
    session.close()
    assert database.rows("SELECT to_regclass('t')") == [(None,)]


@pytest.mark.parametrize("method", ["truncate", "delete", "swap"])
def test_a_replace_that_fails_leaves_the_old_rows(database: Database, method: str) -> None:
    database.run("CREATE TABLE t (id int CHECK (id < 100), name text)", "INSERT INTO t VALUES (1, 'old')")
    out = output("t", REPLACE, options={"replace_method": method})
    with pytest.raises(PermanentError, match="check constraint") as refused:
        write(sink_of(database), out, "SELECT 424242 AS id, 'secret' AS name")
    assert "424242" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert rows_of(database, "t") == [(1, "old")]


def test_identity_generated_and_default_columns(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, double int GENERATED ALWAYS AS (a * 2) STORED)"
    )
    sink = sink_of(database)
    write(sink, output("t"), "SELECT 5 AS a")
    write(sink, output("t"), "SELECT 50 AS id, 6 AS a, 0 AS double")
    write(sink, output("t", MERGE, keys=("id",)), "SELECT 50 AS id, 7 AS a, 0 AS double")
    assert rows_of(database, "t") == [(1, 5, 10), (50, 7, 14)]
    for method in ("truncate", "delete", "swap"):
        write(sink, output("t", REPLACE, options={"replace_method": method}), "SELECT 3 AS id, 1 AS a, 0 AS double")
        assert rows_of(database, "t") == [(3, 1, 2)]


def test_identifiers_of_any_spelling(database: Database) -> None:
    columns = ["Order", "user", "my col", "ÄÖ", 'a"b', "select", "x;drop table t"]
    listed = ", ".join(f'{i} AS "{name.replace(chr(34), chr(34) * 2)}"' for i, name in enumerate(columns))
    sink = sink_of(database)
    database.run('CREATE SCHEMA "My Schema"')
    for strategy, keys in ((APPEND, ()), (MERGE, ("Order", 'a"b'))):
        entity = f'My Schema.Täb"le {strategy}'
        for _ in range(2):
            write(sink, output(entity, strategy, keys=keys), f"SELECT {listed}")
        quoted = entity.split(".")[1].replace('"', '""')
        found = database.rows(f'SELECT * FROM "My Schema"."{quoted}"')
        assert set(found) == {tuple(range(len(columns)))}
        assert len(found) == (2 if strategy is APPEND else 1)


def test_names_that_postgres_would_cut_are_refused(database: Database) -> None:
    with pytest.raises(PermanentError, match="63 bytes"):
        write(sink_of(database), output("t"), f"SELECT 1 AS {'c' * 70}a, 2 AS {'c' * 70}b")


@pytest.mark.parametrize(
    ("ddl", "relation", "words"),
    [
        ("id int", "SELECT 1::BIGINT AS id", "BIGINT"),
        ("id timestamp", "SELECT now() AS id", "TIME ZONE"),
        ("id timestamptz", "SELECT now()::TIMESTAMP AS id", "TIMESTAMP"),
        ("id int", "SELECT 'x' AS id", "VARCHAR"),
        ("id numeric(10,1)", "SELECT 1.25::DECIMAL(9,2) AS id", "DECIMAL"),
        ("other int", "SELECT 1 AS id", "has no column"),
        ("id int, must text NOT NULL", "SELECT 1 AS id", "NOT NULL"),
        ("id int[]", "SELECT ['a'] AS id", r"VARCHAR\[\]"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_row(database: Database, ddl: str, relation: str, words: str) -> None:
    database.run(f"CREATE TABLE t ({ddl})")
    with pytest.raises(PermanentError, match=words) as refused:
        write(sink_of(database), output("t"), relation)
    assert refused.value.code is Code.PZ0741


def test_evolve_adds_columns_and_widens_but_never_narrows(database: Database) -> None:
    database.run("CREATE TABLE t (id int, name varchar(3), price numeric(6,2))", "INSERT INTO t VALUES (1, 'abc', 1.5)")
    out = output("t", schema_policy=SchemaPolicy.EVOLVE)
    write(
        sink_of(database),
        out,
        "SELECT 5000000000 AS id, 'longer' AS name, 1.2345::DECIMAL(9,4) AS price, DATE '2024-01-02' AS d",
    )
    shown = "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0"
    assert dict(database.rows(shown)) == {
        "id": "bigint",
        "name": "character varying(6)",
        "price": "numeric(9,4)",
        "d": "date",
    }
    write(sink_of(database), out, "SELECT 2::SMALLINT AS id, 'x' AS name")
    assert len(rows_of(database, "t")) == 3
    assert (1, "abc", Decimal("1.5000"), None) in rows_of(database, "t")
    with pytest.raises(PermanentError, match="VARCHAR"):
        write(sink_of(database), out, "SELECT 'x' AS id")


def test_partitioned_targets_are_written_through_their_root(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE t_2024 PARTITION OF t FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
        "CREATE TABLE t_rest PARTITION OF t DEFAULT",
    )
    rows = "SELECT * FROM (VALUES (1, DATE '2024-05-05'), (2, DATE '2025-05-05')) v(id, day)"
    sink = sink_of(database)
    for out in (output("t"), output("t", MERGE, keys=("id", "day")), output("t", REPLACE)):
        write(sink, out, rows)
        assert len(rows_of(database, "t")) == 2
    assert len(rows_of(database, "t_2024")) == 1
    with pytest.raises(PermanentError, match="inheritance or partitions"):
        sink.probe_output(output("t", REPLACE, options={"replace_method": "swap"}))


@pytest.mark.parametrize(
    ("setup", "out", "words"),
    [
        ("CREATE VIEW t AS SELECT 1 AS id", output("t"), "view"),
        ("SELECT 1", output("nowhere.t"), "schema"),
        ("SELECT 1", output("pg_catalog.t"), "belongs to the server"),
        ("SELECT 1", output("pg_catalog.pg_class"), "belongs to the server"),
        ("SELECT 1", output("information_schema.t"), "belongs to the server"),
        ("SELECT 1", output("pg_toast.t"), "belongs to the server"),
        (
            "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE c (id int REFERENCES t)",
            output("t", REPLACE),
            "foreign keys",
        ),
        (
            "CREATE TABLE t (id int); CREATE VIEW v AS SELECT * FROM t",
            output("t", REPLACE, options={"replace_method": "swap"}),
            "views",
        ),
    ],
)
def test_the_probe_refuses_what_could_not_be_written(database: Database, setup: str, out: object, words: str) -> None:
    database.run(*setup.split("; "))
    with pytest.raises(PermanentError, match=words):
        sink_of(database).probe_output(out)  # type: ignore[arg-type]


def test_a_nul_character_is_refused_without_showing_the_text(database: Database) -> None:
    with pytest.raises(PermanentError, match="NUL") as refused:
        write(sink_of(database), output("t"), "SELECT 'top' || chr(0) || 'secret' AS name")
    assert "secret" not in str(refused.value)
    write(sink_of(database), output("t"), r"SELECT 'a\u0000b' AS name")
    assert rows_of(database, "t") == [(r"a\u0000b",)]


def test_a_value_out_of_range_names_the_column_and_not_the_value(database: Database) -> None:
    database.run("CREATE TABLE t (price numeric(4,2))")
    with pytest.raises(ConnectorError, match="SQLSTATE 22003") as refused:
        write(sink_of(database), output("t"), "SELECT 987654.25::DECIMAL(12,2) AS price")
    assert "987654" not in str(refused.value)


def test_a_text_of_backslashes_quotes_and_lines_arrives_as_it_is(database: Database) -> None:
    texts = ["a\\", "\\N", "\\.", "\t", "line\nbreak", "\r\n", '"', "'", ",", " x ", "null", "NULL", "é🦉", "{a,b}"]
    listed = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
    write(sink_of(database), output("t"), f"SELECT unnest([{listed}]) AS v")
    assert sorted(row[0] for row in rows_of(database, "t")) == sorted(texts)


def test_a_password_with_awkward_characters_works_and_shows_in_no_message(database: Database) -> None:
    from postgres_server import PASSWORD

    wrong = sink_of(database, password=PASSWORD + "x")
    with pytest.raises(ConnectorError) as refused:
        wrong.probe_output(output("t"))
    assert PASSWORD not in str(refused.value)
    assert isinstance(refused.value, PermanentError)


@pytest.mark.parametrize("kind", ["name", '"char"'])
def test_a_text_that_the_server_would_cut_without_a_word_is_refused(database: Database, kind: str) -> None:
    database.run(f"CREATE TABLE t (v {kind})")
    write(sink_of(database), output("t", APPEND), Relation("SELECT 'x' AS v"))
    with pytest.raises(PermanentError, match="would cut it at") as refused:
        write(sink_of(database), output("t", APPEND), Relation("SELECT repeat('x', 64) AS v"))
    assert "xx" not in str(refused.value)
    assert database.rows("SELECT v::text FROM t") == [("x",)]


def test_a_swap_keeps_what_hangs_on_the_table_without_being_part_of_it(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text NOT NULL)",
        "CREATE UNIQUE INDEX by_v ON t (v)",
        "ALTER TABLE t CLUSTER ON by_v",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX by_v",
        "ALTER TABLE t ALTER v SET STATISTICS 500",
    )
    kept = """
        SELECT c.relreplident::text, a.attstattarget, array_agg(format('%s %s %s', i.indexrelid::regclass, indisclustered,
               indisreplident) ORDER BY i.indexrelid::regclass::text)::text
        FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid AND attname = 'v' JOIN pg_index i ON indrelid = c.oid
        WHERE c.oid = 't'::regclass GROUP BY 1, 2
    """
    before = database.rows(kept)
    out = output("t", REPLACE, options={"replace_method": "swap"})
    write(sink_of(database), out, Relation("SELECT 1::BIGINT AS id, 'a' AS v"))
    assert database.rows(kept) == before
    database.run("ALTER TABLE t REPLICA IDENTITY FULL")
    write(sink_of(database), out, Relation("SELECT 1::BIGINT AS id, 'a' AS v"))
    assert database.rows("SELECT relreplident::text FROM pg_class WHERE oid = 't'::regclass") == [("f",)]


def test_a_role_that_cannot_reach_all_rows_or_stage_new_ones_is_refused_by_the_probe(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text)",
        "CREATE ROLE narrow LOGIN PASSWORD 'n'",
        "GRANT USAGE ON SCHEMA public TO narrow",
        "GRANT ALL ON t TO narrow",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY late ON t USING (id > 1)",
    )
    sink = sink_of(database, user="narrow", password="n")
    delete = output("t", REPLACE, options={"replace_method": "delete"})
    try:
        for out in (delete, output("t", MERGE, keys=("id",), on_delete=OnDelete.DELETE)):
            with pytest.raises(PermanentError, match="row security"):
                sink.probe_output(out)
        sink.probe_output(output("t", MERGE, keys=("id",)))
        evolving = output("t", schema_policy=SchemaPolicy.EVOLVE, options={"ledger": False})
        with pytest.raises(PermanentError, match="takes no COPY") as refused:
            sink.probe_output(output("t", options={"ledger": False}))
        assert "BYPASSRLS" in str(refused.value.hint)
        sink.probe_output(evolving)
        write(sink, evolving, "SELECT 5::BIGINT AS id, 'new'::VARCHAR AS v")
        assert database.rows("SELECT v FROM t") == [("new",)]
        database.run(
            f"REVOKE TEMPORARY ON DATABASE {database.name} FROM PUBLIC", "GRANT CREATE ON SCHEMA public TO narrow"
        )
        for out in (output("t", REPLACE), evolving, output("new", MERGE, keys=("id",))):
            with pytest.raises(PermanentError, match="temporary tables"):
                sink.probe_output(out)
        for out in (output("new"), output("new", REPLACE), output("new", schema_policy=SchemaPolicy.EVOLVE)):
            assert not sink.probe_output(out).exists
            write(sink, out, "SELECT 1::BIGINT AS id")
            database.run("DROP TABLE new")
    finally:
        database.run(
            f"GRANT TEMPORARY ON DATABASE {database.name} TO PUBLIC", "DROP OWNED BY narrow", "DROP ROLE narrow"
        )


def test_a_role_that_cannot_mark_what_it_appends_is_refused_by_the_probe(database: Database) -> None:
    database.run(
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (id bigint PRIMARY KEY)",
        "CREATE ROLE writer LOGIN PASSWORD 'w'",
        "GRANT INSERT, SELECT, TRUNCATE ON s.t TO writer",
    )
    sink, out = sink_of(database, user="writer", password="w"), output("s.t")
    plain = output("s.t", options={"ledger": False})
    try:
        for refused, words, grant in (
            (plain, "lacks USAGE", "GRANT USAGE ON SCHEMA"),
            (out, "may not create _pz_slices", "GRANT CREATE ON SCHEMA"),
            (out, "may not use _pz_slices", 'SELECT, INSERT, UPDATE ON "s"."_pz_slices"'),
        ):
            with pytest.raises(PermanentError, match=words) as told:
                sink.probe_output(refused)
            assert told.value.code is Code.PZ0741
            assert grant in str(told.value.hint)
            if refused is plain:
                database.run("GRANT USAGE ON SCHEMA s TO writer")
                write(sink, plain, "SELECT 1::BIGINT AS id")
            else:
                write(sink_of(database), marked(out), "SELECT 2::BIGINT AS id WHERE false")
        database.run("GRANT SELECT, INSERT, UPDATE ON s._pz_slices TO writer")
        sink.probe_output(out)
        write(sink, marked(out, run="r2", content="f2"), "SELECT 3::BIGINT AS id")
        assert rows_of(database, "s.t") == [(1,), (3,)]
        with pytest.raises(PermanentError, match=r"lacks CREATE on the schema"):
            sink.probe_output(output("s.t", REPLACE, options={"replace_method": "swap"}))
    finally:
        database.run("DROP OWNED BY writer", "DROP ROLE writer")
