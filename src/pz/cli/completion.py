"""``pz completion``."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

from pz.cli.command import Group, Invocation, verb
from pz.cli.failures import ExitCode
from pz.cli.help import Page
from pz.cli.parameters import argument
from pz.errors import Code, Problem, ProjectError

_SHELLS = ("bash", "zsh", "fish", "pwsh")
_PAGE = Page(
    "Print the script that makes a shell complete verbs, options and names of the project.",
    """Have the shell read it when it starts; the examples do so for one session.""",
    (
        ('eval "$(pz completion bash)"', "in bash; the same with zsh"),
        ("pz completion fish | source", "in fish"),
        ("pz completion pwsh | Out-String | Invoke-Expression", "in PowerShell"),
    ),
)


Shell = Annotated[
    str,
    argument("SHELL", help="bash, zsh, fish or pwsh.", complete=lambda root: _SHELLS),
]


def register(app: Group, panel: str) -> None:
    """Add the verb."""
    verb(app, "completion", _PAGE, panel=panel)(completion)


def completion(cli: Invocation, shell: Shell) -> int:
    """Print a completion script."""
    if shell not in _SHELLS:
        near = get_close_matches(shell, _SHELLS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(_SHELLS)}"
        raise ProjectError(Problem(Code.PZ0535, f"there is no completion for the shell '{shell}'", hint=hint))
    cli.output.out.line(_script("powershell" if shell == "pwsh" else shell))
    return ExitCode.OK


def _script(shell: str) -> str:
    """Click's, but for its warning where no bash of a certain age is on the path."""
    from click.shell_completion import get_completion_class

    from pz.cli.main import build

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(build(), {}, "pz", "_PZ_COMPLETE")
    return (made.source_template % made.source_vars()).strip()
