"""The open questions of all runs, which many readers share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import RunUnknown, StoreCorrupt
from orchestrator.kernel.records import Asked
from orchestrator.web.documents import AskedDocument, blank, question_of

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.stores.base import RunInfo

_KEPT = 2000
"""Runs whose questions are kept as long as their heads stay."""
_UNFINISHED = ("paused", "running", "interrupted")


@dataclass(frozen=True, slots=True)
class Asking:
    """A run with open questions."""

    info: RunInfo
    questions: tuple[AskedDocument, ...]


class OpenQuestions:
    """Reads the open questions of a store, and keeps those of runs that did not move."""

    def __init__(self, executor: Executor, *, answerable: bool) -> None:
        self._executor, self._answerable = executor, answerable
        self._kept: OrderedDict[tuple[str, int], tuple[AskedDocument, ...]] = OrderedDict()
        self._lock = anyio.Lock()

    async def rows(self, *, graph: str | None, labels: dict[str, str]) -> AsyncIterator[RunInfo]:
        """The rows of runs that wait for an answer, the newest first."""
        cursor: str | None = None
        while True:
            page = await self._executor.runs(
                status=_UNFINISHED, graph=graph, labels=labels or None, after=cursor, limit=200
            )
            for info in page.runs:
                if info.waiting:
                    yield info
            cursor = page.cursor
            if cursor is None:
                return

    async def of(self, info: RunInfo) -> Asking | None:
        """A run's open questions; None if it was deleted or is damaged."""
        key = (info.run_id, info.head)
        async with self._lock:
            found = self._kept.get(key)
            if found is None:
                try:
                    found = await self._read(info)
                except (RunUnknown, StoreCorrupt):
                    return None
                self._kept[key] = found
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
        return Asking(info, found)

    async def _read(self, info: RunInfo) -> tuple[AskedDocument, ...]:
        run = await self._executor.load(info.run_id)
        asked = {
            record.question.id: record
            for record in await self._executor.store.read(info.run_id, upto=run.seq)
            if isinstance(record, Asked)
        }
        found = []
        for question in run.waiting:
            record = asked.get(question.id)
            found.append(
                AskedDocument(
                    run_id=run.run_id,
                    graph=run.graph,
                    labels=blank(dict(run.labels)),
                    asked=info.updated if record is None else record.ts,
                    seq=run.seq if record is None else record.seq,
                    question=question_of(question, answerable=self._answerable),
                )
            )
        return tuple(found)
