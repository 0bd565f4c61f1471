"""Conformance: what a read promises, whole, in parts, resumed, bounded and cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pz.connectors.contract import (
    BatchOptions,
    Bound,
    Cancelled,
    CancelToken,
    Capability,
    ChangeCapturePartition,
    CheckpointingPartition,
    DatasetSpec,
    Gated,
    IdentifiedPartition,
    NativePartition,
    NativeScan,
    NaturalReadShape,
    Partition,
    PermanentError,
    ProbingSource,
    ReadHints,
    ReadShape,
    Source,
    SyncStatePartition,
)
from pz.cursors import CursorType
from pz.testing.conformance import Case, Check, NotApplicable
from pz.testing.gates import OpenGate
from pz.testing.oracle import assert_equal, differences
from pz.testing.values import canonical, duck_types, encode_array

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["READ_CHECKS", "read_any"]

NO_HINTS = ReadHints()
ONE_ROW = BatchOptions(max_rows=1)
CANCEL_BOUND = 5.0
"""Seconds after which a cancelled read must have ended."""


def reads_are_whole(case: Case) -> None:
    """Every way of reading gives exactly the rows that are there."""
    ways = []
    for dataset in (case.dataset(), *case.fixture.variants):
        for way, found in each_way(case, dataset):
            assert_equal(found, case.rows(), f"read by {way}")
            ways.append(way)
    case.found["read_ways"] = tuple(sorted(set(ways)))


def schema_equals_batches(case: Case) -> None:
    """Batches carry exactly the schema that was announced."""
    with planned(case, case.dataset()) as (source, partitions):
        announced = source.schema(case.dataset())
        for partition in partitions:
            for batch in partition.read(BatchOptions(), CancelToken()):
                assert batch.schema.equals(announced), f"announced {announced}, came {batch.schema}"


def batches_keep_to_the_row_limit(case: Case) -> None:
    """No batch has more rows than was asked for."""
    with planned(case, case.dataset()) as (_, partitions):
        for partition in partitions:
            for batch in partition.read(BatchOptions(max_rows=2), CancelToken()):
                assert batch.num_rows <= 2


def partition_ids_are_stable(case: Case) -> None:
    """Planning again gives the same partitions under the same ids: present, not empty, unique."""
    case.needs(Capability.STABLE_PARTITION_IDS)
    for dataset in (case.dataset(), *case.fixture.variants):
        first, second = _ids(case, dataset), _ids(case, dataset)
        assert all(first), "an id is missing or empty"
        assert len(set(first)) == len(first), "an id comes twice"
        assert first == second, "ids change from plan to plan"


def a_restored_partition_reads_the_same_rows(case: Case) -> None:
    """A partition rebuilt from its spec, by another opening of the source, reads what the original reads."""
    from pz.connectors.contract import PinnedPartition, RestoringSource

    with planned(case, case.dataset()) as (source, partitions), opened(case) as other:
        if not isinstance(source, RestoringSource) or not isinstance(other, RestoringSource):
            raise NotApplicable("partitions cannot be restored")
        for partition in partitions:
            assert isinstance(partition, PinnedPartition), "a restoring source plans partitions with a spec"
            again = other.restore_partition(case.dataset(), NO_HINTS, partition.spec)
            assert isinstance(again, IdentifiedPartition)
            assert again.partition_id == partition.partition_id
            assert_equal(rows_of([again]), rows_of([partition]))


def only_partitioned_readers_plan_several_partitions(case: Case) -> None:
    """More than one partition comes from a connector that says so."""
    for dataset in (case.dataset(), *case.fixture.variants):
        with planned(case, dataset) as (_, partitions):
            several = len(partitions) > 1
            assert not several or case.fixture.connector.capabilities & Capability.PARTITIONED_READ


def partitions_can_be_read_side_by_side(case: Case) -> None:
    """Partitions read in several threads at once are still one full read."""
    for dataset in (case.dataset(), *case.fixture.variants):
        with planned(case, dataset) as (_, partitions):
            found: list[list[dict[str, object]]] = [[] for _ in partitions]

            def work(index: int, partition: Partition, into: list[list[dict[str, object]]]) -> None:
                into[index] = rows_of([partition])

            threads = [threading.Thread(target=work, args=(i, p, found)) for i, p in enumerate(partitions)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert_equal([row for part in found for row in part], case.rows())


def a_checkpoint_resumes_strictly_behind_its_rows(case: Case) -> None:
    """What was read before a token and what is read after it are the whole, and nothing twice."""
    case.needs(Capability.CHECKPOINTABLE_READS)
    tried = 0
    for dataset in (case.dataset(), *case.fixture.variants):
        with planned(case, dataset) as (_, partitions), planned(case, dataset) as (_, again):
            found: list[dict[str, object]] = []
            for first, second in zip(partitions, again, strict=True):
                assert isinstance(first, CheckpointingPartition)
                assert isinstance(second, CheckpointingPartition)
                stream = first.read(ONE_ROW, CancelToken())
                batch = next(stream, None)
                token = first.try_get_checkpoint() if batch is not None else None
                if batch is not None and token is not None and second.try_resume(token):
                    found += batch.to_pylist()
                    tried += 1
                found += rows_of([second])
            assert_equal(found, case.rows())
    assert tried, "no partition offered a token"


def a_foreign_checkpoint_is_declined(case: Case) -> None:
    """A token that means nothing to a partition is declined, not raised, and the partition starts over."""
    case.needs(Capability.CHECKPOINTABLE_READS)
    with planned(case, case.dataset()) as (_, partitions):
        for partition in partitions:
            assert isinstance(partition, CheckpointingPartition)
            assert partition.try_resume("conformance: not a token") is False
        assert_equal(rows_of(partitions), case.rows())


def a_cancelled_read_ends_between_batches(case: Case) -> None:
    """After a cancellation at most one more batch comes, and the read ends within the bound."""
    with planned(case, case.dataset()) as (_, partitions):
        for partition in partitions:
            extra: list[int] = []
            thread = threading.Thread(target=_cancel_and_drain, args=(partition, extra), daemon=True)
            thread.start()
            thread.join(CANCEL_BOUND)
            assert not thread.is_alive(), f"a cancelled read still runs after {CANCEL_BOUND} s"
            assert len(extra) <= 1, f"{len(extra)} batches came after the cancellation"


def _cancel_and_drain(partition: Partition, extra: list[int]) -> None:
    token = CancelToken()
    stream = iter(partition.read(ONE_ROW, token))
    if next(stream, None) is None:
        return
    token.cancel()
    try:
        for batch in stream:
            extra.append(batch.num_rows)
    except Cancelled:
        return


def an_upper_bound_holds(case: Case) -> None:
    """No row behind the upper bound comes, every row up to it does; a lower bound loses no row above it."""
    case.needs(Capability.BOUNDED_WINDOW)
    name, low, high = _bounds(case)
    kind = CursorType.from_duckdb(dict(duck_types(case.rows().schema))[name])
    lower, upper = Bound(low[1], inclusive=False), Bound(high[1], inclusive=True)
    bounded = replace(case.dataset(), cursor=name, cursor_type=kind, lower=lower, upper=upper)
    cells = _cells(case.rows(), name)
    pairs = list(zip(case.rows().to_pylist(), cells, strict=True))
    allowed = [row for row, cell in pairs if cell <= high[0]]
    wanted = [row for row, cell in pairs if low[0] < cell <= high[0]]
    for way, found in each_way(case, bounded):
        _, behind = differences(found, allowed)
        assert not behind, f"{sum(behind.values())} rows behind the upper bound came by {way}"
        missing, _ = differences(found, wanted)
        assert not missing, f"{sum(missing.values())} rows within the bounds are missing by {way}"
        case.found["applies_lower_bound"] = len(found) == len(wanted) and case.found.get("applies_lower_bound", True)


def hints_change_nothing_but_the_amount(case: Case) -> None:
    """A pruned read gives the asked columns, or all, with the same values."""
    columns = tuple(case.rows().column_names[:1])
    with planned(case, case.dataset(), ReadHints(columns=columns)) as (_, partitions):
        found = [{name: row[name] for name in columns} for row in rows_of(partitions)]
    assert_equal(found, case.rows().select(list(columns)))


def a_probe_agrees_with_the_rows(case: Case) -> None:
    """What the probe says is so: rows, highest cursor, NULL cursors."""
    name = case.fixture.cursor
    with opened(case) as source:
        if not isinstance(source, ProbingSource):
            raise NotApplicable("the source cannot be asked")
        answer = source.probe(replace(case.dataset(), cursor=name))
    assert answer.rows in (None, case.rows().num_rows)
    if name is not None:
        column = case.rows().column(name).combine_chunks()
        assert answer.null_cursors in (None, column.null_count)
        highest = max(_cells(case.rows(), name))
        assert answer.upper in (None, canonical(highest, column.type)), "another highest cursor value"


def a_feed_continues_from_its_token(case: Case) -> None:
    """A feed gives a token after a clean read; read again from it, nothing old comes; its shape is stated."""
    case.needs(Capability.SYNC_STATE)
    feed = case.fixture.feed
    if feed is None:
        raise NotApplicable("no feed to read")
    with planned(case, feed) as (source, partitions):
        assert isinstance(source, NaturalReadShape)
        assert source.natural_read_shape(feed) is ReadShape.FEED
        (partition,) = partitions
        assert isinstance(partition, SyncStatePartition)
        assert rows_of([partition]), "the feed of a fixture has rows"
        token = partition.try_get_sync_state()
    assert token, "no token after a clean read"
    with planned(case, replace(feed, prior_sync_state=token)) as (_, partitions):
        assert rows_of(partitions) == []


def change_rows_have_their_header_and_keys(case: Case) -> None:
    """Change rows start with operation, position and time; keys and a token are known after the read."""
    case.needs(Capability.CHANGE_CAPTURE)
    changes = case.fixture.changes
    if changes is None:
        raise NotApplicable("no changes to read")
    with planned(case, replace(changes, change_capture=True)) as (_, partitions):
        (partition,) = partitions
        assert isinstance(partition, ChangeCapturePartition)
        for batch in partition.read(BatchOptions(), CancelToken()):
            assert batch.schema.names[:3] == ["_pz_op", "_pz_lsn", "_pz_changed_at"]
            assert set(batch.column("_pz_op").to_pylist()) <= {"insert", "update", "delete"}
        assert partition.key_columns()
        assert partition.try_get_sync_state()


def read_any(case: Case, dataset: DatasetSpec) -> list[dict[str, object]]:
    """The rows of a dataset by its first way; errors of DuckDB become errors of the contract."""
    import duckdb

    try:
        return next(found for _, found in each_way(case, dataset))
    except duckdb.Error as error:
        raise PermanentError(str(error)) from error


def each_way(case: Case, dataset: DatasetSpec) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Every way in which a connector reads a dataset, with the rows that it gives."""
    with opened(case) as source:
        scan = source.native_scan(dataset, NO_HINTS)
    if scan is not None:
        yield "native_scan", run_scan(scan)
    try:
        yield from _planned_ways(case, dataset)
    except NotApplicable:
        return


def _planned_ways(case: Case, dataset: DatasetSpec) -> Iterator[tuple[str, list[dict[str, object]]]]:
    with planned(case, dataset) as (_, partitions):
        fragments = [p.native_scan() for p in partitions if isinstance(p, NativePartition)]
        whole = [fragment for fragment in fragments if fragment is not None]
        if whole and len(whole) == len(partitions):
            yield "partition fragments", [row for fragment in whole for row in run_scan(fragment)]
        yield "batches", rows_of(partitions)


def run_scan(scan: NativeScan) -> list[dict[str, object]]:
    """The rows of a fragment, verified where it asks for that."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for statement in scan.setup:
            connection.execute(statement).fetchall()
        rows = connection.sql(f"SELECT * FROM {scan.relation}").to_arrow_table().to_pylist()
    if scan.verify is not None:
        scan.verify()
    return list(rows)


def rows_of(partitions: Iterable[Partition]) -> list[dict[str, object]]:
    """All rows of some partitions."""
    return [
        row
        for partition in partitions
        for batch in partition.read(BatchOptions(), CancelToken())
        for row in batch.to_pylist()
    ]


@contextmanager
def opened(case: Case) -> Iterator[Source]:
    """A source, opened and closed once, behind an open gate where it asks for one."""
    source = case.fixture.connector.open_source(case.fixture.connection)
    if isinstance(source, Gated):
        source.use_gate(OpenGate())
    try:
        yield source
    finally:
        source.close()


@contextmanager
def planned(case: Case, dataset: DatasetSpec, hints: ReadHints = NO_HINTS) -> Iterator[tuple[Source, list[Partition]]]:
    """A source and the partitions of one plan."""
    with opened(case) as source:
        try:
            partitions = list(source.plan_read(dataset, hints))
        except PermanentError as refused:
            if source.native_scan(dataset, hints) is None:
                raise
            raise NotApplicable("read natively only") from refused
        yield source, partitions


def _ids(case: Case, dataset: DatasetSpec) -> list[str]:
    with planned(case, dataset) as (_, partitions):
        assert all(isinstance(partition, IdentifiedPartition) for partition in partitions)
        return [partition.partition_id for partition in partitions if isinstance(partition, IdentifiedPartition)]


def _bounds(case: Case) -> tuple[str, tuple[int, str], tuple[int, str]]:
    """The cursor, and a low and a high value of it, encoded and canonical."""
    name = case.fixture.cursor
    if name is None:
        raise NotApplicable("no cursor to bound")
    values = sorted(set(_cells(case.rows(), name)))
    kind = case.rows().schema.field(name).type
    low, high = values[len(values) // 4], values[(3 * len(values)) // 4]
    return name, (low, canonical(low, kind)), (high, canonical(high, kind))


def _cells(table: pa.Table, name: str) -> list[int]:
    return [cell for cell in encode_array(table.column(name).combine_chunks()) if cell is not None]


READ_CHECKS: tuple[Check, ...] = (
    reads_are_whole,
    schema_equals_batches,
    batches_keep_to_the_row_limit,
    partition_ids_are_stable,
    a_restored_partition_reads_the_same_rows,
    only_partitioned_readers_plan_several_partitions,
    partitions_can_be_read_side_by_side,
    a_checkpoint_resumes_strictly_behind_its_rows,
    a_foreign_checkpoint_is_declined,
    a_cancelled_read_ends_between_batches,
    an_upper_bound_holds,
    hints_change_nothing_but_the_amount,
    a_probe_agrees_with_the_rows,
    a_feed_continues_from_its_token,
    change_rows_have_their_header_and_keys,
)
"""In the order in which they run."""
