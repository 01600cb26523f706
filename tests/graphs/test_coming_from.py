"""The programs of docs/coming_from_*.md: ours and those of other frameworks print the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peers import said_by

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS = DOCS / "examples" / "coming_from"
FRAMEWORKS = ("langgraph", "temporal", "burr")
PRINTED = {
    "langgraph": "waits: tea: found bread: found\nreport: tea: found; bread: found\n",
    "temporal": "waits: 3\ntea shipped after 2 attempts\n",
    "burr": "waits: About tea, better, better\nverdict: fine after 2 rounds\n",
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_our_program_prints_what_the_other_one_does(name: str) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAMS / f"{name}_ours.py"], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == PRINTED[name]


@pytest.mark.peer
@pytest.mark.parametrize("name", ["langgraph", "burr"])
def test_the_other_program_prints_it(name: str) -> None:
    assert said_by(PROGRAMS / f"{name}_theirs.py") == PRINTED[name]


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_the_page_shows_the_programs_that_run(name: str, side: str) -> None:
    program = (PROGRAMS / f"{name}_{side}.py").read_text().split('"""\n', 1)[1].strip()
    assert f"```py\n{program}\n```" in (DOCS / f"coming_from_{name}.md").read_text()
