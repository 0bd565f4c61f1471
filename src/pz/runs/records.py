"""``run.json`` and ``run_results.json``: writing them durably, reading them without ever believing a damaged one.

Both are JSON objects in camelCase with ``version: 1`` and a ``checksum``. Optional blocks that do not apply are absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pz import jsonfile
from pz.durable import Step, write_atomic
from pz.errors import Code, Problem, Severity, StateError, os_problem
from pz.jsonfile import DamagedFile
from pz.runs.model import NodeError, NodeResult, NodeStatus, RecordedNode, RunRecord, RunResults, RunStatus

__all__ = [
    "RECORD",
    "RESULTS",
    "ResultsWriter",
    "read_record",
    "read_results",
    "results_to_json",
    "write_record",
    "write_results",
]

RECORD = "run.json"
RESULTS = "run_results.json"

T = TypeVar("T")


def write_record(run_path: Path, record: RunRecord) -> None:
    """Write ``run.json`` durably; to be done before anything is dispatched. OSError fails the run."""
    write_atomic(run_path / RECORD, jsonfile.encode(record_to_json(record)), Step.WRITE_RUN_RECORD)


def read_record(run_path: Path) -> RunRecord | None:
    """Read ``run.json``; None when there is none. Raises `StateError` PZ0707 when it is damaged or newer than this pz."""
    return _read(run_path / RECORD, record_from_json)


def write_results(run_path: Path, results: RunResults) -> None:
    """Replace ``run_results.json`` atomically; with a terminal status this is the last durable write of the run."""
    name = Step.WRITE_RESULTS if results.status is RunStatus.RUNNING else Step.FINISH_RUN
    write_atomic(run_path / RESULTS, jsonfile.encode(results_to_json(results)), name)


def read_results(run_path: Path) -> RunResults | None:
    """Read ``run_results.json``; None when there is none. Raises `StateError` PZ0707 as `read_record` does."""
    return _read(run_path / RESULTS, results_from_json)


class ResultsWriter:
    """Rewrites the results after every node. A failed write warns once per run and never fails the run.

    The file is a view: what is durable is decided elsewhere, so a run whose results cannot be written goes on, and the
    next write is tried all the same.
    """

    def __init__(self, run_path: Path, warn: Callable[[Problem], None]) -> None:
        self._run_path = run_path
        self._warn = warn
        self._warned = False

    def write(self, results: RunResults) -> bool:
        """Write; False when that failed."""
        try:
            write_results(self._run_path, results)
        except OSError as failure:
            if not self._warned:
                self._warned = True
                self._warn(_warning(failure, self._run_path / RESULTS))
            return False
        return True


def _warning(failure: OSError, path: Path) -> Problem:
    found = os_problem(failure, path, Code.PZ0710)
    message = f"the results of the run could not be written ({found.message})"
    return Problem(found.code, message, severity=Severity.WARNING)


def _read(path: Path, convert: Callable[[Mapping[str, Any]], T]) -> T | None:
    try:
        content = jsonfile.read(path)
        return None if content is None else convert(content)
    except DamagedFile as damage:
        raise StateError(Problem(Code.PZ0707, f"{path} cannot be used: {damage.reason}")) from damage
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise StateError(Problem(Code.PZ0707, f"{path} cannot be used: its content is foreign")) from failure
    except OSError as failure:
        raise StateError(os_problem(failure, path, Code.PZ0707)) from failure


def record_to_json(record: RunRecord) -> dict[str, Any]:
    """The content of ``run.json``."""
    return {
        "runId": record.run_id,
        "number": record.number,
        "project": record.project,
        "verb": record.verb,
        "startedAt": record.started_at,
        "origin": record.origin,
        "originStartedAt": record.origin_started_at,
        **({"retryOf": record.retry_of} if record.retry_of is not None else {}),
        "flags": dict(record.flags),
        "vars": dict(record.vars),
        "nodes": [_node_to_json(node) for node in record.nodes],
        "stored": dict(record.stored),
        "used": dict(record.used),
        "probes": dict(record.probes),
        "places": {key: dict(place) for key, place in record.places.items()},
        "host": record.host,
        "pid": record.pid,
    }


def record_from_json(content: Mapping[str, Any]) -> RunRecord:
    """The record that `record_to_json` made the content of."""
    return RunRecord(
        run_id=content["runId"],
        number=content["number"],
        project=content["project"],
        verb=content["verb"],
        started_at=content["startedAt"],
        origin=content["origin"],
        origin_started_at=content["originStartedAt"],
        retry_of=content.get("retryOf"),
        flags=content["flags"],
        vars=content["vars"],
        nodes=tuple(RecordedNode(n["id"], n["kind"], n["name"], n.get("location")) for n in content["nodes"]),
        stored=content["stored"],
        used=content["used"],
        probes=content["probes"],
        places=content.get("places", {}),
        host=content["host"],
        pid=content["pid"],
    )


def _node_to_json(node: RecordedNode) -> dict[str, Any]:
    found = {"id": node.id, "kind": node.kind, "name": node.name}
    return found if node.location is None else {**found, "location": node.location}


def results_to_json(results: RunResults) -> dict[str, Any]:
    """The content of ``run_results.json``; ``finishedAt`` only when terminal."""
    return {
        "runId": results.run_id,
        "origin": results.origin,
        "status": results.status.value,
        "startedAt": results.started_at,
        **({"finishedAt": results.finished_at} if results.finished_at is not None else {}),
        "nodes": [_result_to_json(node) for node in results.nodes],
    }


def results_from_json(content: Mapping[str, Any]) -> RunResults:
    """The results that `results_to_json` made the content of; blocks that a later version added are ignored."""
    return RunResults(
        run_id=content["runId"],
        origin=content["origin"],
        status=RunStatus(content["status"]),
        started_at=content["startedAt"],
        finished_at=content.get("finishedAt"),
        nodes=tuple(_result_from_json(node) for node in content["nodes"]),
    )


# attribute -> key of the optional blocks, in the order of the file
_BLOCKS = {
    "timings": "timings",
    "ops": "ops",
    "partitions": "partitions",
    "delivery": "delivery",
    "cdc": "cdc",
    "observed_schema": "observed_schema",
    "watermark": "watermark",
}


def _result_to_json(node: NodeResult) -> dict[str, Any]:
    found: dict[str, Any] = {"id": node.id, "kind": node.kind, "name": node.name, "status": node.status.value}
    if node.provenance is not None:
        found["provenance"] = node.provenance
    if node.fused is not None:
        found["fused"] = node.fused
    if node.materialization is not None:
        found["materialization"] = node.materialization
    if node.skipped_for is not None:
        found["skippedFor"] = node.skipped_for
    found |= {"rows": node.rows, "durationMs": node.duration_ms}
    found["error"] = None if node.error is None else {"code": node.error.code, "message": node.error.message}
    blocks = {key: getattr(node, attribute) for attribute, key in _BLOCKS.items()}
    return found | {key: dict(block) for key, block in blocks.items() if block is not None}


def _result_from_json(node: Mapping[str, Any]) -> NodeResult:
    error = node["error"]
    return NodeResult(
        id=node["id"],
        kind=node["kind"],
        name=node["name"],
        status=NodeStatus(node["status"]),
        rows=node["rows"],
        duration_ms=node["durationMs"],
        error=None if error is None else NodeError(error["code"], error["message"]),
        provenance=node.get("provenance"),
        fused=node.get("fused"),
        materialization=node.get("materialization"),
        skipped_for=node.get("skippedFor"),
        **{attribute: node.get(key) for attribute, key in _BLOCKS.items()},
    )
