"""Text that is safe on a terminal, and commands of this program as a shell reads them back."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

from orchestrator.visible import line
from orchestrator.visible import shown as visible

__all__ = ["command", "line", "program", "quoted", "visible"]


def program() -> tuple[str, ...]:
    """How this command line was called, as words that find the same one again."""
    called = sys.argv[0] if sys.argv else ""
    if called.endswith("__main__.py"):
        return _found(sys.executable or "python"), "-m", "orchestrator"
    return (_found(called) if os.path.basename(called).startswith("orchestrator") else "orchestrator",)


def _found(path: str) -> str:
    """A program's name, if the shell finds this very one by it, else its path."""
    name = os.path.basename(path)
    found = shutil.which(name)
    same = not os.path.exists(path) or (found is not None and os.path.abspath(found) == os.path.abspath(path))
    return name if same else os.path.abspath(path)


def quoted(words: Sequence[str]) -> str:
    """Words as a shell reads them back."""
    return shlex.join(words)


def command(*words: str) -> str:
    """A command of ours that a shell reads back word for word."""
    return quoted((*program(), *words))
