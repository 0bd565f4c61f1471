"""Conformance: what a write promises, by each strategy and way, committed, aborted, resumed and repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import (
    AbortSemantics,
    Capability,
    CheckpointingSession,
    Column,
    DeleteApplyingSession,
    Gated,
    NativeCopy,
    OnDelete,
    OutputSpec,
    PartialUpdateSession,
    PermanentError,
    RetainingSession,
    Settlement,
    SettlingSink,
    Sink,
    Slice,
    WriteAttempt,
    WriteSession,
    WriteStrategy,
)
from pz.connectors.databases import make_database
from pz.connectors.deletes import LIMIT
from pz.errors import Code, ConnectorError
from pz.testing.conformance import Case, Check, NotApplicable
from pz.testing.gates import OpenGate
from pz.testing.oracle import assert_equal, assert_equal_alive, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TYPES", "WRITE_CHECKS"]

NODE = "c0ffee" * 2 + "0000"
Rows = Sequence[tuple[int | None, str | None]]

TYPES: dict[str, str] = {
    "BOOLEAN": "TRUE",
    "TINYINT": "-128",
    "SMALLINT": "-32768",
    "INTEGER": "-2147483648",
    "BIGINT": "9223372036854775807",
    "UBIGINT": "18446744073709551615",
    "FLOAT": "1.5",
    "DOUBLE": "0.1",
    "DECIMAL(18,3)": "123456789012345.678",
    "DECIMAL(38,10)": "1234567890123456789012345678.0123456789",
    "VARCHAR": "'caf\u00e9, \"x\"'",
    "BLOB": "'\\x00\\xFF'::BLOB",
    "DATE": "DATE '2020-02-29'",
    "TIME": "TIME '23:59:59.999999'",
    "TIMESTAMP": "TIMESTAMP '2020-01-01 00:00:00.000001'",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ '2020-01-01 00:00:00.000001+00'",
    "INTERVAL": "INTERVAL '1 month 2 days'",
    "UUID": "'12345678-1234-1234-1234-123456789012'::UUID",
    "INTEGER[]": "[1, NULL, 3]",
    "STRUCT(a INTEGER)": "{'a': 1}",
}
"""DuckDB types that the record of answers covers, each with a value that loses something when it is held as less."""


def an_append_adds(case: Case) -> None:
    """Two appends leave the rows of both, by every way of writing."""
    ways = []
    for way in _ways(case, WriteStrategy.APPEND):
        output = _output(case, WriteStrategy.APPEND)
        way(case, output, [(1, "a"), (2, None)])
        way(case, _another(output), [(2, None), (3, "")])
        assert_equal(case.target(output), _table([(1, "a"), (2, None), (2, None), (3, "")]), "two appends")
        ways.append(way.__name__.strip("_"))
    case.found["write_ways"] = tuple(ways)


def a_replace_replaces(case: Case) -> None:
    """A replace leaves its own rows only, an empty one none."""
    case.needs(Capability.REPLACE_WRITES)
    for way in _ways(case, WriteStrategy.REPLACE):
        output = _output(case, WriteStrategy.REPLACE)
        way(case, output, [(1, "a"), (2, "b")])
        way(case, _another(output), [(3, "c")])
        assert_equal(case.target(output), _table([(3, "c")]), "a replace")
        way(case, _another(output, "third"), [])
        assert case.target(output).num_rows == 0, "an empty replace leaves rows"


def a_merge_updates_and_inserts_by_key(case: Case) -> None:
    """A merge changes what has the key, adds what has not, and repeated it changes nothing."""
    case.needs(Capability.MERGE_WRITES)
    for way in _ways(case, WriteStrategy.MERGE):
        output = _output(case, WriteStrategy.MERGE)
        way(case, output, [(1, "a"), (2, "b")])
        for repeat in ("second", "third"):
            way(case, _another(output, repeat), [(2, "B"), (3, None)])
            assert_equal(case.target(output), _table([(1, "a"), (2, "B"), (3, None)]), "a merge")


def strategies_without_a_flag_are_refused(case: Case) -> None:
    """A strategy that no capability announces is refused with a permanent error."""
    has = case.fixture.connector.capabilities
    case.found["strategies"] = tuple(s.value for s in WriteStrategy if _announced(has, s))
    for strategy in WriteStrategy:
        if _announced(has, strategy):
            continue
        try:
            _session(case, _output(case, strategy), [(1, "a")])
        except PermanentError:
            continue
        raise AssertionError(f"{strategy} was accepted without its capability")


def a_commit_is_all_or_nothing(case: Case) -> None:
    """A transactional target shows nothing before the commit."""
    output = _output(case, WriteStrategy.APPEND)
    with _open(case, output) as session:
        for row in range(3):
            session.write_batch(_batch([(row, "x")]))
        visible = _peek(case, output)
        _commit(session)
    case.found["visible_before_commit"] = None if visible is None else visible > 0
    if case.fixture.connector.capabilities & Capability.TRANSACTIONAL:
        assert not visible, f"{visible} rows were visible before the commit"
    assert _held(case, output) == 3


def an_abort_leaves_what_is_declared(case: Case) -> None:
    """After an abort nothing is left where everything is discarded; elsewhere the record says what is."""
    output = _output(case, WriteStrategy.APPEND)
    with _sink(case) as sink:
        semantics = sink.abort_semantics
        session = sink.begin_write(output, _schema(output))
        for row in range(3):
            session.write_batch(_batch([(row, "x")]))
        session.abort()
        session.close()
    left = _held(case, output)
    case.found |= {"abort": semantics.value, "rows_left_by_abort": left}
    case.found["target_left_by_abort"] = bool(_target_names(case, output))
    if semantics is AbortSemantics.DISCARDS_ALL:
        assert left == 0, f"{left} rows are left although everything is discarded"


def an_abort_leaves_earlier_rows_alone(case: Case) -> None:
    """An aborted write, of any strategy, does not touch what an earlier one left."""
    for strategy in _strategies(case):
        output = _output(case, strategy)
        _session(case, output, [(1, "kept")])
        with _sink(case) as sink:
            if sink.abort_semantics is not AbortSemantics.DISCARDS_ALL:
                raise NotApplicable(f"abort: {sink.abort_semantics}")
            session = sink.begin_write(_another(output), _schema(output))
            session.write_batch(_batch([(1, "gone"), (2, "gone")]))
            session.abort()
            session.close()
        assert_equal(case.target(output), _table([(1, "kept")]), f"after an aborted {strategy}")


def closing_without_a_commit_is_an_abort(case: Case) -> None:
    """A session that is closed with neither commit nor abort leaves what an abort leaves."""
    output = _output(case, WriteStrategy.APPEND)
    with _sink(case) as sink:
        session = sink.begin_write(output, _schema(output))
        session.write_batch(_batch([(1, "x")]))
        session.close()
        discards = sink.abort_semantics is AbortSemantics.DISCARDS_ALL
    assert not discards or _held(case, output) == 0


def commit_excludes_abort(case: Case) -> None:
    """After a commit an abort takes nothing back, and a second commit adds nothing."""
    output = _output(case, WriteStrategy.APPEND)
    with _sink(case) as sink:
        session = sink.begin_write(output, _schema(output))
        session.write_batch(_batch([(1, "x")]))
        _commit(session)
        for call in (lambda: _commit(session), session.abort):
            try:
                call()
            except Exception:  # noqa: BLE001 - refusing in whatever way is what the contract asks for
                continue
        session.close()
    assert_equal(case.target(output), _table([(1, "x")]))


def the_result_counts_the_rows(case: Case) -> None:
    """A commit says how many rows it made durable."""
    output = _output(case, WriteStrategy.APPEND)
    assert _session(case, output, [(1, "a"), (2, "b"), (3, "c")]) == 3


def an_empty_write_makes_an_empty_target(case: Case) -> None:
    """A relation without rows makes a target with its columns."""
    output = _output(case, WriteStrategy.APPEND)
    assert _session(case, output, []) == 0
    assert _held(case, output) == 0


def acknowledged_rows_are_there_and_are_not_sent_again(case: Case) -> None:
    """What was acknowledged is at the destination, and a resumed session goes on behind it."""
    case.needs(Capability.CHECKPOINTABLE_WRITES)
    output = _output(case, WriteStrategy.APPEND)
    with _sink(case) as sink:
        session = sink.begin_write(output, _schema(output))
        assert isinstance(session, CheckpointingSession)
        session.write_batch(_batch([(1, "a"), (2, "b")]))
        confirmed = session.acknowledged_rows() or 0
        assert confirmed <= _held(case, output), "more was acknowledged than is there"
        session.abort()
        session.close()
    survived = _held(case, output)
    with _sink(case) as sink:
        session = sink.begin_write(_another(output), _schema(output))
        assert isinstance(session, CheckpointingSession)
        rows = [(1, "a"), (2, "b"), (3, "c")]
        resumed = survived >= confirmed and session.try_resume(confirmed)
        session.write_batch(_batch(rows[confirmed:] if resumed else rows))
        assert _commit(session) == 3, "the result counts the resumed prefix"
        session.close()


def deletes_follow_the_upserts(case: Case) -> None:
    """Keys to delete are gone, or marked, after the commit; an upsert brings them back."""
    case.needs(Capability.APPLY_DELETES)
    for policy in (OnDelete.DELETE, OnDelete.SOFT):
        output = replace(_output(case, WriteStrategy.MERGE), on_delete=policy)
        with _open(case, output) as session:
            session.write_batch(_batch([(1, "a"), (2, "b")]))
            assert isinstance(session, DeleteApplyingSession)
            session.apply_deletes(_batch([(2, None)]).select(["id"]))
            _commit(session)
        assert_equal_alive(case.target(output), _table([(1, "a")]), what=f"on_delete: {policy}")
        _session(case, _another(output), [(2, "back")])
        assert_equal_alive(case.target(output), _table([(1, "a"), (2, "back")]), what=f"on_delete: {policy}")


def a_snapshot_removes_what_it_does_not_hold(case: Case) -> None:
    """Rows whose keys are not kept go, or are marked; more than half of those that were there only when told."""
    case.needs(Capability.SNAPSHOT_DELETES)
    for policy in (OnDelete.DELETE, OnDelete.SOFT):
        output = replace(_output(case, WriteStrategy.MERGE), on_delete=policy)
        _snapshot(case, output, [(n, "a") for n in range(1, 5)])
        _snapshot(case, _another(output), [(1, "a"), (2, "a"), (5, "b")])
        left = _table([(1, "a"), (2, "a"), (5, "b")])
        assert_equal_alive(case.target(output), left, what=f"on_delete: {policy}")
        code = _refused_snapshot(case, _another(output, "third"), [(5, "b")])
        assert code is Code.PZ0749, f"on_delete: {policy}: more than half is refused with PZ0749"
        assert_equal_alive(case.target(output), left, what=f"on_delete: {policy}, refused")
        told = replace(_another(output, "fourth"), options={**output.options, LIMIT: 1})
        _snapshot(case, told, [])
        assert_equal_alive(case.target(output), _table([]), what=f"on_delete: {policy}, an empty snapshot")


def _refused_snapshot(case: Case, output: OutputSpec, rows: Rows) -> Code | None:
    try:
        _snapshot(case, output, rows)
    except PermanentError as refused:
        return refused.code
    return None


def _snapshot(case: Case, output: OutputSpec, rows: Rows) -> None:
    """Write rows that are all that there is."""
    with _open(case, output) as session:
        assert isinstance(session, RetainingSession)
        if rows:
            session.write_batch(_batch(rows))
        session.retain_only(_batch([(0, None)]).slice(1).select(["id"]))
        if rows:
            session.retain_only(_batch(rows).select(["id"]))
        _commit(session)


def a_partial_update_leaves_columns_alone(case: Case) -> None:
    """Columns named as unchanged keep what the target has."""
    case.needs(Capability.PARTIAL_UPDATES)
    output = _output(case, WriteStrategy.MERGE)
    _session(case, output, [(1, "kept"), (2, "too")])
    with _open(case, _another(output)) as session:
        assert isinstance(session, PartialUpdateSession)
        session.apply_partial(_batch([(1, None)]), ["v"])
        _commit(session)
    assert_equal(case.target(output), _table([(1, "kept"), (2, "too")]))


def a_mark_tells_whether_an_attempt_has_committed(case: Case) -> None:
    """The mark of a committed attempt is found, that of an aborted one is not, and a slice lands once."""
    with _sink(case) as sink:
        if not isinstance(sink, SettlingSink):
            raise NotApplicable("no marks")
        output = _output(case, WriteStrategy.APPEND)
        assert sink.settle(output, "run-c", 1) in {Settlement.NOT_COMMITTED, Settlement.UNKNOWN}
        _session(case, output, [(1, "a")])
        answer = sink.settle(output, "run-c", 1)
        assert answer in {Settlement.COMMITTED, Settlement.UNKNOWN}
        assert sink.settle(output, "run-c", 2) in {Settlement.NOT_COMMITTED, Settlement.UNKNOWN}
    if answer is Settlement.UNKNOWN:
        raise NotApplicable("this destination keeps no marks")
    again = replace(output, attempt=WriteAttempt(NODE, "run-c", 2, "run-c", (("run-c", 1),)))
    _session(case, again, [(1, "a")])
    assert_equal(case.target(output), _table([(1, "a")]), "a slice sent twice")


def types_come_back_as_recorded(case: Case) -> None:
    """Every type is either held exactly, held as something else, or refused; the record says which."""
    case.output()
    case.found["types"] = {kind: _round_trip(case, kind, value) for kind, value in TYPES.items()}


def _round_trip(case: Case, kind: str, value: str) -> str:
    import duckdb

    query = f"SELECT 1 AS id, CAST({value} AS {kind}) AS v UNION ALL SELECT 2, NULL"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET arrow_lossless_conversion = true")
        table = connection.sql(query).to_arrow_table()
    output = replace(_output(case, WriteStrategy.APPEND), columns=(Column("id", "INTEGER"), Column("v", kind)))
    try:
        way = next(iter(_ways(case, WriteStrategy.APPEND)))
        way(case, output, table)
    except (ConnectorError, duckdb.Error):
        return "refused"
    found = case.target(output)
    same = rows_of(found) == rows_of(table)
    back = _storage(found)
    if same and back == _storage(table):
        return "exact"
    return f"as {back}, values {'equal' if same else 'differ'}"


def _storage(table: pa.Table) -> pa.DataType:
    """The type of the column; a boolean is one whether it is held in a bit or in a byte."""
    import pyarrow as pa

    kind = table.schema.field("v").type
    return pa.bool_() if getattr(kind, "extension_name", "") == "arrow.bool8" else kind


# How a relation is written: by a session, or by statements that DuckDB runs.


def _session(case: Case, output: OutputSpec, rows: Rows | pa.Table) -> int:
    """Write by a session, one row a batch; the rows that the commit counted."""
    table = _table(rows) if isinstance(rows, Sequence) else rows
    with _open(case, output, table.schema) as session:
        for batch in table.to_batches(max_chunksize=1):
            session.write_batch(batch)
        return _commit(session)


def _native_copy(case: Case, output: OutputSpec, rows: Rows | pa.Table) -> None:
    """Write by the connector's own statements."""
    table = _table(rows) if isinstance(rows, Sequence) else rows
    with _sink(case) as sink:
        copy = sink.native_copy(output)
        if copy is None:
            raise AssertionError("offered a native copy and then did not")
        run_copy(copy, table)


def run_copy(copy: NativeCopy, table: pa.Table) -> None:
    """Carry out a native copy as the engine does: directories, set-up, one transaction, promotion."""
    import duckdb

    for directory in copy.directories:
        directory.mkdir(parents=True, exist_ok=True)
    for database in copy.databases:
        make_database(database)
    for leftover in copy.stale:
        leftover.unlink(missing_ok=True)  # durable: ok - a scratch target of the suite
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("conformance_arrow", table)
        connection.execute("CREATE TEMP TABLE conformance_rows AS FROM conformance_arrow").fetchall()
        for statement in copy.setup:
            connection.execute(statement).fetchall()
        connection.begin()
        for statement in copy.statements:
            connection.execute(statement.replace("{relation}", "temp.conformance_rows")).fetchall()
        for statement in copy.counted:
            connection.execute(statement.replace("{rows}", str(table.num_rows))).fetchall()
        connection.commit()  # durable: ok - a scratch target of the suite
    for aside, final in copy.moves:
        if table.num_rows or copy.promotes_empty:
            aside.replace(final)  # durable: ok - a scratch target of the suite
        else:
            aside.unlink()  # durable: ok - a scratch target of the suite


def _ways(case: Case, strategy: WriteStrategy) -> Iterator[Any]:
    """The ways in which this connector writes with this strategy."""
    output = _output(case, strategy)
    with _sink(case) as sink:
        native = sink.native_copy(output) is not None
        try:
            session = sink.begin_write(output, _schema(output))
            session.close()
            universal = True
        except PermanentError:
            universal = False
    if not native and not universal:
        raise AssertionError(f"{strategy} cannot be written at all")
    if universal:
        yield _session
    if native:
        yield _native_copy


def _commit(session: WriteSession) -> int:
    """Commit; the rows that the session counted."""
    return session.commit().rows  # durable: ok - a scratch target of the suite


@contextmanager
def _sink(case: Case) -> Iterator[Sink]:
    sink = case.fixture.connector.open_sink(case.fixture.connection)
    if isinstance(sink, Gated):
        sink.use_gate(OpenGate())
    try:
        yield sink
    finally:
        sink.close()


@contextmanager
def _open(case: Case, output: OutputSpec, schema: pa.Schema | None = None) -> Iterator[Any]:
    """A session, closed exactly once; a sink that only copies natively does not apply."""
    with _sink(case) as sink:
        try:
            session = sink.begin_write(output, schema or _schema(output))
        except PermanentError as refused:
            if sink.native_copy(output) is None:
                raise
            raise NotApplicable("written natively only") from refused
        try:
            yield session
        finally:
            session.close()


def _output(case: Case, strategy: WriteStrategy) -> OutputSpec:
    """An output to a fresh target, with an attempt and a slice."""
    keys = ("id",) if strategy is WriteStrategy.MERGE else ()
    columns = (Column("id", "INTEGER"), Column("v", "VARCHAR"))
    output = replace(case.output(), strategy=strategy, keys=keys, columns=columns)
    if case.fixture.write_options is not None:
        output = replace(output, options=case.fixture.write_options(output))
    return _another(output, "first")


def _another(output: OutputSpec, run: str = "second") -> OutputSpec:
    """The same output for another slice, of another run."""
    name = "run-c" if run == "first" else f"run-{run}"
    mark = Slice("conformance", name, NODE, f"{output.entity}-{run}")
    return replace(output, origin=name, node=NODE, attempt=WriteAttempt(NODE, name, 1, name), slice=mark)


def _announced(has: Capability, strategy: WriteStrategy) -> bool:
    needed = {WriteStrategy.REPLACE: Capability.REPLACE_WRITES, WriteStrategy.MERGE: Capability.MERGE_WRITES}
    return strategy not in needed or bool(has & needed[strategy])


def _strategies(case: Case) -> list[WriteStrategy]:
    case.output()
    return [strategy for strategy in WriteStrategy if _announced(case.fixture.connector.capabilities, strategy)]


def _schema(_: OutputSpec) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("id", pa.int32()), ("v", pa.string())])


def _table(rows: Rows) -> pa.Table:
    import pyarrow as pa

    columns = [pa.array([row[0] for row in rows], pa.int32()), pa.array([row[1] for row in rows], pa.string())]
    return pa.table(columns, names=["id", "v"])


def _batch(rows: Rows) -> pa.RecordBatch:
    return _table(rows).combine_chunks().to_batches()[0]


def _peek(case: Case, output: OutputSpec) -> int | None:
    """The rows that others see while a session is open; None where the destination lets nobody look."""
    try:
        return _held(case, output)
    except NotApplicable:
        return None


def _held(case: Case, output: OutputSpec) -> int:
    return int(case.target(output).num_rows)


def _target_names(case: Case, output: OutputSpec) -> list[str]:
    return list(case.target(output).column_names)


WRITE_CHECKS: tuple[Check, ...] = (
    an_append_adds,
    a_replace_replaces,
    a_merge_updates_and_inserts_by_key,
    strategies_without_a_flag_are_refused,
    a_commit_is_all_or_nothing,
    an_abort_leaves_what_is_declared,
    an_abort_leaves_earlier_rows_alone,
    closing_without_a_commit_is_an_abort,
    commit_excludes_abort,
    the_result_counts_the_rows,
    an_empty_write_makes_an_empty_target,
    acknowledged_rows_are_there_and_are_not_sent_again,
    deletes_follow_the_upserts,
    a_snapshot_removes_what_it_does_not_hold,
    a_partial_update_leaves_columns_alone,
    a_mark_tells_whether_an_attempt_has_committed,
    types_come_back_as_recorded,
)
"""In the order in which they run."""
