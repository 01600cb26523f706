"""Disks that fail under real processes: full, refusing, and tearing the last write."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.testing.crash.disk import Fault
from orchestrator.testing.crash.kit import CrashReport
from orchestrator.testing.crash.processes import Life, Whole, written
from orchestrator.testing.crash.tearing import before_and_after, tear


def assert_disk_safe(
    program: str,
    *,
    runs: int = 5,
    faults: Sequence[Fault] = ("full", "error", "torn"),
    seed: int = 0,
    backend: str = "asyncio",
    timeout: float = 60.0,
) -> CrashReport:
    """Run a graph in real processes on a SQLite file whose disk fails, continue in new processes, and compare.

    The disk of a run fails once, at a random write to its journal, if there are as many as in the undisturbed run:

    - `full`: from then on SQLite finds no space for any write.
    - `error`: from then on every write to any file is an I/O error.
    - `torn`: the power fails as the write reaches the disk. The process is killed, and a random part of what this
      write added is lost or garbled, but nothing before it.

    After the first two the process must end with a `StoreUnavailable` that names the file; then the disk works again.
    After the last the journal must end before the write or after it. A new process continues the run to its end. The
    comparison is that of `assert_crash_safe`.

    Args:
        program: as for `assert_kill_safe`.
        runs: the number of runs for each fault.
        faults: the faults to try.
        seed: the seed of the random choices.
        backend: `asyncio` or `trio`.
        timeout: seconds after which a process counts as hanging.

    Returns:
        What was tried.

    Raises:
        CrashUnsafe: a run differs; names the run and the difference.
        RuntimeError: a process whose disk did not fail failed or hung; with its output.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="crash-kit-") as folder:
        whole = Whole(program, Path(folder), backend, timeout)
        for number in range(runs):
            for fault in faults:
                life = whole.another()
                write = 1 + int(chance.random() * whole.told["writes"])
                place = f"run {number} of seed {seed}, disk {fault} at write {write} of {whole.told['writes']}"
                told = life.process(fault=fault, write=write)
                if fault == "torn" and told.killed:
                    place += f", {_tear(life, chance)}"
                elif told.ended:
                    if told.last["writes"] >= write:
                        life.faults.append("the process continued to the run's end although its disk had failed")
                elif fault == "torn":
                    raise RuntimeError(f"{program}: {told}")
                elif str(life.file) not in told.gave_up:
                    life.faults.append(f"it must end with a `StoreUnavailable` that names the file; {told}")
                life.check(told, place)
                if not told.ended:
                    life.to_the_end(f"{place}, and going on")
                whole.compare(life, place)
        return whole.report


def _tear(life: Life, chance: random.Random) -> str:
    """Tear the last write of a process that was killed at it. Gives in words what was done."""
    states = [written(f"sqlite:///{copy}") for copy in before_and_after(life.file)]
    done = tear(life.file, chance)
    if life.written() not in states:
        life.faults.append("the journal ends neither before the torn write nor after it")
    return done
