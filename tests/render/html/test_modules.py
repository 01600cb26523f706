"""The types of the page's modules, which their JSDoc declares, hold: TypeScript's checker, strict."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


@pytest.mark.peer
@pytest.mark.parametrize("folder", ["render/html", "web"])
def test_the_modules_of_pages_are_typed(folder: str) -> None:
    """TypeScript's compiler, from where TSC says it is."""
    compiler = os.environ.get("TSC")
    if not compiler:
        pytest.skip("TSC names no TypeScript compiler: npm install typescript, and name node_modules/.bin/tsc in TSC")
    project = Path(__file__).parents[2] / folder / "tsconfig.json"
    done = subprocess.run([compiler, "-p", str(project)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
