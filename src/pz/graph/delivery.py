"""The pairing matrix, once, as data: what each (read shape, write strategy) pair guarantees when a slice is replayed.

The compiler refuses what can be refused offline (incremental, cdc), the planner the rest (feeds, which only an open
connector can tell from full reads); `pz plan`, the docs page and the tests read the same table. The table is a
stability contract: a guarantee that a cell gives is one that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator

from pz.connectors.contract import OnDelete, ReadShape, WriteStrategy
from pz.errors import Code, Problem
from pz.frozen import frozen
from pz.graph.model import Graph, SinkNode, SourceNode
from pz.project.model import WriteDecl
from pz.sqltext import literal

__all__ = [
    "AT_LEAST_ONCE",
    "EFFECTIVELY_ONCE",
    "MATRIX",
    "Cell",
    "Guarantee",
    "cell",
    "edges",
    "guarantee",
    "merges_everywhere",
    "refusal",
]

EFFECTIVELY_ONCE = "effectively-once"
AT_LEAST_ONCE = "at-least-once"


@frozen
class Guarantee:
    """What replaying a sink edge can do to its target: the level and the condition under which it holds."""

    level: str
    condition: str = ""

    def __str__(self) -> str:
        return f"{self.level} ({self.condition})" if self.condition else self.level


@frozen
class Cell:
    """One cell of the matrix. ``guarantee`` is None where the pair is refused; ``code`` is what refuses it.

    A cell with both holds only with recorded consent (``duplicates: accept``); without, its code refuses the pair.
    ``why`` completes "... would" in the refusal. ``ghosts`` is what holds where the connector cannot remove what a snapshot
    does not hold, None where that makes no difference.
    """

    shape: ReadShape
    strategy: WriteStrategy
    on_delete: tuple[OnDelete | None, ...]
    guarantee: Guarantee | None
    code: Code | None = None
    why: str = ""
    ghosts: Guarantee | None = None

    @property
    def needs_consent(self) -> bool:
        """Whether the pair is legal only with ``duplicates: accept``."""
        return self.guarantee is not None and self.code is not None


_ANY = (None, *OnDelete)
_ONCE = Guarantee(EFFECTIVELY_ONCE)
_CONSENTED = Guarantee(AT_LEAST_ONCE, "consented")
_UPSERTS = Guarantee(EFFECTIVELY_ONCE, "upserts; deletes are not propagated")
_GHOSTS = Guarantee(EFFECTIVELY_ONCE, "rows that a snapshot does not hold stay")
_LOSES = "discard previously loaded rows each run"
_EVENTS = "add every change event as a new row"

MATRIX: tuple[Cell, ...] = (
    Cell(ReadShape.FULL, WriteStrategy.REPLACE, _ANY, _ONCE),
    Cell(ReadShape.FULL, WriteStrategy.APPEND, _ANY, Guarantee(AT_LEAST_ONCE)),
    Cell(ReadShape.FULL, WriteStrategy.MERGE, _ANY, _ONCE),
    Cell(ReadShape.FEED, WriteStrategy.REPLACE, _ANY, None, Code.PZ0335, _LOSES),
    Cell(ReadShape.FEED, WriteStrategy.APPEND, _ANY, _CONSENTED, Code.PZ0214),
    Cell(ReadShape.FEED, WriteStrategy.MERGE, _ANY, _ONCE),
    Cell(ReadShape.INCREMENTAL, WriteStrategy.REPLACE, _ANY, None, Code.PZ0335, _LOSES),
    Cell(ReadShape.INCREMENTAL, WriteStrategy.APPEND, _ANY, _CONSENTED, Code.PZ0214),
    Cell(ReadShape.INCREMENTAL, WriteStrategy.MERGE, _ANY, _ONCE),
    Cell(ReadShape.CDC, WriteStrategy.REPLACE, _ANY, None, Code.PZ0335, _LOSES),
    Cell(ReadShape.CDC, WriteStrategy.APPEND, _ANY, None, Code.PZ0335, _EVENTS),
    Cell(ReadShape.CDC, WriteStrategy.MERGE, (OnDelete.DELETE, OnDelete.SOFT), _ONCE, ghosts=_GHOSTS),
    Cell(ReadShape.CDC, WriteStrategy.MERGE, (OnDelete.IGNORE,), _UPSERTS),
    Cell(ReadShape.CDC, WriteStrategy.MERGE, (None,), None, Code.PZ0336),
)
"""Every pair, exactly once for each ``on_delete``."""


def cell(shape: ReadShape, strategy: WriteStrategy, on_delete: OnDelete | None = None) -> Cell:
    """The cell of a pair."""
    return next(c for c in MATRIX if (c.shape, c.strategy) == (shape, strategy) and on_delete in c.on_delete)


def guarantee(shape: ReadShape, write: WriteDecl, *, ghosts: bool = False) -> Guarantee | None:
    """What delivery of a read of this shape into this output guarantees; None where the pair is refused.

    ``ghosts`` says that the output's connector cannot remove what a snapshot does not hold.
    """
    found = cell(shape, write.strategy, write.on_delete)
    if found.needs_consent and not write.duplicates_accepted:
        return None
    return found.ghosts if ghosts and found.ghosts is not None else found.guarantee


def refusal(shape: ReadShape, source: SourceNode, sink: SinkNode) -> Problem | None:
    """The problem that refuses a sink edge, None when the pair is legal. The planner calls this for resolved shapes."""
    if guarantee(shape, sink.write) is not None:
        return None
    found = cell(shape, sink.write.strategy, sink.write.on_delete)
    assert found.code is not None
    where = sink.write.location or sink.location
    message, hint = _wording(found, source, sink)
    problem = Problem(found.code, message, hint=hint)
    return problem if where is None else problem.at(where.file, where.line)


def edges(graph: Graph) -> Iterator[tuple[SourceNode, SinkNode]]:
    """Every (source, sink below it) of the whole graph, never of a selection: the risk is the project's."""
    for sink in graph.sinks():
        above = graph.ancestors([sink.id])
        for source in graph.sources():
            if source.id in above:
                yield source, sink


def merges_everywhere(graph: Graph, source: SourceNode) -> bool:
    """Whether every sink below a source merges, so that boundary rows may be read again without harm."""
    return all(sink.write.strategy is WriteStrategy.MERGE for above, sink in edges(graph) if above.id == source.id)


_IN_YAML = """\
use write.strategy: merge (with keys:), or set
write:
  strategy: append
  duplicates: accept
on the output to accept at-least-once delivery"""

_AT_CALL = (
    "use strategy: 'merge' (with keys: [..]) in the call, or sink({names}, strategy: 'append', duplicates: 'accept') to "
    "accept at-least-once delivery"
)


def _merge_or_consent(sink: SinkNode) -> str:
    """The hint in the style in which the output is declared: given in the other place as well it would be PZ0341."""
    where = sink.write.location or sink.location
    if where is None or not where.file.endswith(".sql"):
        return _IN_YAML
    return _AT_CALL.format(names=f"{literal(sink.connection)}, {literal(sink.entity)}")


def _wording(found: Cell, source: SourceNode, sink: SinkNode) -> tuple[str, str]:
    """Message and hint of a refused pair; the wording is part of the contract."""
    fed = f"fed by {found.shape} dataset '{source.key}'"
    if found.code is Code.PZ0214:
        message = f"sink '{sink.name}' has write.strategy: append and is {fed} -- "
        message += "delivery is at-least-once, so a retried or replayed slice can duplicate rows"
        return message, _merge_or_consent(sink)
    message = f"output '{sink.name}': write.strategy '{found.strategy}' {fed} would"
    if found.code is Code.PZ0336:
        return (
            f"{message} leave open what happens to deleted rows.",
            "set on_delete: delete, soft or ignore on the output",
        )
    return f"{message} {found.why}.", _INSTEAD[found.shape]


_INSTEAD = {
    ReadShape.FEED: "use write.strategy: merge (effectively-once)",
    ReadShape.INCREMENTAL: (
        "use write.strategy: merge (effectively-once), or remove the dataset's sync block for a full re-read"
    ),
    ReadShape.CDC: "use write.strategy: merge with keys: and on_delete:",
}
