"""Servers of others, each in an environment of its own. `.ci/run` installs them and says where they are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def command(variable: str, program: str) -> str:
    """The program that a variable names, or one on PATH; skips the test if there is none."""
    found = os.environ.get(variable) or shutil.which(program)
    if not found or not Path(found).exists():
        pytest.skip(f"{program} is not there: set {variable} to where it is installed")
    return found
