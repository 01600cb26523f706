"""Memory across runs from outside of runs: `Executor.memory`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from orchestrator.errors import InvalidValue
from orchestrator.executor.effects.memory import MemoryAccess
from orchestrator.executor.host import Host
from orchestrator.graph.codec import shown
from orchestrator.memory import Access, Memory, MemoryOptions, names_of
from orchestrator.stores.items import ItemUsage


class ExecutorMemory(Memory):
    """The memory of an executor's store. Nothing is journaled."""

    __slots__ = ("_made",)

    def __init__(self, host: Host) -> None:
        self._made = MemoryAccess(host.store, host.resources.memory, host.resources.threads)

    @property
    def _options(self) -> MemoryOptions:
        return self._made.options

    async def _access(self, access: Access) -> Any:
        return await self._made.make(access)

    async def prune(self, prefix: Sequence[str] = (), *, older_than: timedelta | None = None) -> int:
        """Remove items that have expired.

        Args:
            prefix: the first names of their namespaces; `()`: any.
            older_than: also remove items that were not written for so long; `timedelta(0)`: all items.

        Returns:
            How many were removed.

        Raises:
            InvalidValue: an argument cannot be used.
        """
        if older_than is not None and not isinstance(cast(object, older_than), timedelta):
            raise InvalidValue(f"older_than={shown(older_than)}: give a timedelta", where="older_than")
        age = None if older_than is None else older_than.total_seconds()
        if age is not None and age < 0:
            raise InvalidValue(f"older_than={older_than!r}: use an age of 0 or more", where="older_than")
        return await self._made.store.prune_items("memory", tuple(names_of(prefix, least=0)), older_than=age)

    async def usage(self) -> ItemUsage:
        """Return how many items there are, and how many bytes they have."""
        return await self._made.store.item_usage("memory")
