"""The options that several verbs share, spelled and documented once."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

from pz.cli import complete
from pz.cli.parameters import argument, option
from pz.errors import Code, Problem, ProjectError

__all__ = [
    "All",
    "AsJson",
    "FailFast",
    "Flows",
    "FullRefresh",
    "LogFormat",
    "LogFormatOption",
    "Select",
    "Vars",
    "parse_vars",
    "require_positive",
    "usage_error",
]


class LogFormat(StrEnum):
    """What an executing verb prints."""

    TEXT = "text"
    JSON = "json"


Flows = Annotated[
    list[str] | None,
    argument(
        "NODE",
        help="Names of nodes; each stands for its whole flow: everything above and below it.",
        complete=complete.nodes,
    ),
]
Select = Annotated[
    list[str] | None,
    option(
        "--select",
        "-s",
        metavar="SELECTOR",
        help="Nodes by name pattern, tag:x or source:conn.entity; + before adds ancestors, + behind descendants; "
        "a space unites, a comma intersects. Given several times, they unite.",
        panel="Selection",
        complete=complete.nodes,
    ),
]


All = Annotated[bool, option("--all", help="Every flow of the project.", panel="Selection")]
Vars = Annotated[
    str | None,
    option(
        "--vars",
        metavar="JSON",
        help="A JSON object laid over the vars of project.yml.",
        panel="Execution",
    ),
]
FullRefresh = Annotated[
    bool,
    option(
        "--full-refresh",
        help="Read everything anew: stored watermarks and tokens are not used, and replaced on success.",
        panel="Execution",
    ),
]
FailFast = Annotated[
    bool,
    option("--fail-fast", help="Cancel what runs after the first failed node.", panel="Execution"),
]
LogFormatOption = Annotated[
    LogFormat,
    option(
        "--log-format",
        help="text: lines, or a live tree on a terminal. json: one event per line on standard output; notes and the "
        "summary go to standard error.",
        panel="Output",
    ),
]
AsJson = Annotated[bool, option("--json", help="Print JSON for programs.", panel="Output")]


def parse_vars(text: str | None) -> dict[str, Any] | None:
    """The value of ``--vars``; raises PZ0102 unless it is a JSON object."""
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as failure:
        raise ProjectError(Problem(Code.PZ0102, "--vars is not JSON", hint=_VARS_HINT)) from failure
    if not isinstance(value, dict):
        raise ProjectError(Problem(Code.PZ0102, "--vars is JSON but not an object", hint=_VARS_HINT))
    return value


_VARS_HINT = """Give a JSON object, say --vars '{"region": "eu"}'"""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def require_positive(option: str, number: int) -> None:
    """Raise PZ0534 for a number of rows, runs or passes that is below 1."""
    if number < 1:
        raise ProjectError(Problem(Code.PZ0534, f"{option} is below 1"))


def usage_error(message: str, hint: str | None = None) -> ProjectError:
    """The error for a command line that cannot be meant."""
    return ProjectError(Problem(Code.PZ0700, message, hint=hint))
