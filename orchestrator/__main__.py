"""`python -m orchestrator`: the same as the `orchestrator` command."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Python puts the current directory before everything else; a file there must hide no module of a package.
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]

    from orchestrator.cli import main

    main()
