"""pz: a batch data-pipeline engine that says what it guarantees.

>>> import pz
>>> result = pz.open_project("demo").run(everything=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pz.api import CancelToken, OpenProject, RunResult, open_project
    from pz.errors import Cancelled, NodeError, Problem, ProjectError, PzError, StateError

__all__ = [
    "CancelToken",
    "Cancelled",
    "NodeError",
    "OpenProject",
    "Problem",
    "ProjectError",
    "PzError",
    "RunResult",
    "StateError",
    "__version__",
    "open_project",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: `pz.__main__` has to be there before anything that takes time."""
    if name not in __all__:
        raise AttributeError(f"module 'pz' has no attribute '{name}'")
    from pz import api, errors

    return getattr(api, name, None) or getattr(errors, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
