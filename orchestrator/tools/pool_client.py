"""A run as the pools of its tools see it: what it holds, and what it waits for."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Protocol


class PoolLike(Protocol):
    """A pool, as far as its clients use it."""

    @property
    def size(self) -> int: ...
    @property
    def acquire_timeout(self) -> float | None: ...
    def holders(self) -> list[Hashable]: ...
    async def reclaim(self) -> None: ...
    async def release(self, id: Hashable) -> bool: ...  # noqa: A002  a public name
    async def aclose(self) -> None: ...


class PoolClient:
    """Holds instances of pools until it ends, as a run does. It is their id."""

    __slots__ = ("had", "inside", "name", "pools", "rests", "waits")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pools: dict[PoolLike, None] = {}
        self.had: set[str] = set()
        """Tools that gave it an instance."""
        self.waits: list[PoolLike] = []
        """Pools in which it waits for an instance, one entry for each waiting call."""
        self.inside: list[PoolClient] = []
        """The runs that calls of it wait for."""
        self.rests = False
        """True if it keeps its instances only until another client needs one."""

    def __repr__(self) -> str:
        return f"PoolClient({self.name!r})"

    async def rest(self) -> None:
        """It may need its instances again, and does not now."""
        self.rests = True
        for pool in self.pools:
            await pool.reclaim()

    async def release(self) -> None:
        """It is over."""
        for pool in list(self.pools):
            await pool.release(self)
        self.pools.clear()


def in_vain(who: PoolClient, pool: PoolLike) -> bool:
    """True if a run waits for an instance that cannot be returned, and is part of the circle that prevents it.

    Each instance of the pool is held by a run that itself waits for one that cannot come back. A client that
    holds none of them waits on: it would free no instance by giving up.
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
    # What is left, when nothing can be taken away any more, waits in circles.
    while free := [
        one for one, holders in full.items() if any(full.keys().isdisjoint(_waits(holder)) for holder in holders)
    ]:
        for one in free:
            del full[one]
    return pool in full and any(who in _within(holder) for holders in full.values() for holder in holders)


def _within(holder: PoolClient) -> Iterator[PoolClient]:
    """A run, and those that calls of it wait for."""
    yield holder
    for inside in holder.inside:
        yield from _within(inside)


def _waits(holder: PoolClient) -> Iterator[PoolLike]:
    """The pools that a run, or one that it waits for, waits for."""
    return (pool for one in _within(holder) for pool in one.waits)


class PoolLeases:
    """Instances that the runs of an executor hold."""

    def __init__(self) -> None:
        self._holders: dict[str, PoolClient] = {}
        self._pools: dict[PoolLike, None] = {}

    def of(self, run_id: str) -> PoolClient:
        """The run as a client of pools. It is active now."""
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
        """True if the run may hold instances."""
        return run_id in self._holders

    async def rest(self, run_id: str) -> None:
        """The run pauses."""
        holder = self._holders.get(run_id)
        if holder is not None:
            await holder.rest()

    async def release(self, run_id: str) -> None:
        """The run is over, or another executor may continue it."""
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
