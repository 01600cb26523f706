"""A run as a client of the pools of its tools: which instances it holds and waits for."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Protocol


class PoolLike(Protocol):
    """The methods of a pool that its clients use."""

    @property
    def size(self) -> int: ...
    @property
    def acquire_timeout(self) -> float | None: ...
    def holders(self) -> list[Hashable]: ...
    async def reclaim(self) -> None: ...
    async def release(self, id: Hashable) -> bool: ...  # noqa: A002  a public name
    async def aclose(self) -> None: ...


class PoolClient:
    """Holds instances of pools until it ends, as a run does. The client is the id of its instances."""

    __slots__ = ("had", "inside", "name", "pools", "rests", "waits")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pools: dict[PoolLike, None] = {}
        self.had: set[str] = set()
        """Names of the tools that gave it an instance."""
        self.waits: list[PoolLike] = []
        """Pools in which it waits for an instance, one entry for each waiting call."""
        self.inside: list[PoolClient] = []
        """Runs for which its calls wait."""
        self.rests = False
        """True if it keeps its instances only until another client needs one."""

    def __repr__(self) -> str:
        return f"PoolClient({self.name!r})"

    async def rest(self) -> None:
        """Let other clients take this client's instances, which it may need again later."""
        self.rests = True
        for pool in self.pools:
            await pool.reclaim()

    async def release(self) -> None:
        """Return the client's instances to their pools, because the client has ended."""
        for pool in list(self.pools):
            await pool.release(self)
        self.pools.clear()


def in_vain(who: PoolClient, pool: PoolLike) -> bool:
    """Return True if a run waits for an instance that cannot be returned, and belongs to the circle that prevents it.

    Each instance of the pool is held by a run that itself waits for one that cannot be returned. A client that holds
    none of them keeps waiting: it would free no instance by giving up.
    """
    full: dict[PoolLike, list[PoolClient]] = {}
    seen: set[PoolLike] = set()
    ahead = [pool]
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        holders = [key for key in one.holders() if isinstance(key, PoolClient)]
        if one.acquire_timeout is None and len(holders) >= one.size:
            full[one] = holders
        ahead += (other for holder in holders for other in _waits(holder))
    # The pools that remain when none can be removed depend on each other in a circle.
    while free := [
        one for one, holders in full.items() if any(full.keys().isdisjoint(_waits(holder)) for holder in holders)
    ]:
        for one in free:
            del full[one]
    return pool in full and any(who in _within(holder) for holders in full.values() for holder in holders)


def _within(holder: PoolClient) -> Iterator[PoolClient]:
    """Yield a run, and those for which its calls wait."""
    yield holder
    for inside in holder.inside:
        yield from _within(inside)


def _waits(holder: PoolClient) -> Iterator[PoolLike]:
    """Yield the pools for which a run, or a run that it waits for, waits."""
    return (pool for one in _within(holder) for pool in one.waits)


class PoolLeases:
    """The pool clients of an executor's runs."""

    def __init__(self) -> None:
        self._holders: dict[str, PoolClient] = {}
        self._pools: dict[PoolLike, None] = {}

    def of(self, run_id: str) -> PoolClient:
        """Return the run as a client of pools, and mark it as active."""
        holder = self._holders.get(run_id)
        if holder is None:
            holder = self._holders[run_id] = PoolClient(run_id)
        holder.rests = False
        return holder

    @contextmanager
    def inside(self, run_id: str, outer: str) -> Iterator[None]:
        """Mark that a call of the run `outer` waits for a run that it started."""
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
        """Return True if the run may hold instances."""
        return run_id in self._holders

    async def rest(self, run_id: str) -> None:
        """Let the instances of a paused run be taken."""
        holder = self._holders.get(run_id)
        if holder is not None:
            await holder.rest()

    async def release(self, run_id: str) -> None:
        """Release the instances of a run that has ended, or that another executor may continue."""
        holder = self._holders.pop(run_id, None)
        if holder is not None:
            self._pools.update(holder.pools)
            await holder.release()

    async def close(self) -> None:
        """Release all instances, because the executor is closed."""
        for run_id in list(self._holders):
            await self.release(run_id)
        for pool in self._pools:
            await pool.aclose()
        self._pools.clear()
