"""Runs side by side, kept while they do not change: reading long runs takes seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from orchestrator.executor.run_status import with_status
from orchestrator.json import size_of
from orchestrator.tasks import away
from orchestrator.views.alignment import Alignment, align

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.stores.base import RunInfo

_KEPT = 3
"""Alignments that are kept. Each has the records of its runs."""
_SIZE = 1 << 26
"""Characters of these records: of more, only the alignment is kept that was asked for last."""


@dataclass(frozen=True, slots=True)
class _Made:
    alignment: Alignment
    version: object
    seconds: float
    """How long it took."""
    size: int
    """Characters of the records, see `size_of`."""


@dataclass(slots=True)
class Alignments:
    """The alignments that were asked for last."""

    _kept: dict[tuple[str, ...], _Made] = field(default_factory=dict)
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def of(self, executor: Executor, infos: Sequence[RunInfo]) -> Alignment:
        """Some runs side by side, as they are now.

        Args:
            executor: reads them.
            infos: their rows, that of the first run first.

        Raises:
            RunUnknown: one was deleted meanwhile.
        """
        ids = tuple(info.run_id for info in infos)
        async with self._lock:  # a second request for the same runs waits here and finds the result cached
            made = self._kept.pop(ids, None)
            if made is None or made.version != version_of(infos):
                made = await _made(executor, infos)
            self._kept[ids] = made
            while len(self._kept) > _KEPT or (len(self._kept) > 1 and self._size() > _SIZE):
                self._kept.pop(next(iter(self._kept)))
        return made.alignment

    def _size(self) -> int:
        return sum(one.size for one in self._kept.values())

    def forget(self, run_id: str) -> None:
        """Drop what has a run that is deleted."""
        for ids in [ids for ids in self._kept if run_id in ids]:
            del self._kept[ids]

    def rest(self, ids: Sequence[str]) -> float:
        """Seconds for which a reader of these runs should wait before it asks again, because an answer costs much."""
        made = self._kept.get(tuple(ids))
        return 0.0 if made is None else 4 * made.seconds


def version_of(infos: Sequence[RunInfo]) -> object:
    """What is another one once a run has changed."""
    return [(info.created, info.head, with_status(info).status) for info in infos]


async def _made(executor: Executor, infos: Sequence[RunInfo]) -> _Made:
    loaded = [await executor.load(info.run_id) for info in infos]
    read = [(run, await executor.store.read(run.run_id, upto=run.seq)) for run in loaded]
    begun = time.monotonic()
    alignment, size = await away(lambda: (align(read), size_of([records for _, records in read])))
    return _Made(alignment, version_of(infos), time.monotonic() - begun, size)
