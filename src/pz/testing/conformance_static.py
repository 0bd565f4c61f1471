"""Conformance: what a connector says about itself, before anything is opened."""

from __future__ import annotations

import re

from pz.connectors.contract import CONTRACT_MAJOR, Capability, ConnectionSpec, ReadHints
from pz.connectors.registry import check_schemas
from pz.errors import ConnectorError
from pz.testing.conformance import Case, Check, NotApplicable

__all__ = ["STATIC_CHECKS"]


def identity_is_complete(case: Case) -> None:
    """Name, contract and purpose are stated."""
    connector = case.fixture.connector
    assert re.fullmatch(r"[a-z][a-z0-9_]*", connector.name), "a name has lower-case letters, digits and underscores"
    assert connector.contract_major == CONTRACT_MAJOR, f"the contract is {CONTRACT_MAJOR}"
    assert connector.gives, "`gives` says in one line what the connector connects to"
    assert type(connector)().name == connector.name, "the class is made without arguments"


def capabilities_agree_with_each_other(case: Case) -> None:
    """No capability stands without the one that it builds on."""
    has = case.fixture.connector.capabilities
    if has & Capability.CHECKPOINTABLE_READS:
        assert has & Capability.STABLE_PARTITION_IDS, "checkpoints need stable partition ids"
    if has & Capability.SYNC_STATE:
        assert not has & Capability.PARTITIONED_READ, "a token cannot span partitions"
    if has & (Capability.APPLY_DELETES | Capability.PARTIAL_UPDATES):
        assert has & Capability.MERGE_WRITES, "deletes and partial updates go with a merge"
    if has & Capability.SNAPSHOT_DELETES:
        assert has & Capability.APPLY_DELETES, "what a snapshot removes, a change removes, too"


def schemas_are_valid_and_claim_no_key_of_the_engine(case: Case) -> None:
    """Option schemas are JSON Schema 2020-12 and leave the engine's keys alone."""
    from jsonschema import Draft202012Validator

    connector = case.fixture.connector
    for schema in (connector.connection_schema(), connector.dataset_schema(), connector.output_schema()):
        if schema is not None:
            Draft202012Validator.check_schema(dict(schema))
    claimed = check_schemas(connector)
    assert not claimed, "; ".join(problem.message for problem in claimed)


def the_fixture_passes_its_own_schemas(case: Case) -> None:
    """Options that work are options that the schemas allow, and validate finds no fault in them."""
    from jsonschema import Draft202012Validator

    fixture = case.fixture
    connector = fixture.connector
    Draft202012Validator(dict(connector.connection_schema())).validate(dict(fixture.connection.options))
    for dataset in filter(None, (fixture.dataset, fixture.feed, fixture.changes, *fixture.variants)):
        Draft202012Validator(dict(connector.dataset_schema())).validate(dict(dataset.options))
    assert list(connector.validate(fixture.connection)) == []


def validate_never_raises(case: Case) -> None:
    """Bad options are reported, not raised, and without secrets."""
    good = case.fixture.connection
    bad: list[dict[str, object]] = [{}, dict.fromkeys(good.options), dict.fromkeys(good.options, 17), {"?": []}]
    for options in bad:
        for fault in case.fixture.connector.validate(ConnectionSpec("broken", options, good.base_dir)):
            case.free_of_secrets(fault)


def location_holds_no_secret(case: Case) -> None:
    """A location says where, the same each time, and shows no secret."""
    connector, connection = case.fixture.connector, case.fixture.connection
    place = connector.location(connection)
    assert place, "a location is not empty"
    assert place == connector.location(connection)
    case.free_of_secrets(repr(dict(place)))


def a_working_connection_is_reported_as_such(case: Case) -> None:
    """Checking a connection answers yes where it works."""
    report = case.fixture.connector.check_connection(case.fixture.connection)
    assert report.ok, report.message


def a_broken_connection_is_reported_without_secrets(case: Case) -> None:
    """Checking a connection that cannot work answers no, with a reason, and shows no secret."""
    if case.fixture.broken is None:
        raise NotApplicable("no broken connection to try")
    report = case.fixture.connector.check_connection(case.fixture.broken)
    assert not report.ok
    assert report.message, "a refusal has a reason"
    case.free_of_secrets(report.message)


def planning_is_offline_and_free_of_effects(case: Case) -> None:
    """Asking for native fragments contacts nobody, changes nothing, and answers the same each time."""
    fixture = case.fixture
    if fixture.dataset is not None:
        source = fixture.connector.open_source(fixture.connection)
        with case.without_effects():
            scans = [source.native_scan(fixture.dataset, ReadHints()) for _ in range(2)]
        source.close()
        assert scans[0] == scans[1]
    if fixture.output is not None:
        output = case.output()
        sink = fixture.connector.open_sink(fixture.connection)
        with case.without_effects():
            copies = [sink.native_copy(output) for _ in range(2)]
        sink.close()
        # Temporary names may differ; what is promised may not.
        promised = [copy and (copy.mechanism, [final for _, final in copy.moves]) for copy in copies]
        assert promised[0] == promised[1]


def what_is_not_there_is_a_typed_error_without_secrets(case: Case) -> None:
    """Reading a dataset that does not exist raises an error of the contract, and its text shows no secret."""
    from dataclasses import replace

    from pz.testing.conformance_reads import read_any

    missing = replace(case.dataset(), entity="conformance_no_such_thing", options={})
    try:
        read_any(case, missing)
    except ConnectorError as error:
        case.free_of_secrets(f"{error.message} {error.hint}")
        return
    raise AssertionError("reading what does not exist was not refused")


STATIC_CHECKS: tuple[Check, ...] = (
    identity_is_complete,
    capabilities_agree_with_each_other,
    schemas_are_valid_and_claim_no_key_of_the_engine,
    the_fixture_passes_its_own_schemas,
    validate_never_raises,
    location_holds_no_secret,
    a_working_connection_is_reported_as_such,
    a_broken_connection_is_reported_without_secrets,
    planning_is_offline_and_free_of_effects,
    what_is_not_there_is_a_typed_error_without_secrets,
)
"""In the order in which they run."""
