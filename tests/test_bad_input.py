"""Every mistake in a project or a command line gets its code, its place and a way out, through the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bad_connectors
from bad_projects import CASES, CONNECTIONS, CSV, FINE, MERGE, PROJECT, Bad
from cli_support import Answer, Capture
from projects import write
from pz.cli.command import Invocation
from pz.cli.main import answer
from pz.cli.output import Output
from pz.codes import CODES, Code
from pz.testing.reference import distribution_path

SOURCE = Path(__file__).parents[1] / "src" / "pz"

# Codes of the catalogue that nothing can raise today, and why.
UNUSED = {
    "PZ0125": "state lives beside the project; there is no remote backend that needs a connection",
    "PZ0232": "run_id and run_started_at are sentinels outside of identity: an id never changes from run to run",
    "PZ0364": "no connector has a warning of its own yet",
}


@pytest.fixture(scope="module")
def connectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The reference connectors and the bad ones are installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(distribution_path()))
        patch.syspath_prepend(str(bad_connectors.install(tmp_path_factory.mktemp("installed"))))
        yield


def invoke(root: Path, *line: str) -> Answer:
    out, err = Capture(), Capture()
    output = Output(out, err, {})
    code = answer(["--project", str(root), *line], output, Invocation(output=output))
    return Answer(code, out.getvalue(), err.getvalue())


def names() -> list[str]:
    """An id a case: the code, and a number where a code has several."""
    seen: dict[str, int] = {}
    found = []
    for case in CASES:
        seen[case.code] = seen.get(case.code, 0) + 1
        found.append(case.code if seen[case.code] == 1 else f"{case.code}-{seen[case.code]}")
    return found


@pytest.mark.parametrize("bad", CASES, ids=names())
@pytest.mark.usefixtures("connectors")
def test_a_mistake_is_named_with_its_place_and_a_way_out(bad: Bad, tmp_path: Path) -> None:
    for number, line in enumerate(bad.verbs):
        root = tmp_path / str(number)
        write(root, {"connections.yml": CONNECTIONS, "data/t.csv": CSV, **bad.files})
        for change in bad.before:
            change(root)
        got = invoke(root, *line)
        printed = got.err + got.out
        assert got.code == bad.exit, printed
        assert "Traceback" not in printed
        head, advice = found(printed, bad)
        assert bad.message in head
        assert advice.startswith("hint: "), printed
        assert bad.hint in advice


def found(printed: str, bad: Bad) -> tuple[str, str]:
    """The line of the problem, and its hint with the lines that belong to it."""
    lines = printed.split("\n")
    place = f" ({bad.where})" if bad.where else ""
    for number, line in enumerate(lines):
        if line.strip().startswith(f"{bad.severity} {bad.code}: ") and line.endswith(place):
            if not bad.where:
                assert not re.search(r"\.(yml|sql)(:\d+)?\)$", line), "the place is known after all"
            return line, "\n".join(lines[number + 1 :]).strip()
    pytest.fail(f"no {bad.severity} {bad.code} at {bad.where or 'no place'} in:\n{printed}")


def in_scope(code: str) -> bool:
    """Load, compile, connectors, planning and SQL: what a project can get wrong."""
    return code < "PZ0402"


def mentioned() -> set[str]:
    files = [file for file in SOURCE.rglob("*.py") if file.name != "codes.py"]
    return {code for file in files for code in re.findall(r"Code\.(PZ\d{4})", file.read_text(encoding="utf-8"))}


def test_every_code_that_the_source_can_raise_is_provoked() -> None:
    provoked = {case.code for case in CASES}
    assert {code for code in mentioned() if in_scope(code)} - provoked == set()


def test_every_other_code_of_the_catalogue_has_a_reason() -> None:
    silent = {str(code) for code in CODES if in_scope(str(code))} - mentioned()
    assert silent == set(UNUSED)


def test_the_cases_name_codes_that_exist() -> None:
    assert {case.code for case in CASES} <= {str(code) for code in Code}


NO_PATHS = {
    "a NUL": '"a\\0b"',
    "no such home": "'~nobody9/x'",
    "a long name": "n" * 300,
    "a long path": "d/" * 3000 + "x",
}


@pytest.mark.parametrize("path", NO_PATHS.values(), ids=NO_PATHS)
@pytest.mark.parametrize("place", ["root: data", "root: out", "path: shop.duckdb", "read"])
@pytest.mark.usefixtures("connectors")
def test_text_that_can_be_no_path_is_refused(path: str, place: str, tmp_path: Path) -> None:
    option = place.partition(":")[0]
    connections = CONNECTIONS.replace(place, f"{option}: {path}")
    if place == "read":
        connections = CONNECTIONS.replace(
            "root: data", f"root: data, entities: {{ t: {{ read: {{ path: {path} }} }} }}"
        )
    sql = "INSERT INTO [{{ sink('lake', 'o') }}, {{ sink('db', 'o') }}] SELECT * FROM {{ source('files', 't') }}"
    write(tmp_path, {"connections.yml": connections, "data/t.csv": CSV, "pipelines/p.sql": sql})
    got = invoke(tmp_path, "run", "--all")
    assert got.code == 2, got.err
    assert re.match(r"error PZ03(01|53): .*path.*\(connections.yml:\d\)\n", got.err), got.err


@pytest.mark.parametrize("place", ["data", "out", "shop.duckdb", "data/t.csv", ".pz"])
@pytest.mark.parametrize("verb", [("run", "--all"), ("validate", "--connect")])
@pytest.mark.usefixtures("connectors")
def test_a_circle_of_links_is_an_error_with_a_code(place: str, verb: tuple[str, ...], tmp_path: Path) -> None:
    sql = "INSERT INTO [{{ sink('lake', 'o') }}, {{ sink('db', 'o') }}] SELECT * FROM {{ source('files', 't') }}"
    write(tmp_path, {"connections.yml": CONNECTIONS, "data/u.csv": CSV, "pipelines/p.sql": sql})
    if place == "data":
        (tmp_path / "data/u.csv").unlink()
        (tmp_path / "data").rmdir()
    elif place != "data/t.csv":
        (tmp_path / "data/u.csv").rename(tmp_path / "data/t.csv")
    (tmp_path / place).symlink_to(Path(place).name)
    got = invoke(tmp_path, *verb)
    assert got.code in {0, 1, 2}, got.err
    assert "PZ0500" not in got.err + got.out
    assert verb[0] == "validate" or got.code, "nothing can have been read or written there"


@pytest.mark.parametrize("kind", ["decimal(18,2)", "smallint", "hugeint", "timestamp_ns", "uinteger"])
@pytest.mark.usefixtures("connectors")
def test_a_cursor_may_have_any_spelling_of_a_type_that_can_be_one(kind: str, tmp_path: Path) -> None:
    value = "2024-01-01" if "time" in kind else "7"
    sql = MERGE.replace("['id']", "['name']") + (
        "SELECT * FROM {{ source('files', 't', columns: {id: 'KIND', name: 'varchar'}, "
        "sync: {mode: 'incremental', cursor: 'id'}) }}"
    ).replace("KIND", kind)
    files = {"connections.yml": CONNECTIONS, "data/t.csv": f"id,name\n{value},x\n", "pipelines/p.sql": sql}
    write(tmp_path, files)
    got = invoke(tmp_path, "run", "--all")
    assert got.code == 0, got.err + got.out


@pytest.mark.parametrize(
    ("engine", "code", "hint"),
    [
        ("threads: 2147483647", "PZ0120", "1024"),
        ("duckdb: { threads: 2147483647 }", "PZ0120", "1024"),
        ("duckdb: { memory_limit: 1KB }", "PZ0708", "memory_limit"),
        ("duckdb: { memory_limit: 1MB }", "PZ0708", "memory_limit"),
        ("duckdb: { memory_limit: 99999999TB }", "PZ0708", "memory_limit"),
    ],
)
@pytest.mark.usefixtures("connectors")
def test_numbers_that_no_machine_has_are_refused(engine: str, code: str, hint: str, tmp_path: Path) -> None:
    write(
        tmp_path,
        {"connections.yml": CONNECTIONS, "pipelines/p.sql": FINE, "project.yml": PROJECT + f"engine: {{ {engine} }}\n"},
    )
    got = invoke(tmp_path, "run", "--all")
    assert (got.code, got.err.startswith(f"error {code}: ")) == (2, True), got.err
    assert hint in got.err


@pytest.mark.usefixtures("connectors")
def test_a_freshness_that_reaches_behind_the_first_day_is_fresh(tmp_path: Path) -> None:
    config = "pipeline: p\nchecks:\n  - freshness: { column: day, max_age: 9999999d }\n"
    sql = FINE.replace("1 AS id", "DATE '0002-01-01' AS day")
    write(tmp_path, {"connections.yml": CONNECTIONS, "pipelines/p.sql": sql, "pipelines/configs/p.yml": config})
    got = invoke(tmp_path, "run", "--all")
    assert got.code == 0, got.out


@pytest.mark.usefixtures("connectors")
@pytest.mark.parametrize(
    ("files", "line", "note"),
    [
        ({}, "validate", "note: the project has no pipelines"),
        ({}, "run --all", "note: the project has no pipelines"),
        ({}, "run", "note: the project has no pipelines"),
        ({}, "test", "note: the project has no pipelines"),
        ({"pipelines/p.sql": FINE}, "test", "note: the project has no checks"),
        ({"pipelines/p.sql": FINE}, "test --select p", "note: the selection has no checks"),
    ],
)
def test_success_that_means_nothing_says_so(files: dict[str, str], line: str, note: str, tmp_path: Path) -> None:
    write(tmp_path, {"connections.yml": CONNECTIONS, **files})
    got = invoke(tmp_path, *line.split())
    assert got.code == 0
    assert note in got.out + got.err
    assert invoke(tmp_path, "-q", *line.split()).err == ""
