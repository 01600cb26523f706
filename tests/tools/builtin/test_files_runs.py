"""The group `files` in runs that break off: nothing is edited twice, and nobody is asked."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.testing import assert_crash_safe
from tests.support.programs import next_line, piped
from tests.support.sizes import sized
from tests.tools.builtin.editing import fresh, graph

LINES = ["zero", "one", "x", "x"]


@pytest.mark.full
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_run_that_stops_at_any_write_edits_each_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITING", str(tmp_path))
    most = sized(3, 10)
    report = await assert_crash_safe(graph, "docs/a.txt", setup=fresh, most=most)
    assert report.effects == 7
    found = [path.read_text().split() for path in tmp_path.glob("*/docs/a.txt")]
    assert len(found) > most
    assert all(lines == LINES for lines in found)


@pytest.mark.storm
def test_a_run_that_is_killed_at_any_time_edits_each_file_once(tmp_path: Path, scale: int) -> None:
    chance = random.Random(scale)
    killed = 0
    for number in range(3 * scale):
        root = tmp_path / str(number)
        root.mkdir()
        for life in range(10):
            command = [sys.executable, "-m", "tests.tools.builtin.editing", str(root), f"sqlite:///{root}.db"]
            with piped(command) as (process, pipe):
                assert next_line(pipe) == "begun\n"
                try:
                    said, _ = process.communicate(timeout=chance.uniform(0, 0.02 * (life + 1)) if life < 9 else 60)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    said, _ = process.communicate(timeout=60)
            if said:
                assert said == b"completed ()\n"
                break
            killed += 1
        assert (root / "docs/a.txt").read_text().split() == LINES
    print(f"\n{killed} processes killed in {3 * scale} runs")
    assert killed >= scale
