"""Errors of the library as users of the command line read them."""

from __future__ import annotations

import re
import shlex

from orchestrator.cli import words
from orchestrator.errors import OrchestratorError

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
            named = shlex.split(found[1])
        except ValueError:
            return found[0]
        return f"`{words.command(*named, *(() if store is None else ('--store', shown_url(store))))}`"

    return _COMMAND.sub(runnable, text)
