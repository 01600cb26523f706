"""Runs that wait for each other's instances.

A run keeps its instance until it ends. So two runs that each hold what the other one waits for would wait for ever, and
so would runs that all begin a graph as a tool which needs another instance of the same pool.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.tools.pool_client import PoolClient, PoolLike


def in_vain(who: PoolClient, pool: PoolLike) -> bool:
    """Whether a run waits for an instance that cannot come back, and is one of those that keep it from coming.

    Each instance of the pool is held by a run that itself waits for one that cannot come back. Who holds none of them
    waits on: it would set nobody free by giving up.
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
