"""Resolves how a dataset is read: declared modes are themselves, ``auto`` asks the connector (default: full)."""

from __future__ import annotations

from pz.connectors.contract import DatasetSpec, NaturalReadShape, ReadShape, Source

__all__ = ["resolve"]


def resolve(declared: ReadShape | None, source: Source, dataset: DatasetSpec) -> ReadShape:
    """The one read shape of a dataset in this plan. Offline."""
    if declared is not None:
        return declared
    if isinstance(source, NaturalReadShape):
        return source.natural_read_shape(dataset)
    return ReadShape.FULL
