"""``pipelines/configs/*.yml``: materialisation, tags and checks of the pipeline that the file names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pz.errors import Code, Problems
from pz.frozen import frozen
from pz.project.checks import parse_checks
from pz.project.fields import Fields
from pz.project.keys import SIDECAR
from pz.project.model import CheckDecl, Location, Materialization
from pz.project.nearmiss import did_you_mean, near_miss
from pz.project.yaml_source import Block

__all__ = ["Sidecar", "parse_sidecar"]


@frozen
class Sidecar:
    """What one sidecar says about its pipeline."""

    pipeline: str
    materialization: Materialization
    tags: tuple[str, ...]
    checks: tuple[CheckDecl, ...]
    location: Location


def parse_sidecar(root: Block, file: str, pipelines: Collection[str], problems: Problems) -> Sidecar | None:
    """One sidecar; None when it does not say which pipeline it is for, or names one that no SQL file defines."""
    fields = Fields(root, SIDECAR, Code.PZ0101, "", file, problems)
    fields.refuse_unknown()
    fields.require()
    pipeline = fields.text("pipeline")
    materialization = _materialization(fields)
    tags = fields.words("tags") or ()
    checks = parse_checks(fields)
    if pipeline is None:
        return None
    if pipeline not in pipelines:
        close = near_miss(pipeline, pipelines)
        hint = did_you_mean(pipeline, pipelines) if close else f"add pipelines/{pipeline}.sql, or remove this file"
        fields.report("pipeline", f"no SQL file defines pipeline '{pipeline}'", hint=hint, code=Code.PZ0111)
        return None
    return Sidecar(pipeline, materialization, tags, checks, Location(file, root.line_of("pipeline")))


def _materialization(fields: Fields) -> Materialization:
    own = Fields(fields.block, fields.keys, Code.PZ0134, "", fields.file, fields.problems)
    return own.choice("materialization", Materialization) or Materialization.TABLE


def refuse_second(sidecar: Sidecar, earlier: Mapping[str, Sidecar], problems: Problems) -> bool:
    """Report that a pipeline has two sidecars; True when it has."""
    first = earlier.get(sidecar.pipeline)
    if first is None:
        return False
    message = f"pipeline '{sidecar.pipeline}' is configured here and in '{first.location.file}'"
    problems.error(Code.PZ0101, message, file=sidecar.location.file, line=sidecar.location.line, hint="keep one file")
    return True
