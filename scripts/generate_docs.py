"""Write the parts of the documentation that are generated from the code.

    python scripts/generate_docs.py           # writes them
    python scripts/generate_docs.py --check   # says which are stale, exits 1 if any is

A page holds generated regions between ``<!-- generated: <name> -->`` and ``<!-- end -->``; everything else is written by
hand. `tests/test_docs.py` fails when a region differs from what the code says now.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import doc_tables
from pz.project import keys

ROOT = Path(__file__).parents[1]
REGION = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

KEYS = {
    "project": keys.PROJECT,
    "engine": keys.ENGINE,
    "duckdb": keys.DUCKDB,
    "breaker": keys.BREAKER,
    "connection": keys.CONNECTION,
    "retry": keys.RETRY,
    "rate-limit": keys.RATE_LIMIT,
    "read": keys.READ,
    "sync": keys.SYNC,
    "write": keys.WRITE,
    "sidecar": keys.SIDECAR,
}


def pages() -> list[Path]:
    """Every page that may hold generated regions."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def regions() -> Mapping[str, Callable[[], str]]:
    """What can be generated, by name."""
    return {
        "errors": doc_tables.errors,
        "guarantees": doc_tables.guarantees,
        "capabilities": doc_tables.capabilities,
        "connectors": doc_tables.connectors,
        "events": doc_tables.run_events,
        "pz-meta": doc_tables.pz_meta,
        "steps": doc_tables.steps,
        "cli": doc_tables.cli,
        **{f"keys-{name}": partial(doc_tables.keys, table, tuple(KEYS.values())) for name, table in KEYS.items()},
    }


def refresh(text: str) -> str:
    """The page with its regions generated anew."""
    makers = regions()
    return REGION.sub(lambda found: f"{found[1]}\n{makers[found[2]]()}\n\n{found[3]}", text)


def main(arguments: list[str]) -> int:
    stale = [page for page in pages() if page.read_text() != refresh(page.read_text())]
    for page in stale:
        if "--check" in arguments:
            print(f"stale: {page.relative_to(ROOT)} (run: make docs)")
        else:
            page.write_text(refresh(page.read_text()))
            print(f"wrote {page.relative_to(ROOT)}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
