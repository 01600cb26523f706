"""The program of docs/coming_from_temporal.md that Temporal runs, at a real server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.engines.crew import Server
from tests.graphs.test_coming_from import PRINTED, PROGRAMS

pytestmark = pytest.mark.peer


def test_it_prints_what_ours_does(temporal_server: Server) -> None:
    words = [sys.executable, PROGRAMS / "temporal_theirs.py", temporal_server.url.removeprefix("temporal://")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == PRINTED["temporal"]
