"""From a folder of YAML and SQL to a typed project, with every error of all files at once.

    project.yml                required
    connections.yml            optional: absent means no connections
    pipelines/**/*.sql         a pipeline each, named by the file's stem; nothing below a folder called configs
    pipelines/configs/*.yml    what else there is to say about a pipeline, bound by its ``pipeline`` key

Files and folders whose names begin with a dot are not looked at. Nothing is written, no connection is opened, and no
connector is asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pz.errors import Code, Problem, Problems, ProjectError
from pz.frozen import frozen
from pz.project import settings
from pz.project.connections import parse_connections
from pz.project.identifiers import pipeline_name_problem
from pz.project.model import Location, PipelineDecl, Project
from pz.project.nearmiss import near_miss
from pz.project.sidecars import Sidecar, parse_sidecar, refuse_second
from pz.project.yaml_source import Block, read_text, read_yaml
from pz.sqltext import printable, unfit

__all__ = ["Loaded", "load", "require_project"]

PROJECT_FILE = "project.yml"
CONNECTIONS_FILE = "connections.yml"
PIPELINES = "pipelines"
CONFIGS = "configs"


@frozen
class Loaded:
    """A project and what was noticed while it was read. ``undeclared``: overridden variables that it does not declare."""

    project: Project
    warnings: tuple[Problem, ...] = ()
    undeclared: tuple[str, ...] = ()


def load(
    root: str | os.PathLike[str],
    *,
    vars_override: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Load the project in the folder ``root``.

    ``vars_override`` replaces single ``vars`` by name; ``environ`` (default: the process's) supplies ``${NAME}``.
    Raises `ProjectError` with all errors of all files, ordered by file and line.
    """
    folder = Path(root).absolute()
    require_project(folder)
    if unfit(str(folder)):
        message = f"the path of the project is not UTF-8 text: '{printable(str(folder))}'"
        raise ProjectError(Problem(Code.PZ0101, message, hint="move it below folders with names in UTF-8"))
    problems = Problems()
    project = _project(folder, os.environ if environ is None else environ, problems)
    overrides = vars_override or {}
    undeclared = tuple(name for name in overrides if name not in project.vars)
    project = replace(project, vars={**project.vars, **overrides})
    project = replace(project, pipelines=_pipelines(folder, problems))
    _warn_about_ignored_files(folder, problems)
    problems.raise_errors()
    return Loaded(project, problems.warnings, undeclared)


def require_project(folder: Path) -> None:
    """Raise `ProjectError` PZ0101 where there is no project, PZ0531 where nobody may look."""
    try:
        present = (folder / PROJECT_FILE).exists()
    except PermissionError as error:
        raise ProjectError(Problem(Code.PZ0531, f"'{folder}' may not be read: permission denied")) from error
    if present:
        return
    misnamed = _misnamed(folder, PROJECT_FILE)
    if misnamed is not None:
        hint = f"rename {misnamed} to {PROJECT_FILE}"
    elif folder.is_dir():
        hint = "run pz in a project's folder, name one with --project, or make one with pz init <name>"
    else:
        hint = "check the path, or make a project there with pz init <name>"
    raise ProjectError(Problem(Code.PZ0101, f"no {PROJECT_FILE} in '{folder}'", hint=hint))


def _project(folder: Path, environ: Mapping[str, str], problems: Problems) -> Project:
    block = read_yaml(folder / PROJECT_FILE, PROJECT_FILE, problems)
    connections = _connections(folder, environ, problems)
    if block is None:
        return Project(folder, "", "", connections=connections)
    fields = settings.project_fields(block, PROJECT_FILE, problems)
    settings.check_state(fields)
    return Project(
        root=folder,
        name=settings.parse_name(fields, "name"),
        version=settings.parse_name(fields, "version"),
        vars=settings.parse_vars(fields, environ),
        engine=settings.parse_engine(fields),
        keep_last=settings.parse_retention(fields),
        on_source_drift=settings.parse_drift(fields),
        connectors=settings.parse_connectors(fields),
        connections=connections,
    )


def _connections(folder: Path, environ: Mapping[str, str], problems: Problems) -> Mapping[str, Any]:
    path = folder / CONNECTIONS_FILE
    if not os.path.lexists(path) and (misnamed := _misnamed(folder, CONNECTIONS_FILE)) is not None:
        # An error: with the warning alone, every connection that a pipeline names would be told as unknown.
        hint = f"rename it to {CONNECTIONS_FILE}"
        problems.error(Code.PZ0135, f"'{misnamed}' is not read", file=misnamed, hint=hint)
    block = read_yaml(path, CONNECTIONS_FILE, problems) if os.path.lexists(path) else None
    return {} if block is None else parse_connections(block, CONNECTIONS_FILE, environ, problems)


def _pipelines(folder: Path, problems: Problems) -> dict[str, PipelineDecl]:
    found: dict[str, PipelineDecl] = {}
    by_case: dict[str, PipelineDecl] = {}
    for file in _walk(folder / PIPELINES, folder, problems):
        if not file.endswith(".sql") or CONFIGS in Path(file).parts[:-1]:
            continue
        pipeline = _pipeline(folder, file, problems)
        first = by_case.setdefault(pipeline.name.lower(), pipeline)
        if first is not pipeline:
            message = f"pipelines '{first.name}' ({first.location.file}) and '{pipeline.name}' have the same name"
            problems.error(
                Code.PZ0110, message, file=file, hint="rename one of the two files; case does not tell them apart"
            )
            continue
        found[pipeline.name] = pipeline
    return {name: _with_sidecar(found[name], side) for name, side in _sidecars(folder, found, problems).items()}


def _pipeline(folder: Path, file: str, problems: Problems) -> PipelineDecl:
    name = Path(file).stem
    trouble = pipeline_name_problem(name)
    if trouble is not None:
        problems.error(Code.PZ0136, trouble[0], file=file, hint=trouble[1])
    text = read_text(folder / file, file, problems, code=Code.PZ0104)
    return PipelineDecl(name, (text or "").rstrip(), Location(file))


def _sidecars(folder: Path, pipelines: Mapping[str, PipelineDecl], problems: Problems) -> dict[str, Sidecar | None]:
    """Every pipeline with its sidecar, if it has one."""
    found: dict[str, Sidecar] = {}
    configs = folder / PIPELINES / CONFIGS
    for file in _walk(configs, folder, problems):
        if not file.endswith(".yml") or (folder / file).parent != configs:
            continue
        block: Block | None = read_yaml(folder / file, file, problems)
        sidecar = None if block is None else parse_sidecar(block, file, list(pipelines), problems)
        if sidecar is not None and not refuse_second(sidecar, found, problems):
            found[sidecar.pipeline] = sidecar
    return {name: found.get(name) for name in pipelines}


def _with_sidecar(pipeline: PipelineDecl, sidecar: Sidecar | None) -> PipelineDecl:
    if sidecar is None:
        return pipeline
    return replace(pipeline, materialization=sidecar.materialization, tags=sidecar.tags, checks=sidecar.checks)


def _misnamed(folder: Path, name: str) -> str | None:
    """The file that was most likely meant to be ``name``, which is not there: ``.yaml``, another case, a slip of the pen."""
    wanted = Path(name).stem
    try:
        present = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in (".yml", ".yaml"))
    except OSError:
        return None
    stems = {file: Path(file).stem for file in present}
    return next((file for file, stem in stems.items() if stem == wanted or near_miss(stem, [wanted]) == wanted), None)


def _warn_about_ignored_files(folder: Path, problems: Problems) -> None:
    """PZ0135: YAML that looks as if it were part of the project and is not read."""
    for name in ("project", "connections"):
        if (folder / f"{name}.yaml").exists():
            _ignored(f"{name}.yaml", f"rename it to {name}.yml", problems)
    configs = f"{PIPELINES}/{CONFIGS}"
    for file in _walk(folder / PIPELINES, folder, Problems()):
        path = Path(file)
        in_place = path.parent.as_posix() == configs
        if path.suffix == ".yaml" and in_place:
            _ignored(file, f"rename it to {path.stem}.yml", problems)
        elif path.suffix in (".yml", ".yaml") and not in_place:
            _ignored(file, f"move it to {configs}/{path.stem}.yml", problems)


def _ignored(file: str, hint: str, problems: Problems) -> None:
    problems.warn(Code.PZ0135, f"'{file}' is not read", file=file, hint=hint)


def _walk(top: Path, folder: Path, problems: Problems) -> Iterator[str]:
    """All files below ``top`` as paths relative to the project, sorted; links to folders are not followed."""
    denied: list[OSError] = []
    files: list[str] = []
    for here, folders, found in os.walk(top, onerror=denied.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        base = Path(here).relative_to(folder)
        files.extend((base / name).as_posix() for name in found if not name.startswith("."))
    for error in denied:
        if isinstance(error, PermissionError):
            where = Path(error.filename).relative_to(folder).as_posix()
            problems.error(Code.PZ0531, f"'{where}' may not be read: permission denied", file=where)
    yield from sorted(files)
