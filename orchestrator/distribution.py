"""Name of the distribution, and commands that install its extras."""

from __future__ import annotations

NAME = "agent-graph-orchestrator"


def install(extra: str) -> str:
    """The command that installs an extra.

    No package index has the library yet, and a package of a similar name is another project's: the command installs
    a checkout, from its folder.
    """
    return f'pip install ".[{extra}]"'
