"""pz: a batch data-pipeline engine that says what it guarantees.

>>> import pz
>>> result = pz.open_project("demo").run(everything=True)
"""

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
