"""What a disk may hold after power loss: rebuilt from the recorded calls of a run, in any of the ways that POSIX allows.

A file's content is certain once the file was flushed, a name once its folder was. What was done since may have reached
the disk in part: any of the writes, each whole or torn at a sector's or a page's edge; any of the new, removed and changed
names. A rename is one change; that it reached the disk says nothing of the content of the renamed file.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from syscalls import Call

__all__ = ["Disk"]

_SECTOR, _PAGE = 512, 4096


@dataclass(slots=True)
class _Write:
    """A change of a file's content: bytes at an offset, or (None) a new length."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        end = self.offset + len(self.data or b"")
        if self.data is None:
            del content[self.offset :]
        content.extend(bytes(max(0, end - len(content))))
        if self.data is not None:
            content[self.offset : end] = self.data


@dataclass(slots=True, eq=False)
class _File:
    flushed: bytes = b""
    changed: int | None = None
    """When a file changed that was there before the first call, in ns of the file system's clock."""
    pending: list[_Write] = field(default_factory=list)

    def write(self, offset: int, data: bytes | None) -> None:
        self.pending.append(_Write(offset, data))
        self.changed = None

    def flush(self) -> None:
        self.flushed = self.after(self.pending)
        self.pending = []

    def after(self, writes: Sequence[_Write]) -> bytes:
        content = bytearray(self.flushed)
        for write in writes:
            write.apply(content)
        return bytes(content)


@dataclass(slots=True, eq=False)
class _Folder:
    begun: dict[str, _File | _Folder] = field(default_factory=dict)
    """What it held before the first call."""
    now: dict[str, _File | _Folder] = field(default_factory=dict)


_Change = tuple[_Folder, str, "_File | _Folder | None"]


@dataclass(slots=True)
class _Naming:
    """One change of names, of one folder or, a rename, of two."""

    changes: tuple[_Change, ...]
    flushed: bool = False

    def touches(self, folder: _Folder) -> bool:
        return any(touched is folder for touched, _, _ in self.changes)


class Disk:
    """A folder at rest, what was done to it since, and what would be left of that if the power failed now.

    What lies below the folder ``elsewhere`` is on another machine, whose power does not fail.
    """

    def __init__(self, root: Path, elsewhere: str = "") -> None:
        self._elsewhere = elsewhere
        self._root = _read(root)
        self._namings: list[_Naming] = []

    def do(self, call: Call) -> None:
        """Play one recorded call."""
        if call.path == ".":
            if call.name == "fsync":
                self._flush(self._root)
            return
        self._play(call)
        if self._elsewhere and call.path.startswith(f"{self._elsewhere}/"):
            parent, name = self._at(call.path)
            self._flush(parent)
            self._flush(parent.now.get(name))

    def _play(self, call: Call) -> None:
        parent, name = self._at(call.path)
        known = parent.now.get(name)
        if call.name in {"write", "pwrite64"}:
            assert isinstance(known, _File), call
            known.write(call.offset, call.data)
        elif call.name in {"ftruncate", "truncate"}:
            assert isinstance(known, _File), call
            known.write(call.offset, None)
        elif call.name in {"fsync", "fdatasync"}:
            self._flush(known)
        elif call.name == "openat":
            if known is None:
                self._name((parent, name, _File()))
            elif call.empties and isinstance(known, _File):
                known.write(0, None)
        elif call.name == "mkdir":
            if known is None:
                self._name((parent, name, _Folder()))
        elif call.name == "rename":
            if known is not None:
                self._name((parent, name, None), (*self._at(call.to), known))
        elif call.name in {"unlink", "rmdir"}:
            if known is not None:
                self._name((parent, name, None))
        else:
            raise NotImplementedError(call.name)

    def _at(self, path: str) -> tuple[_Folder, str]:
        pure, folder = PurePosixPath(path), self._root
        for part in pure.parent.parts:
            below = folder.now[part]
            assert isinstance(below, _Folder), path
            folder = below
        return folder, pure.name

    def _name(self, *changes: _Change) -> None:
        self._namings.append(_Naming(changes))
        for folder, name, node in changes:
            _change(folder.now, name, node)

    def _flush(self, node: _File | _Folder | None) -> None:
        if isinstance(node, _File):
            node.flush()
        elif node is not None:
            for naming in self._namings:
                naming.flushed = naming.flushed or naming.touches(node)

    def write_image(self, root: Path, chance: random.Random) -> None:
        """Put one of the disks that power loss may leave in the place of ``root``."""
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        held: dict[int, dict[str, _File | _Folder]] = {}
        for naming in _survivors(self._namings, chance):
            for folder, name, node in naming.changes:
                _change(held.setdefault(id(folder), dict(folder.begun)), name, node)
        _put_down(self._root, root, held, chance)


def _read(folder: Path) -> _Folder:
    found = _Folder()
    for path in sorted(folder.iterdir()):
        found.begun[path.name] = (
            _read(path) if path.is_dir() else _File(path.read_bytes(), changed=path.stat().st_mtime_ns)
        )
    found.now = dict(found.begun)
    return found


def _change(names: dict[str, _File | _Folder], name: str, node: _File | _Folder | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _put_down(folder: _Folder, path: Path, held: dict[int, dict[str, _File | _Folder]], chance: random.Random) -> None:
    for name, node in held.get(id(folder), folder.begun).items():
        if isinstance(node, _Folder):
            (path / name).mkdir()
            _put_down(node, path / name, held, chance)
        else:
            (path / name).write_bytes(node.after(_written(node.pending, chance)))
            if node.changed is not None:
                os.utime(path / name, ns=(node.changed, node.changed))


def _survivors(namings: Sequence[_Naming], chance: random.Random) -> list[_Naming]:
    """All flushed changes, and of the others none, all, those before some moment, or any."""
    way, until = chance.choice(("none", "all", "before", "any")), chance.randrange(len(namings) + 1)
    kept = {"none": False, "all": True}
    return [
        naming
        for place, naming in enumerate(namings)
        if naming.flushed or kept.get(way, place < until if way == "before" else chance.random() < 0.5)
    ]


def _written(pending: Sequence[_Write], chance: random.Random) -> list[_Write]:
    """What reached the disk of writes that were not flushed: none, all, any, or those before some, which is torn."""
    way = chance.choice(("none", "all", "any", "torn"))
    if way == "any":
        return [write for write in pending if chance.random() < 0.5]
    if way != "torn" or not pending:
        return list(pending) if way == "all" else []
    last = chance.randrange(len(pending))
    torn = pending[last]
    unit = chance.choice((_SECTOR, _PAGE))
    length = chance.randrange(len(torn.data or b"") // unit + 1) * unit
    data = None if torn.data is None else torn.data[:length]
    return [*pending[:last], _Write(torn.offset, data)]
