"""How a read is cut: key ranges of a column, or the whole, read internally by ranges of physical pages.

Ranges tile the column: half-open, the first and the last without an end, NULLs in the first. They are planned once from the
extremes at that moment; rows that come later lie in the open ends.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pz.connectors.contract import BatchOptions, CancelToken, DatasetSpec, NativeScan, ReadHints
from pz.connectors.postgres.catalog import Table
from pz.connectors.postgres.connect import Server
from pz.connectors.postgres.parallel import Reader, merged
from pz.connectors.postgres.reading import read_statement
from pz.connectors.postgres.relation import Relation
from pz.connectors.postgres.scanner import scan_of
from pz.connectors.postgres.snapshot import SharedSnapshot
from pz.errors import Code, PermanentError
from pz.frozen import frozen
from pz.sqltext import literal, quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MAX_PARTITIONS",
    "PAGE_READERS",
    "KeyRange",
    "PostgresPartition",
    "WholePartition",
    "page_ranges",
    "plan_ranges",
    "proposed_count",
]

MAX_PARTITIONS = 16
BYTES_PER_PARTITION = 128 * 1024 * 1024
PAGES_PER_READER = 4096
PAGE_READERS = 4
EPOCH = datetime(1970, 1, 1)

_INTEGERS = frozenset({"int2", "int4", "int8", "oid"})
_ORDERABLE = _INTEGERS | {"numeric", "float4", "float8", "date", "timestamp", "timestamptz"}

# The extremes as text, of values that are neither infinite nor NaN.
EXTREMES = "SELECT min({c})::text, max({c})::text FROM {source} WHERE {conditions}"


@frozen
class Read:
    """What all partitions of a read share."""

    server: Server
    relation: Relation
    dataset: DatasetSpec
    hints: ReadHints
    snapshot: SharedSnapshot

    def stream(
        self, extra: Sequence[str], options: BatchOptions, cancel: CancelToken, snapshot: str | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that fulfil ``extra`` beside what the dataset asks for."""
        columns = self.relation.pruned(self.hints)
        return read_statement(
            self.server,
            self.relation.select(columns, self.conditions(extra)),
            columns,
            options,
            cancel,
            subject=self.relation.subject,
            snapshot=snapshot,
        )

    def scan(self, extra: Sequence[str] = ()) -> NativeScan | None:
        """The same rows as a fragment."""
        return scan_of(self.server, self.relation, self.relation.pruned(self.hints), self.conditions(extra))

    def conditions(self, extra: Sequence[str] = ()) -> list[str]:
        """What the server filters by."""
        return [*self.relation.conditions(self.dataset, self.hints), *extra]


@frozen
class KeyRange:
    """A half-open range as SQL literals; None is an open end. NULLs belong to the range without a lower end."""

    column: str
    lower: str | None
    upper: str | None
    generation: str = ""

    @property
    def condition(self) -> str:
        """As SQL; true for every row when both ends are open."""
        bare = quote(self.column)
        parts = [f"{bare} >= {self.lower}"] if self.lower is not None else []
        parts += [f"{bare} < {self.upper}"] if self.upper is not None else []
        inside = " AND ".join(parts) or "true"
        return f"({inside})" if self.lower is not None else f"({inside} OR {bare} IS NULL)"

    @property
    def identity(self) -> str:
        """Stable for the same cut. A cut that may not outlive its snapshot carries it as ``generation``."""
        ends = f"[{self.lower or ''},{self.upper or ''})"
        return f"{self.column}{ends}{'@' if self.generation else ''}{self.generation}"

    def to_json(self) -> str:
        """As a spec."""
        return json.dumps({"c": self.column, "l": self.lower, "u": self.upper, "g": self.generation})

    @classmethod
    def from_json(cls, spec: str) -> KeyRange:
        """The inverse."""
        content = json.loads(spec)
        return cls(content["c"], content["l"], content["u"], content["g"])


@frozen
class PostgresPartition:
    """A key range, read on a connection of its own under the snapshot that all partitions share."""

    shared: Read
    range: KeyRange

    @property
    def partition_id(self) -> str:
        """See `IdentifiedPartition`."""
        return self.range.identity

    @property
    def spec(self) -> str:
        """See `PinnedPartition`."""
        return self.range.to_json()

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        return self.shared.stream([self.range.condition], options, cancel, self.shared.snapshot.name)


@frozen
class WholePartition:
    """Everything at once: as a fragment, or as batches, a large table by ranges of pages under one snapshot.

    Pages mean nothing in another snapshot, so there is nothing to resume: a partition that failed is read again.
    """

    shared: Read

    @property
    def partition_id(self) -> str:
        """See `IdentifiedPartition`."""
        return "all"

    @property
    def spec(self) -> str:
        """See `PinnedPartition`."""
        return "all"

    def native_scan(self) -> NativeScan | None:
        """See `NativePartition`."""
        return self.shared.scan()

    def read(self, options: BatchOptions, cancel: CancelToken) -> Iterator[pa.RecordBatch]:
        """See `Partition`."""
        table = self.shared.relation.table
        pages = page_ranges(table) if table is not None else []
        if len(pages) < 2:
            return self.shared.stream([], options, cancel, None)
        snapshot = self.shared.snapshot.name
        readers = [self._reader(condition, options, snapshot) for condition in pages]
        return merged(readers, PAGE_READERS, cancel)

    def _reader(self, condition: str, options: BatchOptions, snapshot: str) -> Reader:
        return lambda stop: self.shared.stream([condition], options, stop, snapshot)


def page_ranges(table: Table) -> list[str]:
    """Conditions that tile a large plain table by pages; the last one is open, for pages that have come since."""
    if table.kind not in "rm" or table.has_children or table.pages < 2 * PAGES_PER_READER:
        return []
    starts = list(range(0, table.pages, PAGES_PER_READER))
    ranges = [f"ctid >= '({low},0)'::tid AND ctid < '({high},0)'::tid" for low, high in itertools.pairwise(starts)]
    return [*ranges, f"ctid >= '({starts[-1]},0)'::tid"]


def proposed_count(relation: Relation) -> int:
    """How many partitions the size of the table suggests."""
    if relation.table is None:
        return 1
    return max(1, min(MAX_PARTITIONS, -(-relation.table.bytes // BYTES_PER_PARTITION)))


def plan_ranges(shared: Read, column: str, count: int, generation: str) -> list[KeyRange]:
    """Up to ``count`` ranges of about equal width over what is there now.

    Raises:
        PermanentError: PZ0740 when the column cannot be cut into ranges.
    """
    relation = shared.relation
    attribute = relation.attribute(column)
    if attribute is None:
        raise PermanentError(
            f"{relation.subject} has no column {quote(column)}, the partition column", code=Code.PZ0747
        )
    kind = attribute.type.storage.name
    if kind not in _ORDERABLE:
        raise PermanentError(
            f"{relation.subject}: {quote(attribute.name)} is {attribute.shown}; "
            "a partition column is a number, date or timestamp",
            code=Code.PZ0740,
        )
    low, high = _extremes(shared, attribute.name, kind)
    cuts = [] if low is None or high is None else _cuts(kind, low, high, count)
    ends: list[str | None] = [None, *cuts, None]
    return [KeyRange(attribute.name, a, b, generation) for a, b in itertools.pairwise(ends)]


def _extremes(shared: Read, column: str, kind: str) -> tuple[str | None, str | None]:
    relation, bare = shared.relation, quote(column)
    conditions = relation.conditions(shared.dataset, shared.hints)
    if kind in {"date", "timestamp", "timestamptz"}:
        conditions.append(f"isfinite({bare})")
    elif kind not in _INTEGERS:
        conditions.append(f"{bare} NOT IN ('NaN', 'Infinity', '-Infinity')")
    where = " AND ".join(conditions) or "true"
    query = EXTREMES.format(c=bare, source=relation.source, conditions=where)
    row: tuple[Any, Any] = shared.snapshot.connection.execute(query).fetchone() or (None, None)
    return row


def _cuts(kind: str, low: str, high: str, count: int) -> list[str]:
    """The inner ends, as literals of the column's own type, strictly rising."""
    start, stop = _number(kind, low), _number(kind, high)
    whole = kind not in {"numeric", "float4", "float8"}
    points: list[str] = []
    for i in range(1, count):
        cut = start + (stop - start) * i / count
        if cut <= start:
            continue
        text = _literal(kind, Fraction(-(-cut.numerator // cut.denominator)) if whole else cut)
        if not points or points[-1] != text:
            points.append(text)
    return points if stop > start else []


def _number(kind: str, text: str) -> Fraction:
    if kind in {"date", "timestamp", "timestamptz"}:
        return Fraction(_moment(text, days=kind == "date"))
    return Fraction(Decimal(text))


def _moment(text: str, *, days: bool) -> int:
    """Days or microseconds since 1970. Years beyond Python's calendar are moved to its ends: the outer ranges are open."""
    plain = text.removesuffix("+00")
    if plain.endswith(" BC"):
        moment = datetime.min
    elif len(plain.split("-")[0]) > 4:
        moment = datetime.max
    else:
        moment = datetime.fromisoformat(plain)
    passed = moment - EPOCH
    return passed.days if days else passed // timedelta(microseconds=1)


def _literal(kind: str, value: Fraction) -> str:
    if kind == "date":
        return f"'{date(1970, 1, 1) + timedelta(days=int(value))}'::date"
    if kind in {"timestamp", "timestamptz"}:
        moment = EPOCH + timedelta(microseconds=int(value))
        return f"'{moment.isoformat(sep=' ')}'::{kind}"
    if kind in _INTEGERS:
        return literal(str(int(value))) + f"::{kind}"
    if kind == "numeric":
        return f"'{Decimal(value.numerator) / Decimal(value.denominator):f}'::numeric"
    return f"'{float(value)!r}'::{kind}"
