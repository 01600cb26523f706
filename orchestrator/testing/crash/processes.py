"""One run over all of its processes, from the side of who starts them and sees how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from orchestrator.errors import StoreError
from orchestrator.executor.executor import Executor
from orchestrator.kernel.records import Asked
from orchestrator.stores import open_store
from orchestrator.testing.crash.diary import Diary
from orchestrator.testing.crash.facts import CrashUnsafe, Facts, Journals, Promise, journal_faults
from orchestrator.testing.crash.kit import CrashReport
from orchestrator.testing.crash.living import RUN, journals
from orchestrator.views.run import Run

_KILLED = -9
_WORDS = 4000
"""Of what a process said, so many characters are told."""


@dataclass(frozen=True)
class Told:
    """How a process ended, and what it told."""

    code: int
    hung: bool
    """It had to be killed, as it did not end in time."""
    last: dict[str, Any]
    """Its last line, see `child`."""
    words: str
    """What it wrote on stderr."""

    @property
    def killed(self) -> bool:
        """As it was meant to be."""
        return self.code == _KILLED and not self.hung

    @property
    def ended(self) -> bool:
        """The run came to its end."""
        return self.code == 0 and self.last.get("did") == "end"

    @property
    def gave_up(self) -> str:
        """The words in which it said that the store is not available."""
        return str(self.last["error"]) if self.code == 0 and self.last.get("did") == "give up" else ""

    def __str__(self) -> str:
        if self.hung:
            return f"the process has not ended in time: {self.words[-_WORDS:]}"
        if self.gave_up:
            return f"the process gave up: {self.gave_up}"
        return f"the process ended with {self.code}: {self.words[-_WORDS:]}"


@dataclass
class Life:
    """One run, over all of its processes. Everything is kept in `folder`, a new one."""

    program: str
    folder: Path
    backend: str
    timeout: float
    replies: Path | None = None
    """The diary that has what models said; None: its own."""
    url: str = ""
    """The URL of its store, an empty one; empty: a file in `folder`."""
    stops: int = 0
    """How many processes did not come to the run's end."""
    faults: list[str] = field(default_factory=list)
    """What must never be."""

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.file = self.folder / "runs.db"
        self.url = self.url or f"sqlite:///{self.file}"
        self.diary_path = self.folder / "diary.jsonl"
        self._promise = Promise.of({}, {})

    def diary(self) -> Diary:
        """What was done outside so far."""
        return Diary(self.diary_path)

    def written(self) -> Journals:
        """What is in the store now."""
        return written(self.url)

    def process(self, *, kill_after: float | None = None, **order: object) -> Told:
        """One process, killed after so many seconds.

        Args:
            kill_after: the seconds.
            order: what else is in its order, see `child.Order`.
        """
        whole = {
            "program": self.program, "store": self.url, "diary": str(self.diary_path),
            "replies": str(self.replies or self.diary_path), "backend": self.backend, **order,
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.testing.crash.child", json.dumps(whole)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
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
                if not line.endswith(b"\n"):  # killed in the middle of it
                    break
                last = json.loads(line)
                if "key" in last:
                    diary.write(line)
                elif last["did"] == "ready" and kill_after is not None:
                    timers.enter_context(_later(kill_after, process.kill))
            process.wait()
            listening.join()
        told = b"".join(words).decode(errors="replace")
        return Told(process.returncode, hung.is_set() and process.returncode == _KILLED, last, told)

    def check(self, told: Told, place: str) -> None:
        """Hold what a process left against what was promised before it; a new promise is what is there now.

        Raises:
            CrashUnsafe: says what was not as it must be.
        """
        self.stops += not told.ended
        try:
            written = self.written()
        except StoreError as error:
            self.faults.append(f"the store cannot be read: {error}")
        else:
            diary = self.diary()
            self.faults += diary.faults
            self.faults += self._promise.broken(written, diary.calls)
            self.faults += journal_faults(written, diary.calls, ended=told.ended)
            self._promise = Promise.of(written, diary.calls)
        self.hold(self.faults, place)

    def to_the_end(self, place: str) -> Told:
        """A process that nothing happens to.

        Raises:
            CrashUnsafe: see `check`.
            RuntimeError: the run does not come to its end in it; its words.
        """
        told = self.process()
        if not told.ended:
            raise RuntimeError(f"{self.program}: {told}")
        self.check(told, place)
        return told

    def facts(self) -> Facts:
        """The facts of the run, which has ended."""
        return Facts.of(*anyio.run(_load, self.url))

    def hold(self, faults: Iterable[str], place: str) -> None:
        """Raise if there is any.

        Raises:
            CrashUnsafe: says which.
        """
        lines = "\n".join(f"  - {fault}" for fault in dict.fromkeys(faults))
        if lines:
            raise CrashUnsafe(f"{self.program}, {place}:\n{lines}")

    def add_to(self, report: CrashReport) -> None:
        """Count what happened."""
        report.stops += self.stops
        report.repeated += sum(max(0, call.begun - 1) for call in self.diary().calls.values())
        report.asked += sum(
            isinstance(record, Asked) and record.question.kind == "unknown_outcome"
            for records in self.written().values()
            for record in records
        )


class Whole:
    """A run that nothing happens to, and what others that begin the same are held against.

    Args:
        program: see `Life`, as are the next three.
        store: gives the URL of an empty store for each run; None: each has a file of its own.

    Raises:
        RuntimeError: the run does not come to its end; the process's words.
    """

    def __init__(
        self, program: str, folder: Path, backend: str, timeout: float, store: Callable[[], str] | None = None
    ) -> None:
        self._folder, self._store = folder, store or str
        self._first = Life(program, folder / "whole", backend, timeout, url=self._store())
        self.told = self._first.to_the_end("undisturbed").last
        """How many moments and writes it had, and how many seconds it took."""
        self._facts = self._first.facts()
        self.report = CrashReport(
            status=self._facts.status, writes=self.told["writes"], effects=len(self._first.diary().calls)
        )
        self._count = 0

    def another(self) -> Life:
        """A new run, to which models say the same."""
        self._count += 1
        first = self._first
        folder = self._folder / str(self._count)
        return Life(first.program, folder, first.backend, first.timeout, replies=first.diary_path, url=self._store())

    def compare(self, life: Life, place: str) -> None:
        """Hold a run that has ended against this one, and count what happened to it.

        Raises:
            CrashUnsafe: says what differs.
        """
        life.hold(self._facts.differences(life.facts()), place)
        life.add_to(self.report)


def written(url: str) -> Journals:
    """What is in a store."""
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
