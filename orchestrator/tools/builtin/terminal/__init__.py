"""A persistent shell. It is not a sandbox."""

from orchestrator.tools.builtin.terminal.tool import Terminal

__all__ = ["Terminal", "terminal"]

terminal = Terminal()
