"""Verdicts over the whole graph: the pairing matrix, and whether deletes find their way to the output."""

from __future__ import annotations

from collections.abc import Mapping

from pz.connectors.contract import OnDelete, ReadShape, WriteStrategy
from pz.errors import Code, Problem, Problems, Severity
from pz.graph.delivery import edges, refusal
from pz.graph.lineage import output_origin
from pz.graph.model import Graph, SinkNode, SourceNode
from pz.graph.sqltree import SqlNode
from pz.graph.understand import Understood

__all__ = ["judge", "lost_in"]


def judge(graph: Graph, understood: Understood, problems: Problems) -> None:
    """Report every pair that would lose or silently duplicate rows, and every delete that cannot be routed.

    Reads that only the connector can resolve (``auto``) are the planner's to judge.
    """
    trees = {name: pipeline.statement for name, pipeline in understood.pipelines.items()}
    sources: dict[str, list[SourceNode]] = {sink.id: [] for sink in graph.sinks()}
    for source, sink in edges(graph):
        sources[sink.id].append(source)
        _judge_pair(source, sink, problems)
    for sink in graph.sinks():
        _judge_deletes(sink, sources[sink.id], trees, problems)


def _judge_pair(source: SourceNode, sink: SinkNode, problems: Problems) -> None:
    if source.declared_shape is not None:
        problem = refusal(source.declared_shape, source, sink)
        if problem is not None:
            problems.add(problem)
        return
    unsure = source.read.sync.explicit and source.declared_shape is None
    if unsure and sink.write.strategy is not WriteStrategy.MERGE and not sink.write.duplicates_accepted:
        problems.add(_may_repeat(source, sink))


def _may_repeat(source: SourceNode, sink: SinkNode) -> Problem:
    """An explicit ``auto`` may turn out to be a feed; the plan will tell."""
    where = sink.write.location or sink.location
    message = (
        f"output '{sink.name}' has write.strategy: {sink.write.strategy} and is fed by dataset '{source.key}' with sync "
        "mode auto; if the connector resumes it as a feed, the plan will refuse that"
    )
    hint = "use write.strategy: merge, or record duplicates: accept on an append output"
    note = Problem(Code.PZ0214, message, hint=hint, severity=Severity.NOTE)
    return note if where is None else note.at(where.file, where.line)


def _judge_deletes(sink: SinkNode, sources: list[SourceNode], trees: Mapping[str, SqlNode], problems: Problems) -> None:
    """PZ0337: ``on_delete`` needs one cdc dataset above, and with delete or soft every key straight from it."""
    write = sink.write
    if write.on_delete is None or write.strategy is not WriteStrategy.MERGE:
        return
    where = write.location or sink.location

    def error(message: str, hint: str) -> None:
        problem = Problem(Code.PZ0337, f"output '{sink.name}': {message}", hint=hint)
        problems.add(problem if where is None else problem.at(where.file, where.line))

    captured = [source for source in sources if source.declared_shape is ReadShape.CDC]
    if not captured:
        error(
            "on_delete is set, but no cdc dataset feeds it",
            "drop on_delete, or read the source with sync mode cdc; a full read that is to leave just its rows is a replace",
        )
    elif write.on_delete is not OnDelete.IGNORE and len(sources) > 1:
        names = ", ".join(sorted(source.key for source in sources))
        error(
            f"on_delete {write.on_delete} needs exactly one dataset above it, but there are {len(sources)}: {names}",
            "use on_delete: ignore, or let one cdc dataset alone feed this output",
        )
    elif write.on_delete is not OnDelete.IGNORE:
        for key in write.keys:
            lost = lost_in(sink.pipeline, key, captured[0], trees)
            if lost is not None:
                error(
                    f"key '{key}' does not come unchanged, and under the same name, from cdc dataset "
                    f"'{captured[0].key}': it is lost in pipeline '{lost}'",
                    "deletes do not pass through the SQL; select the key columns bare, with a qualified name in a join",
                )


def lost_in(pipeline: str, key: str, source: SourceNode, trees: Mapping[str, SqlNode]) -> str | None:
    """The pipeline in which a key column stops being the source's own column of that name; None when it never does."""
    by_table = {f"staging.{name.lower()}": name for name in trees if name != pipeline}
    while True:
        origin = output_origin(trees[pipeline]["node"], {}, key)
        if origin is None or origin[1].lower() != key.lower():
            return pipeline
        if origin[0] == f"staging.{source.relation.lower()}":
            return None
        above = by_table.pop(origin[0], None)
        if above is None:
            return pipeline
        pipeline = above
