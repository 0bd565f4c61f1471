"""Replication slots: what the server says about one, and creating, moving and dropping it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import CancelToken, DatasetSpec
from pz.connectors.postgres.connect import Server, ended_by
from pz.connectors.postgres.position import lsn_number, lsn_text
from pz.durable import Step, step
from pz.errors import Code, ConnectorError, PermanentError
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import psycopg

__all__ = [
    "Exported",
    "Slot",
    "advance",
    "can_adopt",
    "create_shared",
    "drop",
    "exported",
    "find_slot",
    "fold",
    "slot_name",
    "take_turn",
]

PLUGIN = "pgoutput"
MAX_NAME = 63

SLOT = """
SELECT plugin, slot_type, database = current_database(), active_pid, confirmed_flush_lsn::text, wal_status,
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 END
FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""


@frozen
class Slot:
    """An existing slot. ``confirmed`` is None for one that is not logical; ``retained`` are bytes of log it holds back."""

    name: str
    plugin: str | None
    here: bool
    active_pid: int | None
    confirmed: int | None
    lost: bool
    retained: int | None

    def require_ours(self) -> None:
        """Raises PermanentError PZ0743 for a slot that belongs to something else."""
        if self.plugin != PLUGIN or not self.here:
            what = f"the plugin {self.plugin}" if self.plugin else "physical replication"
            place = "" if self.here else ", in another database"
            raise PermanentError(
                f"replication slot {quote(self.name)} is for {what}{place}",
                hint="name another one with `sync: { slot: ... }`",
                code=Code.PZ0743,
            )


def slot_name(dataset: DatasetSpec) -> str:
    """As declared, else ``pz_<connection>_<entity>`` in the letters that a slot's name may have."""
    if dataset.slot is not None:
        return dataset.slot
    return fold(f"pz_{dataset.connection}_{dataset.entity}")


def fold(name: str) -> str:
    """In lower case, everything but letters, digits and underscores replaced, no longer than a name may be."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())[:MAX_NAME]


def find_slot(connection: psycopg.Connection[Any], name: str) -> Slot | None:
    """The slot of this name; None when there is none."""
    row = connection.execute(SLOT, [name]).fetchone()
    if row is None:
        return None
    plugin, _, here, pid, confirmed, status, retained = row
    return Slot(name, plugin, bool(here), pid, lsn_number(confirmed) if confirmed else None, status == "lost", retained)


def take_turn(connection: psycopg.Connection[Any], name: str, *, patient: bool = False) -> None:
    """Wait for the other runs of pz that use the slot now, and keep them out until the transaction ends.

    The server lets one at a time read or move a slot and refuses the next one at once (SQLSTATE 55006). ``patient``: wait
    for as long as it takes, as another dataset's poll of a shared slot may; else as long as the connection waits for locks.
    """
    if patient:
        connection.execute("SET LOCAL lock_timeout TO 0")
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"pz:slot:{name}"])


def drop(connection: psycopg.Connection[Any], name: str) -> None:
    """Drop a slot. What it held back is gone for ever, so its token must be gone before."""
    with step(Step.CAPTURE_SLOT):
        connection.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", [name])
        connection.commit()


def advance(connection: psycopg.Connection[Any], slot: Slot, lsn: int) -> bool:
    """Tell the server that everything before ``lsn`` is durable elsewhere; whether there was anything to move."""
    if slot.confirmed is None or slot.confirmed >= lsn:
        return False
    with step(Step.ACKNOWLEDGE):
        take_turn(connection, slot.name)
        connection.execute("SELECT pg_catalog.pg_replication_slot_advance(%s, %s::pg_lsn)", [slot.name, lsn_text(lsn)])
        connection.commit()
    return True


def create_shared(server: Server, name: str, cancel: CancelToken) -> None:
    """Create a slot that several datasets read from; one of the others may have been faster, which began no later."""
    import psycopg

    try:
        with exported(server, name, cancel):
            return
    except psycopg.errors.DuplicateObject:
        return


@frozen
class Exported:
    """A moment: the position from which the slot has changes, and the snapshot that shows everything before it."""

    lsn: int
    snapshot: str


@contextmanager
def exported(server: Server, name: str, cancel: CancelToken, *, temporary: bool = False) -> Iterator[Exported]:
    """Create a slot and hold its snapshot open while the block runs: nothing else may be asked on that connection.

    The server waits for all transactions that are open when the slot is created. A temporary slot goes with the block.
    """
    kind = "TEMPORARY " if temporary else ""
    with server.replication() as connection:
        modern = connection.info.server_version >= 150_000
        option = "(SNAPSHOT 'export')" if modern else "EXPORT_SNAPSHOT"
        with ended_by(cancel, connection), step(Step.CAPTURE_SLOT):
            row = connection.execute(
                f"CREATE_REPLICATION_SLOT {quote(name)} {kind}LOGICAL {PLUGIN} {option}"
            ).fetchone()
        assert row is not None
        yield Exported(lsn_number(row[1]), str(row[2]))


def can_adopt(server: Server, snapshot: str) -> bool:
    """Whether an exported snapshot is still there: its own connection must not be asked anything."""
    import psycopg

    try:
        with server.control() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
            connection.rollback()
    except (psycopg.Error, ConnectorError):
        return False
    return True
