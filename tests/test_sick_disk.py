"""A project on a sick disk: read-only, full, or with a damaged file. Every end has a code, and nothing is lost.

What the outputs must hold is computed here, from the source. A damaged or missing record costs work, never rows: the next
run that ends well leaves exactly the rows, and a run that cannot end well says so and changes no output.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from cli_support import Answer, invoke
from projects import write
from pz import durable
from pz.testing.faults import Tmpfs, tmpfs

MIB = 1024 * 1024
ROWS = 20_000

PROJECT = {
    "project.yml": 'name: shop\nversion: "1"\nengine: { threads: 1, duckdb: { memory_limit: 256MiB } }\n',
    "connections.yml": """\
files:
  connector: localfiles
  root: data
  entities:
    orders:
      read:
        columns: { id: bigint, at: timestamp, text: varchar }
        sync: { mode: incremental, cursor: at }
    people: { read: { columns: { id: bigint, name: varchar } } }
lake: { connector: localfiles, root: out }
shop: { connector: duckdb, path: shop.duckdb }
""",
    "pipelines/orders.sql": """\
INSERT INTO {{ sink('shop', 'orders', strategy: 'merge', keys: ['id']) }}
SELECT * FROM {{ source('files', 'orders') }}
""",
    "pipelines/people.sql": """\
INSERT INTO {{ sink('lake', 'people', strategy: 'replace') }}
SELECT id, upper(name) AS name FROM {{ source('files', 'people') }}
""",
    "pipelines/configs/people.yml": "pipeline: people\nchecks:\n  - not_null: [id]\n",
}
ORDERS = (
    "SELECT i AS id, TIMESTAMP '2024-01-01' + to_seconds(i) AS at, md5(i::VARCHAR) AS text FROM range({rows}) AS t(i)"
)
PEOPLE = "SELECT i AS id, 'n' || i AS name FROM range({rows}) AS t(i)"


def grow(root: Path, rows: int) -> None:
    """The sources, with this many rows each."""
    (root / "data").mkdir(exist_ok=True)
    with duckdb.connect() as connection:
        for name, sql in (("orders", ORDERS), ("people", PEOPLE)):
            connection.execute(f"COPY ({sql.format(rows=rows)}) TO '{root}/data/{name}.csv' (HEADER)")


def complete(root: Path, rows: int) -> bool:
    """Whether both outputs hold exactly what sources of this many rows give."""
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{root}/shop.duckdb' AS shop (READ_ONLY)")
        orders = f"(FROM shop.orders EXCEPT ALL {ORDERS}) UNION ALL ({ORDERS} EXCEPT ALL FROM shop.orders)".format(
            rows=rows
        )
        there = f"SELECT id, name FROM read_parquet('{root}/out/people/*.parquet')"
        wanted = f"SELECT id, upper(name) FROM ({PEOPLE})".format(rows=rows)
        people = f"({there} EXCEPT ALL {wanted}) UNION ALL ({wanted} EXCEPT ALL {there})"
        return not connection.execute(orders).fetchall() and not connection.execute(people).fetchall()


def pz(root: Path, *words: str) -> Answer:
    """One command line; whatever happens it ends in an exit code that is a code's, and in words."""
    answer = invoke("--project", str(root), *words)
    said = answer.out + answer.err
    assert answer.code in {0, 1, 2}, f"pz {' '.join(words)} ended with {answer.code}:\n{said}"
    assert "Traceback" not in said
    assert "PZ0000" not in said
    assert answer.code == 0 or re.search(r"PZ\d{4}", said), f"pz {' '.join(words)} failed without a code:\n{said}"
    return answer


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Tmpfs]:
    with contextlib.ExitStack() as stack:
        try:
            mounted = stack.enter_context(tmpfs(tmp_path / "disk", 256 * MIB))
        except PermissionError as refused:
            pytest.skip(str(refused))
        write(mounted.path, PROJECT)
        grow(mounted.path, 10)
        yield mounted


# --- read-only

LOOKING = (["ls"], ["validate"], ["runs"], ["state", "show"], ["plan"], ["retry"], ["clean"])
DOING = (["run", "--all"], ["test"], ["state", "clear", "files.orders", "--yes"])


@pytest.mark.parametrize("before", [False, True], ids=["never-run", "run-before"])
def test_a_read_only_project_is_refused_with_a_code_and_stays_as_it_is(disk: Tmpfs, before: bool) -> None:
    if before:
        assert pz(disk.path, "run", "--all").code == 0
        grow(disk.path, 20)
    files = {path: path.read_bytes() for path in sorted(disk.path.rglob("*")) if path.is_file()}
    disk.writable(False)
    try:
        for words in LOOKING:
            pz(disk.path, *words)
        for words in DOING:
            answer = pz(disk.path, *words)
            assert answer.code != 0 or "nothing" in answer.out, f"{words} said it had done it: {answer.out}"
    finally:
        disk.writable(True)
    assert files == {path: path.read_bytes() for path in sorted(disk.path.rglob("*")) if path.is_file()}
    assert pz(disk.path, "run", "--all").code == 0
    assert complete(disk.path, 20 if before else 10)


# --- full


@pytest.mark.parametrize("room", [0, 4096, 32 * 1024, 128 * 1024, 512 * 1024, MIB, 3 * MIB])
@pytest.mark.parametrize("before", [False, True], ids=["never-run", "run-before"])
def test_a_full_disk_costs_a_run_and_no_row(disk: Tmpfs, room: int, before: bool) -> None:
    if before:
        assert pz(disk.path, "run", "--all").code == 0
    grow(disk.path, ROWS)
    used = sum(path.stat().st_blocks * 512 for path in disk.path.rglob("*"))
    disk.resize(used + room)
    failed = pz(disk.path, "run", "--all")
    pz(disk.path, "retry")
    disk.resize(256 * MIB)
    assert failed.code != 0 or room > MIB
    if (disk.path / ".pz/runs").is_dir():
        pz(disk.path, "retry")
    assert pz(disk.path, "run", "--all").code == 0
    assert complete(disk.path, ROWS)


# --- damaged files

Damage = Callable[[Path], object]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes() or b"x")
    content[len(content) // 2] ^= 0x55
    path.write_bytes(content)


def _folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


DAMAGES: dict[str, Damage] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": _cut,
    "flipped": _flip,
    "garbage": lambda path: path.write_bytes(b"\xff\x00" * 3000),
    "foreign": lambda path: path.write_text("[]"),
    "folder": _folder,
}
ARTIFACTS = (
    ".pz/state/watermarks.json",
    ".pz/runs/*/run.json",
    ".pz/runs/*/run_results.json",
    ".pz/runs/*/staging.duckdb",
    ".pz/runs/*/number",
    ".pz/runs/*/run.lock",
    ".pz/runs/.counter.json",
    ".pz/target/plan.json",
)


@pytest.fixture(scope="module")
def failed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that ran well once, and then failed at one of its two outputs."""
    root = tmp_path_factory.mktemp("failed")
    write(root, PROJECT)
    grow(root, 10)
    assert pz(root, "run", "--all").code == 0
    grow(root, 20)
    durable.rearm("promote_file.before=raise")
    try:
        assert pz(root, "run", "--all").code == 1
    finally:
        durable.rearm()
    return root


VERBS = {"retry": ["retry"], "run": ["run", "--all"]}
# Half of all triples: each damage of each file, and both verbs for each of the two.
CASES = [
    (artifact, damage, verb)
    for row, artifact in enumerate(ARTIFACTS)
    for column, damage in enumerate(DAMAGES)
    for turn, verb in enumerate(VERBS)
    if (row + column + turn) % 2 == 0
]


@pytest.mark.parametrize(("artifact", "damage", "verb"), CASES)
def test_a_damaged_file_costs_work_and_no_row(
    failed_run: Path, tmp_path: Path, artifact: str, damage: str, verb: str
) -> None:
    root = tmp_path / "project"
    shutil.copytree(failed_run, root, symlinks=True)
    found = sorted(root.glob(artifact))
    assert found, artifact
    DAMAGES[damage](found[-1])
    for words in (["runs"], ["state", "show"], ["ls"]):
        pz(root, *words)
    answer = pz(root, *VERBS[verb])
    if answer.code != 0:
        # Refused: then the words say what to do, and once the damaged file is out of the way all is well.
        if found[-1].is_dir():
            shutil.rmtree(found[-1])
        else:
            found[-1].unlink(missing_ok=True)
        assert pz(root, "run", "--all").code == 0, answer.out + answer.err
    elif "nothing to do" in answer.out + answer.err or "nothing" in answer.out:
        assert pz(root, "run", "--all").code == 0
    assert complete(root, 20), answer.out + answer.err
