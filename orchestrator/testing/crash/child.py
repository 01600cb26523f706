"""One life of a run in a process of its own, which kills itself at a given moment.

`python -m orchestrator.testing.crash.child ORDER` with the order as JSON: `program`, `store`, `diary`, `replies`,
`backend`, and `die_at`, the number of the moment. Moments are: before and after every write to the journal, and
every effect's call when it begins and when it has ended. On stdout it says `ready`, then how many moments it saw
and how many seconds it took since.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from orchestrator.executor.effects import Effect, witness
from orchestrator.executor.executor import Executor
from orchestrator.graph.refs import resolve
from orchestrator.stores import open_store
from orchestrator.testing.crash.diary import Diary
from orchestrator.testing.crash.living import Answers, live
from orchestrator.testing.crash.stopping import StoppingStore
from orchestrator.testing.crash.world import wanted_of

if TYPE_CHECKING:
    from orchestrator.kernel.records import EffectSettled

T = TypeVar("T")


class Moments:
    """Counts the moments at which a process may die, and dies at one."""

    def __init__(self, last: int | None) -> None:
        self.last, self.count = last, 0

    def pass_by(self) -> None:
        """One more."""
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingStore(StoppingStore):
    """A store at whose writes the process may die."""

    def __init__(self, inner: Any, moments: Moments) -> None:
        super().__init__(inner)
        self._moments = moments

    def _begins(self) -> bool:
        self._moments.pass_by()
        return super()._begins()

    def _ended(self, last: bool) -> None:
        self._moments.pass_by()
        super()._ended(last)


class Writing:
    """Writes down what is done, where a kill does not reach it."""

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

    def reuse(self, effect: Effect[Any], settled: EffectSettled) -> None:
        """See `Witness.reuse`."""
        self._diary.reuse(settled.key, wanted_of(effect))


async def _live(order: dict[str, Any]) -> dict[str, float]:
    program: Any = resolve(order["program"])
    given = dict(program())
    graph, begin, answer = given.pop("graph"), given.pop("input", None), given.pop("answer", None)
    moments = Moments(order["die_at"])
    diary = Diary(order["diary"])
    witness.set(Writing(diary, Diary(order["replies"]), moments))
    store = open_store(order["store"])
    began = time.monotonic()
    try:
        print("ready", flush=True)
        dying = DyingStore(store, moments)
        async with Executor(dying.store, graphs=[graph], **given) as executor:
            await live(executor, graph, begin, Answers(answer, diary.calls))
    finally:
        await store.close()
    return {"moments": moments.count, "seconds": time.monotonic() - began}


def main() -> None:
    """Live."""
    order = json.loads(sys.argv[1])
    print(json.dumps(anyio.run(partial(_live, order), backend=order["backend"])), flush=True)


if __name__ == "__main__":
    main()
