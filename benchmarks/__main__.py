"""Run all cases and write `docs/benchmarks.md`.

python -m benchmarks [rows ...]      default: 1000000 10000000
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from benchmarks import cases, data
from benchmarks.measure import Measurement, best

ROOT = Path(__file__).parents[1]
SCRATCH = ROOT / "scratch" / "bench"
FUSED_TARGET, STAGED_TARGET = 1.15, 2.0

PAGE = """# Benchmarks

Written by `make bench` on {date}: {cpus} cores, {memory:.0f} GiB, Python {python}, DuckDB {duckdb}, {system}.

A csv file with 16 columns of common types is moved into a parquet file. Every move is a whole process, from its start to
its end; the fastest of {repeats} counts, and the moves take turns. *Start-up* is what a run with one row takes longer
than plain DuckDB does; the *ratio* is (seconds - start-up) / seconds of plain DuckDB. The projects set
`memory_limit: {limit}`; plain DuckDB may take what it wants.

Start-up: {startup:.2f} s. [PostgreSQL](benchmarks-postgres.md) and [HTTP](benchmarks-http.md) have pages of their own.

| rows | move | seconds | ratio | at most | peak memory | budget in the plan |
|---|---|---|---|---|---|---|
{rows}
"""


def main(arguments: list[str]) -> int:
    sizes = [int(argument) for argument in arguments] or [1_000_000, 10_000_000]
    SCRATCH.mkdir(parents=True, exist_ok=True)
    startup, lines, kept = _startup(), [], True
    for size in sizes:
        measured, budgets = _moves(size, 3)
        table, held = _judge(size, measured, budgets, startup)
        lines += table
        kept = kept and held
    page = PAGE.format(
        date=datetime.now(UTC).date(),
        cpus=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        python=platform.python_version(),
        duckdb=duckdb.__version__,
        system=f"{platform.system()} {platform.machine()}",
        repeats=3,
        limit=cases.MEMORY_LIMIT,
        startup=startup,
        rows="\n".join(lines),
    )
    (ROOT / "docs" / "benchmarks.md").write_text(page)
    print(page)
    return 0 if kept else 1


def _startup() -> float:
    (plain, fused, _), _ = _moves(1, 5)
    return max(fused.seconds - plain.seconds, 0.0)


def _moves(size: int, repeats: int) -> tuple[list[Measurement], list[int]]:
    csv = SCRATCH / f"{size}.csv"
    data.write_csv(csv, size)
    fused = cases.project(csv, SCRATCH / "fused", staged=False)
    staged = cases.project(csv, SCRATCH / "staged", staged=True)
    moves = [
        lambda: cases.plain(csv, SCRATCH / "plain"),
        lambda: cases.pz(fused),
        lambda: cases.pz(staged),
    ]
    return best(repeats, moves), [cases.budget(fused), cases.budget(staged)]


def _judge(size: int, measured: list[Measurement], budgets: list[int], startup: float) -> tuple[list[str], bool]:
    plain, *moves = measured
    lines = [f"| {size:,} | plain DuckDB | {plain.seconds:.2f} | 1 | | {plain.peak_bytes >> 20} MiB | |"]
    kept = True
    named = zip(("pz, fused", "pz, staged"), (FUSED_TARGET, STAGED_TARGET), moves, budgets, strict=True)
    for name, target, move, budget in named:
        ratio = (move.seconds - startup) / plain.seconds
        kept = kept and ratio <= target and move.peak_bytes <= budget
        lines.append(
            f"| {size:,} | {name} | {move.seconds:.2f} | {ratio:.2f} | {target} "
            f"| {move.peak_bytes >> 20} MiB | {budget >> 20} MiB |"
        )
    return lines, kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
