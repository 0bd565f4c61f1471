"""The generated parts of the documentation, each made from the code that it describes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from pz import events
from pz.cli import reference
from pz.codes import CODES, Code
from pz.connectors.contract import Capability, Connector, ReadShape, WriteStrategy
from pz.connectors.registry import BUILT_IN, Registry
from pz.durable import Step
from pz.events import Event
from pz.graph.delivery import MATRIX, Cell
from pz.project.keys import Key

CODE_SECTIONS = {
    "01": "Loading a project",
    "02": "Compiling and selecting",
    "03": "Connectors, capabilities and pairings",
    "04": "SQL",
    "05": "Running, retrying and state",
    "07": "Engine, files and connectors of this product",
}


def table(header: Collection[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (header, *rows)]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join(lines)


def errors() -> str:
    """The error catalogue."""
    parts = []
    for prefix, title in CODE_SECTIONS.items():
        parts.append(f"## {title}\n")
        for code in (code for code in Code if code[2:4] == prefix):
            info = CODES[code]
            parts.append(f"### {code}\n\n{info.meaning}\n\n*{info.phase}* · {info.hint}\n")
    return "\n".join(parts).strip()


def guarantees() -> str:
    """The pairing matrix: a row for each read shape, a column for each write strategy."""
    strategies = (WriteStrategy.REPLACE, WriteStrategy.APPEND, WriteStrategy.MERGE)

    def pair(shape: ReadShape, strategy: WriteStrategy) -> str:
        cells = [cell for cell in MATRIX if (cell.shape, cell.strategy) == (shape, strategy)]
        return "; ".join(_cell(cell, alone=len(cells) == 1) for cell in cells)

    rows = [[f"**{shape}**", *(pair(shape, strategy) for strategy in strategies)] for shape in ReadShape]
    return table(["read as \\ write by", *strategies], rows)


def _cell(cell: Cell, *, alone: bool) -> str:
    if cell.guarantee is None:
        text = f"refused ({cell.code})"
    elif cell.needs_consent:
        text = f"{cell.guarantee.level}, with consent (else {cell.code})"
    else:
        text = str(cell.guarantee)
    if cell.ghosts is not None:
        text += f", by a connector without snapshot deletes {cell.ghosts}"
    if alone:
        return text
    named = " or ".join(f"`{choice}`" for choice in cell.on_delete if choice is not None)
    return f"on_delete {named}: {text}" if named else f"without on_delete: {text}"


def keys(table_of_keys: tuple[Key, ...], told: Collection[tuple[Key, ...]] = ()) -> str:
    """The keys of one block of a project file, and those below them where no table of their own is among those ``told``."""
    elsewhere = [{key.name for key in each} for each in told]
    rows: list[tuple[str, str, str]] = []
    for key in table_of_keys:
        rows.append((f"`{key.name}`", kind(key.schema), ("required. " if key.required else "") + key.doc))
        prefix, below = _below(key.name, key.schema)
        if set(below.get("properties", ())) not in elsewhere:
            rows += _rows(below, prefix)
    return table(["key", "value", "meaning"], rows)


def _rows(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """What may stand in a mapping, and below each of it: ``auth``, ``auth.type``; in a list ``connectors[].package``."""
    required = schema.get("required", ())
    for name, option in schema.get("properties", {}).items():
        needed = "required. " if name in required else ""
        yield f"`{prefix}{name}`", kind(option), needed + option.get("description", "")
        deeper, below = _below(prefix + name, option)
        yield from _rows(below, deeper)


def _below(name: str, schema: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The mapping that a value is, or holds, and how keys in it are spelled; an empty one where it is none."""
    if "properties" in schema:
        return f"{name}.", schema
    if "properties" in schema.get("items", {}):
        return f"{name}[].", schema["items"]
    for alternative in schema.get("oneOf", schema.get("anyOf", ())):
        if "properties" in alternative:
            return f"{name}.", alternative
    return "", {}


def kind(schema: Mapping[str, Any]) -> str:
    """A JSON Schema of a value, in a few words."""
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{str(value).lower() if isinstance(value, bool) else value}`" for value in schema["enum"])
    if alternatives := schema.get("oneOf", schema.get("anyOf")):
        return " or ".join(dict.fromkeys(kind(alternative) for alternative in alternatives))
    types = schema.get("type", "text")
    named = [types] if isinstance(types, str) else list(types)
    if len(named) == 2 and "array" in named and "string" in named:
        return "text, or a list of texts"
    if set(named) >= {"string", "number", "boolean"}:
        return "a value"
    words = {
        "string": "text",
        "integer": "whole number",
        "boolean": "true or false",
        "object": "mapping",
        "array": "list",
    }
    if "pattern" in schema and schema["pattern"].startswith("^[0-9]+(ms"):
        return "duration"
    return " or ".join(words.get(name, name) for name in named if name != "null") + _range(schema)


def _range(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return ""
    return f", at least {low}" if high is None else f", {low} to {high}"


def capabilities() -> str:
    """What each connector can do: one column a connector, one row a capability that any of them has."""
    connectors = _connectors()
    used = [flag for flag in Capability if any(flag in connector.capabilities for _, connector in connectors)]
    rows = [["connects to", *(connector.gives for _, connector in connectors)]]
    for flag in used:
        title = str(flag.name).replace("_", " ").lower()
        rows.append([title, *("yes" if flag in connector.capabilities else "" for _, connector in connectors)])
    return table(["", *(f"`{name}`" for name, _ in connectors)], rows)


def connectors() -> str:
    """The options of each connector, from the JSON Schemas by which they are checked."""
    parts = []
    for name, connector in _connectors():
        parts.append(f"## {name}\n\n{connector.gives}\n")
        parts.append(_options("On the connection", connector.connection_schema()))
        parts.append(_options("In `read:`", connector.dataset_schema()))
        output = connector.output_schema()
        if output is not None:
            parts.append(_options("In `write:`", output))
    return "\n".join(parts).strip()


def _options(title: str, schema: Mapping[str, Any]) -> str:
    rows = list(_rows(schema))
    if not rows:
        return f"{title}: no options.\n"
    return f"{title}:\n\n{table(['option', 'value', 'meaning'], rows)}\n"


def _connectors() -> list[tuple[str, Connector]]:
    """Our own connectors that are there."""
    registry = Registry.default()
    targets = {name: target.partition(":")[0] for name, target in BUILT_IN.items()}
    return [(name, registry.get(name)) for name in sorted(targets) if _exists(targets[name])]


def _exists(module: str) -> bool:
    return find_spec(module.rpartition(".")[0]) is not None and find_spec(module) is not None


def run_events() -> str:
    """The events of a run and their own fields."""
    classes = [kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, Event)]
    kinds = [kind for kind in classes if kind is not Event and kind.on_wire]
    kinds.sort(key=lambda kind: inspect.getsourcelines(kind)[1])
    return table(["event", "own fields", "when"], ([f"`{e.name}`", _fields(e), _first_line(e)] for e in kinds))


def _fields(event: type[Event]) -> str:
    specs = [spec for spec in dataclasses.fields(event) if not spec.metadata.get("in_process")]
    own = [spec.name for spec in specs if spec.name not in {"run_id", "at"}]
    wire = ["name" if name == "node_name" else re.sub(r"_(\w)", lambda m: m[1].upper(), name) for name in own]
    return ", ".join(f"`{name}`" for name in wire)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("``", "`").replace("\n", " ")


def pz_meta() -> str:
    """The accounting tables of a run, from the comments of their DDL."""
    ddl = (files("pz.staging") / "pz_meta.sql").read_text()
    tables = re.findall(r"COMMENT ON TABLE pz_meta\.(\w+) IS '((?:[^']|'')*)'", ddl)
    return table(["table", "holds"], ([f"`{name}`", text.replace("''", "'")] for name, text in tables))


def steps() -> str:
    """The durable steps, in order."""
    return ", ".join(f"`{step}`" for step in Step) + "."


def cli() -> str:
    """The command line's own description of itself."""
    return reference.markdown().strip()
