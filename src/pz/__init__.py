"""pz: a batch data-pipeline engine that says what it guarantees.

>>> import pz
>>> result = pz.open_project("demo").run(everything=True)
"""

from pz.api import OpenProject, RunResult, open_project

__all__ = ["OpenProject", "RunResult", "__version__", "open_project"]

__version__ = "0.1.0"
