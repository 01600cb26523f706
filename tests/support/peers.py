"""Programs that use other frameworks, in an environment of their own, beside this library.

The environment variable PEERS names its interpreter.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def peers() -> str:
    """The interpreter."""
    found = os.environ.get("PEERS")
    if found is None:
        pytest.skip("PEERS does not name the interpreter")
    return found


def said_by(*words: object) -> str:
    """What a program prints to its stdout, when the interpreter runs it: a file, or `-m` and a module."""
    done = subprocess.run(
        [peers(), *map(str, words)], cwd=_ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
