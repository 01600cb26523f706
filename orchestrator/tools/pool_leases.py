"""What runs hold of the pools of their tools, and when they give it up.

the run ends, fails, is cancelled or interrupted    released
it pauses                                           kept, until another one waits for an instance
the executor is closed                              all released, and instances that nobody holds closed
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.tools.pool_client import PoolClient

if TYPE_CHECKING:
    from orchestrator.tools.pool_client import PoolLike


class PoolLeases:
    """What the runs of one executor hold."""

    def __init__(self) -> None:
        self._holders: dict[str, PoolClient] = {}
        self._pools: dict[PoolLike, None] = {}

    def of(self, run_id: str) -> PoolClient:
        """The run as who holds instances. It works now."""
        holder = self._holders.get(run_id)
        if holder is None:
            holder = self._holders[run_id] = PoolClient(run_id)
        holder.rests = False
        return holder

    @contextmanager
    def inside(self, run_id: str, outer: str) -> Iterator[None]:
        """A call of the run `outer` waits in here for the run that it began."""
        holders = self.of(outer).inside
        holder = self._holders.setdefault(run_id, PoolClient(run_id))
        holders.append(holder)
        try:
            yield
        finally:
            holders.remove(holder)
            if not holder.pools and self._holders.get(run_id) is holder:
                del self._holders[run_id]

    def __contains__(self, run_id: object) -> bool:
        """Whether there is anything to give up for a run."""
        return run_id in self._holders

    async def rest(self, run_id: str) -> None:
        """The run pauses."""
        holder = self._holders.get(run_id)
        if holder is not None:
            await holder.rest()

    async def release(self, run_id: str) -> None:
        """The run is over, or somebody else may go on with it."""
        holder = self._holders.pop(run_id, None)
        if holder is not None:
            self._pools.update(holder.pools)
            await holder.release()

    async def close(self) -> None:
        """The executor is closed."""
        for run_id in list(self._holders):
            await self.release(run_id)
        for pool in self._pools:
            await pool.aclose()
        self._pools.clear()
