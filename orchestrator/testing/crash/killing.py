"""Killing real processes: SIGKILL at drawn moments, over and over, until the run ends."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from orchestrator.testing.crash.kit import CrashReport
from orchestrator.testing.crash.processes import Whole


def assert_kill_safe(
    program: str,
    *,
    runs: int = 5,
    kills: int = 5,
    store: Callable[[], str] | None = None,
    seed: int = 0,
    backend: str = "asyncio",
    timeout: float = 60.0,
) -> CrashReport:
    """Run a graph in real processes, kill them with SIGKILL, continue in new ones, and compare.

    Half of the kills come at a random event of the run (a write, a call that begins or has ended), the others after
    a random time. The comparison is that of `assert_crash_safe`. What a tool changes must outlive the process, such
    as a file or a server.

    Args:
        program: `module:function`; the function is called in each process and returns a mapping with `graph`,
            `input`, `answer` (see `assert_crash_safe`) and arguments of `Executor`.
        runs: the number of runs.
        kills: how often a run is killed at most.
        store: called once per run; returns the URL of an empty store, such as a new database. None: a new SQLite file
            each.
        seed: the seed of the random choices.
        backend: `asyncio` or `trio`.
        timeout: seconds after which a process counts as hanging.

    Returns:
        What was tried.

    Raises:
        CrashUnsafe: a run differs; names the run and the difference.
        RuntimeError: a process failed or hung; with its output.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="crash-kit-") as folder:
        whole = Whole(program, Path(folder), backend, timeout, store)
        for number in range(runs):
            life = whole.another()
            place = f"run {number} of seed {seed}"
            for _ in range(kills):
                if chance.random() < 0.5:
                    told = life.process(die_at=chance.randint(1, whole.told["moments"]))
                else:
                    told = life.process(kill_after=chance.uniform(0, whole.told["seconds"]))
                if not (told.killed or told.ended):
                    raise RuntimeError(f"{program}: {told}")
                life.check(told, place)
                if told.ended:
                    break
            else:
                life.to_the_end(place)
            whole.compare(life, f"{place}, killed {life.stops} times")
        return whole.report
