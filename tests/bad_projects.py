"""Tiny projects, each wrong in one way, and what the command line must say about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = "name: demo\nversion: 1.0.0\n"
CONNECTIONS = """\
files: { connector: localfiles, root: data }
lake: { connector: localfiles, root: out }
db: { connector: duckdb, path: shop.duckdb }
ref: { connector: reference, path: far }
api: { connector: reference_api, path: far }
plain: { connector: reference_plain, path: far }
"""
CSV = "id,name,day\n1,Ann,2024-01-01\n2,Bo,2024-01-02\n"


@dataclass(frozen=True)
class Bad:
    """One mistake. ``says`` is ``file:line`` (empty: no place), ``hint`` a part of the hint, ``message`` of the message.

    ``verbs`` are command lines that must all say so; the ``{root}`` in them is the project. ``also`` changes the project
    before: it gets the root.
    """

    code: str
    files: Mapping[str, str | bytes]
    where: str
    hint: str
    message: str = ""
    verbs: Sequence[Sequence[str]] = (("validate",), ("plan",), ("run", "--all"))
    exit: int = 2
    severity: str = "error"
    before: Sequence[Callable[[Path], None]] = ()


def p(text: str, **more: str) -> dict[str, str | bytes]:
    """A project of one pipeline ``p`` and other files by keyword (``connections``, ``project``, ``config``)."""
    names = {
        "connections": "connections.yml",
        "project": "project.yml",
        "config": "pipelines/configs/p.yml",
        "more": "pipelines/orders.sql",
    }
    return {"pipelines/p.sql": text, **{names[key]: value for key, value in more.items()}}


OUT = "INSERT INTO {{ sink('lake', 'out', strategy: 'replace') }}\n"
MERGE = "INSERT INTO {{ sink('db', 'out', strategy: 'merge', keys: ['id']) }}\n"
FINE = OUT + "SELECT 1 AS id\n"
TYPED = "columns: {id: 'int', day: 'date', name: 'varchar'}"
WM = "{{ watermark('files', 't') }}"
ONE, TWO = "pipelines/p.sql:1", "pipelines/p.sql:2"


def read(options: str, tail: str = "", *, head: str = MERGE, connection: str = "files") -> dict[str, str | bytes]:
    """A pipeline that reads ``<connection>.t`` with options, in its second line."""
    given = f", {options}" if options else ""
    return p(head + f"SELECT id FROM {{{{ source('{connection}', 't'{given}) }}}}{tail}\n")


def sync(rest: str, **more: str) -> dict[str, str | bytes]:
    """The same, read incrementally."""
    return read(f"{TYPED}, sync: {{mode: 'incremental', {rest}}}", **more)


def project(lines: str) -> dict[str, str | bytes]:
    """A fine pipeline below a project file with further lines (from line 3)."""
    return p(FINE, project=PROJECT + lines)


def connection(lines: str) -> dict[str, str | bytes]:
    """A fine pipeline beside a connection ``c`` with further lines (from line 3)."""
    return p(FINE, connections="lake: { connector: localfiles, root: out }\nc:\n" + lines)


def config(lines: str, sql: str = FINE) -> dict[str, str | bytes]:
    """A pipeline with a sidecar; lines from 2."""
    return p(sql, config="pipeline: p\n" + lines)


def orders(root: Path) -> None:
    """A far side with a keyed table ``t`` of two rows, of which one was deleted since."""
    from pz.testing.server import Server

    server = Server(root / "far")
    server.create("t", {"id": "BIGINT", "day": "DATE", "name": "VARCHAR"}, keys=["id"])
    server.insert("t", [{"id": 1, "day": "2024-01-01", "name": "a"}, {"id": 2, "day": "2024-01-02", "name": "b"}])


def shop(root: Path) -> None:
    """A database file with a table ``t``."""
    import duckdb

    with duckdb.connect(str(root / "shop.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS id, 'Ann' AS name")


def orders_with_a_delete(root: Path) -> None:
    """The same; a run has read it, and a row has gone since."""
    import pz
    from pz.testing.server import Server

    orders(root)
    assert pz.open_project(root, environ={}).run(everything=True).exit_code == 0
    Server(root / "far").mutate("t", delete=[{"id": 2}])


def a_file_for_out(root: Path) -> None:
    """A file where the folder of ``lake`` belongs."""
    (root / "out").write_text("not a folder")


def a_directory_for_the_file(root: Path) -> None:
    """A folder where the file of ``lake.out`` belongs."""
    (root / "out" / "out" / "out.parquet").mkdir(parents=True)


EPHEMERAL = {"pipelines/configs/e.yml": "pipeline: e\nmaterialization: ephemeral\n"}
RUN_ONLY = (("run", "--all"),)
VALIDATE = (("validate",),)


def one_verb(*line: str) -> Sequence[Sequence[str]]:
    return (line,)


YAML = p(FINE)
LOAD = [
    Bad("PZ0101", p(FINE, project="name: demo\nversion: [1\n"), "project.yml:3", ""),
    Bad(
        "PZ0101", p(FINE, project="name: demo\nversion: 1.0.0\nengin: {}\n"), "project.yml:3", "did you mean 'engine'?"
    ),
    Bad("PZ0101", p(FINE, project="name: demo\n"), "project.yml:1", "version"),
    Bad("PZ0101", connection("  connecter: localfiles\n"), "connections.yml:2", ""),
    Bad("PZ0101", config("tag: daily\n"), "pipelines/configs/p.yml:2", "did you mean 'tags'?"),
    Bad("PZ0101", {"project.yml": b"name: \xff\xfe\n"}, "project.yml:1", "UTF-8"),
    Bad("PZ0102", project("vars: [1, 2]\n"), "project.yml:3", "name: value"),
    Bad(
        "PZ0102",
        YAML,
        "",
        "JSON object",
        verbs=(("run", "--vars", "{"), ("run", "--vars", "[1]"), ("test", "--vars", "1")),
    ),
    Bad(
        "PZ0210",
        {**p(OUT + "SELECT * FROM {{ ref('e') }}\n"), "pipelines/e.sql": "SELECT 1 AS id", **EPHEMERAL},
        "",
        "name a pipeline that uses it",
        message="'e' is ephemeral",
        verbs=(("run", "e"), ("run", "--select", "+e"), ("ls", "--select", "e")),
    ),
    Bad(
        "PZ0716",
        project("vars: { day: 1 }\n"),
        "",
        "Correct the name",
        message="did you mean 'day'?",
        exit=0,
        severity="warning",
        verbs=(("run", "--all", "--vars", '{"dya": 2}'), ("test", "--vars", '{"dya": 2}')),
    ),
    Bad(
        "PZ0103",
        connection("  connector: localfiles\n  root: ${NO_SUCH_VARIABLE}\n"),
        "connections.yml:4",
        "NO_SUCH_VARIABLE",
    ),
    Bad("PZ0103", p(OUT + "SELECT '{{ env('NO_SUCH_VARIABLE') }}' AS v\n"), TWO, "NO_SUCH_VARIABLE"),
    Bad("PZ0104", p(OUT + "SELECT {{ 1 + }} AS v\n"), TWO, ""),
    Bad("PZ0104", p(OUT + "SELECT {{ env('HOME') } AS v\n"), TWO, "each {{ needs a }}"),
    Bad("PZ0104", p(OUT + "SELECT {{ env('HOME' }} AS v\n"), TWO, "each {{ needs a }}"),
    Bad("PZ0104", p(OUT + "SELECT {% if true %} 1 AS v\n"), TWO, "each {{ needs a }}"),
    Bad(
        "PZ0104",
        p(OUT + "SELECT {{ var('dya') }} AS v\n", project=PROJECT + "vars: { day: 1 }\n"),
        TWO,
        "did you mean 'day'?",
    ),
    Bad("PZ0104", p(OUT + "SELECT {{ sauce('files', 't') }} AS v\n"), TWO, "source"),
    Bad("PZ0104", {"pipelines/p.sql": b"SELECT '\xff'"}, ONE, "UTF-8"),
    Bad("PZ0110", {**p(FINE), "pipelines/sub/P.sql": "SELECT 1"}, "pipelines/sub/P.sql", "rename"),
    Bad(
        "PZ0110",
        {**read("", connection="files"), "pipelines/q.sql": "SELECT * FROM {{ source('files', 'T') }}"},
        "pipelines/q.sql:1",
        "rename",
    ),
    Bad(
        "PZ0111",
        {**p(FINE), "pipelines/configs/x.yml": "pipeline: P\n"},
        "pipelines/configs/x.yml:1",
        "did you mean 'p'?",
    ),
    Bad("PZ0113", config("checks:\n  - notnull: [id]\n"), "pipelines/configs/p.yml:3", "did you mean 'not_null'?"),
    Bad("PZ0113", config("checks:\n  - freshness: { column: id }\n"), "pipelines/configs/p.yml:3", "max_age"),
    Bad("PZ0113", config("checks:\n  - unique: [id]\n  - unique: [id]\n"), "pipelines/configs/p.yml:4", ""),
    Bad("PZ0120", project("engine:\n  threads: 0\n"), "project.yml:4", ""),
    Bad("PZ0120", project("engine:\n  threads: '4'\n"), "project.yml:4", ""),
    Bad("PZ0120", project("engine:\n  thraeds: 4\n"), "project.yml:4", "did you mean 'threads'?"),
    Bad("PZ0120", project("engine: 4\n"), "project.yml:3", ""),
    Bad("PZ0121", connection("  connector: localfiles\n  retry: { max_attempts: 0 }\n"), "connections.yml:4", ""),
    Bad(
        "PZ0121",
        p(OUT + "SELECT * FROM {{ source('files', 't', retry: { base_delay: 'soon' }) }}\n"),
        TWO,
        "such as 30s",
    ),
    Bad("PZ0122", connection("  connector: localfiles\n  max_concurrency: 0\n"), "connections.yml:4", ""),
    Bad("PZ0122", read("max_concurrency: 2"), TWO, "on the connection"),
    Bad("PZ0123", project("retention: { keep_last: 0 }\n"), "project.yml:3", ""),
    Bad("PZ0123", project("retention: forever\n"), "project.yml:3", "keep_last"),
    Bad("PZ0124", project("state: { backend: redis }\n"), "project.yml:3", "local"),
    Bad("PZ0124", project("state: { backend: local, url: 'http://x' }\n"), "project.yml:3", ""),
    Bad("PZ0126", project("on_source_drift: explode\n"), "project.yml:3", "ignore"),
    Bad("PZ0127", YAML, "", "observed", verbs=(("schema", "accept"), ("schema", "accept", "files.t"))),
    Bad("PZ0130", YAML, "", "another", verbs=(("init", "pipelines"),)),
    Bad("PZ0131", YAML, "", "did you mean 'sample'?", verbs=(("init", "new", "--template", "sampel"),)),
    Bad("PZ0132", YAML, "", "--list-templates", verbs=(("init",), ("init", "new", "--list-templates"))),
    Bad(
        "PZ0133",
        connection("  connector: localfiles\n  entities:\n    t: { read: { path: '${HOME}/x' } }\n"),
        "connections.yml:5",
        "connection",
        verbs=VALIDATE,
        exit=0,
        severity="warning",
    ),
    Bad("PZ0134", config("materialization: tabel\n"), "pipelines/configs/p.yml:2", "did you mean 'table'?"),
    Bad(
        "PZ0135",
        {**p(FINE), "pipelines/configs/p.yaml": "pipeline: p\n"},
        "pipelines/configs/p.yaml",
        "p.yml",
        verbs=VALIDATE,
        exit=0,
        severity="warning",
    ),
    Bad("PZ0136", {"pipelines/my-pipe.sql": FINE}, "pipelines/my-pipe.sql", "my_pipe"),
    Bad(
        "PZ0136",
        p(FINE, connections="lake: { connector: localfiles }\na__b: { connector: localfiles }\n"),
        "connections.yml:2",
        "a_b",
    ),
    Bad("PZ0104", read("ratio: 1e999"), TWO, "", message="smaller number"),
    Bad(
        "PZ0137",
        {
            **read(""),
            "connections.yml": CONNECTIONS.replace(
                "root: data", "root: data, entities: { t: { read: { ratio: 1e999 } } }"
            ),
        },
        "connections.yml:1",
        "finite",
    ),
]

COMPILE = [
    Bad("PZ0201", p(OUT + "SELECT * FROM {{ ref('q') }}\n"), TWO, ""),
    Bad(
        "PZ0201",
        {**p(OUT + "SELECT * FROM {{ ref('stage') }}\n"), "pipelines/stages.sql": "SELECT 1 AS id"},
        TWO,
        "did you mean 'stages'?",
    ),
    Bad("PZ0201", p(OUT + "SELECT * FROM {{ source('fils', 't') }}\n"), TWO, "did you mean 'files'?"),
    Bad("PZ0201", p(OUT + "SELECT * FROM staging.src_x__y\n"), "pipelines/p.sql", "source("),
    Bad(
        "PZ0202",
        {**p(OUT + "SELECT * FROM {{ ref('q') }}\n"), "pipelines/q.sql": "SELECT * FROM {{ ref('p') }}"},
        "pipelines/p.sql",
        "break the cycle",
        message="p -> q -> p",
    ),
    Bad(
        "PZ0204",
        {
            **p(OUT + "SELECT * FROM {{ ref('a') }}\n"),
            "pipelines/a.sql": "SELECT * FROM {{ ref('b') }}",
            "pipelines/b.sql": "SELECT 1 AS id",
            "pipelines/configs/a.yml": "pipeline: a\nmaterialization: ephemeral\n",
            "pipelines/configs/b.yml": "pipeline: b\nmaterialization: ephemeral\n",
        },
        "pipelines/a.sql:1",
        "table or a view",
    ),
    Bad(
        "PZ0205",
        {
            **p(OUT + "SELECT * FROM {{ ref('a') }}\n"),
            "pipelines/a.sql": "SELECT 1 AS id",
            "pipelines/configs/a.yml": "pipeline: a\nmaterialization: ephemeral\nchecks:\n  - unique: [id]\n",
        },
        "pipelines/configs/a.yml:4",
        "table or a view",
    ),
    Bad("PZ0206", {**p(FINE), "pipelines/q.sql": FINE}, "pipelines/q.sql:1", "one writer"),
    Bad("PZ0208", p("INSERT INTO {{ sink('lake') }}\nSELECT 1 AS id\n"), ONE, "sink("),
    Bad("PZ0208", p("SELECT 1 AS id, {{ sink('lake', 'out') }}\n"), ONE, "INSERT INTO"),
    Bad("PZ0209", p(MERGE.replace(", keys: ['id']", "") + "SELECT 1 AS id\n"), ONE, "keys"),
    Bad(
        "PZ0210",
        YAML,
        "",
        ": p",
        verbs=(("run", "pp"), ("run", "--select", "pp"), ("plan", "pp"), ("ls", "--select", "pp")),
    ),
    Bad(
        "PZ0210",
        p(FINE, more="SELECT 1 AS id\n"),
        "",
        "did you mean 'orders'?",
        verbs=(("run", "order"), ("run", "--select", "order+"), ("plan", "order"), ("ls", "--select", "order")),
    ),
    Bad(
        "PZ0210",
        p(FINE, more="SELECT 1 AS id\n"),
        "",
        "did you mean 'orders'?",
        verbs=(("show", "order"),),
        message="there is no pipeline 'order'",
    ),
    Bad("PZ0211", p(OUT.replace(") }}", ", keys: ['id']) }}") + "SELECT 1 AS id\n"), ONE, "drop keys"),
    Bad("PZ0212", sync("cursor: 'changed'"), TWO, "timestamptz"),
    Bad("PZ0212", sync("cursor: 'name'"), TWO, "timestamptz"),
    Bad("PZ0213", sync("cursor: 'id', max_window: '10'"), TWO, "initial"),
    Bad("PZ0213", sync("cursor: 'day', initial: '2024-01-02', max_window: '1d', until: '2024-01-01'"), TWO, ""),
    Bad(
        "PZ0214",
        sync("cursor: 'id'", head=OUT.replace("'replace'", "'append'")),
        ONE,
        "strategy: 'append', duplicates: 'accept')",
    ),
    Bad("PZ0215", {**p(FINE), "pipelines/q.sql": FINE.replace("'out'", "'other'")}, "", "--all", verbs=(("run",),)),
    Bad(
        "PZ0216",
        YAML,
        "",
        "one of the three",
        verbs=(("run", "p", "--all"), ("run", "--select", "p", "--all"), ("plan", "p", "--all")),
    ),
    Bad("PZ0217", read("path: '{yyyy}/{MM}/x.csv'"), TWO, "incremental"),
    Bad("PZ0218", read("path: '{yyyy}/{dd}/x.csv'"), TWO, "{yyyy}"),
    Bad("PZ0218", read("path: '{yyyy}/{month}/x.csv'"), TWO, "{yyyy}"),
    Bad("PZ0219", p(OUT.replace(") }}", ", partition_by: []) }}") + "SELECT 1 AS id\n"), ONE, "column"),
    Bad(
        "PZ0221", read(TYPED + ", path: '{yyyy}/x.csv', sync: {mode: 'incremental', cursor: 'day'}"), TWO, "max_window"
    ),
    Bad("PZ0222", read("files_per_partition: 0"), TWO, ""),
    Bad(
        "PZ0223",
        {**p(FINE), "pipelines/lonely.sql": "SELECT 1 AS id"},
        "pipelines/lonely.sql",
        "ref('lonely')",
        exit=0,
        severity="warning",
        verbs=VALIDATE,
    ),
    Bad("PZ0224", read(TYPED, f" WHERE id = {WM}"), TWO, ">="),
    Bad("PZ0225", sync("cursor: 'id'", tail=f" WHERE id > {WM}"), TWO, "sync"),
    Bad("PZ0227", read(TYPED, f" WHERE other > {WM}"), TWO, "timestamptz"),
    Bad("PZ0229", read("cursor_order: 'desc', max_pages: 3"), TWO, "max_pages"),
    Bad("PZ0230", {**read(""), "pipelines/src_files__t.sql": FINE}, "pipelines/src_files__t.sql", "rename"),
    Bad("PZ0231", read(TYPED, f" WHERE id > {WM} AND day > {WM}"), TWO, "one column"),
]

CONNECTORS = [
    Bad(
        "PZ0301",
        connection("  connector: localfiles\n  rot: data\n"),
        "connections.yml:2",
        "did you mean 'root'?",
        message="connection 'c'",
    ),
    Bad("PZ0301", connection("  connector: localfiles\n  root: 5\n"), "connections.yml:2", "quotes"),
    Bad(
        "PZ0301", connection("  connector: duckdb\n"), "connections.yml:2", "database file", message="'path' is missing"
    ),
    Bad("PZ0301", connection("  connector: duckdb\n  path: .pz/x.db\n"), "connections.yml:2", "", message=".pz/"),
    Bad("PZ0301", read("pth: 'x.csv'"), TWO, "did you mean 'path'?", message="dataset 'files.t'"),
    Bad(
        "PZ0301",
        p(OUT.replace("strategy", "foramt: 'csv', strategy") + "SELECT 1 AS id\n"),
        ONE,
        "did you mean 'format'?",
        message="output 'lake.out'",
    ),
    Bad("PZ0305", project("connectors: [{ package: pz-nope }]\n"), "project.yml:3", "pip install pz-nope"),
    Bad(
        "PZ0305",
        project("connectors: [{ package: duckdb, version: '0.1' }]\n"),
        "project.yml:3",
        "pip install duckdb==0.1",
    ),
    Bad("PZ0305", project("connectors: [{ package: duckdb, version: '>=1' }]\n"), "project.yml:3", "", message="exact"),
    Bad("PZ0305", connection("  connector: localfile\n"), "connections.yml:2", "did you mean 'localfiles'?"),
    Bad(
        "PZ0312",
        {
            **p(
                OUT + "SELECT * FROM {{ source('c', 't') }}\n", project=PROJECT + "engine: { force_universal: true }\n"
            ),
            "connections.yml": CONNECTIONS + "c: { connector: native_only, root: data }\n",
        },
        TWO,
        "setting",
    ),
    Bad(
        "PZ0313",
        read(
            "columns: {id: 'bigint'}, sync: {mode: 'incremental', cursor: 'id', initial: '1', max_window: '1'}",
            connection="plain",
        ),
        TWO,
        "window",
        before=(orders,),
    ),
    Bad(
        "PZ0314",
        p("INSERT INTO {{ sink('plain', 'o', strategy: 'replace', partition_by: ['id']) }}\nSELECT 1 AS id\n"),
        ONE,
        "another connector",
        before=(orders,),
    ),
    Bad("PZ0315", read("sync: {mode: 'auto'}", f" WHERE id > {WM}"), TWO, "one of the two"),
    Bad(
        "PZ0316",
        read(
            "sync: {mode: 'cdc'}, partitions: 2",
            head=MERGE.replace("['id']", "['id'], on_delete: 'delete'"),
            connection="ref",
        ),
        TWO,
        "partition",
        before=(orders,),
    ),
    Bad(
        "PZ0317",
        p(
            FINE + "-- {{ source('c', 't') }}\n",
            connections=CONNECTIONS + "c: { connector: localfiles, rate_limit: { requests_per_minute: 5 } }\n",
        ),
        "pipelines/p.sql:3",
        "rate_limit",
    ),
    Bad(
        "PZ0318",
        connection("  connector: localfiles\n  rate_limit: { requests_per_minute: 0 }\n"),
        "connections.yml:4",
        "",
    ),
    Bad("PZ0318", connection("  connector: localfiles\n  rate_limit:\n"), "connections.yml:4", ""),
    Bad("PZ0318", read("rate_limit: {requests_per_minute: 5}"), TWO, "on the connection"),
    Bad(
        "PZ0319",
        {
            **read("", head=OUT, connection="c"),
            "connections.yml": CONNECTIONS + "c: { connector: loose_checkpoints, path: far }\n",
        },
        TWO,
        "author",
        before=(orders,),
    ),
    Bad("PZ0324", p(OUT.replace("'replace'", "'merge', keys: ['id']") + "SELECT 1 AS id\n"), ONE, "strategies"),
    Bad(
        "PZ0324",
        {
            **p("INSERT INTO {{ sink('c', 'o', strategy: 'replace') }}\nSELECT 1 AS id\n"),
            "connections.yml": CONNECTIONS + "c: { connector: no_replace, path: far }\n",
        },
        ONE,
        "strategies",
        before=(orders,),
    ),
    Bad(
        "PZ0330",
        p(FINE),
        "connections.yml:4",
        "credentials",
        verbs=(("validate", "--connect"),),
        message="connection 'ref'",
    ),
    Bad(
        "PZ0331",
        read("columns: {id: 'bigint', gone: 'int'}", connection="ref"),
        TWO,
        "contract",
        verbs=(("validate", "--connect"),),
        before=(orders,),
        message="'gone'",
    ),
    Bad("PZ0334", sync("cursr: 'id'"), TWO, "did you mean 'cursor'?"),
    Bad("PZ0334", p(OUT.replace("'replace'", "'replaec'") + "SELECT 1 AS id\n"), ONE, "did you mean 'replace'?"),
    Bad("PZ0335", sync("cursor: 'id'", head=OUT), ONE, "merge"),
    Bad("PZ0336", read("sync: {mode: 'cdc'}", connection="ref"), ONE, "on_delete", before=(orders,)),
    Bad("PZ0337", read(TYPED, head=MERGE.replace("['id']", "['id'], on_delete: 'ignore'")), ONE, "on_delete"),
    Bad(
        "PZ0338",
        read("sync: {mode: 'cdc'}", head=MERGE.replace("['id']", "['id'], on_delete: 'delete'")),
        TWO,
        "another connector",
    ),
    Bad(
        "PZ0339",
        {
            **read(
                "sync: {mode: 'cdc'}",
                head="INSERT INTO {{ sink('plain', 'o', strategy: 'merge', keys: ['id'], on_delete: 'delete') }}\n",
                connection="ref",
            )
        },
        ONE,
        "on_delete: ignore",
        before=(orders,),
    ),
    Bad(
        "PZ0339",
        p(OUT.replace("strategy", "snapshot_delete_limit: 1, strategy") + "SELECT 1 AS id\n"),
        ONE,
        "or write by a connector that can:",
    ),
    Bad(
        "PZ0341",
        {
            **read("format: 'csv'"),
            "connections.yml": CONNECTIONS.replace(
                "root: data", "root: data, entities: { t: { read: { format: csv } } }"
            ),
        },
        TWO,
        "keep one place",
    ),
    Bad("PZ0344", p(OUT + "SELECT * FROM {{ source('files', 'a..b') }}\n"), TWO, ""),
    Bad(
        "PZ0344",
        connection("  connector: localfiles\n  entities:\n    'a b': { read: { format: csv } }\n"),
        "connections.yml:5",
        "remote system",
    ),
    Bad(
        "PZ0345",
        {
            **p(FINE + "-- {{ source('c', 't') }}\n"),
            "connections.yml": CONNECTIONS + "c: { connector: claims_a_key, root: data }\n",
        },
        "pipelines/p.sql:3",
        "author",
    ),
    Bad(
        "PZ0349",
        {**read(""), "pipelines/q.sql": "SELECT * FROM {{ source('files', 't') }}"},
        TWO,
        "pipelines/stg_t.sql",
    ),
    Bad("PZ0351", read(TYPED, f" WHERE id <= {WM} + 5"), TWO, "watermark"),
    Bad("PZ0353", p("INSERT INTO {{ sink('lake', 'a/b', strategy: 'replace') }}\nSELECT 1 AS id\n"), ONE, "path"),
    Bad("PZ0724", p(FINE), ONE, "correct `root`", before=(a_file_for_out,), message="leads through"),
    Bad("PZ0724", p(FINE), ONE, "Move away", before=(a_directory_for_the_file,), message="is a directory"),
    Bad("PZ0361", read("format: 'xslx'"), TWO, "supported formats"),
    Bad(
        "PZ0361", p(OUT.replace("strategy", "format: 'cvs', strategy") + "SELECT 1 AS id\n"), ONE, "did you mean 'csv'?"
    ),
    Bad("PZ0362", read("format: 'parquet', delimiter: ';'"), TWO, "remove"),
    Bad(
        "PZ0363",
        {
            **read("sync: {mode: 'cdc'}", head=MERGE.replace("['id']", "['id'], on_delete: 'delete'"), connection="c"),
            "connections.yml": CONNECTIONS + "c: { connector: native_only, root: data }\n",
        },
        TWO,
        "by a cursor",
    ),
    Bad("PZ0365", read("path: '../secret.csv'"), TWO, "root"),
    Bad("PZ0365", p(OUT.replace("strategy", "path: '../x', strategy") + "SELECT 1 AS id\n"), ONE, "root"),
    Bad("PZ0401", p(OUT + "SELECT 1 AS id,\nFROM WHERE x\n"), "pipelines/p.sql:3", ""),
    Bad("PZ0401", read("columns: {id: 'int'}", ", LATERAL (SELECT no_such_column)"), TWO, ""),
    Bad("PZ0401", p(OUT + "SELECT 1 AS id; DROP TABLE x\n"), "pipelines/p.sql", ""),
]

RUNNING = [
    Bad(
        "PZ0319",
        read("ids: 'duplicate', partitions: 2", connection="ref"),
        "",
        "author",
        verbs=RUN_ONLY,
        exit=1,
        before=(orders,),
    ),
    Bad(
        "PZ0316",
        {
            **read("sync: {mode: 'cdc'}", head=MERGE.replace("['id']", "['id'], on_delete: 'delete'"), connection="c"),
            "connections.yml": CONNECTIONS + "c: { connector: two_logs, path: far }\n",
        },
        "",
        "partition",
        verbs=RUN_ONLY,
        exit=1,
        before=(orders,),
    ),
    Bad(
        "PZ0338",
        {
            **read("sync: {mode: 'cdc'}", head=MERGE.replace("['id']", "['id'], on_delete: 'delete'"), connection="c"),
            "connections.yml": CONNECTIONS + "c: { connector: foreign_changes, path: far }\n",
        },
        "",
        "author",
        verbs=RUN_ONLY,
        exit=1,
        before=(orders,),
    ),
    Bad(
        "PZ0340",
        {
            **read("sync: {mode: 'cdc'}", head=MERGE.replace("['id']", "['id'], on_delete: 'delete'"), connection="c"),
            "connections.yml": CONNECTIONS + "c: { connector: keyless_deletes, path: far }\n",
        },
        "",
        "keys",
        verbs=RUN_ONLY,
        exit=1,
        before=(orders_with_a_delete,),
    ),
    Bad(
        "PZ0311",
        {
            **read("", head=OUT, connection="c"),
            "connections.yml": CONNECTIONS + "c: { connector: bad_setup, path: far }\n",
        },
        "",
        "extension",
        verbs=RUN_ONLY,
        exit=1,
        before=(orders,),
    ),
    Bad(
        "PZ0331",
        read("columns: {id: 'int', name: 'int'}", head=OUT, connection="db"),
        TWO,
        "contract",
        verbs=RUN_ONLY,
        before=(shop,),
    ),
    Bad("PZ0353", read("columns: {id: 'int', gone: 'int'}", head=OUT), TWO, "names in `columns`"),
]

CASES: Sequence[Bad] = (*LOAD, *COMPILE, *CONNECTORS, *RUNNING)
