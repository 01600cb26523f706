"""A place to run commands in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A new directory for each test."""
    return Shell(tmp_path, inside=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A directory for the tests of a module."""
    return Shell(tmp_path_factory.mktemp("shared"), inside=True)
