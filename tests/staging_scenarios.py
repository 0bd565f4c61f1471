"""A small load and its delivery, as a child process does them: killed anywhere, continued by the next run.

The dataset has four partitions: two that complete as a group, one read in three pages with checkpoints, one without rows.
The destination is a file that confirms three rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from pz.connectors.contract import Bound
from pz.durable import Step
from pz.staging.completion import NodeFacts, complete_node
from pz.staging.delivery_ledger import DeliveryLedger
from pz.staging.fingerprint import describe, drain_sql, fingerprint
from pz.staging.grouping import Grouping
from pz.staging.meta import AttemptState, NodeWindow
from pz.staging.part_writer import PartWriter
from pz.staging.partition_ledger import Arrival, PartitionLedger, pin_window
from pz.staging.prior_run import NotReused, copy_deliveries, reuse_node, reuse_partitions
from pz.staging.session import StagingSession

LOAD, MODEL, SINK = "00000000000000aa", "00000000000000bb", "00000000000000cc"
TABLE = "src_shop__orders"
PLAN = ("a", "b", "pages", "none")
PAGES = (range(10, 12), range(12, 14), range(14, 15))
UPPER = 13
EXPECTED = [n for n in (*range(3), *range(3, 5), *range(10, 15)) if n <= UPPER]
CHUNK = 3


def rows(numbers: Sequence[int]) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "ratio": pa.array([n / 3 for n in numbers], pa.float64())})


def run(arguments: Sequence[str]) -> int:
    """``<run directory> <destination file> [<earlier run directory> ...]``, the latest first."""
    run_dir, destination, *priors = (Path(argument) for argument in arguments)
    run_dir.mkdir(exist_ok=True)
    with StagingSession.create(run_dir, memory_limit_bytes=100_000_000, threads=1) as session:
        if priors:
            copy_deliveries(session, priors[0], [SINK])
        with session.cursor() as cursor:
            load(session, cursor, priors)
            transform(session, cursor, priors)
            deliver(cursor, run_dir.name, destination)
    return 0


def load(session: StagingSession, cursor: duckdb.DuckDBPyConnection, priors: Sequence[Path]) -> None:
    if any(not isinstance(reuse_node(session, prior, LOAD), NotReused) for prior in priors):
        return
    window = pin_window(cursor, NodeWindow.of(LOAD, None, Bound(str(UPPER), True), "id", "bigint"))
    ledger = PartitionLedger(LOAD, TABLE)
    for prior in priors:
        taken = reuse_partitions(session, prior, ledger, planned=PLAN, window=window, checkpoints=True)
        if not isinstance(taken, NotReused):
            break
    start = ledger.start(cursor)
    pinning = ledger.pinning(cursor)
    pinning.add((name, None) for name in PLAN)
    pinning.close()
    where = f"id <= {UPPER}"
    grouping = Grouping(ledger, cursor, where=where)
    for name, numbers in (("a", range(3)), ("b", range(3, 5))):
        if name not in start.done:
            grouping.add(Arrival(name, batch=rows(numbers)))
    grouping.flush()
    if "pages" not in start.done:
        ledger.complete(cursor, [read_pages(cursor)], where=where)
    if "none" not in start.done:
        ledger.complete(cursor, [PartWriter(cursor, LOAD, "none").arrival()], where=where)
    ledger.finish(cursor, NodeFacts(candidate=str(UPPER), candidate_type="bigint"))


def read_pages(cursor: duckdb.DuckDBPyConnection) -> Arrival:
    writer = PartWriter(cursor, LOAD, "pages")
    first = 0 if writer.checkpoint is None else int(writer.checkpoint.token)
    for page in range(first, len(PAGES)):
        writer.append(rows(PAGES[page]))
        writer.save(str(page + 1))
    return writer.arrival()


def transform(session: StagingSession, cursor: duckdb.DuckDBPyConnection, priors: Sequence[Path]) -> None:
    if any(not isinstance(reuse_node(session, prior, MODEL), NotReused) for prior in priors):
        return
    with session.transaction(cursor, Step.MATERIALIZE) as tx:
        tx.execute(f"CREATE TABLE staging.model AS SELECT id, ratio FROM staging.{TABLE}")
        complete_node(tx, MODEL, ["model"])


def deliver(cursor: duckdb.DuckDBPyConnection, run_id: str, destination: Path) -> None:
    ledger = DeliveryLedger(SINK, run_id)
    ordinal = ledger.begin_attempt(cursor)
    content = fingerprint(cursor, "staging.model")
    sent = ledger.begin_delivery(cursor, content)
    drained = cursor.execute(drain_sql("staging.model", describe(cursor, "staging.model"), offset=sent)).fetchall()
    for at in range(0, len(drained), CHUNK):
        chunk = drained[at : at + CHUNK]
        with destination.open("a") as far_side:
            far_side.writelines(f"{row[0]}\n" for row in chunk)
        sent += len(chunk)
        ledger.acknowledge(cursor, sent)
    ledger.end_attempt(cursor, ordinal, AttemptState.COMMITTED)
