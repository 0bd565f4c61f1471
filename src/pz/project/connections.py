"""``connections.yml``: every top-level key is a connection; what the engine does not own there is its connector's.

``${NAME}`` is substituted in the connector's settings only. In the engine's keys and below ``entities`` it is literal
text; below ``entities`` that is worth a warning (PZ0133), since nobody means it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pz.errors import Code, Problems
from pz.project.declarations import entity_name_problem, misplaced, parse_read, parse_write
from pz.project.fields import Fields
from pz.project.identifiers import connection_name_problem
from pz.project.interpolation import interpolate, references
from pz.project.keys import CONNECTION, ENTITY, names
from pz.project.model import ConnectionDecl, EntityDecl, Location
from pz.project.nearmiss import near_miss
from pz.project.pacing import parse_rate_limit, parse_retry
from pz.project.yaml_source import Block, Item, Scalar, plain_value

__all__ = ["parse_connections"]


def parse_connections(
    root: Block, file: str, environ: Mapping[str, str], problems: Problems
) -> dict[str, ConnectionDecl]:
    """All connections of the file; what is wrong is reported and replaced by its default."""
    found: dict[str, ConnectionDecl] = {}
    for name, item in root.entries.items():
        line = root.line_of(name)
        trouble = connection_name_problem(name)
        if trouble is not None:
            problems.error(Code.PZ0136, trouble[0], file=file, line=line, hint=trouble[1])
        if not isinstance(item, Block):
            message = f"connection '{name}' must be a mapping, not {item.kind}"
            problems.error(Code.PZ0101, message, file=file, line=line, hint="give it at least a connector")
            continue
        fields = Fields(item.at(line), CONNECTION, Code.PZ0101, name, file, problems)
        found[name] = _connection(name, fields, environ)
    return found


def _connection(name: str, fields: Fields, environ: Mapping[str, str]) -> ConnectionDecl:
    fields.require()
    fields.flag("allow_unsigned_extensions")
    return ConnectionDecl(
        name=name,
        connector=fields.text("connector") or "",
        options=_options(fields, environ),
        entities=_entities(fields),
        max_concurrency=_max_concurrency(fields),
        rate_limit=parse_rate_limit(fields),
        retry=parse_retry(fields),
        location=fields.location,
    )


def _options(fields: Fields, environ: Mapping[str, str]) -> dict[str, Any]:
    """The connector's own settings; also warns about one that was most likely meant for the engine."""
    owned = names(CONNECTION)
    own = {key: item for key, item in fields.block.entries.items() if key not in owned and fields.get(key) is not None}
    for key in own:
        close = near_miss(key, owned)
        if close is not None:
            line = fields.block.line_of(key)
            message = f"'{fields.path(key)}' is passed to the connector as its own option"
            fields.problems.warn(Code.PZ0101, message, file=fields.file, line=line, hint=f"did you mean '{close}'?")
    return {key: plain_value(interpolate(item, environ, fields.file, fields.problems)) for key, item in own.items()}


def _max_concurrency(fields: Fields) -> int | None:
    own = Fields(fields.block, fields.keys, Code.PZ0122, fields.what, fields.file, fields.problems)
    return own.whole("max_concurrency", 1)


def _entities(fields: Fields) -> dict[str, EntityDecl]:
    item = fields.get("entities")
    if item is None:
        return {}
    if not isinstance(item, Block):
        fields.wrong("entities", "a mapping of names")
        return {}
    found: dict[str, EntityDecl] = {}
    for name, body in item.entries.items():
        line = item.line_of(name)
        trouble = entity_name_problem(name)
        if trouble is not None:
            message = f"connection '{fields.what}': {trouble}"
            fields.problems.error(
                Code.PZ0344, message, file=fields.file, line=line, hint="spell it as the remote system does"
            )
        entity = _entity(name, body, line, fields)
        if entity is not None:
            found[name] = entity
    return found


def _entity(name: str, body: Item, line: int | None, owner: Fields) -> EntityDecl | None:
    location = Location(owner.file, line)
    what = f"{owner.what}.{name}"
    if isinstance(body, Scalar) and body.empty:
        return EntityDecl(name, location=location)
    if not isinstance(body, Block):
        message = f"entity '{what}' must be a mapping with read or write, not {body.kind}"
        owner.problems.error(Code.PZ0101, message, file=owner.file, line=line, hint="write read: or write: below it")
        return None
    _warn_about_references(body, what, owner)
    entries = {key: item for key, item in body.entries.items() if key not in ("rate_limit", "max_concurrency")}
    misplaced(Fields(body, ENTITY, Code.PZ0101, what, owner.file, owner.problems), body.entries)
    fields = Fields(Block(entries, line, body.key_lines), ENTITY, Code.PZ0101, what, owner.file, owner.problems)
    fields.refuse_unknown()
    read, write = _side(fields, "read"), _side(fields, "write")
    return EntityDecl(
        name,
        read=None if read is None else parse_read(read, fields.path("read"), owner.file, owner.problems),
        write=None if write is None else parse_write(write, fields.path("write"), owner.file, owner.problems),
        location=location,
    )


def _side(fields: Fields, key: str) -> Block | None:
    """The block of one side; a key without a value declares the side with all defaults."""
    item = fields.block.entries.get(key)
    if item is None:
        return None
    line = fields.block.line_of(key)
    if isinstance(item, Block):
        return item.at(line)
    if not (isinstance(item, Scalar) and item.empty):
        fields.wrong(key, "a mapping")
    return Block({}, line)


def _warn_about_references(body: Block, what: str, owner: Fields) -> None:
    for path, line in references(body):
        message = f"'{what}.{path}' holds a ${{...}} reference, which is literal text there"
        hint = "references are substituted in the settings of a connection: move it there"
        owner.problems.warn(Code.PZ0133, message, file=owner.file, line=line, hint=hint)
