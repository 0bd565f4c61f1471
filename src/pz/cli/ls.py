"""``pz ls``."""

from __future__ import annotations

from typing import Any

from pz.cli.command import Group, Invocation, verb
from pz.cli.failures import ExitCode, print_problems
from pz.cli.help import Page
from pz.cli.jsontext import to_json
from pz.cli.options import AsJson, Select
from pz.cli.output import printable
from pz.cli.render.table import print_table
from pz.graph.model import CheckNode, Graph, Node, PipelineNode, SinkNode, SourceNode

_PAGE = Page(
    "List the nodes of the project.",
    """Prints what the project compiles to, parents before children: loads, pipelines, checks and sink writes, what each is, what
    it needs, and where it is written.""",
    (
        ("pz ls", "everything"),
        ("pz ls --select 'tag:daily+'", "tagged pipelines and what lies below"),
        ("pz ls --json", "for programs, ids included"),
    ),
)


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "ls", _PAGE, panel=panel)(ls)


def ls(cli: Invocation, select: Select = None, as_json: AsJson = False) -> int:
    """List nodes."""
    from pz.arguments import united

    compiled = cli.open().compile()
    graph: Graph = compiled.graph
    facts = [_facts(graph, node) for node in selected(graph, united(select))]
    if as_json:
        cli.output.out.write(to_json(facts))
    else:
        rows = [(f["name"], f["kind"], f["how"], ", ".join(f["needs"]), f["where"]) for f in facts]
        print_table(cli.output, ("node", "kind", "how", "needs", "where"), rows)
    print_problems(compiled.warnings, cli.output, quiet=cli.quiet)
    if graph.ephemeral and not select and not cli.quiet:
        inlined = ", ".join(sorted(graph.ephemeral))
        cli.output.err.line(printable(f"note: ephemeral, so inlined where they are used and no nodes: {inlined}"))
    return ExitCode.OK


def selected(graph: Graph, select: str | None) -> tuple[Node, ...]:
    """The nodes that a selector names, no more; all without one. Raises PZ0210."""
    from pz.graph.selection import select as choose

    return graph.nodes if select is None else graph.in_order(choose(graph, select=select))


def _facts(graph: Graph, node: Node) -> dict[str, Any]:
    where = node.location
    return {
        "id": node.id,
        "kind": node.kind.value,
        "name": node.name,
        "how": _how(node),
        "needs": [graph.by_id[parent].name for parent in node.parents],
        "tags": list(node.tags) if isinstance(node, PipelineNode) else [],
        "where": "" if where is None else where.file if where.line is None else f"{where.file}:{where.line}",
    }


def _how(node: Node) -> str:
    """In a word or two: the read mode, the materialisation, the check, the write strategy with its keys."""
    match node:
        case SourceNode():
            shape = "auto" if node.declared_shape is None else node.declared_shape.value
            cursor = node.read.sync.cursor
            return f"{shape} by {cursor}" if cursor else shape
        case PipelineNode():
            return node.materialization.value
        case CheckNode():
            return node.check.kind.value
        case SinkNode():
            keys = ", ".join(node.write.keys)
            return f"{node.write.strategy.value} on {keys}" if keys else node.write.strategy.value
    return ""
