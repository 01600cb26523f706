"""A test fails that leaves a thread behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ROOT

LEAVES = """
import threading
import time
import anyio.to_thread
import pytest

end = threading.Event()

def begin(daemon=False):
    thread = threading.Thread(target=end.wait, daemon=daemon)
    thread.start()
    return thread

@pytest.fixture(scope="module")
def shared():
    thread = begin()
    yield
    end.set()
    thread.join()


def test_of_a_module(shared): pass
def test_a_daemon(): begin(daemon=True)
def test_a_moment_longer(): threading.Timer(0.2, str).start()
@pytest.mark.anyio
async def test_a_worker(): await anyio.to_thread.run_sync(str)
def test_leaves(): begin()
def test_fine(shared): pass
"""


@pytest.mark.full
def test_a_test_that_leaves_a_thread_fails_and_says_where_the_thread_is(tmp_path: Path) -> None:
    (tmp_path / "test_leaves.py").write_text(LEAVES)
    (tmp_path / "conftest.py").write_text("from tests.support import threads\nthreads.GRACE = 2.0\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.threads", "-p", "no:cacheprovider", "-n0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "ERROR test_leaves.py::test_leaves - Failed: the test leaves threads behind" in ended.stdout
    assert "1 error" in ended.stdout
    assert "in wait\n" in ended.stdout, "its stack"
