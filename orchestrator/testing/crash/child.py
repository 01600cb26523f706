"""One life of a run in a separate process, which kills itself or loses its disk at a given moment.

`python -m orchestrator.testing.crash.child ORDER` with an order as JSON, see `Order`. It prints lines of JSON:
`ready`, then the lines of the diary, at the end the number of moments and writes and the duration in seconds, or
that the store was no longer available.

`Disk` is a disk that fails under the process, and `tear` tears the last write to an SQLite file afterwards. A torn
write is what a power failure may leave of a transaction that was not acknowledged. SQLite's log
(https://sqlite.org/fileformat2.html#walformat) is a header of 32 bytes and frames, each a header of 24 bytes and a
page. A transaction ends with a frame that holds the size of the file in pages. Frames that are left from before the
log was restarted have other salts than its header.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio

from orchestrator.errors import StoreUnavailable
from orchestrator.executor.calls.effect import Effect, Witness, witness
from orchestrator.executor.executor import Executor
from orchestrator.graph.refs import resolve
from orchestrator.kernel.records import EffectSettled
from orchestrator.stores import open_store
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.stores.sqlite.connections import Writer, _Job
from orchestrator.testing.crash.life import Answers, Diary, StoppingStore, live, wanted_of

Fault = Literal["full", "error", "torn"]
"""`full`: the disk is full; `error`: every write is an I/O error; `torn`: the process dies during the write."""


class Disk:
    """A disk that fails under a store, which must not have written anything yet.

    Args:
        fault: the fault.
        store: the store whose file is on the disk.
    """

    def __init__(self, fault: Fault, store: SQLiteStore) -> None:
        self._fault: Fault = fault
        self._writer = store._writer = _FaultyWriter(store.path, store.url)

    def fail(self) -> None:
        """Make writes fail, starting with the next one."""
        if self._fault == "error":
            # Python ignores the signal that is sent as well
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        else:
            self._writer.fault = self._fault


class _FaultyWriter(Writer):
    fault: Fault | None = None

    def _transaction(self, connection: sqlite3.Connection, batch: list[_Job[object]], begun: bool) -> float:
        if self.fault == "full":
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
            batch = [*batch, _Job(_fill, False)]
        elif self.fault == "torn":
            # data copied out of the log is never torn there: it was safe before
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        seconds = super()._transaction(connection, batch, begun)
        if self.fault == "torn":
            os.kill(os.getpid(), signal.SIGKILL)  # no caller has received a confirmation of the write
        return seconds


def _fill(connection: sqlite3.Connection) -> object:
    """Fill the free pages of the file and more, so that even a write that would fit is refused."""
    free, size = (connection.execute(f"PRAGMA {of}").fetchone()[0] for of in ("freelist_count", "page_size"))
    return connection.execute(f"CREATE TABLE filler AS SELECT zeroblob({(free + 2) * size})")


_HEADER, _FRAME = 32, 24


def log_of(file: Path) -> Path:
    """Return the path of the log with the latest transactions of a file."""
    return file.with_name(f"{file.name}-wal")


def last_write(log: bytes) -> tuple[int, int]:
    """Return the start and the end of the last transaction of a log; the first one of a log includes the log's header.

    Raises:
        ValueError: the log has no transaction.
    """
    size = _FRAME + int.from_bytes(log[8:12])
    ends = [0]
    for place in range(_HEADER, len(log) - size + 1, size):
        if log[place + 8 : place + 16] != log[16:24]:
            break
        if any(log[place + 4 : place + 8]):
            ends.append(place + size)
    if len(ends) == 1:
        raise ValueError("the log is empty")
    return ends[-2], ends[-1]


def before_and_after(file: Path) -> tuple[Path, Path]:
    """Make copies next to a file, as it was before its last transaction and as it is; return their paths."""
    log = log_of(file).read_bytes()
    before, after = file.with_name(f"before-{file.name}"), file.with_name(f"after-{file.name}")
    for copy, end in ((before, last_write(log)[0]), (after, len(log))):
        shutil.copy(file, copy)
        log_of(copy).write_bytes(log[:end])
    return before, after


def tear(file: Path, chance: random.Random) -> str:
    """Lose or garble a random part of the last transaction. Return a description."""
    log = log_of(file).read_bytes()
    begin, end = last_write(log)
    first = chance.randrange(begin, end)
    last = chance.randrange(first, end)
    way = chance.choice(("cut", "zeros", "noise"))
    if way == "cut":
        log_of(file).write_bytes(log[:first])
        return f"the log cut at byte {first} of {begin} to {end}"
    lost = chance.randbytes(last + 1 - first) if way == "noise" else bytes(last + 1 - first)
    log_of(file).write_bytes(log[:first] + lost + log[last + 1 :])
    return f"{way} in bytes {first} to {last} of {begin} to {end}"


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Order:
    """Instructions for a process."""

    program: str
    """`module:function`."""
    store: str
    """URL of the store."""
    diary: str
    """Path of the diary of earlier processes of the run."""
    replies: str
    """Path of the diary that contains the replies of models."""
    backend: str
    die_at: int | None = None
    """Number of the moment at which it dies. Moments are: before and after every write to the journal, and every
    effect's call when it starts and when it has ended."""
    fault: Fault | None = None
    """Fault of its disk, if it keeps its runs in a file."""
    write: int = 0
    """Number of the write to the journal at which the fault occurs."""


class Moments:
    """Counts the moments at which a process may die, and dies at one."""

    def __init__(self, last: int | None) -> None:
        self.last, self.count = last, 0

    def pass_by(self) -> None:
        """Count a moment, and die if it is the given one."""
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


class FailingStore(StoppingStore):
    """A store during whose writes the process may die, or lose its disk."""

    def __init__(self, inner: Any, moments: Moments, disk: Disk | None, write: int) -> None:
        super().__init__(inner)
        self._moments, self._disk, self._write = moments, disk, write

    def _begins(self) -> bool:
        self._moments.pass_by()
        last = super()._begins()
        if self._disk is not None and self.writes == self._write:
            self._disk.fail()
        return last

    def _ended(self, last: bool) -> None:
        self._moments.pass_by()
        super()._ended(last)


class Writing(Witness):
    """A witness that reports calls to the process that keeps the diary."""

    def __init__(self, diary: Diary, replies: Diary, moments: Moments) -> None:
        self._diary, self._replies, self._moments = diary, replies, moments

    async def call(self, effect: Effect[T], key: str) -> T:
        """See `Witness.call`."""
        self._diary.begin(key, effect.kind, effect.name, effect.effect, wanted_of(effect))
        self._moments.pass_by()
        known = self._diary.replies.get(key, self._replies.replies.get(key))
        if effect.kind == "model" and known is not None:
            value = effect.decode(known)
        else:
            value = await effect.run(key)
        self._diary.finish(key, effect.encode(value))
        self._moments.pass_by()
        return value

    def reuse(self, effect: Effect[object], settled: EffectSettled) -> None:
        """See `Witness.reuse`."""
        self._diary.reuse(settled.key, wanted_of(effect))


async def _live(order: Order, say: Callable[[dict[str, Any]], None]) -> None:
    program: Any = resolve(order.program)
    given = dict(program())
    graph, begin, answer = given.pop("graph"), given.pop("input", None), given.pop("answer", None)
    moments = Moments(order.die_at)
    diary = Diary(order.diary, say)
    witness.set(Writing(diary, Diary(order.replies), moments))
    inner = open_store(order.store)
    began = time.monotonic()
    try:
        say({"did": "ready"})
        disk = Disk(order.fault, inner) if order.fault is not None and isinstance(inner, SQLiteStore) else None
        failing = FailingStore(inner, moments, disk, order.write)
        async with Executor(failing.store, graphs=[graph], **{"idle": "sleep", **given}) as executor:
            await live(executor, graph, begin, Answers(answer, diary.calls))
    finally:
        await inner.close()
    seconds = time.monotonic() - began
    say({"did": "end", "moments": moments.count, "writes": failing.writes, "seconds": seconds})


def main() -> None:
    """Run the process."""
    order = Order(**json.loads(sys.argv[1]))
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # output of the program must not mix with the protocol lines

        def say(line: dict[str, object]) -> None:
            print(json.dumps(line), file=output, flush=True)

        try:
            anyio.run(partial(_live, order, say), backend=order.backend)
        except StoreUnavailable as error:
            say({"did": "give up", "error": str(error)})


if __name__ == "__main__":
    main()
