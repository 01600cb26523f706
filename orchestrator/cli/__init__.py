"""The `orchestrator` command.

Only what `--help` needs is imported before a command is known; each command imports the rest when it runs.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from orchestrator import collector
from orchestrator.cli import signals

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line with `arguments` (default: the process's own) and exit with its code.

    A program may call this and catch `SystemExit`: its signal handlers are restored.
    """
    with signals.lent():
        run_process(arguments)


def run_process(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line in a process that does nothing else, and exit with its code."""
    # Classes and modules are never garbage; a collection every 700 objects would take a tenth of a command's time.
    gc.set_threshold(collector.COMMAND)
    try:
        signals.begin()
        from orchestrator.cli.app import run

        run(arguments)
    except KeyboardInterrupt:  # until the command was known
        signals.settle(130)
        sys.exit(130)
