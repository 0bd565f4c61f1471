"""``.pz/state/audit.jsonl``: one line for each change that a person made to the state. Only ever appended to."""

from __future__ import annotations

import json
from pathlib import Path

from pz.durable import Step, append_line, make_dirs
from pz.events import now, timestamp
from pz.frozen import frozen

__all__ = ["AuditLine", "append_audit", "read_audit"]


@frozen
class AuditLine:
    """What was done; fields that do not apply are None and left out."""

    action: str
    key: str
    cursor: str | None = None
    type: str | None = None
    before: str | None = None
    before_run_id: str | None = None
    after: str | None = None
    target: str | None = None
    reason: str | None = None


def append_audit(state_dir: Path, line: AuditLine) -> None:
    """Append a line durably. OSError when that fails."""
    content = {
        "ts": timestamp(now()),
        "action": line.action,
        "key": line.key,
        "cursor": line.cursor,
        "type": line.type,
        "from": line.before,
        "fromRunId": line.before_run_id,
        "to": line.after,
        "target": line.target,
        "reason": line.reason,
    }
    text = json.dumps({name: value for name, value in content.items() if value is not None}, ensure_ascii=False)
    path = _path(state_dir)
    make_dirs(path.parent)
    append_line(path, text, Step.APPEND_AUDIT)


def read_audit(state_dir: Path) -> tuple[dict[str, str], ...]:
    """The lines, oldest first; a line torn by a crash is left out."""
    try:
        lines = _path(state_dir).read_text("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return ()
    return tuple(found for found in map(_parsed, lines) if found is not None)


def _path(state_dir: Path) -> Path:
    return state_dir / "state" / "audit.jsonl"


def _parsed(line: str) -> dict[str, str] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
