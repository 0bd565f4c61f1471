"""``pz compile``."""

from __future__ import annotations

from pathlib import Path

from pz.cli.command import Group, Invocation, verb
from pz.cli.failures import ExitCode, print_problems
from pz.cli.help import Page
from pz.cli.jsontext import to_json
from pz.cli.ls import selected
from pz.cli.options import Select
from pz.cli.render.lines import counted
from pz.durable import Step, remove, write_atomic
from pz.graph.model import Graph, PipelineNode

_PAGE = Page(
    "Compile the project and write what came of it.",
    """Loads the project, renders the templates, builds the graph and judges every pairing of source and sink. Writes
    .pz/target/manifest.json (nodes, edges, ids) and the SQL of each pipeline as DuckDB will get it, ephemeral pipelines
    inlined, to .pz/target/compiled/. Nothing is opened or asked; env() values do reach the compiled SQL.""",
    (
        ("pz compile", "everything"),
        ("pz compile --select orders_enriched", "the SQL of one pipeline"),
    ),
)


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "compile", _PAGE, panel=panel)(compile_project)


def compile_project(cli: Invocation, select: Select = None) -> int:
    """Compile."""
    from pz.arguments import united

    project = cli.open()
    compiled = project.compile()
    target = project.root / ".pz" / "target"
    names = write_target(target, compiled.graph, united(select))
    print_problems(compiled.warnings, cli.output, quiet=cli.quiet)
    if not cli.quiet:
        cli.output.out.line(f"compiled {counted(len(compiled.graph.nodes), 'node')}: {target / 'manifest.json'}")
        for name in names:
            cli.output.out.line(f"  {target / 'compiled' / name}.sql")
    return ExitCode.OK


def write_target(target: Path, graph: Graph, select: str | None) -> list[str]:
    """Write the manifest and the SQL of the selected pipelines; return the pipelines' names.

    Without a selection, SQL of pipelines that are gone is removed.
    """
    from pz.graph.manifest import (
        compiled_sql,
        manifest,
    )

    texts: dict[str, str] = compiled_sql(graph)
    names = [node.name for node in selected(graph, select) if isinstance(node, PipelineNode)]
    folder = target / "compiled"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(target / "manifest.json", to_json(manifest(graph)).encode(), Step.WRITE_MANIFEST)
    for name in names:
        write_atomic(folder / f"{name}.sql", texts[name].encode(), Step.WRITE_MANIFEST)
    if select is None:
        for path in folder.glob("*.sql"):
            if path.stem not in names:
                remove(path, Step.WRITE_MANIFEST)
    return names
