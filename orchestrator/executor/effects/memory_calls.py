"""Memory across runs as a node has it: every access is an effect.

What an access read is journaled, so that a run that is resumed, a replay and a fork see what was read then. A write
is made once: the store knows it by the key of its effect, also when the process dies before the journal has its end.
"""

from __future__ import annotations

from typing import Any

from orchestrator.errors import StoreUnavailable
from orchestrator.executor.effects.effect import Effect
from orchestrator.executor.effects.perform import AttemptEffects
from orchestrator.executor.interrupts import Lost
from orchestrator.executor.memory_access import MemoryAccess
from orchestrator.fence import pass_fence, waits_at_fence
from orchestrator.graph.isolation import isolated
from orchestrator.memory import Access, Memory, MemoryOptions
from orchestrator.stores.items import ItemWrite


class JournaledMemory(Memory):
    """The memory of one step."""

    __slots__ = ("_effects", "_made")

    def __init__(self, effects: AttemptEffects) -> None:
        resources = effects.attempt.resources
        self._effects = effects
        self._made = MemoryAccess(effects.attempt.log.journal.store, resources.memory, resources.threads)

    @property
    def _options(self) -> MemoryOptions:
        return self._made.options

    async def _access(self, access: Access) -> Any:
        attempt = self._effects.attempt

        async def run(key: str) -> object:
            waits_at_fence(key)
            await pass_fence()
            try:
                return await self._made.make(access, ItemWrite(attempt.log.run_id, key) if access.writes else None)
            except StoreUnavailable as error:  # the store of the journal, too: the run goes on when it works again
                raise attempt.signalled(Lost(error)) from error

        found = await self._effects.perform(
            Effect[object](
                kind="effect",
                name=f"memory.{access.name}",
                effect="idempotent" if access.writes else "read",
                request=access.request,
                run=run,
                encode=lambda value: value,
                decode=lambda value: value,
            )
        )
        return isolated(found)  # the journal keeps what was found
