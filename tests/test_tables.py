"""A table is one test, which runs all its rows and names those that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import ROOT

TABLES = """
import pytest

@pytest.mark.parametrize("number", [1, 2, 3], ids=str)
def test_some_fail(number):
    assert number == 2

@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_all_pass(name, number):
    assert name * number

@pytest.mark.parametrize("number", [1, 2])
def test_with_a_folder_of_its_own(number, tmp_path):
    (tmp_path / "one").mkdir()

@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.xfail(strict=True))])
def test_with_a_mark(number):
    assert number == 1
"""
CONFTEST = """
from tests.support.tables import in_tables

def pytest_collection_modifyitems(items):
    items[:] = in_tables(items)
"""


@pytest.mark.full
def test_all_rows_run_and_the_failure_names_those_that_fail(tmp_path: Path) -> None:
    (tmp_path / "test_tables.py").write_text(TABLES)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 4 passed, 1 xfailed" in ended.stdout
    assert "ExceptionGroup: 2 of 3 rows fail (2 sub-exceptions)" in ended.stdout
    assert "in the row [1]" in ended.stdout
    assert "in the row [2]" not in ended.stdout
    assert "in the row [3]" in ended.stdout
