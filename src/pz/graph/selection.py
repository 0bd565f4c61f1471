"""Which nodes a command means.

    flows       exact node names; each stands for itself and everything above and below it
    select      groups separated by space are united, atoms joined by commas intersected; an atom is ``[+]base[+]``
                with ``tag:x`` (pipelines only), ``source:connection.entity``, or a node name; ``*`` is a wildcard;
                a leading plus adds what is above, a trailing one what is below
    everything  all nodes

What is executed is the selection and all that is above it: `Graph.ancestors` of the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pz.errors import Code, Problem, Problems, ProjectError
from pz.graph.model import Graph, Node, NodeKind, PipelineNode, SourceNode
from pz.project.nearmiss import near_miss

__all__ = ["flow_names", "inlined", "select"]

_ATOM = re.compile(r"(?P<above>\+?)(?:(?P<method>tag|source):)?(?P<pattern>[\w.*/-]+)(?P<below>\+?)")


def select(
    graph: Graph, *, flows: Iterable[str] = (), select: str | None = None, everything: bool = False
) -> frozenset[str]:
    """The ids of the selected nodes, exactly; nothing given means the project's one flow.

    Raises `ProjectError`: PZ0210 for what matches nothing, PZ0215 when there are several flows and none is named,
    PZ0216 when the ways of selecting are mixed.
    """
    named = tuple(flows)
    if sum([bool(named), select is not None, everything]) > 1:
        message = "flow names, --select and --all are three ways to choose; give one"
        raise ProjectError(Problem(Code.PZ0216, message, hint="keep one of the three"))
    if everything:
        return frozenset(graph.by_id)
    if named:
        return _flows(graph, named)
    if select is not None:
        return _selected(graph, select)
    if len(graph.components()) > 1:
        message = f"the project has {len(graph.components())} unconnected flows; say which to run"
        hint = f"name one ({', '.join(flow_names(graph))}), choose with --select, or run everything with --all"
        raise ProjectError(Problem(Code.PZ0215, message, hint=hint))
    return frozenset(graph.by_id)


def flow_names(graph: Graph) -> tuple[str, ...]:
    """A name for each flow: its last pipeline's, which names it and nothing else."""
    names = []
    for component in graph.components():
        nodes = graph.in_order(component)
        pipelines = [node.name for node in nodes if node.kind is NodeKind.PIPELINE]
        names.append((pipelines or [node.name for node in nodes])[-1])
    return tuple(names)


def _flows(graph: Graph, names: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    problems = Problems()
    for name in names:
        matching = [node.id for node in graph.nodes if node.name == name]
        if not matching:
            problems.add(inlined(graph, name) or _unknown_flow(graph, name))
        found |= graph.ancestors(matching) | graph.descendants(matching)
    problems.raise_errors()
    return frozenset(found)


def inlined(graph: Graph, name: str) -> Problem | None:
    """PZ0210 for the name of an ephemeral pipeline, which is no node; None for any other name."""
    if name not in graph.ephemeral:
        return None
    message = f"pipeline '{name}' is ephemeral: it is inlined where it is used, and is no node of its own"
    return Problem(Code.PZ0210, message, hint=f"name a pipeline that uses it; see its rows with: pz show {name}")


def _unknown_flow(graph: Graph, name: str) -> Problem:
    close = near_miss(name, [*(node.name for node in graph.nodes), *graph.ephemeral])
    hint = f"did you mean '{close}'?" if close is not None else f"the flows are: {', '.join(flow_names(graph))}"
    return Problem(Code.PZ0210, f"no flow or node is called '{name}'", hint=hint)


def _selected(graph: Graph, text: str) -> frozenset[str]:
    found: set[str] = set()
    problems = Problems()
    groups = text.split()
    if not groups:
        problems.error(
            Code.PZ0210, "the selection is empty", hint="name a node, tag:<tag> or source:<connection>.<entity>"
        )
    for group in groups:
        atoms = [_atom(graph, atom, problems) for atom in group.split(",")]
        both = frozenset.intersection(*atoms)
        if not both and all(atoms):
            hint = f"a comma asks for what is in both; for either, write a blank: '{group.replace(',', ' ')}'"
            problems.error(Code.PZ0210, f"nothing is in all of '{group}'", hint=hint)
        found |= both
    problems.raise_errors()
    return frozenset(found)


def _atom(graph: Graph, text: str, problems: Problems) -> frozenset[str]:
    match = _ATOM.fullmatch(text)
    if match is None:
        hint = "an atom is [+]name[+], [+]tag:name[+] or [+]source:connection.entity[+]; * stands for anything"
        problems.error(Code.PZ0210, f"'{text}' is no selector", hint=hint)
        return frozenset()
    matching = frozenset(node.id for node in graph.nodes if _matches(node, match["method"], match["pattern"]))
    if not matching:
        hint = _atom_hint(graph, match["method"], match["pattern"])
        unmatched = Problem(Code.PZ0210, f"selector '{text}' matches no node", hint=hint)
        problems.add((match["method"] is None and inlined(graph, match["pattern"])) or unmatched)
    above = graph.ancestors(matching) if match["above"] else frozenset()
    below = graph.descendants(matching) if match["below"] else frozenset()
    return matching | above | below


def _matches(node: Node, method: str | None, pattern: str) -> bool:
    if method == "tag":
        return isinstance(node, PipelineNode) and pattern in node.tags
    if method == "source":
        return isinstance(node, SourceNode) and _fits(pattern, node.key)
    return _fits(pattern, node.name)


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _atom_hint(graph: Graph, method: str | None, pattern: str) -> str:
    if method == "tag":
        known = sorted({tag for node in graph.nodes if isinstance(node, PipelineNode) for tag in node.tags})
    elif method == "source":
        known = [node.key for node in graph.sources()]
    else:
        known = [node.name for node in graph.nodes]
    close = near_miss(pattern, known)
    if close is not None:
        return f"did you mean '{close}'?"
    return f"known here: {', '.join(known)}" if known and len(known) <= 20 else "pz ls lists what there is"
