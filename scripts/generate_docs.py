"""Write the parts of the documentation that are generated from the code.

    python scripts/generate_docs.py           # writes them
    python scripts/generate_docs.py --check   # says which are stale, exits 1 if any is

A page holds generated regions between ``<!-- generated: <name> -->`` and ``<!-- end -->``; everything else is written by
hand. `tests/test_docs.py` fails when a region differs from what the code says now.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pz.codes import CODES, Code

ROOT = Path(__file__).parents[1]
REGION = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

SECTIONS = {
    "01": "Loading a project",
    "02": "Compiling and selecting",
    "03": "Connectors, capabilities and pairings",
    "04": "SQL",
    "05": "Running, retrying and state",
    "07": "Engine, files and connectors of this product",
}


def pages() -> list[Path]:
    """Every page that may hold generated regions."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    lines.insert(1, "|" + "---|" * (lines[0].count(" | ") + 1))
    return "\n".join(lines)


def errors() -> str:
    """The error catalogue."""
    parts = []
    for prefix, title in SECTIONS.items():
        codes = [code for code in Code if code[2:4] == prefix]
        parts.append(f"## {title}\n")
        for code in codes:
            info = CODES[code]
            parts.append(f"### {code}\n\n{info.meaning}\n\n*{info.phase}* · {info.hint}\n")
    return "\n".join(parts).strip()


def regions() -> Mapping[str, Callable[[], str]]:
    """What can be generated, by name."""
    return {"errors": errors}


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
