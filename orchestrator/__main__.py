"""`python -m orchestrator`: the same as the `orchestrator` command."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def command() -> NoReturn:
    """Run the command line with the arguments of the process, then exit."""
    from orchestrator.cli import run_process, signals

    try:
        run_process()
    except SystemExit as end:
        if isinstance(end.code, int):
            signals.settle(end.code)
        raise


if __name__ == "__main__":
    # Python puts the current directory first on the path; a file there must not hide a module of a package.
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    command()
