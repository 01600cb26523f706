"""The store of tries: in memory, with a limit of bytes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import StoreError
from orchestrator.json import JsonObject
from orchestrator.kernel.records import Record
from orchestrator.stores.memory import MemoryStore

if TYPE_CHECKING:
    from orchestrator.stores.items import Area, Item
    from orchestrator.stores.requests import Append, NewRun

MOST_BYTES = 64 << 20
"""Bytes of all journals, snapshots, messages and graphs."""
MOST_ITEMS = 16 << 20
"""Bytes of all values in memory across runs, and of all results in the cache."""
_UNUSED = 5.0
"""Seconds for which a graph is kept that no run is of: one that is stored is named by the next record of its run."""


@dataclass(slots=True)
class _Journal:
    """What is counted of a run. What was counted once is not looked at again: an append costs what it appends."""

    size: int = 0
    records: int = 0
    snapshots: dict[int, int] = field(default_factory=dict)
    graphs: set[str] = field(default_factory=set)
    """Contents of the graphs that it is of, and was of."""


class ScratchStore(MemoryStore):
    """A store in memory that takes only so many bytes.

    Args:
        most: how many bytes of records, snapshots, messages and graphs it takes; the write that reaches this is the
            last.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        super().__init__()
        self._most = most
        self._journals: dict[str, _Journal] = {}
        self._bytes = 0
        self._graph_sizes: dict[str, int] = {}
        self._unused: dict[str, float] = {}
        self.ending: str | None = None
        """The run that may still write how it ends."""

    @property
    def size(self) -> int:
        """Bytes of all records, snapshots, messages and graphs."""
        with self._lock:
            return self._bytes + sum(self._inbox.sizes.values()) + sum(self._graph_sizes.values())

    @property
    def full(self) -> bool:
        """Whether it takes no more."""
        return self.size >= self._most

    def largest(self) -> str | None:
        """The run with the most bytes; None: there is none."""
        with self._lock:
            return max(self._journals, key=self._size_of, default=None)

    async def create(self, new: NewRun) -> None:
        """See `Store.create`."""
        info = new.info
        self._check(info.run_id)
        await super().create(new)
        self._count(info.run_id, [info.content, *_contents(new.records)])
        self._count_graph(info.content)

    async def append(self, append: Append) -> int:
        """See `Store.append`."""
        self._check(append.run_id)
        head = await super().append(append)
        self._count(append.run_id, _contents(append.records))
        return head

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        """See `Store.put_snapshot`."""
        self._check(run_id)
        await super().put_snapshot(run_id, seq, data)
        self._count(run_id, ())

    async def put_graph(self, digest: str, data: JsonObject) -> None:
        """See `Store.put_graph`."""
        self._check("")
        await super().put_graph(digest, data)
        self._count_graph(digest)

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        """See `Store.post`."""
        self._check(run_id)
        return await super().post(run_id, body, key=key)

    async def put_item(self, area: Area, item: Item, *, most: int | None = None, **options: Any) -> None:
        """See `Store.put_item`."""
        bound = MOST_ITEMS if most is None else min(most, MOST_ITEMS)
        await super().put_item(area, item, most=bound, **options)

    async def delete(self, run_id: str) -> bool:
        """See `Store.delete`."""
        deleted = await super().delete(run_id)
        with self._lock:
            journal = self._journals.pop(run_id, None)
            self._bytes -= 0 if journal is None else journal.size
        return deleted

    def drop_graphs(self) -> None:
        """Delete the graphs that no run is of, once that has been so for a while."""
        with self._lock:
            now, used = time.monotonic(), {name for journal in self._journals.values() for name in journal.graphs}
            self._unused = {name: self._unused.get(name, now) for name in self._graphs if name not in used}
            for name in [name for name, since in self._unused.items() if now - since >= _UNUSED]:
                del self._unused[name], self._graphs[name]
                self._graph_sizes.pop(name, None)

    def _check(self, run_id: str) -> None:
        if self.full and run_id != self.ending:
            raise StoreError(f"the store of tries is full: it takes {self._most:,} bytes; its largest run is deleted")

    def _size_of(self, run_id: str) -> int:
        return self._journals[run_id].size + self._inbox.sizes.get(run_id, 0)

    def _count(self, run_id: str, graphs: Iterable[str]) -> None:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            journal = self._journals.setdefault(run_id, _Journal())
            journal.graphs.update(graphs)
            added = sum(map(len, run.records[journal.records :]))
            journal.records = len(run.records)
            for seq in reversed(run.snapshots):  # those that were counted come first
                if journal.snapshots.get(seq) == len(run.snapshots[seq]):
                    break
                added += len(run.snapshots[seq]) - journal.snapshots.get(seq, 0)
                journal.snapshots[seq] = len(run.snapshots[seq])
            journal.size += added
            self._bytes += added

    def _count_graph(self, digest: str) -> None:
        with self._lock:
            text = self._graphs.get(digest)
            if text is not None:
                self._graph_sizes.setdefault(digest, len(text))


def _contents(records: Sequence[Record]) -> list[str]:
    """The contents of graphs that records name."""
    named = (getattr(record, "content", None) for record in records)
    return [content for content in named if isinstance(content, str) and content]
