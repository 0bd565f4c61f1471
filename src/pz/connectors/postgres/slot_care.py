"""The care of slots between reads: moving them behind what is durable, saying how they stand, letting them go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import CaptureStatus, DatasetSpec
from pz.connectors.postgres.catalog import Name, find_table
from pz.connectors.postgres.position import Token, lsn_text
from pz.connectors.postgres.prerequisites import missing
from pz.connectors.postgres.slots import Slot, advance, drop, find_slot, slot_name
from pz.errors import ConnectorError

if TYPE_CHECKING:
    import psycopg

__all__ = ["let_go", "move_slots", "status_of"]


def move_slots(connection: psycopg.Connection[Any], datasets: Sequence[DatasetSpec]) -> None:
    """Move each slot to the least position of its datasets. One without a position still needs all that the slot has."""
    by_slot: dict[str, list[str | None]] = {}
    for dataset in datasets:
        by_slot.setdefault(slot_name(dataset), []).append(dataset.prior_sync_state)
    for name, tokens in by_slot.items():
        positions = [Token.from_json(token).lsn for token in tokens if token is not None]
        slot = find_slot(connection, name)
        if slot is None or slot.lost or len(positions) < len(tokens):
            continue
        advance(connection, slot, min(positions))


def status_of(connection: psycopg.Connection[Any], dataset: DatasetSpec) -> CaptureStatus:
    """What the server keeps for a dataset, what is wrong and what to do about it."""
    name = slot_name(dataset)
    slot, token, details = find_slot(connection, name), None, []
    if dataset.prior_sync_state is not None:
        try:
            token = Token.from_json(dataset.prior_sync_state)
        except ConnectorError as failure:
            details.append(f"{failure.message}; {failure.hint}")
    details += _of_slot(name, slot, token, shared=dataset.slot is not None)
    notes = [] if slot is not None or token is not None else [f"slot {name} is not there yet; the next run makes it"]
    table = find_table(connection, Name.of(dataset.entity))
    if table is None:
        details.append(f"table {Name.of(dataset.entity)} does not exist")
    else:
        details += [f"{what}: {fix}" for what, fix in missing(connection, dataset, table)]
    retained = slot.retained if slot is not None else None
    return CaptureStatus(name, lsn_text(token.lsn) if token else None, retained, not details, (*details, *notes))


def _of_slot(name: str, slot: Slot | None, token: Token | None, *, shared: bool) -> list[str]:
    if slot is None:
        return [] if token is None else [f"slot {name} does not exist; changes are lost: run with --full-refresh"]
    try:
        slot.require_ours()
    except ConnectorError as failure:
        return [failure.message]
    found = []
    if slot.lost:
        first = "run `pz cdc drop` for it, then" if shared else "run"
        found.append(f"slot {name} was invalidated; changes are lost: {first} with --full-refresh")
    if token is None:
        found.append("no position is stored; the next run reads the whole table")
    elif slot.confirmed is not None and slot.confirmed > token.lsn:
        found.append(f"slot {name} has moved past the stored position; changes are lost: run with --full-refresh")
    return found


def let_go(connection: psycopg.Connection[Any], dataset: DatasetSpec) -> str:
    """Drop the slot of a dataset; one that is gone is fine."""
    name = slot_name(dataset)
    slot = find_slot(connection, name)
    connection.rollback()
    if slot is None:
        return f"slot {name} did not exist"
    slot.require_ours()
    drop(connection, name)
    return f"slot {name} was dropped"
