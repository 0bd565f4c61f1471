"""What an edit of the project between two runs does to stored state, and to what an output then gets."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pz
from deaths import dying
from pz.connectors.contract import ReadShape
from pz.errors import Code, Severity, StateError
from pz.runs.directory import run_paths
from pz.state.entries import Binding
from pz.state.kinds import Found, check_kind
from pz.state.watermarks import watermark_store
from running import project, rows, run

CONNECTIONS = """
db: { connector: duckdb, path: far.duckdb }
target: { connector: duckdb, path: target.duckdb }
files: { connector: localfiles, root: data }
lake: { connector: localfiles, root: out }
"""
SYNC = ", sync: { mode: 'incremental', cursor: 'id' }"
READ = f"SELECT id, name FROM {{{{ source('db', 't'{SYNC}) }}}}"
APPEND = "INSERT INTO {{ sink('target', 'o', strategy: 'append', duplicates: 'accept') }} " + READ
MERGE = "INSERT INTO {{ sink('target', 'o', strategy: 'merge', keys: ['id']) }} " + READ


def grow(root: Path, first: int, end: int, table: str = "t") -> None:
    """Rows ``first`` to ``end`` at the source."""
    with duckdb.connect(str(root / "far.duckdb")) as far:
        far.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INTEGER, name VARCHAR)")
        far.execute(f"INSERT INTO {table} SELECT i, 'n' || i FROM range({first}, {end}) r(i)")


def held(root: Path, table: str = "o") -> list[int]:
    """The ids that the output holds, in order."""
    with duckdb.connect(str(root / "target.duckdb")) as target:
        return [row[0] for row in target.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()]


def edit(root: Path, files: Mapping[str, str]) -> pz.OpenProject:
    """The project with some files written anew."""
    return project(root, {"connections.yml": CONNECTIONS, **files})


def flow(sql: str, **more: str) -> dict[str, str]:
    return {"pipelines/a.sql": sql, **more}


def ran(root: Path, files: Mapping[str, str], **options: Any) -> list[tuple[Severity, str]]:
    """Run it well; what was told, notes that the cursor's type is not verified left out."""
    result = run(edit(root, files), **options)
    assert result.exit_code == 0
    return [(p.severity, f"{p.message} ({p.where}) {p.hint}") for p in result.problems if p.code is not Code.PZ0212]


def refused(root: Path, files: Mapping[str, str], **options: Any) -> str:
    with pytest.raises(StateError) as raised:
        run(edit(root, files), **options)
    assert {problem.code for problem in raised.value.problems} == {Code.PZ0705}
    return str(raised.value)


@pytest.fixture
def delivered(tmp_path: Path) -> Path:
    """A project whose append has delivered five rows."""
    grow(tmp_path, 0, 5)
    assert ran(tmp_path, flow(APPEND)) == []
    assert held(tmp_path) == [0, 1, 2, 3, 4]
    return tmp_path


# --- a read from the beginning into an append


def test_an_append_whose_dataset_lost_its_sync_is_refused(delivered: Path) -> None:
    told = refused(delivered, flow(APPEND.replace(SYNC, "")))
    assert "is read in full now: output 'target.o' would get all of its rows again" in told
    assert "pipelines/a.sql:1" in told
    assert held(delivered) == [0, 1, 2, 3, 4]
    grow(delivered, 5, 6)
    ran(delivered, flow(APPEND))
    assert held(delivered) == [0, 1, 2, 3, 4, 5]


def test_what_the_refusal_of_a_lost_sync_advises_works(delivered: Path) -> None:
    full = flow(APPEND.replace(SYNC, ""))
    ((severity, told),) = ran(delivered, full, full_refresh=True)
    assert severity is Severity.WARNING
    assert "gets all of its rows again" in told
    assert held(delivered) == sorted([0, 1, 2, 3, 4] * 2)
    assert edit(delivered, full).state.show() == ()
    assert ran(delivered, full) == []


def test_a_replacement_whose_dataset_lost_its_sync_is_as_it_should_be(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    ran(tmp_path, flow(MERGE))
    assert ran(tmp_path, flow(MERGE.replace(SYNC, ""))) == []
    assert held(tmp_path) == [0, 1, 2, 3, 4]


def test_a_full_refresh_into_an_append_is_warned_of(delivered: Path) -> None:
    ((severity, told),) = ran(delivered, flow(APPEND), full_refresh=True)
    assert severity is Severity.WARNING
    assert "output 'target.o' gets all of its rows again, beside those that are there (pipelines/a.sql:1)" in told
    assert "empty the output first" in told
    assert held(delivered) == sorted([0, 1, 2, 3, 4] * 2)


def test_a_full_refresh_of_what_was_never_delivered_needs_no_warning(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    assert ran(tmp_path, flow(APPEND), full_refresh=True) == []
    assert ran(tmp_path, flow(MERGE.replace("'o'", "'m'")), full_refresh=True) == []


# --- names


def test_an_append_whose_source_connection_got_another_name_is_refused(delivered: Path) -> None:
    renamed = flow(APPEND.replace("'db'", "'base'"), **{"connections.yml": CONNECTIONS.replace("\ndb:", "\nbase:")})
    told = refused(delivered, renamed)
    assert "'base.t' is what was called 'db.t'" in told
    assert "output 'target.o' would get all of its rows again" in told
    assert held(delivered) == [0, 1, 2, 3, 4]
    assert [severity for severity, _ in ran(delivered, renamed, full_refresh=True)] == [Severity.WARNING]
    assert held(delivered) == sorted([0, 1, 2, 3, 4] * 2)
    assert ran(delivered, renamed) == []
    assert held(delivered) == sorted([0, 1, 2, 3, 4] * 2)


def test_a_merge_whose_source_connection_got_another_name_reads_everything_once_more(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    ran(tmp_path, flow(MERGE))
    renamed = flow(MERGE.replace("'db'", "'base'"), **{"connections.yml": CONNECTIONS.replace("\ndb:", "\nbase:")})
    assert ran(tmp_path, renamed) == []
    assert held(tmp_path) == [0, 1, 2, 3, 4]


def test_another_dataset_in_the_place_of_one_that_fed_an_append_is_warned_of_once(delivered: Path) -> None:
    grow(delivered, 10, 12, "other")
    other = flow(APPEND.replace("'t'", "'other'"))
    ((severity, told),) = ran(delivered, other)
    assert severity is Severity.WARNING
    assert "output 'target.o' has what 'db.t', which is no longer in the project, had delivered" in told
    assert held(delivered) == [0, 1, 2, 3, 4, 10, 11]
    assert ran(delivered, other) == []


# --- another definition


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("SELECT id, name", "SELECT id, upper(name) AS name", "the SQL of pipeline 'a' (pipelines/a.sql)"),
        ("'o', ", "'o', schema_policy: 'additive', ", "the options of 'target.o' (pipelines/a.sql:2)"),
        ("'id' }) }}", "'id' }) }} WHERE id <> 5", "the SQL of pipeline 'a' (pipelines/a.sql)"),
        ("'t', ", "'t', columns: { id: 'integer' }, ", "what is read of 'db.t' (pipelines/a.sql:2)"),
    ],
)
def test_an_edit_above_stored_state_is_warned_of_once_with_its_place(
    delivered: Path, old: str, new: str, what: str
) -> None:
    new = new if "integer" not in new else new.replace("integer' }", "integer', name: 'varchar' }")
    edited = flow("-- the flow\n" + APPEND.replace(old, new))
    ((severity, told),) = ran(delivered, edited)
    assert severity is Severity.WARNING
    assert (
        f"output 'target.o' was defined otherwise when the state of 'db.t' was stored (edited since: {what}):" in told
    )
    assert "(pipelines/a.sql:2)" in told
    assert "empty the output and run with --full-refresh" in told
    assert ran(delivered, edited) == [], "also where nothing new came"
    grow(delivered, 5, 8)
    assert ran(delivered, edited) == []


@pytest.mark.parametrize("new", ["-- a note\nSELECT id, name", "SELECT  id,\n  name", "SELECT id, /* the */ name"])
def test_a_comment_or_a_blank_more_is_no_other_definition(delivered: Path, new: str) -> None:
    assert ran(delivered, flow(APPEND.replace("SELECT id, name", new))) == []
    assert held(delivered) == [0, 1, 2, 3, 4]


def test_options_of_an_output_are_the_same_in_either_place(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    write = "{ strategy: merge, keys: [id], schema_policy: additive }"
    there = CONNECTIONS.replace("path: target.duckdb", f"path: target.duckdb, entities: {{ o: {{ write: {write} }} }}")
    bare = MERGE.replace(", strategy: 'merge', keys: ['id']", "")
    assert ran(tmp_path, {"connections.yml": there, "pipelines/a.sql": bare}) == []
    moved = MERGE.replace("keys: ['id']", "keys: ['id'],\n  schema_policy: 'additive'")
    assert ran(tmp_path, flow(moved)) == []
    edited = there.replace("additive", "evolve")
    ((_, told),) = ran(tmp_path, {"connections.yml": edited, "pipelines/a.sql": bare})
    assert "(edited since: the options of 'target.o' (connections.yml:3))" in told


def test_what_was_edited_is_left_out_where_the_run_was_swept(delivered: Path) -> None:
    shutil.rmtree(delivered / ".pz/runs")
    ((_, told),) = ran(delivered, flow(APPEND.replace("SELECT id, name", "SELECT id, upper(name) AS name")))
    assert "when the state of 'db.t' was stored: what it got" in told


def test_an_edited_read_is_warned_of_once(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    assert ran(tmp_path, flow(MERGE)) == []
    edited = flow(MERGE.replace("'t', ", "'t', columns: { id: 'integer', name: 'varchar' }, "))
    ((_, told),) = ran(tmp_path, edited)
    assert "was defined otherwise" in told
    assert "empty the output" not in told, "a merge takes the rows again"
    grow(tmp_path, 5, 9)
    assert ran(tmp_path, edited) == []
    assert held(tmp_path) == list(range(9))


def test_an_edit_of_what_keeps_no_state_needs_no_warning(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    full = MERGE.replace(SYNC, "")
    assert ran(tmp_path, flow(full)) == []
    assert ran(tmp_path, flow(full.replace("SELECT id, name", "SELECT id, upper(name) AS name"))) == []


def test_an_edit_together_with_a_full_refresh_needs_no_warning(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    ran(tmp_path, flow(MERGE))
    edited = flow(MERGE.replace("SELECT id, name", "SELECT id, upper(name) AS name"))
    assert ran(tmp_path, edited, full_refresh=True) == []
    assert ran(tmp_path, edited) == []


def test_an_edit_is_warned_of_until_a_run_succeeds(delivered: Path) -> None:
    broken = APPEND.replace("SELECT id, name", "SELECT id, error('no') AS name")
    grow(delivered, 5, 6)
    for _ in range(2):
        result = run(edit(delivered, flow(broken)))
        assert result.exit_code == 1
        assert any("was defined otherwise" in problem.message for problem in result.problems)
    again = edit(delivered, flow(broken)).retry()
    assert not any("was defined otherwise" in problem.message for problem in again.problems), "its chain was told"
    edited = flow(APPEND.replace("SELECT id, name", "SELECT id, lower(name) AS name"))
    assert len(ran(delivered, edited)) == 1
    assert ran(delivered, edited) == []


def test_state_of_an_earlier_version_says_nothing_of_definitions(delivered: Path) -> None:
    store = watermark_store(delivered / ".pz").raw
    ((key, content),) = store.read().items()
    bare = {name: value for name, value in content.items() if name not in {"definitions", "paths"}}
    assert store.put(key, bare, seen=content)
    assert ran(delivered, flow(APPEND.replace("SELECT id, name", "SELECT id, upper(name) AS name"))) == []
    ((_, told),) = ran(delivered, flow(APPEND))
    assert "was defined otherwise" in told


# --- other places

FILES = "INSERT INTO {{ sink('lake', 'o', strategy: 'append', duplicates: 'accept', path: 'one') }} " + READ


def test_an_output_that_was_moved_is_refused_and_may_go_on_where_the_old_one_ended(tmp_path: Path) -> None:
    grow(tmp_path, 0, 5)
    ran(tmp_path, flow(FILES))
    grow(tmp_path, 5, 7)
    moved = FILES.replace("'one'", "'two'")
    told = refused(tmp_path, flow(moved))
    assert "the state of 'db.t' was stored when output 'lake.o' was written to another path" in told
    assert "start: from_state" in told
    assert not (tmp_path / "out/two").exists()
    consented = moved.replace("cursor: 'id'", "cursor: 'id', start: 'from_state'")
    ((severity, said),) = ran(tmp_path, flow(consented))
    assert severity is Severity.NOTE
    assert "Remove it after this run" in said
    assert [row[0] for row in rows(tmp_path / "out/two/*.parquet")] == [5, 6]
    assert ran(tmp_path, flow(consented)) == []
    assert ran(tmp_path, flow(moved)) == [], "that the consent was taken away again is no other definition"
    assert ran(tmp_path, flow(moved.replace("'two'", "'./two/'"))) != [], "spelled otherwise it is another definition"


def test_consent_to_go_on_from_state_is_no_part_of_what_an_output_gets(tmp_path: Path) -> None:
    def into(name: str) -> dict[str, str]:
        sql = APPEND.replace("'o'", f"'{name}'").replace(READ, "SELECT * FROM {{ ref('read') }}")
        return {f"pipelines/{name}.sql": sql}

    grow(tmp_path, 0, 5)
    delivered = tmp_path
    assert ran(tmp_path, {"pipelines/read.sql": READ, **into("o")}) == []
    consent = READ.replace("cursor: 'id'", "cursor: 'id', start: 'from_state'")
    both = {"pipelines/read.sql": consent, **into("o"), **into("p")}
    notes = ran(delivered, both)
    assert {severity for severity, _ in notes} == {Severity.NOTE}
    assert "output 'target.p' never got what 'db.t' had delivered" in notes[0][1]
    without = {name: text.replace(", start: 'from_state'", "") for name, text in both.items()}
    grow(delivered, 5, 6)
    assert ran(delivered, without) == []
    assert (held(delivered), held(delivered, "p")) == ([0, 1, 2, 3, 4, 5], [5])


# --- between a death and what follows it

SHOUTED = ("SELECT id, name", "SELECT id, upper(name) AS name")


def died(root: Path, files: Mapping[str, str], point: str, **options: Any) -> None:
    with dying(root, lambda name, nth, total: (name, nth) == (point, 1)) as dead:
        run(edit(root, files), **options)
    assert dead


def follows(root: Path, files: Mapping[str, str], verb: str) -> list[str]:
    """A retry or a run that ends well; its warnings."""
    opened = edit(root, files)
    result = opened.retry() if verb == "retry" else run(opened)
    assert result.exit_code == 0
    return [f"{p.code} {p.message} ({p.where}) {p.hint}" for p in result.problems if p.severity is Severity.WARNING]


@pytest.mark.parametrize("verb", ["retry", "run"])
@pytest.mark.parametrize("point", ["sink_commit.before", "sink_commit.after"])
def test_an_edit_after_a_death_in_doubt_is_told_where_the_destination_says_that_rows_come_again(
    tmp_path: Path, point: str, verb: str
) -> None:
    grow(tmp_path, 0, 3)
    died(tmp_path, flow(APPEND), point)
    told = follows(tmp_path, flow(APPEND.replace(*SHOUTED)), verb)
    if point == "sink_commit.before":
        assert (told, held(tmp_path)) == ([], [0, 1, 2])
        return
    assert held(tmp_path) == [0, 0, 1, 1, 2, 2]
    (said,) = told
    assert "output 'target.o' was edited after an attempt at it that had committed" in said
    assert "its rows are added once more (pipelines/a.sql:1)" in said
    grow(tmp_path, 3, 4)
    assert follows(tmp_path, flow(APPEND.replace(*SHOUTED)), "run") == []


@pytest.mark.parametrize("verb", ["retry", "run"])
def test_an_edit_after_a_death_in_doubt_is_told_where_nothing_can_settle_it(tmp_path: Path, verb: str) -> None:
    grow(tmp_path, 0, 3)
    died(tmp_path, flow(FILES), "promote_file.after")
    (said,) = follows(tmp_path, flow(FILES.replace(*SHOUTED)), verb)
    assert said.startswith("PZ0704 output 'lake.o' was edited after an attempt at it that may have committed")
    assert "if it did, its rows are there twice after this run" in said
    assert len(rows(tmp_path / "out/one/*.parquet")) == 6


@pytest.mark.parametrize("verb", ["retry", "run"])
def test_without_an_edit_nothing_is_told_and_nothing_comes_twice(tmp_path: Path, verb: str) -> None:
    grow(tmp_path, 0, 3)
    died(tmp_path, flow(APPEND), "sink_commit.after")
    assert follows(tmp_path, flow(APPEND), verb) == []
    assert held(tmp_path) == [0, 1, 2]


def test_an_append_whose_attempts_are_not_known_any_more_may_hold_rows_twice(tmp_path: Path) -> None:
    grow(tmp_path, 0, 3)
    died(tmp_path, flow(APPEND), "sink_commit.after")
    (dead,) = run_paths(tmp_path / ".pz")
    (dead / "staging.duckdb").unlink()
    (dead / "staging.duckdb.wal").unlink(missing_ok=True)
    said: list[Any] = []
    edit(tmp_path, flow(APPEND)).retry(on_event=said.append)
    (found,) = [event.to_wire() for event in said if "not known any more" in str(getattr(event, "message", ""))]
    assert (found["severity"], found["code"]) == ("warning", "PZ0704")
    assert "may have committed to 'target.o' is sent again, and is there twice then" in found["message"]


@pytest.mark.parametrize(
    ("new", "point"),
    [
        (0, "sink_commit.before"),
        (2, "sink_commit.before"),
        (2, "complete_load.before"),
        (2, "complete_load.after"),
        (2, "record_attempt.before"),
    ],
)
def test_a_full_refresh_that_died_is_not_dropped_without_a_word(tmp_path: Path, new: int, point: str) -> None:
    grow(tmp_path, 0, 5)
    ran(tmp_path, flow(MERGE))
    died(tmp_path, flow(MERGE), point, full_refresh=True)
    grow(tmp_path, 5, 5 + new)
    (said,) = follows(tmp_path, flow(MERGE), "run")
    assert "was to read 'db.t' from the beginning (--full-refresh) and did not finish" in said
    assert "run with --full-refresh again" in said
    assert follows(tmp_path, flow(MERGE), "run") == [], "said once"


@pytest.mark.parametrize("how", ["retry", "refresh"])
def test_a_full_refresh_that_is_gone_on_with_needs_no_word(tmp_path: Path, how: str) -> None:
    grow(tmp_path, 0, 5)
    ran(tmp_path, flow(MERGE))
    died(tmp_path, flow(MERGE), "sink_commit.before", full_refresh=True)
    if how == "retry":
        assert follows(tmp_path, flow(MERGE), "retry") == []
    else:
        assert ran(tmp_path, flow(MERGE), full_refresh=True) == []
    assert follows(tmp_path, flow(MERGE), "run") == []


# --- state that is gone


def test_state_that_was_removed_is_told_where_a_run_had_delivered(delivered: Path) -> None:
    shutil.rmtree(delivered / ".pz/state")
    ((severity, told),) = ran(delivered, flow(APPEND))
    assert severity is Severity.WARNING
    assert "had delivered 'db.t': output 'target.o' gets all of its rows again (pipelines/a.sql:1)" in told
    assert "restore it from a backup" in told
    assert ran(delivered, flow(APPEND)) == []


def test_what_a_failed_first_run_had_delivered_comes_again_with_a_warning(tmp_path: Path) -> None:
    grow(tmp_path, 0, 2)
    bad = "INSERT INTO {{ sink('lake', 'bad') }} SELECT error('no') AS n FROM {{ ref('a') }}"
    both = flow(APPEND, **{"pipelines/b.sql": bad.replace("'bad'", "'bad', strategy: 'append', duplicates: 'accept'")})
    assert run(edit(tmp_path, both)).exit_code == 1
    assert held(tmp_path) == [0, 1]
    (said,) = follows(
        tmp_path, {**both, "pipelines/b.sql": both["pipelines/b.sql"].replace("error('no')", "id")}, "run"
    )
    assert "output 'target.o' gets all of its rows again" in said
    assert "`pz retry`" in said


def test_state_that_was_cleared_by_its_verb_is_meant_to_be_gone(delivered: Path) -> None:
    edit(delivered, flow(APPEND)).state.clear("db.t")
    assert ran(delivered, flow(APPEND)) == []
    assert held(delivered) == sorted([0, 1, 2, 3, 4] * 2)


# --- what the guide says besides


def test_the_name_of_the_project_is_nothing_to_state(delivered: Path) -> None:
    grow(delivered, 5, 6)
    assert ran(delivered, flow(APPEND, **{"project.yml": "name: renamed\nversion: 1.0.0\n"})) == []
    assert held(delivered) == [0, 1, 2, 3, 4, 5]


FROM_FILE = (
    "INSERT INTO {{ sink('target', 'o', strategy: 'merge', keys: ['id']) }} SELECT id, other FROM {{ source('files', 'f', "
    "path: 'one.csv', columns: { id: 'integer', other: 'integer' }, sync: { mode: 'incremental', cursor: 'id' }) }}"
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("one.csv", "two.csv", "when it read another path"),
        ("cursor: 'id'", "cursor: 'other'", "was stored for cursor 'id', not 'other'"),
        ("root: data", "root: data2", "was stored for another source location"),
    ],
)
def test_what_is_read_elsewhere_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    data = {f"{place}/{name}.csv": "id,other\n1,2\n" for place in ("data", "data2") for name in ("one", "two")}
    assert ran(tmp_path, flow(FROM_FILE, **data)) == []
    edited = flow(FROM_FILE.replace(old, new), **data, **{"connections.yml": CONNECTIONS.replace(old, new)})
    assert said in refused(tmp_path, edited)
    assert ran(tmp_path, edited, full_refresh=True) == []
    assert ran(tmp_path, edited) == []


def test_another_way_of_reading_is_refused(tmp_path: Path) -> None:
    """Here a token where a watermark was; `test_state_kinds.py` has all pairs."""
    grow(tmp_path, 0, 2)
    ran(tmp_path, flow(MERGE))
    found = Found(None, watermark_store(tmp_path / ".pz").read()["db.t"])
    problem = check_kind("db.t", found, ReadShape.FEED, Binding())
    assert problem is not None
    assert problem.code is Code.PZ0705


def test_another_output_is_refused_and_one_less_is_not(tmp_path: Path) -> None:
    def into(name: str) -> dict[str, str]:
        sql = APPEND.replace("'o'", f"'{name}'").replace(READ, "SELECT * FROM {{ ref('read') }}")
        return {"pipelines/read.sql": READ, f"pipelines/{name}.sql": sql}

    grow(tmp_path, 0, 2)
    assert ran(tmp_path, {**into("o"), **into("p")}) == []
    assert "output 'target.q' never got what 'db.t' had delivered" in refused(tmp_path, into("q"))
    (tmp_path / "pipelines/p.sql").unlink()
    (tmp_path / "pipelines/q.sql").unlink()
    grow(tmp_path, 2, 3)
    assert ran(tmp_path, into("o")) == []
    assert (held(tmp_path), held(tmp_path, "p")) == ([0, 1, 2], [0, 1])


@pytest.mark.parametrize("strategy", [APPEND, MERGE])
def test_a_new_output_beside_another_gets_what_was_delivered_before_it_as_its_refusal_advises(
    tmp_path: Path, strategy: str
) -> None:
    def into(name: str, sql: str, read: str = READ) -> dict[str, str]:
        sql = sql.replace("'o'", f"'{name}'").replace(READ, "SELECT * FROM {{ ref('read') }}")
        return {"pipelines/read.sql": read, f"pipelines/{name}.sql": sql}

    grow(tmp_path, 0, 3)
    ran(tmp_path, into("o", strategy))
    told = refused(tmp_path, into("q", MERGE))
    assert "`pz run --select target.q --full-refresh`" in told
    assert ("add every row once more to 'target.o'" in told) is (strategy is APPEND)
    state = edit(tmp_path, {}).state.show()
    grow(tmp_path, 3, 4)
    backfill = edit(tmp_path, {}).run(select="target.q", full_refresh=True)
    assert (backfill.exit_code, held(tmp_path, "q")) == (0, [0, 1, 2, 3])
    assert edit(tmp_path, {}).state.show() == state
    grow(tmp_path, 4, 5)
    ran(tmp_path, into("q", MERGE, READ.replace("cursor: 'id'", "cursor: 'id', start: 'from_state'")))
    grow(tmp_path, 5, 6)
    assert ran(tmp_path, into("q", MERGE)) == []
    assert held(tmp_path) == held(tmp_path, "q") == [0, 1, 2, 3, 4, 5]


def test_the_only_output_of_a_dataset_starts_over_with_it(tmp_path: Path) -> None:
    grow(tmp_path, 0, 3)
    ran(tmp_path, flow(MERGE))
    told = refused(tmp_path, flow(MERGE.replace("'o'", "'q'")))
    assert "run with --full-refresh to read everything again" in told
    assert "--select" not in told


def test_a_new_sync_is_a_first_run(tmp_path: Path) -> None:
    grow(tmp_path, 0, 2)
    ran(tmp_path, flow(MERGE.replace(SYNC, "")))
    assert ran(tmp_path, flow(MERGE)) == []
    assert held(tmp_path) == [0, 1]


# --- the table of the guide

PAGE = Path(__file__).parents[1] / "docs/guarantees.md"
PROVEN = {
    "the SQL of a pipeline, options of an output": test_an_edit_above_stored_state_is_warned_of_once_with_its_place,
    "comments and blanks of SQL": test_a_comment_or_a_blank_more_is_no_other_definition,
    "the project's `name:`": test_the_name_of_the_project_is_nothing_to_state,
    "`path:` of a dataset": test_what_is_read_elsewhere_is_refused,
    "`path:` of an output": test_an_output_that_was_moved_is_refused_and_may_go_on_where_the_old_one_ended,
    "the cursor": test_what_is_read_elsewhere_is_refused,
    "where a connection leads": test_what_is_read_elsewhere_is_refused,
    "another `sync:` mode": test_another_way_of_reading_is_refused,
    "no `sync:` any more": test_an_append_whose_dataset_lost_its_sync_is_refused,
    "another name of a connection or dataset": test_an_append_whose_source_connection_got_another_name_is_refused,
    "a new output below": test_another_output_is_refused_and_one_less_is_not,
    "another name of an output": test_another_output_is_refused_and_one_less_is_not,
    "an output taken away": test_another_output_is_refused_and_one_less_is_not,
    "`start: from_state`": test_consent_to_go_on_from_state_is_no_part_of_what_an_output_gets,
    "a `sync:` that is new": test_a_new_sync_is_a_first_run,
}


def test_every_row_of_the_guide_is_proven_here() -> None:
    section = PAGE.read_text().partition("## What an edit does to stored state")[2].partition("\n## ")[0]
    edits = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]
    assert [next((told for told in PROVEN if row.startswith(told)), row) for row in edits] == list(PROVEN)
