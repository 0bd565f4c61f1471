"""Who reads and writes what: the calls of rendered pipelines bound to one declaration per dataset and output.

Ephemeral pipelines have no node: what they read and refer to counts for each pipeline that they are inlined into.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from pz.errors import Code, Problems
from pz.frozen import frozen
from pz.project.identifiers import source_relation
from pz.project.model import Location, Materialization, PipelineDecl, Project, ReadDecl, SyncMode, WriteDecl
from pz.project.templates import RefCall, Rendered, SinkCall, SourceCall, WatermarkCall

__all__ = ["Bindings", "BoundPipeline", "Dataset", "Output", "bind_declarations"]


@frozen
class Dataset:
    """What is read under one key, the pipelines that read it, and where the first of them calls for it."""

    connection: str
    entity: str
    read: ReadDecl
    location: Location
    readers: tuple[str, ...]

    @property
    def key(self) -> str:
        """``<connection>.<entity>``."""
        return f"{self.connection}.{self.entity}"

    @property
    def relation(self) -> str:
        """The table in schema ``staging``."""
        return source_relation(self.connection, self.entity)

    @property
    def where(self) -> Location:
        """Where the read is declared, else where it is called."""
        return self.read.location or self.location


@frozen
class Output:
    """One output with its writing pipeline and the place of its sink() call."""

    connection: str
    entity: str
    write: WriteDecl
    location: Location
    pipeline: str

    @property
    def name(self) -> str:
        """``<connection>.<entity>``."""
        return f"{self.connection}.{self.entity}"

    @property
    def where(self) -> Location:
        """Where the write is declared, else where it is called."""
        return self.write.location or self.location


@frozen
class BoundPipeline:
    """A pipeline with everything that is inlined into it. ``inlined`` are the ephemeral names, in order of mention."""

    decl: PipelineDecl
    rendered: Rendered
    sources: tuple[SourceCall, ...]
    refs: tuple[RefCall, ...]
    watermarks: tuple[WatermarkCall, ...]
    inlined: tuple[str, ...]

    @property
    def reads(self) -> Mapping[str, str]:
        """Staging relation by dataset key."""
        calls = self.sources
        return {f"{c.connection}.{c.entity}": source_relation(c.connection, c.entity) for c in calls}


@frozen(slots=False)
class Bindings:
    """All pipelines that become nodes, all ephemeral ones, and all datasets and outputs that are used."""

    pipelines: Mapping[str, BoundPipeline]
    ephemeral: Mapping[str, Rendered] = field(default_factory=dict)
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()


def bind_declarations(project: Project, rendered: Mapping[str, Rendered], problems: Problems) -> Bindings:
    """Bind the calls of all pipelines. Reports names that clash, second writers and second readers."""
    ephemeral = {n: r for n, r in rendered.items() if _is_ephemeral(project, n)}
    for name, result in ephemeral.items():
        _check_ephemeral(project.pipelines[name], result, ephemeral, problems)
    pipelines = {
        name: _with_inlined(project.pipelines[name], result, ephemeral)
        for name, result in rendered.items()
        if name not in ephemeral
    }
    datasets = _datasets(project, pipelines)
    outputs = tuple(_outputs(project, pipelines))
    _check_relations(project, datasets, problems)
    _check_single_reader(project, datasets, problems)
    _check_single_writer(outputs, problems)
    return Bindings(pipelines, ephemeral, datasets, outputs)


def _is_ephemeral(project: Project, name: str) -> bool:
    return project.pipelines[name].materialization is Materialization.EPHEMERAL


def _check_ephemeral(
    pipeline: PipelineDecl, rendered: Rendered, ephemeral: Mapping[str, Rendered], problems: Problems
) -> None:
    file = pipeline.location.file
    for ref in rendered.refs:
        if ref.pipeline in ephemeral:
            message = f"ephemeral pipeline '{pipeline.name}' refers to ephemeral pipeline '{ref.pipeline}'"
            hint = "make one of them a table or a view"
            problems.error(Code.PZ0204, message, file=ref.location.file, line=ref.location.line, hint=hint)
    if pipeline.checks:
        where = pipeline.checks[0].location
        message = f"ephemeral pipeline '{pipeline.name}' has checks, but no relation that they could look at"
        hint = "make it a table or a view, or check the pipeline that uses it"
        at = (file, None) if where is None else (where.file, where.line)
        problems.error(Code.PZ0205, message, file=at[0], line=at[1], hint=hint)


def _with_inlined(pipeline: PipelineDecl, own: Rendered, ephemeral: Mapping[str, Rendered]) -> BoundPipeline:
    inlined = tuple(dict.fromkeys(ref.pipeline for ref in own.refs if ref.pipeline in ephemeral))
    parts = (own, *(ephemeral[name] for name in inlined))
    return BoundPipeline(
        decl=pipeline,
        rendered=own,
        sources=tuple(call for part in parts for call in part.sources),
        refs=tuple(ref for part in parts for ref in part.refs if ref.pipeline not in ephemeral),
        watermarks=tuple(call for part in parts for call in part.watermarks),
        inlined=inlined,
    )


def _datasets(project: Project, pipelines: Mapping[str, BoundPipeline]) -> dict[str, Dataset]:
    found: dict[str, Dataset] = {}
    for name in sorted(pipelines):
        for call in pipelines[name].sources:
            key = f"{call.connection}.{call.entity}"
            known = found.get(key)
            if known is None:
                entity = project.connections[call.connection].entities.get(call.entity)
                declared = call.decl or (entity.read if entity is not None else None)
                found[key] = Dataset(call.connection, call.entity, declared or ReadDecl(), call.location, (name,))
                continue
            read = call.decl if call.decl is not None else known.read
            readers = known.readers if name in known.readers else (*known.readers, name)
            found[key] = replace(known, read=read, readers=readers)
    return found


def _outputs(project: Project, pipelines: Mapping[str, BoundPipeline]) -> Iterator[Output]:
    for name in sorted(pipelines):
        for call in pipelines[name].rendered.sinks:
            yield Output(call.connection, call.entity, _write_decl(project, call), call.location, name)


def _write_decl(project: Project, call: SinkCall) -> WriteDecl:
    entity = project.connections[call.connection].entities.get(call.entity)
    return call.decl or (entity.write if entity is not None else None) or WriteDecl()


def _check_relations(project: Project, datasets: Mapping[str, Dataset], problems: Problems) -> None:
    """Refuse two things that would be one staging table: names are folded, and DuckDB ignores case."""
    taken: dict[str, Dataset] = {}
    for dataset in datasets.values():
        for relation in _relations_of(dataset):
            other = taken.setdefault(relation.lower(), dataset)
            if other is not dataset:
                message = f"datasets '{other.key}' and '{dataset.key}' would both be staged as 'staging.{relation}'"
                hint = "rename one of the two, or read it through a view with another name"
                where = dataset.where
                problems.error(Code.PZ0110, message, file=where.file, line=where.line, hint=hint)
    for pipeline in project.pipelines.values():
        clash = taken.get(pipeline.name.lower())
        if clash is not None:
            message = f"pipeline '{pipeline.name}' has the name under which dataset '{clash.key}' is staged"
            problems.error(Code.PZ0230, message, file=pipeline.location.file, hint="rename the pipeline's file")


def _relations_of(dataset: Dataset) -> tuple[str, ...]:
    """The relations of a dataset in staging; change capture has some of its own."""
    if dataset.read.sync.mode is not SyncMode.CDC:
        return (dataset.relation,)
    return (dataset.relation, *(dataset.relation + suffix for suffix in ("__changes", "__deletes", "__unchanged")))


def _check_single_reader(project: Project, datasets: Mapping[str, Dataset], problems: Problems) -> None:
    for dataset in datasets.values():
        if len(dataset.readers) > 1:
            readers = ", ".join(sorted(dataset.readers))
            message = f"dataset '{dataset.key}' is read by {len(dataset.readers)} pipelines: {readers}"
            hint = _staging_pipeline(project, dataset)
            where = dataset.location
            problems.error(Code.PZ0349, message, file=where.file, line=where.line, hint=hint)


def _staging_pipeline(project: Project, dataset: Dataset) -> str:
    """The pipeline to add, ready to paste."""
    folded = dataset.relation.removeprefix("src_").partition("__")[2].lower()
    names = (f"stg_{folded}", f"stg_{dataset.connection}_{folded}".lower(), f"stg_{dataset.relation}".lower())
    taken = {name.lower() for name in project.pipelines}
    name = next((name for name in names if name not in taken), names[-1])
    call = f"source('{dataset.connection}', '{dataset.entity}')"
    return (
        f"stage it once, in pipelines/{name}.sql:\n"
        f"SELECT * FROM {{{{ {call} }}}}\n"
        f"and read {{{{ ref('{name}') }}}} in {' and '.join(sorted(dataset.readers))}"
    )


def _check_single_writer(outputs: Iterable[Output], problems: Problems) -> None:
    first: dict[str, Output] = {}
    for output in outputs:
        other = first.setdefault(output.name, output)
        if other is not output:
            message = f"output '{output.name}' is written by '{other.pipeline}' and again by '{output.pipeline}'"
            hint = "keep one writer; UNION the two queries, or write to two outputs"
            where = output.location
            problems.error(Code.PZ0206, message, file=where.file, line=where.line, hint=hint)
