"""Print a few rows of everything that the sample project wrote.

python scripts/show_outputs.py <project directory>
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

OUTPUTS = {
    "output/orders_enriched/orders_enriched.parquet": "FROM '{path}'",
    "output/delays_by_carrier/delays_by_carrier.csv": "FROM '{path}'",
    "warehouse.duckdb": "FROM warehouse.orders_enriched",
}
COLUMNS = {
    "orders_enriched": "carrier, flight, origin, destination, scheduled_at, cancelled, arr_delay, model, visib",
    "delays_by_carrier": "*",
}


def main() -> None:
    project = Path(sys.argv[1])
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{project / 'warehouse.duckdb'}' AS warehouse (READ_ONLY)")
        for name, source in OUTPUTS.items():
            relation = source.format(path=project / name)
            columns = COLUMNS["delays_by_carrier" if "delays" in name else "orders_enriched"]
            (rows,) = connection.execute(f"SELECT count(*) {relation}").fetchone() or (0,)
            print(f"{name}: {rows} rows, of which")
            print(connection.sql(f"SELECT {columns} {relation} ORDER BY ALL LIMIT 5"))


if __name__ == "__main__":
    main()
