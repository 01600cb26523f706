"""A life of a run in a process of its own, which kills itself or loses its disk at a given moment.

`python -m orchestrator.testing.crash.child ORDER` with an order as JSON, see `Order`. It prints lines of JSON:
`ready`, then the lines of the diary, at the end the number of moments and writes and the seconds that it took, or that
the store was not available any more.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import anyio

from orchestrator.errors import StoreUnavailable
from orchestrator.executor.effects.effect import Effect, witness
from orchestrator.executor.executor import Executor
from orchestrator.graph.refs import resolve
from orchestrator.kernel.records import EffectSettled
from orchestrator.stores import open_store
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.testing.crash.calls import Diary, wanted_of
from orchestrator.testing.crash.disk import Disk, Fault
from orchestrator.testing.crash.life import Answers, StoppingStore, live

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Order:
    """Task of a process."""

    program: str
    """`module:function`."""
    store: str
    """Its URL."""
    diary: str
    """Path of what earlier processes of the run did."""
    replies: str
    """Path of the diary with the replies of models."""
    backend: str
    die_at: int | None = None
    """Number of the moment at which it dies. Moments are: before and after every write to the journal, and every
    effect's call when it starts and when it has ended."""
    fault: Fault | None = None
    """Fault of its disk, if it keeps its runs in a file."""
    write: int = 0
    """Number of the write of the journal at which that happens."""


class Moments:
    """Counts the moments at which a process may die, and dies at one."""

    def __init__(self, last: int | None) -> None:
        self.last, self.count = last, 0

    def pass_by(self) -> None:
        """Count a moment, and die if it is the last."""
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


class FailingStore(StoppingStore):
    """A store at whose writes the process may die, or lose its disk at one."""

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


class Writing:
    """Tells what is done, where it is written down."""

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
    """Live."""
    order = Order(**json.loads(sys.argv[1]))
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # what the program prints is no line of ours

        def say(line: dict[str, object]) -> None:
            print(json.dumps(line), file=output, flush=True)

        try:
            anyio.run(partial(_live, order, say), backend=order.backend)
        except StoreUnavailable as error:
            say({"did": "give up", "error": str(error)})


if __name__ == "__main__":
    main()
