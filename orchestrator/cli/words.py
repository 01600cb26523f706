"""Commands of this program as a shell reads them back, alone and in messages of errors."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence

from orchestrator.errors import OrchestratorError


def program() -> tuple[str, ...]:
    """Return the words that call this command line again."""
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


def shell_command(*words: str) -> str:
    """A command of ours that a shell reads back word for word."""
    return quoted((*program(), *words))


_COMMAND = re.compile(r"`orchestrator ((?:answer|fork|resume|runs|show|why)\b[^`\n]*)`")


def error_text(error: BaseException, store: str | None = None) -> str:
    """The message of an error, in which every command works where it is typed.

    Args:
        error: the error.
        store: the value of `--store`, which commands that read runs need again.
    """
    from orchestrator.stores.places import shown_url

    text = error.typed if isinstance(error, OrchestratorError) and error.typed else str(error)

    def runnable(found: re.Match[str]) -> str:
        try:
            parts = shlex.split(found[1])
        except ValueError:
            return found[0]
        return f"`{shell_command(*parts, *(() if store is None else ('--store', shown_url(store))))}`"

    return _COMMAND.sub(runnable, text)
