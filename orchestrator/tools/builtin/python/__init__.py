"""Python in a sandbox."""

from orchestrator.tools.builtin.python.tool import Python

__all__ = ["Python", "python"]

python = Python()
