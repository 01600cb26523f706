"""Killing real processes: SIGKILL at drawn moments, over and over, until the run ends."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from orchestrator.executor.executor import Executor
from orchestrator.kernel.records import Asked
from orchestrator.stores import open_store
from orchestrator.testing.crash.diary import Diary
from orchestrator.testing.crash.facts import CrashUnsafe, Facts, Promise, journal_faults
from orchestrator.testing.crash.kit import CrashReport
from orchestrator.testing.crash.living import RUN, journals

if TYPE_CHECKING:
    from orchestrator.executor.run import Run
    from orchestrator.testing.crash.facts import Journals

_KILLED = -9


def assert_kill_safe(
    program: str, *, runs: int = 5, kills: int = 5, seed: int = 0, backend: str = "asyncio", timeout: float = 60.0
) -> CrashReport:
    """Run a graph in real processes on a SQLite file, kill them with SIGKILL, go on in new ones, and compare.

    Half of the kills come at a drawn moment of the run (a write, a call that begins or has ended), the others after
    a drawn time. What is compared, and what must hold, is as for `assert_crash_safe`. What a tool touches has to
    outlive the process: a file, a server.

    Args:
        program: `module:function`; the function is called in each process and gives a mapping with `graph`,
            `input`, `answer` (see `assert_crash_safe`) and arguments of `Executor`.
        runs: how many runs.
        kills: how often a run is killed at most.
        seed: for the moments.
        backend: `asyncio` or `trio`.
        timeout: seconds after which a process counts as hanging.

    Raises:
        CrashUnsafe: says in which run, and what differed.
        RuntimeError: a process failed or hung; its words.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="crash-kit-") as folder:
        whole = _Killed(program, Path(folder) / "whole", backend, timeout)
        undisturbed = whole.live(None, None)
        assert undisturbed is not None
        facts, written = whole.facts()
        report = CrashReport(
            status=facts.status, writes=sum(map(len, written.values())), effects=len(whole.diary().calls)
        )
        for number in range(runs):
            trial = _Killed(program, Path(folder) / str(number), backend, timeout, replies=whole.diary_path)
            for _ in range(kills):
                if chance.random() < 0.5:
                    ended = trial.live(chance.randint(1, int(undisturbed["moments"])), None)
                else:
                    ended = trial.live(None, chance.uniform(0, undisturbed["seconds"]))
                if ended is not None:
                    break
            else:
                trial.live(None, None)
            found, written = trial.facts()
            trial.hold(f"run {number} of seed {seed}, killed {trial.kills} times", facts, found)
            report.stops += trial.kills
            report.repeated += sum(max(0, call.begun - 1) for call in trial.diary().calls.values())
            report.asked += sum(
                isinstance(record, Asked) and record.question.kind == "unknown_outcome"
                for records in written.values()
                for record in records
            )
    return report


@dataclass
class _Killed:
    """One run, over all of its processes."""

    program: str
    folder: Path
    backend: str
    timeout: float
    replies: Path | None = None
    kills: int = 0
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.store = f"sqlite:///{self.folder / 'runs.db'}"
        self.diary_path = self.folder / "diary.jsonl"

    def diary(self) -> Diary:
        """What was done outside so far."""
        return Diary(self.diary_path)

    def live(self, die_at: int | None, after: float | None) -> dict[str, float] | None:
        """One process, killed at a moment or after some seconds: `moments` and `seconds` of it; None: it was killed.

        Raises:
            RuntimeError: it failed, or hung.
        """
        promise = Promise.of(self._written(), self.diary().calls)
        order = {
            "program": self.program, "store": self.store, "diary": str(self.diary_path), "backend": self.backend,
            "replies": str(self.replies or self.diary_path), "die_at": die_at,
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.testing.crash.child", json.dumps(order)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        said, words, hung = self._wait(process, after)
        if hung:
            raise RuntimeError(f"{self.program}: the process has not ended after {self.timeout:g} s: {words[-2000:]}")
        if process.returncode not in (0, _KILLED):
            raise RuntimeError(f"{self.program}: the process ended with {process.returncode}: {words[-4000:]}")
        written, calls = self._written(), self.diary().calls
        self.faults += promise.broken(written, calls)
        self.faults += journal_faults(written, calls, ended=process.returncode == 0)
        if process.returncode == _KILLED:
            self.kills += 1
            return None
        told: dict[str, float] = json.loads(said.splitlines()[-1])
        return told

    def _wait(self, process: subprocess.Popen[str], after: float | None) -> tuple[str, str, bool]:
        assert process.stdout is not None
        first = process.stdout.readline()
        timer = threading.Timer(self.timeout if after is None else after, process.kill)
        timer.start()
        began = time.monotonic()
        said, words = process.communicate()
        timer.cancel()
        hung = after is None and process.returncode == _KILLED and time.monotonic() - began >= self.timeout
        return first + said, words, hung

    def _written(self) -> Journals:
        return anyio.run(self._read)[1] if (self.folder / "runs.db").exists() else {}

    async def _read(self) -> tuple[Run | None, Journals]:
        store = open_store(self.store)
        try:
            written = await journals(store)
            async with Executor(store) as executor:
                return (await executor.load(RUN) if RUN in written else None), written
        finally:
            await store.close()

    def facts(self) -> tuple[Facts, Journals]:
        """The facts of the run, which has ended."""
        run, written = anyio.run(self._read)
        assert run is not None
        return Facts.of(run, written), written

    def hold(self, place: str, whole: Facts, found: Facts) -> None:
        """Raise if anything differs.

        Raises:
            CrashUnsafe: says what.
        """
        faults = [*self._faults(), *whole.differences(found)]
        if faults:
            lines = "\n".join(f"  - {fault}" for fault in dict.fromkeys(faults))
            raise CrashUnsafe(f"{self.program}, {place}:\n{lines}")

    def _faults(self) -> Iterator[str]:
        yield from self.diary().faults
        yield from self.faults
