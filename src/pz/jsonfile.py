"""JSON files that prove their own integrity: a ``version``, a ``checksum`` over the content, one spelling.

Two-space JSON, UTF-8, LF, trailing newline. The checksum is the SHA-256 of the document without it, as canonical JSON
(sorted keys, no spaces, ASCII), so that re-indenting a file by hand harms nothing, and any changed value is found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["DamagedFile", "canonical_json", "decode", "digest", "encode", "read"]


class DamagedFile(Exception):
    """A file is not what was once written: cut, changed, foreign, or from a newer version of pz."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def canonical_json(value: object) -> bytes:
    """One spelling per value: sorted keys, no spaces, ASCII. ValueError for a number that JSON cannot hold."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(value: object) -> str:
    """SHA-256, in hex, of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def encode(content: Mapping[str, Any], *, version: int = 1, sort_keys: bool = False) -> bytes:
    """Return the bytes of a file with this content; ``version`` and ``checksum`` are added in front."""
    body = json.loads(json.dumps(content, allow_nan=False))  # as a reader will see it: keys are text, tuples lists
    document = {"version": version, "checksum": digest({"version": version, **body}), **body}
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys)
    # A lone surrogate (an undecodable file name in a message) becomes its own JSON escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def decode(data: bytes, path: Path, *, version: int = 1) -> dict[str, Any]:
    """Return the content of a file, without version and checksum. Raises `DamagedFile`; ``path`` is for its message."""
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as failure:
        raise DamagedFile(path, "it is not complete JSON") from failure
    if not isinstance(document, dict):
        raise DamagedFile(path, "it does not hold a JSON object")
    _check_version(document.get("version"), version, path)
    checksum = document.pop("checksum", None)
    if checksum != _digest_or_none(document):
        raise DamagedFile(path, "its checksum does not match its content")
    del document["version"]
    return document


def read(path: Path, *, version: int = 1) -> dict[str, Any] | None:
    """The content of the file, or None when there is none. Raises `DamagedFile`, and OSError when it cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return decode(data, path, version=version)


def _check_version(found: object, expected: int, path: Path) -> None:
    if isinstance(found, bool) or not isinstance(found, int):
        raise DamagedFile(path, "it carries no version")
    if found > expected:
        raise DamagedFile(path, f"it was written by a newer version of pz (format {found}, this one reads {expected})")
    if found != expected:
        raise DamagedFile(path, f"its format version {found} is unknown")


def _digest_or_none(document: Mapping[str, Any]) -> str | None:
    try:
        return digest(document)
    except ValueError:  # NaN and Infinity, which json.loads lets through
        return "-"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found
