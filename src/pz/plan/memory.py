"""The budget of a run: what it may take of memory and disk, said before anything runs.

pz always sets DuckDB's ``memory_limit``, so the total is a promise: DuckDB's limit, the channels between readers and
staging (threads x 6 batches), and a fixed overhead for the interpreter, the libraries and what DuckDB takes beside its
limit.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pz.plan.model import Budget
from pz.project.model import EngineSettings

__all__ = ["budget", "machine_memory", "parse_size"]

OVERHEAD = 320 * 1024 * 1024
BATCHES_IN_FLIGHT = 6
DEFAULT_SHARE = 0.6

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def parse_size(text: str, *, whole: int | None = None) -> int | None:
    """Bytes of ``4GB``, ``512MiB``, ``80%`` (of ``whole``); None when it is not a size."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|[KMGT]?i?B|)\s*", text, re.IGNORECASE)
    if match is None:
        return None
    number, unit = float(match[1]), match[2].upper()
    if unit == "%":
        return None if whole is None else int(whole * number / 100)
    return int(number * _UNITS[unit])


def machine_memory() -> int:
    """Bytes that this process may use: the cgroup's limit where there is one, else the machine's memory."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return min(physical, int(text))
    return physical


def budget(engine: EngineSettings, staging_disk: int | None = None) -> Budget:
    """The budget under these settings. A bare or relative ``memory_limit`` is taken of the machine's memory."""
    whole = machine_memory()
    limit = parse_size(engine.duckdb.memory_limit, whole=whole) if engine.duckdb.memory_limit else None
    return Budget(
        duckdb=limit if limit is not None else int(whole * DEFAULT_SHARE),
        channels=engine.threads * BATCHES_IN_FLIGHT * engine.batch_bytes,
        overhead=OVERHEAD,
        staging_disk=staging_disk,
    )
