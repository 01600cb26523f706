"""Python in a sandbox."""

from importlib.util import find_spec

from orchestrator.tools.builtin.python.sandbox import MISSING
from orchestrator.tools.builtin.python.tool import Python, PythonSession

__all__ = ["Python", "PythonSession", "python"]

if find_spec("pydantic_monty") is None:  # said when the tool is named, and not first when a model calls it
    raise ImportError(MISSING)

python = Python()
