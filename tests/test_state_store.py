"""State files: never lost, never half-written, never believed when damaged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from children import run, start
from pz import durable
from pz.cursors import CursorType
from pz.errors import Code, StateError
from pz.oslock import OsLock
from pz.state.entries import Binding, Entry, EntryStore, Token, Watermark, entry_from_json, entry_to_json
from pz.state.stores.local import LocalStore
from pz.state.sync_state import token_store
from pz.state.watermarks import watermark_store

BINDING = Binding("where", {"lake.orders": "d1", "dwh.orders": "d2"})
OLD = Entry(Watermark("id", CursorType.INT, "100"), "20260710T110000123Z-ab12", BINDING)
NEW = replace(OLD, value=Watermark("id", CursorType.INT, "200"), run_id="20260710T120000123Z-cd34")


def test_an_absent_file_means_that_nothing_was_stored(tmp_path: Path) -> None:
    assert watermark_store(tmp_path).read() == {}
    assert token_store(tmp_path).read() == {}
    assert list(tmp_path.iterdir()) == []


def test_entries_come_back_as_they_were_stored(tmp_path: Path) -> None:
    watermarks, tokens = watermark_store(tmp_path), token_store(tmp_path)
    assert watermarks.save("crm.orders", OLD, seen=None)
    assert watermarks.save("crm.a.b", replace(OLD, value=Watermark("at", CursorType.DATE, "2024-01-31")), seen=None)
    assert tokens.save("api.é", Entry(Token('{"link": "https://x/?a=1"}'), "r"), seen=None)
    assert watermarks.read()["crm.orders"] == OLD
    assert tokens.read() == {"api.é": Entry(Token('{"link": "https://x/?a=1"}'), "r")}
    assert entry_from_json(json.loads(json.dumps(entry_to_json(OLD)))) == OLD


def test_the_file_is_sorted_indented_and_ends_in_a_newline(tmp_path: Path) -> None:
    store = watermark_store(tmp_path)
    for key in ("b.x", "B.x", "a.x"):
        store.save(key, OLD, seen=None)
    text = (tmp_path / "state" / "watermarks.json").read_bytes().decode()
    document = json.loads(text)
    assert list(document) == ["checksum", "version", "watermarks"]
    assert list(document["watermarks"]) == ["B.x", "a.x", "b.x"]
    assert text.endswith("}\n")
    assert "\r" not in text
    assert '\n  "watermarks": {\n    "B.x": {\n      "cursor": "id",\n' in text


def test_a_token_is_not_shown_by_repr() -> None:
    assert "secret" not in repr(Entry(Token("secret"), "r"))


@pytest.mark.parametrize("which", ["watermarks", "sync-state", "schemas"])
def test_a_file_that_was_cut_or_changed_is_refused_and_left_in_place_or_reads_the_same(
    tmp_path: Path, which: str
) -> None:
    path = tmp_path / f"{which}.json"
    store = LocalStore(path, "entries")
    store.put("crm.orders", entry_to_json(OLD), seen=None)
    store.put("crm.x", {"columns": [{"name": "a", "type": "DECIMAL(4,2)"}], "runId": "r"}, seen=None)
    whole, expected = path.read_bytes(), store.read()
    cuts = [whole[: len(whole) * n // 64] for n in range(64)]
    flips = [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in (0, 5, at % 8)
    ]
    codes = []
    for at, damaged in enumerate([*cuts, *flips, b"", whole * 2, b"\0" * 4096]):
        path.write_bytes(damaged)
        try:
            assert store.read() == expected
        except StateError as failure:
            codes.append(failure.code)
            if at % 100 == 0:
                with pytest.raises(StateError):
                    store.put("crm.orders", entry_to_json(NEW), seen=entry_to_json(OLD))
                assert path.read_bytes() == damaged
    assert set(codes) == {Code.PZ0706}
    assert len(codes) > len(whole)


@pytest.mark.parametrize(
    "entry",
    [
        {"cursor": "id", "type": "float", "value": "1", "runId": "r"},
        {"cursor": "id", "type": "int", "value": "x", "runId": "r"},
        {"cursor": "id", "type": ["int"], "value": "1", "runId": "r"},
        {"cursor": "id", "type": "int", "value": 1, "runId": "r"},
        {"cursor": "id", "type": "int", "value": "1"},
        {"cursor": "id", "type": "int", "value": "1", "runId": "r", "outputs": []},
    ],
)
def test_one_malformed_entry_makes_the_file_unusable_naming_it(tmp_path: Path, entry: dict[str, object]) -> None:
    store = watermark_store(tmp_path)
    store.save("good.one", OLD, seen=None)
    store.raw.put("bad.one", entry, seen=None)
    with pytest.raises(StateError, match=r"bad\.one") as raised:
        store.read()
    assert raised.value.code is Code.PZ0706


def test_a_write_over_something_that_was_not_seen_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    store = watermark_store(tmp_path)
    store.save("crm.orders", OLD, seen=None)
    newer = replace(NEW, value=Watermark("id", CursorType.INT, "300"))
    store.save("crm.orders", newer, seen=OLD)
    for seen in (OLD, None):
        with pytest.raises(StateError, match=r"crm\.orders") as raised:
            store.save("crm.orders", NEW, seen=seen)
        assert raised.value.code is Code.PZ0520
    with pytest.raises(StateError):
        store.raw.remove("crm.orders", seen=entry_to_json(OLD))
    assert store.read() == {"crm.orders": newer}


def test_a_value_that_is_stored_already_is_not_written_again(tmp_path: Path) -> None:
    store = watermark_store(tmp_path)
    store.save("crm.orders", OLD, seen=None)
    before = (tmp_path / "state" / "watermarks.json").stat().st_ino
    assert not store.save("crm.orders", replace(OLD, run_id="another"), seen=None)
    assert (tmp_path / "state" / "watermarks.json").stat().st_ino == before
    widened = replace(OLD, binding=Binding("where", {**BINDING.outputs, "new.output": "d3"}))
    assert store.save("crm.orders", widened, seen=OLD)


def test_a_lock_that_is_not_to_be_had_is_reported(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "x.json", "entries", lock_wait=0)
    with OsLock(tmp_path / "x.json.lock") as lock:
        assert lock.acquire()
        with pytest.raises(StateError) as raised:
            store.put("k", {}, seen=None)
    assert raised.value.code is Code.PZ0518
    store.put("k", {}, seen=None)
    assert (tmp_path / "x.json.lock").exists()


SAVE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_state_store import NEW, OLD
from pz.state.watermarks import watermark_store
watermark_store(Path(sys.argv[1])).save("crm.orders", NEW, seen=OLD)
"""


@pytest.mark.parametrize("how", [".before=kill", ".after=kill", "=torn"])
def test_a_death_while_state_is_stored_leaves_the_old_or_the_new_state(tmp_path: Path, how: str) -> None:
    store = watermark_store(tmp_path)
    store.save("crm.orders", OLD, seen=None)
    assert run(SAVE, tmp_path, Path(__file__).parent, failpoint=f"advance_state{how}") == -signal.SIGKILL
    assert store.read() == {"crm.orders": NEW if "after" in how else OLD}
    assert store.save("crm.orders", NEW, seen=OLD) == ("after" not in how)
    assert store.read() == {"crm.orders": NEW}
    assert list((tmp_path / "state").glob("*.tmp")) == []


MANY = """
import sys
from pathlib import Path
from pz.state.stores.local import LocalStore
store = LocalStore(Path(sys.argv[1]) / "x.json", "entries")
print("ready", flush=True)
sys.stdin.readline()
for n in range(25):
    store.put(f"{sys.argv[2]}.{n}", {"value": n}, seen=None)
"""


def test_processes_that_store_different_datasets_lose_no_update(tmp_path: Path) -> None:
    children = [start(MANY, tmp_path, name) for name in "ab"]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=60)
        assert child.returncode == 0
    expected = {f"{name}.{n}": {"value": n} for name in "ab" for n in range(25)}
    assert LocalStore(tmp_path / "x.json", "entries").read() == expected


ONE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_state_store import OLD
from pz.cursors import CursorType
from pz.errors import StateError
from pz.state.entries import Entry, Watermark
from pz.state.watermarks import watermark_store
print("ready", flush=True)
sys.stdin.readline()
try:
    watermark_store(Path(sys.argv[1])).save("k.e", Entry(Watermark("id", CursorType.INT, sys.argv[3]), "r"), seen=OLD)
    print("won " + sys.argv[3])
except StateError as failure:
    print(failure.code)
"""


def test_of_two_processes_that_store_one_dataset_exactly_one_wins(tmp_path: Path) -> None:
    store = watermark_store(tmp_path)
    store.save("k.e", OLD, seen=None)
    children = [start(ONE, tmp_path, Path(__file__).parent, value) for value in (111, 222)]
    answers = []
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        answers.append(child.communicate(timeout=60)[0].strip())
    assert sorted(answers)[0] == "PZ0520"
    value = store.read()["k.e"].value
    assert isinstance(value, Watermark)
    assert sorted(answers)[1] == f"won {value.value}"


def test_a_failed_write_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    store = watermark_store(tmp_path)
    store.save("crm.orders", OLD, seen=None)
    durable.rearm("advance_state.before=enospc")
    try:
        with pytest.raises(StateError) as raised:
            store.save("crm.orders", NEW, seen=OLD)
    finally:
        durable.rearm()
    assert raised.value.code is Code.PZ0532
    assert store.read() == {"crm.orders": OLD}


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as out:
        while True:
            out.write(b"x" * 512)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_leaves_the_state_and_later_writes_succeed(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mount is not permitted here")
    try:
        store = watermark_store(mount)
        store.save("crm.orders", OLD, seen=None)
        filler = mount / "filler"
        fill(filler)
        with pytest.raises(StateError) as raised:
            store.save("crm.orders", NEW, seen=OLD)
        assert raised.value.code is Code.PZ0532
        assert store.read() == {"crm.orders": OLD}
        filler.unlink()
        store.save("crm.orders", NEW, seen=OLD)
        assert store.read() == {"crm.orders": NEW}
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_state_belongs_to_the_project_and_not_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    watermark_store(tmp_path / ".pz").save("crm.orders", OLD, seen=None)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert watermark_store(tmp_path / ".pz").read() == {"crm.orders": OLD}
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_may_not_be_read_is_no_first_run(tmp_path: Path) -> None:
    (tmp_path / "state" / "watermarks.json").mkdir(parents=True)
    with pytest.raises(StateError) as raised:
        EntryStore(tmp_path / "state" / "watermarks.json", "watermarks").read()
    assert raised.value.code is Code.PZ0529
