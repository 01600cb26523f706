"""A run as the pools of its tools see it: what it holds, and what it waits for."""

from __future__ import annotations

from collections.abc import Hashable
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
        """Where it waits for an instance; a pool stands there once for each call that does."""
        self.inside: list[PoolClient] = []
        """The runs that calls of it wait for."""
        self.rests = False
        """Whether it keeps its instances only until somebody else wants one."""

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
