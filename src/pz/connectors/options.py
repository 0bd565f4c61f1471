"""Check the options of a connection, a dataset or an output against the connector's JSON Schema.

Offline, and every problem at once. A message names the option, never its value: a value may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pz.connectors.closest import did_you_mean
from pz.errors import Code, Problem

if TYPE_CHECKING:
    from jsonschema import ValidationError

    from pz.connectors.contract import Connector

__all__ = ["RESERVED", "Side", "check_options", "check_schemas", "coerce_options"]

Schema = Mapping[str, Any]
Options = Mapping[str, Any]


class Side(StrEnum):
    """Which of a connector's three schemas applies."""

    CONNECTION = "connection"
    READ = "read"
    WRITE = "write"


RESERVED: Mapping[Side, frozenset[str]] = {
    Side.CONNECTION: frozenset({"connector", "entities", "max_concurrency", "rate_limit", "retry"}),
    Side.READ: frozenset({"columns", "sync", "retry"}),
    Side.WRITE: frozenset({"strategy", "keys", "duplicates", "dedupe_by", "on_delete", "schema_policy", "retry"}),
}
"""The keys that the engine owns on each side; no connector may claim one."""

_TYPE_NAMES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}

_BEGINNINGS = {"^/": "/", "^([/$]|$)": "/ or $"}
"""Patterns that say only how a text begins, in words."""

_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "minLength": "of length",
    "minItems": "of length",
}


def check_options(
    connector: Connector,
    side: Side,
    options: Options,
    *,
    subject: str,
    file: str | None = None,
    line: int | None = None,
    lines: Mapping[str, int | None] | None = None,
) -> tuple[Problem, ...]:
    """All faults of ``options``; ``subject`` starts each message, e.g. ``connection 'lake'``. ``lines`` has the
    line of an option where that is not ``line``.

    A connector without an output schema leaves write options unchecked.
    """
    schema = _schema_of(connector, side)
    if schema is None:
        return ()
    claimed = sorted(RESERVED[side] & set(schema.get("properties", {})))
    if claimed:
        message = f"connector '{connector.name}' claims engine-owned {side} options: {', '.join(claimed)}"
        return (Problem(Code.PZ0345, message, file, line),)
    given = coerce_options(schema, options)
    if plainly_fits(schema, given):
        return ()
    from jsonschema import Draft202012Validator

    found: dict[tuple[str, str], Problem] = {}
    for error in Draft202012Validator(dict(schema)).iter_errors(dict(given)):
        at = (lines or {}).get(str(next(iter(error.absolute_path), "")), line)
        for message, hint in _explain(error, schema):
            found[message, hint] = Problem(Code.PZ0301, f"{subject}: {message}", file, at, hint)
    return tuple(found[key] for key in sorted(found))


def plainly_fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value fulfils a schema of the plainest words. False says nothing: then `jsonschema` is asked.

    Its import takes as long as all other work on the options of a project, and most options have no fault.
    """
    return all(key in _PLAIN and _PLAIN[key](wanted, value, schema) for key, wanted in schema.items())


def _is_of(wanted: Any, value: Any) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES.get(name, ())) for name in names)


def _fits_properties(wanted: Mapping[str, Any], value: Any, schema: Mapping[str, Any]) -> bool:
    if not isinstance(value, Mapping):
        return False
    known = all(isinstance(name, str) and name in wanted for name in value)
    return known and all(plainly_fits(wanted[name], held) for name, held in value.items())


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}
_PLAIN: Mapping[str, Callable[[Any, Any, Mapping[str, Any]], bool]] = {
    **dict.fromkeys(("$schema", "title", "description", "default", "examples"), lambda wanted, value, schema: True),
    "type": lambda wanted, value, schema: _is_of(wanted, value),
    "enum": lambda wanted, value, schema: isinstance(value, str) and value in wanted,
    "minLength": lambda wanted, value, schema: isinstance(value, str) and len(value) >= wanted,
    "minimum": lambda wanted, value, schema: _is_of("number", value) and value >= wanted,
    "maximum": lambda wanted, value, schema: _is_of("number", value) and value <= wanted,
    "required": lambda wanted, value, schema: isinstance(value, Mapping) and all(name in value for name in wanted),
    "properties": _fits_properties,
    "additionalProperties": lambda wanted, value, schema: not value or "properties" in schema,
    "items": lambda wanted, value, schema: (
        isinstance(value, list) and all(plainly_fits(wanted, held) for held in value)
    ),
}
"""Words that are known here, each at most as mild as in JSON Schema. A mapping holds no key that `properties` does not name."""


def check_schemas(connector: Connector) -> tuple[Problem, ...]:
    """Faults of the connector's own schemas: engine-owned keys that it claims (PZ0345)."""
    return tuple(
        problem
        for side in Side
        for problem in check_options(connector, side, {}, subject=f"connector '{connector.name}'")
        if problem.code is Code.PZ0345
    )


def coerce_options(schema: Schema, options: Options) -> dict[str, Any]:
    """Options with text such as ``"5432"`` or the number ``5.0`` turned into the integer that the schema asks for.

    What is not exactly such a number stays as it is, for the schema to refuse: nothing is rounded.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: _coerce(properties.get(name, {}), value) for name, value in options.items()}


def _schema_of(connector: Connector, side: Side) -> Schema | None:
    readers: Mapping[Side, Callable[[], Schema | None]] = {
        Side.CONNECTION: connector.connection_schema,
        Side.READ: connector.dataset_schema,
        Side.WRITE: connector.output_schema,
    }
    return readers[side]()


def _coerce(declared: Mapping[str, Any], value: Any) -> Any:
    if declared.get("type") != "integer":
        return value
    if isinstance(value, str) and re.fullmatch(r"0|-?[1-9][0-9]{0,19}", value):  # no option is longer
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


def _explain(error: ValidationError, schema: Schema) -> Iterable[tuple[str, str]]:
    """The message and the hint for one schema error (several for unknown options)."""
    at = ".".join(str(part) for part in error.absolute_path)
    rule: Any = error.validator_value
    value: Any = error.instance
    part: Any = error.schema
    if error.validator == "additionalProperties":
        known = sorted(part.get("properties", {}))
        for name in sorted(set(value) - set(known)):
            yield f"unknown option '{_join(at, name)}'", _accepted(str(name), known)
    elif error.validator == "required":
        for name in [name for name in rule if name not in value]:
            yield f"option '{_join(at, name)}' is missing", _described(part, name)
    elif error.validator == "type":
        yield f"option '{at}' must be {_wanted(rule)}", _mix_up(rule, value)
    elif error.validator in {"enum", "const"}:
        choices = [str(choice) for choice in ([rule] if error.validator == "const" else rule)]
        yield f"option '{at}' must be one of {', '.join(choices)}", did_you_mean(str(value), choices)
    elif str(error.validator) in _LIMITS:
        yield f"option '{at}' must be {_LIMITS[str(error.validator)]} {rule}", _described(schema, at)
    elif error.validator == "pattern" and rule in _BEGINNINGS:
        yield f"option '{at}' must begin with {_BEGINNINGS[rule]}", _described(schema, at)
    else:
        yield f"option '{at or '(all)'}' does not fit the connector's schema", _described(schema, at)


def _join(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)


def _accepted(name: str, known: list[str]) -> str:
    close = did_you_mean(name, known)
    listed = f"accepted options: {', '.join(known)}" if known else "no options are accepted here"
    return f"{close} ({listed})" if close else listed


def _wanted(declared: str | list[str]) -> str:
    names = [declared] if isinstance(declared, str) else declared
    return " or ".join(_TYPE_NAMES.get(name, name) for name in names)


def _described(schema: Schema, name: str) -> str:
    declared = schema.get("properties", {}).get(name, {})
    return str(declared.get("description", ""))


def _mix_up(declared: str | list[str], value: object) -> str:
    """The hint for a value of the wrong type: what to write instead, without showing the value."""
    wanted = [declared] if isinstance(declared, str) else declared
    if value is None:
        return "leave the option out instead of giving it no value"
    if "boolean" in wanted and "string" not in wanted:
        return "write true or false in lower case, unquoted"
    if "string" in wanted and isinstance(value, bool | int | float):
        return 'put the value in quotes; a reference too: "${NAME}"'
    if ("integer" in wanted or "number" in wanted) and isinstance(value, str):
        return "write the number in plain digits, unquoted"
    return ""
