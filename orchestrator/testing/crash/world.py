"""What is outside of a run and outlives its crashes: it counts what is done, by idempotency key.

A model is asked once per key, as by a server that honours the keys: asked again for the same, it says the same. So
what a model answers never differs between the runs that are compared. Tools and functions are really called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from orchestrator.executor.effects.effect import Effect
from orchestrator.executor.failures import Lost, Refused, Suspend
from orchestrator.json import digest
from orchestrator.kernel.records import EffectSettled
from orchestrator.testing.crash.facts import ObservedCall
from orchestrator.testing.crash.stopping import StoppingStore

T = TypeVar("T")


@dataclass
class World:
    """Counts effects. Those that are under way when a process stops go on here, as they would outside."""

    tasks: TaskGroup
    replies: dict[str, object] = field(default_factory=dict)
    """What models said, by key."""
    calls: dict[str, ObservedCall] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """What must never be, as soon as it is seen."""
    life: StoppingStore | None = None
    """What the process that calls writes to; once it is stopped, the process hears no answer any more."""
    _busy: int = 0
    _quiet: anyio.Event = field(default_factory=anyio.Event)

    async def call(self, effect: Effect[T], key: str) -> T:
        """See `Witness.call`."""
        wanted = wanted_of(effect)
        known = self.calls.setdefault(key, ObservedCall(key, effect.kind, effect.name, effect.effect, wanted))
        if known.wanted != wanted:
            self.faults.append(f"{known} was called with two requests under one key")
        known.begun += 1
        if effect.kind == "model" and key in self.replies:
            known.finished += 1
            return effect.decode(self.replies[key])
        return await self._outside(effect, key, known)

    def reuse(self, effect: Effect[object], settled: EffectSettled) -> None:
        """See `Witness.reuse`."""
        known = self.calls.get(settled.key)
        if known is not None and known.wanted != wanted_of(effect):
            self.faults.append(f"the result of {known} was given to a call of {effect.name} with another request")

    async def settle(self) -> None:
        """Wait until nothing is under way any more."""
        while self._busy:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    async def _outside(self, effect: Effect[T], key: str, known: ObservedCall) -> T:
        found: list[T] = []
        raised: list[BaseException] = []
        done = anyio.Event()
        scope = anyio.CancelScope()

        async def work() -> None:
            try:
                with scope:
                    value = await effect.run(key)
                    known.result = effect.encode(value)
                    known.finished += 1
                    if effect.kind == "model":
                        self.replies[key] = known.result
                    found.append(value)
            except (Exception, Suspend, Refused, Lost) as error:
                raised.append(error)
            finally:
                self._busy -= 1
                self._quiet.set()
                done.set()

        self._busy += 1
        self.tasks.start_soon(work)
        try:
            await done.wait()
        except BaseException:
            if self.life is None or not self.life.stopped:
                scope.cancel()
                with anyio.CancelScope(shield=True):
                    await done.wait()
            raise
        if raised:
            raise raised[0]
        return found[0]


def wanted_of(effect: Effect[Any]) -> str:
    """Digest of what an effect asks for, independent of the ledger's own."""
    return digest([effect.kind, effect.name, effect.request])
