"""`assert_kill_safe` and `assert_disk_safe`: runs in real processes that are killed, or whose disk fails."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from orchestrator.errors import StoreError
from orchestrator.executor.executor import Executor
from orchestrator.kernel.records import Asked
from orchestrator.stores import open_store
from orchestrator.testing.crash.child import Fault, before_and_after, tear
from orchestrator.testing.crash.facts import CrashReport, CrashUnsafe, Facts, Journals, Promise, journal_faults
from orchestrator.testing.crash.life import RUN, Diary, journals
from orchestrator.views.run import Run

_KILLED = -9
_WORDS = 4000
"""Maximum characters of a process's output in a message."""


@dataclass(frozen=True)
class ProcessEnd:
    """How a process ended, and its last output."""

    code: int
    hung: bool
    """True if it had to be killed, because it did not end in time."""
    last: dict[str, Any]
    """Last line of its protocol, see `child`."""
    words: str
    """Output on stderr."""

    @property
    def killed(self) -> bool:
        """True if the process was killed as planned, and not because it hung."""
        return self.code == _KILLED and not self.hung

    @property
    def ended(self) -> bool:
        """True if the run reached its end."""
        return self.code == 0 and self.last.get("did") == "end"

    @property
    def gave_up(self) -> str:
        """The message in which it reported that the store is not available; empty if there is none."""
        return str(self.last["error"]) if self.code == 0 and self.last.get("did") == "give up" else ""

    def __str__(self) -> str:
        if self.hung:
            return f"the process has not ended in time: {self.words[-_WORDS:]}"
        if self.gave_up:
            return f"the process gave up: {self.gave_up}"
        return f"the process ended with {self.code}: {self.words[-_WORDS:]}"


@dataclass
class Life:
    """A run in several processes. Everything is stored in `folder`, a new one."""

    program: str
    folder: Path
    backend: str
    timeout: float
    replies: Path | None = None
    """Diary with the replies of models; None: the run's own."""
    url: str = ""
    """URL of an empty store; empty: a file in `folder`."""
    stops: int = 0
    """Number of processes that did not reach the run's end."""
    faults: list[str] = field(default_factory=list)
    """Violations found so far."""

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.file = self.folder / "runs.db"
        self.url = self.url or f"sqlite:///{self.file}"
        self.diary_path = self.folder / "diary.jsonl"
        self._promise = Promise.of({}, {})

    def diary(self) -> Diary:
        """Return the calls made so far."""
        return Diary(self.diary_path)

    def written(self) -> Journals:
        """Return the journals in the store."""
        return written(self.url)

    def process(self, *, kill_after: float | None = None, **order: object) -> ProcessEnd:
        """Run one process.

        Args:
            kill_after: seconds after which to kill it.
            order: other fields of its order, see `child.Order`.
        """
        whole = {
            "program": self.program,
            "store": self.url,
            "diary": str(self.diary_path),
            "replies": str(self.replies or self.diary_path),
            "backend": self.backend,
            **order,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.testing.crash.child", json.dumps(whole)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        words: list[bytes] = []
        listening = threading.Thread(target=words.extend, args=(process.stderr,))
        listening.start()
        hung = threading.Event()

        def give_up() -> None:
            hung.set()
            process.kill()

        last: dict[str, object] = {}
        with process, self.diary_path.open("ab") as diary, ExitStack() as timers:
            timers.enter_context(_later(self.timeout, give_up))
            for line in process.stdout:
                if not line.endswith(b"\n"):  # killed in the middle of the line
                    break
                last = json.loads(line)
                if "key" in last:
                    diary.write(line)
                elif last["did"] == "ready" and kill_after is not None:
                    timers.enter_context(_later(kill_after, process.kill))
            process.wait()
            listening.join()
        output = b"".join(words).decode(errors="replace")
        return ProcessEnd(process.returncode, hung.is_set() and process.returncode == _KILLED, last, output)

    def check(self, end: ProcessEnd, place: str) -> None:
        """Check the work of a process against the last promise, and make a new promise from the current state.

        Raises:
            CrashUnsafe: a promise is broken; the message lists the violations.
        """
        self.stops += not end.ended
        try:
            written = self.written()
        except StoreError as error:
            self.faults.append(f"the store cannot be read: {error}")
        else:
            diary = self.diary()
            self.faults += diary.faults
            self.faults += self._promise.broken(written, diary.calls)
            self.faults += journal_faults(written, diary.calls, ended=end.ended)
            self._promise = Promise.of(written, diary.calls)
        self.hold(self.faults, place)

    def to_the_end(self, place: str) -> ProcessEnd:
        """Run a process without disturbing it.

        Raises:
            CrashUnsafe: see `check`.
            RuntimeError: the run does not reach its end; the message contains the process's output.
        """
        end = self.process()
        if not end.ended:
            raise RuntimeError(f"{self.program}: {end}")
        self.check(end, place)
        return end

    def facts(self) -> Facts:
        """Return the facts of the run, which has ended."""
        return Facts.of(*anyio.run(_load, self.url))

    def hold(self, faults: Iterable[str], place: str) -> None:
        """Raise if there are any violations.

        Raises:
            CrashUnsafe: there are some; the message lists them.
        """
        lines = "\n".join(f"  - {fault}" for fault in dict.fromkeys(faults))
        if lines:
            raise CrashUnsafe(f"{self.program}, {place}:\n{lines}")

    def add_to(self, report: CrashReport) -> None:
        """Add this run to the totals."""
        report.stops += self.stops
        report.repeated += sum(max(0, call.begun - 1) for call in self.diary().calls.values())
        report.asked += sum(
            isinstance(record, Asked) and record.question.kind == "unknown_outcome"
            for records in self.written().values()
            for record in records
        )


class Whole:
    """An undisturbed run, to which others with the same input are compared.

    Args:
        program: see `Life`, as are the next three.
        store: returns the URL of an empty store for each run; None: each has its own file.

    Raises:
        RuntimeError: the run does not reach its end; the message contains the process's output.
    """

    def __init__(
        self, program: str, folder: Path, backend: str, timeout: float, store: Callable[[], str] | None = None
    ) -> None:
        self._folder, self._store = folder, store or str
        self._first = Life(program, folder / "whole", backend, timeout, url=self._store())
        self.totals = self._first.to_the_end("undisturbed").last
        """Number of moments and writes, and the duration in seconds."""
        self._facts = self._first.facts()
        self.report = CrashReport(
            status=self._facts.status, writes=self.totals["writes"], effects=len(self._first.diary().calls)
        )
        self._count = 0

    def another(self) -> Life:
        """Return a new run with the same replies of models."""
        self._count += 1
        first = self._first
        folder = self._folder / str(self._count)
        return Life(first.program, folder, first.backend, first.timeout, replies=first.diary_path, url=self._store())

    def compare(self, life: Life, place: str) -> None:
        """Compare a run that has ended with this one, and add it to the totals.

        Raises:
            CrashUnsafe: they differ; the message lists the differences.
        """
        life.hold(self._facts.differences(life.facts()), place)
        life.add_to(self.report)


def written(url: str) -> Journals:
    """Return the journals in a store."""
    return anyio.run(_read, url)


async def _read(url: str) -> Journals:
    store = open_store(url)
    try:
        return await journals(store)
    finally:
        await store.close()


async def _load(url: str) -> tuple[Run, Journals]:
    store = open_store(url)
    try:
        async with Executor(store) as executor:
            return await executor.load(RUN), await journals(store)
    finally:
        await store.close()


@contextmanager
def _later(seconds: float, do: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, do)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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

    Half of the kills come at a random event of the run (a write, a call that starts or has ended), the others after
    a random time. The comparison is that of `assert_crash_safe`. What a tool changes must outlive the process, such
    as a file or a server.

    Args:
        program: `module:function`; the function is called in each process and returns a mapping with `graph`,
            `input`, `answer` (see `assert_crash_safe`) and arguments of `Executor`.
        runs: the number of runs.
        kills: maximum number of kills of a run.
        store: called once per run; returns the URL of an empty store, such as a new database. None: a new SQLite file
            each.
        seed: the seed of the random choices.
        backend: `asyncio` or `trio`.
        timeout: seconds after which a process counts as hanging.

    Returns:
        The totals of the trials.

    Raises:
        CrashUnsafe: a run differs; the message names the run and the difference.
        RuntimeError: a process failed or hung; the message contains its output.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="crash-kit-") as folder:
        whole = Whole(program, Path(folder), backend, timeout, store)
        for number in range(runs):
            life = whole.another()
            place = f"run {number} of seed {seed}"
            for _ in range(kills):
                if chance.random() < 0.5:
                    end = life.process(die_at=chance.randint(1, whole.totals["moments"]))
                else:
                    end = life.process(kill_after=chance.uniform(0, whole.totals["seconds"]))
                if not (end.killed or end.ended):
                    raise RuntimeError(f"{program}: {end}")
                life.check(end, place)
                if end.ended:
                    break
            else:
                life.to_the_end(place)
            whole.compare(life, f"{place}, killed {life.stops} times")
        return whole.report


def assert_disk_safe(
    program: str,
    *,
    runs: int = 5,
    faults: Sequence[Fault] = ("full", "error", "torn"),
    seed: int = 0,
    backend: str = "asyncio",
    timeout: float = 60.0,
) -> CrashReport:
    """Run a graph in real processes on an SQLite file whose disk fails, continue in new processes, and compare.

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
        The totals of the trials.

    Raises:
        CrashUnsafe: a run differs; the message names the run and the difference.
        RuntimeError: a process failed or hung although its disk did not fail; the message contains its output.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="crash-kit-") as folder:
        whole = Whole(program, Path(folder), backend, timeout)
        for number in range(runs):
            for fault in faults:
                life = whole.another()
                write = 1 + int(chance.random() * whole.totals["writes"])
                place = f"run {number} of seed {seed}, disk {fault} at write {write} of {whole.totals['writes']}"
                end = life.process(fault=fault, write=write)
                if fault == "torn" and end.killed:
                    place += f", {_tear(life, chance)}"
                elif end.ended:
                    if end.last["writes"] >= write:
                        life.faults.append("the process continued to the run's end although its disk had failed")
                elif fault == "torn":
                    raise RuntimeError(f"{program}: {end}")
                elif str(life.file) not in end.gave_up:
                    life.faults.append(f"it must end with a `StoreUnavailable` that names the file; {end}")
                life.check(end, place)
                if not end.ended:
                    life.to_the_end(f"{place}, and going on")
                whole.compare(life, place)
        return whole.report


def _tear(life: Life, chance: random.Random) -> str:
    """Tear the last write of a process that was killed during it. Return a description."""
    states = [written(f"sqlite:///{copy}") for copy in before_and_after(life.file)]
    done = tear(life.file, chance)
    if life.written() not in states:
        life.faults.append("the journal ends neither before the torn write nor after it")
    return done
