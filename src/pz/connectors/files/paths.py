"""Where the files of a dataset are: roots, globs, stamps, and how many of them form one partition."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

from pz.connectors.contract import ConnectionSpec, PermanentError
from pz.connectors.localpath import local_path, real_path
from pz.errors import Code
from pz.frozen import frozen
from pz.sqltext import printable, unfit

__all__ = ["FileRoot", "FileStamp", "group_files", "partition_id"]

_MOST_PARTITIONS = 32
_SMALLEST_PARTITION = 16 * 1024 * 1024


@frozen
class FileStamp:
    """A file as it was when it was listed: if size or time differ later, it is another file.

    ``name`` is the path as messages and ids show it: relative to the root where it lies inside, with slashes.
    """

    path: Path
    name: str
    size: int
    mtime_ns: int

    @classmethod
    def take(cls, path: Path, name: str) -> FileStamp:
        """Look at a file now."""
        status = path.stat()
        return cls(path, name, status.st_size, status.st_mtime_ns)

    def verify(self, since: str = "while it was read") -> None:
        """Raise PermanentError PZ0721 when the file is not what it was; ``since`` says when it was that."""
        try:
            now = FileStamp.take(self.path, self.name)
        except OSError as error:
            raise _changed(self.name, "is gone", since) from error
        if now != self:
            raise _changed(self.name, "changed", since)


def _changed(name: str, what: str, since: str) -> PermanentError:
    return PermanentError(f"file '{name}' {what} {since}", code=Code.PZ0721)


@frozen
class FileRoot:
    """The directory that relative paths of a connection start from.

    A *declared* root is also a boundary: a relative path that leaves it is refused (PZ0365). Without one, paths are
    relative to the project and unbounded. Absolute paths and ``~`` ignore the root.
    """

    directory: Path
    declared: bool

    @classmethod
    def of(cls, base_dir: Path, root: str | None) -> FileRoot:
        """The root of a connection: its option ``root`` (relative to the project), else the project."""
        if root is None:
            return cls(_absolute(base_dir), False)
        return cls(_absolute(local_path(base_dir, root)), True)

    @classmethod
    def at(cls, connection: ConnectionSpec) -> FileRoot:
        """The root that a connection declares. Raises PermanentError PZ0353."""
        root = connection.options.get("root")
        return cls.of(connection.base_dir, None if root is None else str(root))

    def resolve(self, path: str) -> Path:
        """An absolute path, which may hold glob characters. Raises PermanentError PZ0365 or PZ0353."""
        given = local_path(Path(), path)
        if given.is_absolute():
            return _absolute(given)
        joined = _absolute(local_path(self.directory, path))
        if self.declared and not _inside(joined, self.directory):
            raise PermanentError("the path leaves the root of its connection", code=Code.PZ0365)
        return joined

    def covers(self, path: str, directory: Path, name: str) -> bool:
        """Whether a path or glob matches, or would, a file of this name in a directory; links are followed."""
        pattern = self.resolve(path)
        fixed = _static_part(pattern)
        wild = pattern.parts[len(fixed.parts) :]
        if not wild:
            fixed, wild = fixed.parent, (fixed.name,)
        start, there = real_path(fixed), real_path(directory)
        return there.is_relative_to(start) and _fits(wild, (*there.relative_to(start).parts, name))

    def name_of(self, path: Path) -> str:
        """The path for messages: relative to the root where it lies inside."""
        return path.relative_to(self.directory).as_posix() if path.is_relative_to(self.directory) else path.as_posix()

    def list(self, path: str) -> tuple[FileStamp, ...]:
        """The files that a path or glob matches, sorted by name; hidden files never match a wildcard.

        Raises PermanentError PZ0724 for what is neither file nor directory: passed over, its rows would be missing unseen, and
        a pipe would be waited for.
        """
        pattern = self.resolve(path)
        found = [pattern] if pattern.is_file() else _matches(pattern)
        return tuple(
            FileStamp.take(hit, _readable(self.name_of(hit))) for hit in found if _is_file(hit, self.name_of(hit))
        )


def _is_file(path: Path, name: str) -> bool:
    """Whether it is one, and not a directory or gone meanwhile. Raises PermanentError PZ0724 for anything else."""
    if path.is_file():
        return True
    if path.is_dir() or not os.path.lexists(path):
        return False
    what = "is a link that leads to no file" if path.is_symlink() and not path.exists() else "is no regular file"
    hint = "remove it, or let `path` leave it out"
    raise PermanentError(f"'{printable(name)}' {what}", code=Code.PZ0724, hint=hint)


def _readable(name: str) -> str:
    """The name of a file, which DuckDB takes as UTF-8 only. Raises PermanentError PZ0722."""
    if unfit(name) is None:
        return name
    raise PermanentError(f"file '{printable(name)}': its name is not UTF-8", code=Code.PZ0722, hint="rename the file")


def _absolute(path: Path) -> Path:
    """Without ``..``, but with links kept: a linked data directory stays the name that the user gave it."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow the links


def _matches(pattern: Path) -> list[Path]:
    hits = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    return sorted(Path(hit) for hit in hits)


def _fits(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """What `_matches` does, of names alone."""
    if not pattern or not parts:
        return not parts and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _fits(pattern[1:], parts) or (not parts[0].startswith(".") and _fits(pattern, parts[1:]))
    hidden = parts[0].startswith(".") and not pattern[0].startswith(".")
    same = parts[0] == pattern[0] or (not hidden and fnmatch.fnmatchcase(parts[0], pattern[0]))
    return same and _fits(pattern[1:], parts[1:])


def _inside(path: Path, root: Path) -> bool:
    """Lexically inside, and after following links too: a link in the root may not lead out of it."""
    real = real_path(_static_part(path))
    return path.is_relative_to(root) and real.is_relative_to(real_path(root))


def _static_part(path: Path) -> Path:
    """The part of a path before its first wildcard."""
    parts: list[str] = []
    for part in path.parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts)


def group_files(files: Sequence[FileStamp]) -> tuple[tuple[FileStamp, ...], ...]:
    """Cut files, in order, into partitions: a few dozen at most however many files, small ones together.

    Depends on nothing but the names and sizes, so planning the same files again gives the same groups.
    """
    most_files = math.ceil(len(files) / _MOST_PARTITIONS)
    target = max(_SMALLEST_PARTITION, sum(file.size for file in files) // _MOST_PARTITIONS)
    groups: list[list[FileStamp]] = []
    room = 0
    for file in files:
        if not groups or len(groups[-1]) >= most_files or file.size > room:
            groups.append([])
            room = target
        groups[-1].append(file)
        room -= file.size
    return tuple(tuple(group) for group in groups)


def partition_id(files: Sequence[FileStamp]) -> str:
    """A stable id: the same for the same names, sizes and times, another one when any of them changes."""
    told = [[file.name, file.size, file.mtime_ns] for file in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
