"""Where a captured dataset stands: the token that a run stores and the next one gets back.

Beside the position in the log it says what the position means: on which cluster, for which table with which columns and
keys, through which publication. When one of these has changed meanwhile, changes may be missing, and the poll refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pz.connectors.postgres.storage import Storage
from pz.errors import Code, PermanentError
from pz.frozen import frozen

__all__ = ["Shape", "Token", "lsn_number", "lsn_text"]

VERSION = 1


@frozen
class Shape:
    """What a position is about. ``columns`` maps names to (number, type oid, modifier) in the catalogue."""

    system: int
    relation: int
    publication: str
    keys: tuple[str, ...]
    columns: Mapping[str, tuple[int, int, int]]
    storage: Storage = field(default_factory=Storage)


@frozen
class Token:
    """All transactions whose commit record starts before ``lsn`` are delivered, none that starts there or later."""

    lsn: int
    shape: Shape

    def to_json(self) -> str:
        """As text."""
        shape = self.shape
        content: dict[str, Any] = {
            "version": VERSION,
            "lsn": lsn_text(self.lsn),
            "system": shape.system,
            "relation": shape.relation,
            "publication": shape.publication,
            "keys": list(shape.keys),
            "columns": {name: list(found) for name, found in shape.columns.items()},
            "storage": shape.storage.to_json(),
        }
        return json.dumps(content, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Token:
        """The inverse. Raises PermanentError PZ0744 for a text that is no token of this connector."""
        try:
            content = json.loads(text)
            if content["version"] != VERSION:
                raise ValueError(f"version {content['version']}")
            shape = Shape(
                int(content["system"]),
                int(content["relation"]),
                str(content["publication"]),
                tuple(content["keys"]),
                {name: (int(a), int(b), int(c)) for name, (a, b, c) in content["columns"].items()},
                Storage.from_json(content.get("storage", {})),
            )
            return cls(lsn_number(content["lsn"]), shape)
        except (ValueError, KeyError, TypeError, AttributeError) as failure:
            raise PermanentError(
                "the stored position of the captured table cannot be read",
                hint="run with --full-refresh",
                code=Code.PZ0744,
            ) from failure


def lsn_number(text: str) -> int:
    """From ``16/B374D848``, as the server prints it."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"no log position: {text!r}")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """As the server prints it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
