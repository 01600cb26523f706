"""Python in a sandbox."""

from orchestrator.tools.builtin.python.tool import Python, PythonSession

__all__ = ["Python", "PythonSession", "python"]

python = Python()
