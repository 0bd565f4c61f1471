"""Tables in and out of PostgreSQL, against what DuckDB's scanner, psql and plain SQL do with the same rows.

python -m benchmarks.postgres [rows] [case]   default: 1000000 and all cases; writes docs/benchmarks-postgres.md
                                              a case by a part of its name, or price, or decoding, is printed only
python -m benchmarks.postgres --tenfold       two moves with ten times the rows, into docs/benchmarks-postgres-tenfold.md

The server is a private one of its own, without fsync. Every move is a whole process; the fastest of several counts and the
moves of a case take turns. Start-up, the same case with a single row, is taken from both sides of a ratio.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import cases
from benchmarks.data import TABLE
from benchmarks.measure import Measurement, best, measure

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from postgres_server import PASSWORD, SUPERUSER, Database, PostgresServer  # noqa: E402 - the tests' own server, importable only from here on

SCRATCH = ROOT / "scratch" / "bench-postgres"
REPEATS = 3
CHANGED = 10
"""One row in so many is changed by the merge."""

PLAIN = """
import duckdb
from pathlib import Path
import duckdb_extension_postgres_scanner as wheel
found = next(Path(wheel.__file__).parent.glob("extensions/*/postgres_scanner.duckdb_extension"))
connection = duckdb.connect()
connection.execute(f"LOAD '{{found}}'")
connection.execute("ATTACH '{dsn}' AS pg (TYPE postgres)")
for statement in {statements}:
    connection.execute(statement).fetchall()
"""

IMPORTS = "import duckdb, psycopg"

# What moves rows on a machine that has psql: a file or a pipe into COPY.
LOAD = "TRUNCATE {target}; \\copy {target} FROM '{csv}' (FORMAT csv)"
# The same contract as a replace of pz: readers see the old rows until the new ones are there, and wait only for the second copy.
SAFE_LOAD = """
BEGIN;
CREATE TEMP TABLE staged (LIKE {target}) ON COMMIT DROP;
\\copy staged FROM '{csv}' (FORMAT csv)
TRUNCATE {target};
INSERT INTO {target} SELECT * FROM staged;
COMMIT;
"""
MERGE = """
BEGIN;
CREATE TEMP TABLE changed (LIKE {target}) ON COMMIT DROP;
\\copy changed FROM '{csv}' (FORMAT csv)
INSERT INTO {target} SELECT * FROM changed ON CONFLICT (id) DO UPDATE SET {assignments};
COMMIT;
"""

# The time of the client alone: decoding is one process's work on one core, the server's is another's.
DECODE = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from pz.connectors.contract import BatchOptions, CancelToken, ConnectionSpec, DatasetSpec, ReadHints
from pz.connectors.postgres.connector import Postgres
token = json.loads(Path(".pz/state/sync-state.json").read_text())["tokens"]["pg.captured"]["token"]
source = Postgres().open_source(ConnectionSpec("pg", json.loads({options!r}), Path.cwd()))
data = DatasetSpec("pg", "captured", {{}}, change_capture=True, prior_sync_state=token)
[part] = source.plan_read(data, ReadHints())
began, cpu = time.perf_counter(), time.process_time()
rows = sum(batch.num_rows for batch in part.read(BatchOptions(), CancelToken()))
print(rows, time.perf_counter() - began, time.process_time() - cpu)
"""

PROJECT = f"""
name: benchmark
version: "1"
engine:
  duckdb:
    memory_limit: {cases.MEMORY_LIMIT}
"""

CONNECTIONS = """
pg:
  connector: postgres
  host: 127.0.0.1
  port: {port}
  database: {database}
  user: {user}
  password: "{password}"
  entities:
    captured:
      read: {{ sync: {{ mode: cdc }} }}
    source_{size}:
      read: {{ sync: {sync} }}
files:
  connector: localfiles
  root: {root}
lake:
  connector: localfiles
  root: output
"""

CHECKED = "pipeline: moved\nchecks:\n  - row_count: { min: 1 }\n"

PAGE = """# PostgreSQL benchmarks

Written by `python -m benchmarks.postgres` on {date}: {cpus} cores, {memory:.0f} GiB, load {before:.1f} at the beginning and
{after:.1f} at the end, PostgreSQL {server}, DuckDB {duckdb}. {rows:,} rows of 16 columns; the server is on the same machine.

Every move is a whole process; the fastest of {repeats} counts, and the moves of a case take turns. *Start-up* is the same
move with a single row, taken off both sides. *Processor* is what the clients used, start-up included; the server's part
is not in it. A load above the number of cores slows both sides, not always alike.

| move | against | seconds | start-up | processor | pz | start-up | processor | ratio | at most | peak memory of pz |
|---|---|---|---|---|---|---|---|---|---|---|
{lines}

{price}

{decoding}

Where the time goes: out of a table, DuckDB decodes one stream ([the scanner](decisions/0014-scanner-guarded.md)) where it would
read its own attached table by several, and the server waits while a row group of the file is compressed; into a table, rows
travel as binary COPY, which is the server's own speed, after they were staged; the replace of a table that holds rows copies
them twice on the server, so that readers wait only for the second time; of a run without news, more than half is importing.
With ten times the rows: [memory and time](benchmarks-postgres-tenfold.md).
"""

TENFOLD = """# PostgreSQL benchmarks, ten times the rows

Written by `python -m benchmarks.postgres --tenfold` on {date}: {cpus} cores, {memory:.0f} GiB, load {before:.1f} at the
beginning and {after:.1f} at the end, PostgreSQL {server}, DuckDB {duckdb}. One run each; start-up, measured with a single row,
is taken off. DuckDB's memory limit in these projects is {limit}.

| move | 1,000,000 rows: seconds | peak memory | 10,000,000 rows: seconds | peak memory | times as long | at most |
|---|---|---|---|---|---|---|
{lines}
"""


@dataclass(frozen=True)
class Case:
    """One move: ways to make it without pz, and the project that makes it. The best of the others is the measure."""

    name: str
    at_most: float
    others: Mapping[str, Callable[[str], Measurement]]
    project: Path
    before: Callable[[str], None] | None = None

    def measure(self, size: str) -> tuple[str, Measurement, Measurement]:
        """The best other way with its name, and pz, on the tables of a size."""
        names = list(self.others)
        moves = [self._timed(self.others[name], size) for name in names]
        measured = best(REPEATS, [*moves, self._timed(lambda size: pz(self.project / size), size)])
        fastest = min(range(len(names)), key=lambda i: measured[i].seconds)
        return names[fastest], measured[fastest], measured[-1]

    def alone(self, size: str) -> Measurement:
        """pz by itself, once."""
        return self._timed(lambda size: pz(self.project / size), size)()

    def _timed(self, move: Callable[[str], Measurement], size: str) -> Callable[[], Measurement]:
        def prepared() -> Measurement:
            if self.before is not None:
                self.before(size)
            return move(size)

        return prepared


def pz(directory: Path, *, fresh: bool = True) -> Measurement:
    """One `pz run`, as if for the first time."""
    if fresh:
        shutil.rmtree(directory / ".pz", ignore_errors=True)
    return measure([str(Path(sys.executable).with_name("pz")), "run", "--all"], directory)


class Bench:
    """The server with its tables ``source_<size>``, and the files beside it."""

    def __init__(self, server: PostgresServer, database: Database, rows: int) -> None:
        self.server, self.database, self.rows = server, database, rows
        self.sizes = {"whole": rows, "one": 1}
        dsn = f"host=127.0.0.1 port={server.port} user={SUPERUSER} dbname={database.name}"
        self.dsn = dsn
        os.environ["PGPASSWORD"] = PASSWORD
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody compiles the same modules in every run
        for size, count in self.sizes.items():
            self._make(size, count)

    def _make(self, size: str, count: int) -> None:
        folder = SCRATCH / size
        folder.mkdir(parents=True, exist_ok=True)
        with duckdb.connect() as connection:
            relation = f"({TABLE.format(rows=count)})"
            connection.execute(f"COPY {relation} TO '{folder / 'rows.parquet'}' (FORMAT parquet)")
            connection.execute(f"COPY {relation} TO '{folder / 'rows.csv'}' (FORMAT csv, HEADER false)")
            changed = f"(SELECT * REPLACE (quantity + 1 AS quantity) FROM {relation} WHERE id % {CHANGED} = 0)"
            connection.execute(f"COPY {changed} TO '{folder / 'changed.parquet'}' (FORMAT parquet)")
            connection.execute(f"COPY {changed} TO '{folder / 'changed.csv'}' (FORMAT csv, HEADER false)")
        self.duckdb(size, [f"CREATE TABLE pg.source_{size} AS FROM '{folder / 'rows.parquet'}'"])
        self.database.run(f"VACUUM ANALYZE source_{size}")

    # --- the others

    def duckdb(self, size: str, statements: Sequence[str]) -> Measurement:
        """Statements in a DuckDB with the database attached as ``pg``."""
        return measure([sys.executable, "-c", PLAIN.format(dsn=self.dsn, statements=list(statements))], SCRATCH / size)

    def psql(self, size: str, script: str) -> Measurement:
        """A script by psql."""
        path = SCRATCH / size / "script.sql"
        path.write_text(script)
        return measure(["psql", "-Xq", "-v", "ON_ERROR_STOP=1", self.dsn, "-f", str(path)], SCRATCH / size)

    def piped(self, size: str) -> Measurement:
        """Binary COPY of one psql into another."""
        psql = f"psql -Xq '{self.dsn}' -c"
        pipe = (
            f"{psql} 'COPY source_{size} TO STDOUT (FORMAT binary)' | {psql} 'COPY target FROM STDIN (FORMAT binary)'"
        )
        return measure(["bash", "-o", "pipefail", "-c", pipe], SCRATCH / size)

    # --- pz

    def project(self, name: str, sql: str, *, checked: bool = False, sync: str = "{ mode: auto }") -> Path:
        """A project for each size; ``{size}`` in the SQL stands for it."""
        for size in self.sizes:
            directory = SCRATCH / name / size
            shutil.rmtree(directory, ignore_errors=True)
            (directory / "pipelines" / "configs").mkdir(parents=True)
            (directory / "project.yml").write_text(PROJECT)
            (directory / "connections.yml").write_text(self._connections(sync, size))
            (directory / "pipelines" / "moved.sql").write_text(sql.replace("{size}", size))
            if checked:
                (directory / "pipelines" / "configs" / "moved.yml").write_text(CHECKED)
        return SCRATCH / name

    def _connections(self, sync: str, size: str) -> str:
        return CONNECTIONS.format(
            size=size,
            root=SCRATCH / size,
            port=self.server.port,
            database=self.database.name,
            user=SUPERUSER,
            password=PASSWORD,
            sync=sync,
        )

    # --- between moves

    def no_target(self, size: str) -> None:
        """The target is gone."""
        self.database.run("DROP TABLE IF EXISTS target", "CHECKPOINT")

    def empty_target(self, size: str) -> None:
        """The target is there and empty."""
        self.database.run("DROP TABLE IF EXISTS target", f"CREATE TABLE target (LIKE source_{size})", "CHECKPOINT")

    def filled_target(self, size: str) -> None:
        """The target holds all rows."""
        self.empty_target(size)
        self.database.run(f"INSERT INTO target SELECT * FROM source_{size}", "CHECKPOINT")

    def full_target(self, size: str) -> None:
        """The target holds all rows, under its key."""
        self.filled_target(size)
        self.database.run("ALTER TABLE target ADD PRIMARY KEY (id)", "CHECKPOINT")


SELECT_TABLE = "SELECT * FROM {{ source('pg', 'source_{size}') }}"


def all_cases(bench: Bench) -> list[Case]:
    """The moves, in the order of the page."""
    to_table = "INSERT INTO {{ sink('pg', 'target', strategy: 'replace') }}\n"
    to_file = "INSERT INTO {{ sink('lake', 'moved', format: 'parquet', strategy: 'replace') }}\n"
    from_file = "SELECT * FROM {{ source('files', '%s', path: '%s.parquet', format: 'parquet') }}"
    merging = "INSERT INTO {{ sink('pg', 'target', strategy: 'merge', keys: ['id']) }}\n"
    columns = [
        str(name)
        for (name,) in bench.database.rows(
            "SELECT attname FROM pg_attribute WHERE attnum > 0 AND attrelid = 'source_one'::regclass"
        )
    ]
    assignments = ", ".join(f"{name} = excluded.{name}" for name in columns if name != "id")

    def replaced(size: str) -> Measurement:
        return bench.duckdb(
            size, ["DROP TABLE IF EXISTS pg.target", f"CREATE TABLE pg.target AS FROM '{SCRATCH / size}/rows.parquet'"]
        )

    def loaded(size: str) -> Measurement:
        return bench.psql(size, LOAD.format(target="target", csv=SCRATCH / size / "rows.csv"))

    return [
        Case(
            "table to parquet",
            1.3,
            {"DuckDB's scanner": lambda size: bench.duckdb(size, [f"COPY pg.source_{size} TO 'plain.parquet' (FORMAT parquet)"])},
            bench.project("to-parquet", to_file + SELECT_TABLE),
        ),
        Case(
            "parquet to table, replace",
            1.3,
            {"DuckDB's scanner": replaced, "psql \\copy": loaded},
            bench.project("from-parquet", to_table + from_file % ("rows", "rows")),
            bench.empty_target,
        ),
        Case(
            "parquet to table, replace of a full one",
            1.3,
            {"DuckDB's scanner": replaced, "psql \\copy": loaded},
            bench.project("from-parquet-full", to_table + from_file % ("rows", "rows")),
            bench.filled_target,
        ),
        Case(
            "table to table, staged",
            1.3,
            {
                "DuckDB's scanner": lambda size: bench.duckdb(
                    size, [f"CREATE TABLE t AS FROM pg.source_{size}", "CREATE TABLE pg.target AS FROM t"]
                )
            },
            bench.project("staged", to_table + SELECT_TABLE, checked=True),
            bench.no_target,
        ),
        Case(
            "table to table, fused, append",
            1.5,
            {"`COPY` piped into `COPY`": bench.piped},
            bench.project("fused-append", to_table.replace("replace", "append") + SELECT_TABLE),
            bench.empty_target,
        ),
        Case(
            "table to table, fused, replace",
            1.5,
            {"`COPY` piped into `COPY`": bench.piped},
            bench.project("fused", to_table + SELECT_TABLE),
            bench.empty_target,
        ),
        Case(
            "merge of a tenth of the rows",
            1.4,
            {
                "SQL over a temporary table": lambda size: bench.psql(
                    size,
                    MERGE.format(target="target", csv=SCRATCH / size / "changed.csv", assignments=assignments),
                )
            },
            bench.project("merge", merging + from_file % ("changed", "changed")),
            bench.full_target,
        ),
    ]  # fmt: skip


def price(bench: Bench) -> str:
    """What the contract of a replace costs a client that has no other work, as a sentence."""

    def loaded(script: str) -> Measurement:
        bench.filled_target("whole")
        return bench.psql("whole", script.format(target="target", csv=SCRATCH / "whole" / "rows.csv"))

    plain, safe = best(REPEATS, [lambda: loaded(LOAD), lambda: loaded(SAFE_LOAD)])
    return (
        f"What the safety of a replace costs: `psql` needs {plain.seconds:.2f} s to empty a full table and `\\copy` into it, in "
        "two transactions between which readers find it empty, and "
        f"{safe.seconds:.2f} s by way of a temporary table and in one transaction, as pz does it: "
        f"{safe.seconds / plain.seconds:.2f} times as long. Above, the replace of a full table is compared with the unsafe ways."
    )


def idle(bench: Bench) -> str:
    """A run that finds nothing new, against the imports alone; a line of the page."""
    sql = "INSERT INTO {{ sink('pg', 'target', strategy: 'merge', keys: ['id']) }}\n" + SELECT_TABLE
    project = bench.project("idle", sql, sync="{ mode: incremental, cursor: changed }") / "one"
    bench.full_target("one")
    pz(project)
    plain, ours = best(
        5, [lambda: measure([sys.executable, "-c", IMPORTS], SCRATCH / "one"), lambda: pz(project, fresh=False)]
    )
    ratio = ours.seconds / plain.seconds
    return (
        f"| incremental run without news | `{IMPORTS}` | {plain.seconds:.2f} | | {plain.processor_seconds:.2f} "
        f"| {ours.seconds:.2f} | | {ours.processor_seconds:.2f} | {ratio:.2f} | 3 | {ours.peak_bytes >> 20} MiB |"
    )


def decoding(bench: Bench) -> str:
    """Row changes per second and core, as a sentence."""
    import json

    count = max(bench.rows // 2, 1)
    bench.database.run(
        "DROP TABLE IF EXISTS captured",
        "CREATE TABLE captured (LIKE source_one)",
        "ALTER TABLE captured ADD PRIMARY KEY (id)",
        "CREATE PUBLICATION pz_pg FOR TABLE captured",
    )
    sql = "INSERT INTO {{ sink('pg', 'replica', strategy: 'merge', keys: ['id'], on_delete: 'delete') }}\n"
    project = bench.project("capture", sql + "SELECT * FROM {{ source('pg', 'captured') }}") / "one"
    pz(project)
    bench.database.run(
        f"INSERT INTO captured SELECT * FROM source_whole WHERE id < {count // 2}", "UPDATE captured SET quantity = 1"
    )
    script = DECODE.format(tests=str(ROOT / "tests"), options=json.dumps(bench.database.options))
    found = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True)
    rows, wall, cpu = found.stdout.split()
    whole = pz(project, fresh=False)
    bench.database.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    return (
        f"Change capture decodes {int(rows) / float(cpu):,.0f} row changes per second and core (at least 60,000 asked), "
        f"{int(rows) / float(wall):,.0f} per second beside the server on this machine. The run that reads these "
        f"{int(rows):,} changes and merges them takes {whole.seconds:.1f} s."
    )


def tenfold() -> int:
    """Two moves with a million rows and with ten; write their page, 1 when a target is missed."""
    before, moves = os.getloadavg()[0], ("table to parquet", "parquet to table, replace")
    found: dict[str, list[Measurement]] = {name: [] for name in moves}
    for rows in (1_000_000, 10_000_000):
        server = PostgresServer.create()
        try:
            bench = Bench(server, server.database(), rows)
            version = bench.database.rows("SHOW server_version")[0][0].split()[0]
            for case in all_cases(bench):
                if case.name in moves:
                    whole, start = case.alone("whole"), case.alone("one")
                    found[case.name].append(replace(whole, seconds=whole.seconds - start.seconds))
                    print(case.name, rows, found[case.name][-1], flush=True)
        finally:
            server.stop()
    lines, kept = [], True
    for name, (small, large) in found.items():
        ratio = large.seconds / small.seconds
        kept = kept and ratio <= 11
        lines.append(
            f"| {name} | {small.seconds:.1f} | {small.peak_bytes >> 20} MiB | {large.seconds:.1f} "
            f"| {large.peak_bytes >> 20} MiB | {ratio:.1f} | 11 |"
        )
    page = TENFOLD.format(**_circumstances(before), server=version, limit=cases.MEMORY_LIMIT, lines="\n".join(lines))
    (ROOT / "docs" / "benchmarks-postgres-tenfold.md").write_text(page)
    print(page)
    return 0 if kept else 1


def _circumstances(before: float) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "before": before,
        "after": os.getloadavg()[0],
        "duckdb": duckdb.__version__,
    }


def main(rows: int, only: str = "") -> int:
    """Measure, write the page; 1 when a target is missed."""
    before = os.getloadavg()[0]
    server = PostgresServer.create()
    try:
        bench = Bench(server, server.database(), rows)
        lines, kept = [], True
        for case in all_cases(bench):
            if only not in case.name:
                continue
            name, plain, ours = case.measure("whole")
            _, plain_start, start = case.measure("one")
            ratio = (ours.seconds - start.seconds) / max(plain.seconds - plain_start.seconds, 0.001)
            kept = kept and ratio <= case.at_most
            lines.append(
                f"| {case.name} | {name} | {plain.seconds:.2f} | {plain_start.seconds:.2f} | {plain.processor_seconds:.2f} "
                f"| {ours.seconds:.2f} | {start.seconds:.2f} | {ours.processor_seconds:.2f} | {ratio:.2f} | {case.at_most} "
                f"| {ours.peak_bytes >> 20} MiB |"
            )
            print(lines[-1], flush=True)
        if only:
            print({"price": price, "decoding": decoding}.get(only, lambda _: "")(bench))
            return 0
        lines.append(idle(bench))
        safety = price(bench)
        told = decoding(bench)
        version = bench.database.rows("SHOW server_version")[0][0].split()[0]
    finally:
        server.stop()
    page = PAGE.format(
        **_circumstances(before),
        server=version,
        rows=rows,
        repeats=REPEATS,
        lines="\n".join(lines),
        price=safety,
        decoding=told,
    )
    (ROOT / "docs" / "benchmarks-postgres.md").write_text(page)
    print(page)
    return 0 if kept else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["--tenfold"]:
        sys.exit(tenfold())
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, sys.argv[2] if len(sys.argv) > 2 else ""))
