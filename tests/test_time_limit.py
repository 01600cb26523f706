"""A test that hangs fails, with the place where it hangs, and the tests after it run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ROOT

HANGS = """
import re
import threading
import anyio
import pytest

for loop in ("asyncio", "trio"):  # loads them here: on a busy machine that takes longer than the limit of a test
    anyio.run(anyio.sleep, 0, backend=loop)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_task():
    async def waits():
        await anyio.Event().wait()
    await waits()

def test_a_thread():
    thread = threading.Thread(target=threading.Event().wait)
    thread.start()
    thread.join()

@pytest.fixture
def stuck():
    yield
    threading.Event().wait()

def test_a_fixture_after_a_failure(stuck):
    assert "this" == "fails"

def test_fine():
    pass
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.time_limit", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [*command, "--timeout", "4", "test_hangs.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.full
def test_tests_that_hang_fail_one_by_one(tmp_path: Path) -> None:
    """In a task of either event loop, in a thread, in a fixture; stacks say where."""
    ended = run(tmp_path, "-n", "2")
    assert ended.returncode == 1
    assert "5 failed, 1 passed" in ended.stdout
    for name in ("task[asyncio]", "task[trio]", "thread", "fixture_after_a_failure"):
        assert f"while running 'test_hangs.py::test_a_{name}'" in ended.stdout
        assert f"test_hangs.py::test_a_{name} takes longer than 4 s" in ended.stderr
    assert ended.stderr.count(" in test_a_task.<locals>.waits\n") == 2
    assert " in test_a_thread\n" in ended.stderr
    assert " in stuck\n" in ended.stderr


@pytest.mark.full
@pytest.mark.parametrize("name", ["task", "fixture"])
def test_a_test_that_hangs_in_the_process_of_pytest_ends_it(tmp_path: Path, name: str) -> None:
    ended = run(tmp_path, "-n", "0", "-k", name)
    assert ended.returncode == 1
    assert "takes longer than 4 s" in ended.stderr
