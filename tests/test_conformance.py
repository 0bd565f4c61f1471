"""Our own connectors pass the suite that we ask others to pass; the suite finds every defect seeded here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from pz.connectors.contract import (
    AbortSemantics,
    BatchOptions,
    CancelToken,
    Capability,
    ConnectionReport,
    ConnectionSpec,
    DatasetSpec,
    NativeScan,
    OutputSpec,
    Partition,
    ReadHints,
    Settlement,
    WriteSession,
)
from pz.connectors.deletes import LIMIT
from pz.testing.conformance import Answers, Fixture, Verdict, run_conformance
from pz.testing.conformance_reads import READ_CHECKS
from pz.testing.conformance_static import STATIC_CHECKS
from pz.testing.conformance_writes import WRITE_CHECKS
from pz.testing.fixtures import fixture_for, fixture_names, reference
from pz.testing.reference import Reference
from pz.testing.reference_sink import ReferenceSink, TransactionalSession
from pz.testing.reference_source import DatabaseSource, StablePartition

# What json holds of a type, as its reader sees it; decimals of more than 15 digits travel as text.
HTTP_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER"), "as int64, values equal"),
    "FLOAT": "as double, values equal",
    **dict.fromkeys(("DECIMAL(18,3)", "DECIMAL(38,10)", "BLOB", "DATE", "TIME"), "as string, values differ"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "INTERVAL", "UUID"), "as string, values differ"),
    "INTEGER[]": "as list<item: int64>, values equal",
    "STRUCT(a INTEGER)": "as struct<a: int64>, values equal",
}


@pytest.mark.parametrize("name", fixture_names())
def test_a_connector_of_ours_keeps_the_contract(name: str, tmp_path: Path) -> None:
    fixture = fixture_for(name, tmp_path)
    assert fixture is not None
    report = run_conformance(fixture)
    assert report.ok, report.render()


@pytest.mark.parametrize(
    ("name", "inexact", "left"),
    [
        ("duckdb", {}, 0),
        ("http", HTTP_TYPES, 0),
        ("localfiles", {"INTERVAL": "as string, values differ"}, 0),
        ("reference", {}, 0),
        ("reference_api", {}, 3),
        ("reference_plain", {}, 0),
    ],
)
def test_the_answers_of_our_connectors_are_as_recorded(
    name: str, inexact: dict[str, str], left: int, tmp_path: Path
) -> None:
    fixture = fixture_for(name, tmp_path)
    assert fixture is not None
    answers = run_conformance(fixture).answers
    assert {kind: answer for kind, answer in answers.types.items() if answer != "exact"} == inexact
    assert answers.rows_left_by_abort == left


def test_every_check_applies_to_some_connector_of_ours(tmp_path: Path) -> None:
    ran = set()
    for name in fixture_names():
        (tmp_path / name).mkdir()
        fixture = fixture_for(name, tmp_path / name)
        assert fixture is not None
        ran |= {result.name for result in run_conformance(fixture).results if result.verdict is Verdict.PASSED}
    assert {check.__name__ for check in (*STATIC_CHECKS, *READ_CHECKS, *WRITE_CHECKS)} <= ran


class Defective(Reference):
    """The reference connector, with hooks for one defect each."""

    source: ClassVar[type[DatabaseSource]] = DatabaseSource
    sink: ClassVar[type[ReferenceSink]] = ReferenceSink

    def open_source(self, connection: ConnectionSpec) -> DatabaseSource:
        opened = super().open_source(connection)
        opened.__class__ = self.source
        return opened

    def open_sink(self, connection: ConnectionSpec) -> ReferenceSink:
        opened = super().open_sink(connection)
        opened.__class__ = self.sink
        return opened


class ClaimsEngineKey(Defective):
    def connection_schema(self) -> Mapping[str, Any]:
        schema = super().connection_schema()
        return {**schema, "properties": {**schema["properties"], "rate_limit": {"type": "object"}}}


class InvalidSchema(Defective):
    def dataset_schema(self) -> Mapping[str, Any]:
        return {**super().dataset_schema(), "type": "no such type"}


class SecretInLocation(Defective):
    def location(self, connection: ConnectionSpec) -> Mapping[str, str]:
        return {"path": f"far?password={connection.options['password']}"}


class SecretInRefusal(Defective):
    def check_connection(self, connection: ConnectionSpec) -> ConnectionReport:
        if super().check_connection(connection).ok:
            return ConnectionReport(True)
        return ConnectionReport(False, f"cannot log in with {connection.options['password']}")


class RaisesInValidate(Defective):
    def validate(self, connection: ConnectionSpec) -> list[str]:
        return [] if connection.options["path"] == "far" else [connection.options["path"].upper()]


class CheckpointsWithoutIds(Defective):
    capabilities: ClassVar[Capability] = Reference.capabilities & ~Capability.STABLE_PARTITION_IDS


class _PlansWithEffects(DatabaseSource):
    def native_scan(self, dataset: DatasetSpec, hints: ReadHints) -> NativeScan | None:
        (self._server.path / "planned").write_text(str(len(self._server.script.calls())))
        return super().native_scan(dataset, hints)


class PlansWithEffects(Defective):
    source = _PlansWithEffects


class _Loses(StablePartition):
    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        batches = list(super().read(options, cancel))
        yield from batches[: -1 if len(batches) > 1 else None]


class _IgnoresCancel(StablePartition):
    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        yield from super().read(options, CancelToken())


class _OtherSchema(StablePartition):
    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        for batch in super().read(options, cancel):
            yield batch.rename_columns([name.upper() for name in batch.schema.names])


class _BigBatches(StablePartition):
    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        yield from super().read(BatchOptions(), cancel)


class _LaggingToken(StablePartition):
    def try_get_checkpoint(self) -> str | None:
        token = super().try_get_checkpoint()
        return None if token is None else f"{token.rpartition('~')[0]}~-1"


class _TrustsAnyToken(StablePartition):
    def try_resume(self, token: str) -> bool:
        super().try_resume(token)
        return True


class _RandomIds(StablePartition):
    @property
    def partition_id(self) -> str:
        return f"{id(self)}-{len(self._reader.server.script.calls())}"


def source_of(kind: type[StablePartition]) -> type[Defective]:
    """A connector whose partitions have a defect."""

    class Source(DatabaseSource):
        def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> list[Partition]:
            planned = list(super().plan_read(dataset, hints))
            for partition in planned:
                if isinstance(partition, StablePartition):
                    partition.__class__ = kind
            return planned

    return type("DefectivePartitions", (Defective,), {"source": Source})


class _IgnoresUpper(DatabaseSource):
    def plan_read(self, dataset: DatasetSpec, hints: ReadHints) -> list[Partition]:
        return list(super().plan_read(replace(dataset, upper=None), hints))


class IgnoresUpper(Defective):
    source = _IgnoresUpper


class _CommitsEarly(TransactionalSession):
    def write_batch(self, batch: pa.RecordBatch) -> None:
        super().write_batch(batch)
        self.target.server.apply(replace(self.target.blank(mark=False), rows=self._rows[-1:]))
        self._rows.pop()


class _AbortsByCommitting(TransactionalSession):
    def abort(self) -> None:
        self.commit()


class _DeletesFirst(TransactionalSession):
    def apply_deletes(self, keys: pa.RecordBatch) -> None:
        return


class _KeepsAll(TransactionalSession):
    def retain_only(self, keys: pa.RecordBatch) -> None:
        return


class _KnowsNoLimit(TransactionalSession):
    def __init__(self, target: Any, semantics: AbortSemantics) -> None:
        options = {**target.output.options, LIMIT: 1}
        super().__init__(replace(target, output=replace(target.output, options=options)), semantics)


class _UpdatesAll(TransactionalSession):
    def apply_partial(self, batch: pa.RecordBatch, unchanged: Any) -> None:
        super().apply_partial(batch, [])


class _WithoutMark(TransactionalSession):
    def __init__(self, target: Any, semantics: AbortSemantics) -> None:
        super().__init__(replace(target, output=replace(target.output, slice=None)), semantics)


class _CommitsTwice(_WithoutMark):
    def _enter(self, verb: str) -> None:
        return


def sink_of(kind: type[TransactionalSession]) -> type[Defective]:
    """A connector whose sessions have a defect."""

    class Sink(ReferenceSink):
        def begin_write(self, output: OutputSpec, schema: pa.Schema) -> WriteSession:
            session = super().begin_write(output, schema)
            assert isinstance(session, TransactionalSession)
            return kind(session.target, session.semantics)

    return type("DefectiveSessions", (Defective,), {"sink": Sink})


class _MergesByAppending(ReferenceSink):
    def begin_write(self, output: OutputSpec, schema: pa.Schema) -> WriteSession:
        from pz.connectors.contract import WriteStrategy

        return super().begin_write(replace(output, strategy=WriteStrategy.APPEND), schema)


class MergesByAppending(Defective):
    sink = _MergesByAppending


class _AlwaysCommitted(ReferenceSink):
    def settle(self, output: OutputSpec, run: str, ordinal: int) -> Settlement:
        return Settlement.COMMITTED


class AlwaysCommitted(Defective):
    sink = _AlwaysCommitted


DEFECTS: list[tuple[str, type[Defective]]] = [
    ("schemas_are_valid_and_claim_no_key_of_the_engine", ClaimsEngineKey),
    ("schemas_are_valid_and_claim_no_key_of_the_engine", InvalidSchema),
    ("location_holds_no_secret", SecretInLocation),
    ("a_broken_connection_is_reported_without_secrets", SecretInRefusal),
    ("validate_never_raises", RaisesInValidate),
    ("capabilities_agree_with_each_other", CheckpointsWithoutIds),
    ("planning_is_offline_and_free_of_effects", PlansWithEffects),
    ("reads_are_whole", source_of(_Loses)),
    ("a_cancelled_read_ends_between_batches", source_of(_IgnoresCancel)),
    ("schema_equals_batches", source_of(_OtherSchema)),
    ("batches_keep_to_the_row_limit", source_of(_BigBatches)),
    ("a_checkpoint_resumes_strictly_behind_its_rows", source_of(_LaggingToken)),
    ("a_foreign_checkpoint_is_declined", source_of(_TrustsAnyToken)),
    ("partition_ids_are_stable", source_of(_RandomIds)),
    ("an_upper_bound_holds", IgnoresUpper),
    ("a_commit_is_all_or_nothing", sink_of(_CommitsEarly)),
    ("a_snapshot_removes_what_it_does_not_hold", sink_of(_KeepsAll)),
    ("a_snapshot_removes_what_it_does_not_hold", sink_of(_KnowsNoLimit)),
    ("commit_excludes_abort", sink_of(_CommitsTwice)),
    ("an_abort_leaves_what_is_declared", sink_of(_AbortsByCommitting)),
    ("closing_without_a_commit_is_an_abort", sink_of(_AbortsByCommitting)),
    ("deletes_follow_the_upserts", sink_of(_DeletesFirst)),
    ("a_partial_update_leaves_columns_alone", sink_of(_UpdatesAll)),
    ("a_mark_tells_whether_an_attempt_has_committed", AlwaysCommitted),
    ("a_replace_replaces", MergesByAppending),
    ("a_merge_updates_and_inserts_by_key", MergesByAppending),
]


@pytest.mark.parametrize(("check", "connector"), DEFECTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_seeded_defect_is_found_by_its_check(check: str, connector: Callable[[], Reference], tmp_path: Path) -> None:
    report = run_conformance(replace(reference(tmp_path), connector=connector()))
    assert check in {result.name for result in report.failures}, report.render()


def gap(fixture: Fixture, check: str, error: str) -> Any:
    report = run_conformance(replace(fixture, gaps={check: error}))
    return {result.name: result for result in report.results}[check]


def test_a_known_gap_is_strict(tmp_path: Path) -> None:
    defective = replace(reference(tmp_path / "a"), connector=IgnoresUpper())
    assert gap(defective, "an_upper_bound_holds", "behind the upper bound").verdict is Verdict.GAP
    assert gap(defective, "an_upper_bound_holds", "another error").verdict is Verdict.FAILED
    closed = gap(reference(tmp_path / "b"), "an_upper_bound_holds", "behind the upper bound")
    assert (closed.verdict, "has closed" in closed.detail) == (Verdict.FAILED, True)
    assert gap(reference(tmp_path / "c"), "no_such_check", "x").verdict is Verdict.FAILED


def test_a_record_of_answers_is_held(tmp_path: Path) -> None:
    answers = run_conformance(reference(tmp_path / "a")).answers
    assert run_conformance(replace(reference(tmp_path / "b"), settled=answers)).ok
    changed: Answers = replace(answers, rows_left_by_abort=7)
    assert not run_conformance(replace(reference(tmp_path / "c"), settled=changed)).ok
