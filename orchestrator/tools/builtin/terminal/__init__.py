"""A persistent shell. It is not a sandbox.

A reference `terminal:work` names the directory that it begins in; `terminal` alone is the current directory, or the one
a run was started in.
"""

from __future__ import annotations

import os

from orchestrator.tools.builtin.terminal.tool import Terminal
from orchestrator.tools.toolbox import Toolbox

__all__ = ["Terminal", "at", "terminal"]

terminal = Terminal()


def at(directory: str) -> Toolbox:
    """The tools of a reference `terminal:DIRECTORY`.

    Raises:
        NotADirectoryError: it is none.
    """
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"{directory!r} is not a directory")
    return Toolbox(Terminal(cwd=directory))
