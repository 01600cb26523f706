"""The results of cached nodes, from outside of runs: `Executor.cache`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from orchestrator.executor.host import Host
from orchestrator.stores.items import ItemUsage, namespace_text


@dataclass(frozen=True, slots=True)
class CachedResult:
    """A result that is kept of a node with `cache=`."""

    graph: str
    node: str
    key: str
    """Digest of all that the result depends on."""
    created: float
    """Unix seconds, by the store's clock, as is the next one."""
    expires: float | None
    size: int
    """Bytes that it takes in the store."""


class ExecutorCache:
    """The results of nodes with `cache=` in an executor's store."""

    def __init__(self, host: Host) -> None:
        self._store = host.store

    async def list(
        self, graph: str | None = None, node: str | None = None, *, after: CachedResult | None = None, limit: int = 100
    ) -> Sequence[CachedResult]:
        """Return kept results, ordered by graph, node and key.

        Args:
            graph: the name of a graph; None: any.
            node: the name of a node of that graph; None: any.
            after: the result before the first one to return: the last one of the page before.
            limit: the most results to return.

        Raises:
            ValueError: a node is named without its graph.
        """
        place = None if after is None else (namespace_text((after.graph, after.node)), after.key)
        items = await self._store.items("cache", _prefix(graph, node), after=place, limit=limit)
        return [
            CachedResult(item.namespace[0], item.namespace[-1], item.key, item.updated, item.expires, item.size)
            for item in items
        ]

    async def clear(self, graph: str | None = None, node: str | None = None) -> int:
        """Remove kept results, so that their steps are made again.

        Args:
            graph: the name of a graph; None: any.
            node: the name of a node of that graph; None: any.

        Returns:
            How many were removed.

        Raises:
            ValueError: a node is named without its graph.
        """
        return await self._store.prune_items("cache", _prefix(graph, node), older_than=0)

    async def prune(self, *, older_than: timedelta | None = None) -> int:
        """Remove results that have expired.

        Args:
            older_than: also remove results that are older.

        Returns:
            How many were removed.
        """
        age = None if older_than is None else older_than.total_seconds()
        if age is not None and age < 0:
            raise ValueError(f"older_than={older_than!r}: use an age of 0 or more")
        return await self._store.prune_items("cache", older_than=age)

    async def usage(self) -> ItemUsage:
        """Return how many results there are, and how many bytes they have."""
        return await self._store.item_usage("cache")


def _prefix(graph: str | None, node: str | None) -> tuple[str, ...]:
    if graph is None and node is not None:
        raise ValueError(f"node={node!r}: name its graph, too")
    return tuple(name for name in (graph, node) if name is not None)
