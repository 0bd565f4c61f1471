"""Digests that say *where* something is without telling it: two places are the same iff their digests are equal.

They stand in state files, ``run.json`` and lock names; what goes in is what `Connector.location` gives, never a secret.
"""

from __future__ import annotations

from collections.abc import Mapping

from pz.jsonfile import digest as _digest

__all__ = ["digest"]


def digest(location: Mapping[str, str]) -> str:
    """The digest of a connection's location."""
    return _digest(dict(location))
