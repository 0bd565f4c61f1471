"""What captured datasets would share at their source without having said so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from pz.errors import Code, Problem
from pz.graph.model import SourceNode

__all__ = ["shared_by_accident"]


def shared_by_accident(names: Mapping[str, tuple[SourceNode, str]]) -> Iterator[Problem]:
    """PZ0750 for datasets that keep what is captured under one name of which not all have said it.

    Each would take the other's changes for done, and its snapshot would drop what the other still needs. ``names`` are
    the sources with the name under which the connector keeps theirs, by node id.
    """
    together = sorted(names.values(), key=lambda found: (found[1], found[0].key))
    for name, found in groupby(together, key=lambda found: found[1]):
        nodes = [node for node, _ in found]
        unsaid = [node for node in nodes if node.read.sync.slot is None]
        if len(nodes) > 1 and unsaid:
            where = unsaid[-1].read.location or unsaid[-1].location
            yield Problem(
                Code.PZ0750,
                f"datasets {', '.join(repr(node.key) for node in nodes)} would share {name}",
                where.file if where else None,
                where.line if where else None,
                f"give '{unsaid[-1].key}' one of its own with `sync: {{ slot: ... }}`; "
                "to share one, name it so on each of them",
            )
