"""The steps of runs page by page: a page that follows the one before goes on reading where that ended."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.executor.host.loader import RunLoader
from orchestrator.kernel.plan import Plan
from orchestrator.stores.base import RunInfo, Store

if TYPE_CHECKING:
    from orchestrator.views.history import LateCursor, Point, StepFold

PART = 1000
"""Records that are read at a time."""
_KEPT = 16
"""Runs whose reading is kept."""


@dataclass(slots=True)
class _Reading:
    """The steps of one run as far as they were read."""

    created: float
    plan: Plan
    fold: StepFold
    head: int = 0
    """The last record that was read."""
    floor: int = 0
    """The steps that ended up to this record are dropped."""
    points: list[Point] = field(default_factory=list)

    def drop(self, after: int) -> None:
        """Drop the steps that ended up to a record."""
        self.points = [point for point in self.points if point.seq > after]
        self.floor = after


class HistoryPages:
    """Pages of the steps of runs.

    Args:
        store: the runs.
        loader: gives their graphs.
    """

    def __init__(self, store: Store, loader: RunLoader) -> None:
        self._store, self._loader = store, loader
        self._readings: OrderedDict[str, _Reading] = OrderedDict()

    async def page(self, run_id: str, at: int | None, after: int, limit: int | None) -> list[Point]:
        """The first steps of a run that ended behind record `after`, and until record `at`."""
        info = await self._store.info(run_id)
        reading = self._readings.pop(run_id, None)  # another page of the run that is asked for meanwhile has its own
        known = reading is not None and reading.created == info.created and reading.head <= info.head
        if reading is None or not known or reading.floor > after:
            reading = await self._begun(info)
        reading.drop(after)
        while limit is None or len(reading.points) < limit:
            if at is not None and reading.head >= at:
                break
            records = await self._store.read(run_id, after=reading.head, limit=PART)
            if not records:
                break
            reading.fold.later.update(await self._loader.later(info, records))
            found = reading.fold.take(records, self._cursor(info.run_id, reading))
            reading.points += [point for point in found if point.seq > after]
            reading.head = records[-1].seq
        found = [point for point in reading.points if at is None or point.seq <= at][:limit]
        if limit is None and found:
            reading.drop(found[-1].seq)  # there is no page behind it, and the steps of a long run are not kept
        self._readings[run_id] = reading
        while len(self._readings) > _KEPT:
            self._readings.popitem(last=False)
        return found

    async def _begun(self, info: RunInfo) -> _Reading:
        from orchestrator.views.history import StepFold

        plan = Plan.of(await self._loader.stored_graph(info))
        return _Reading(info.created, plan, StepFold(plan))

    def _cursor(self, run_id: str, reading: _Reading) -> LateCursor:
        """The states after steps. For them the whole journal is read: later records say what a late step gave."""
        from orchestrator.views.history import LateCursor, StateCursor

        plan, later = reading.plan, reading.fold.later
        return LateCursor(lambda: StateCursor(plan.followed_by(later), self._store.read_now(run_id)))
