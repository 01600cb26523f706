"""The part of `PostgresStore` that lists, counts and tidies up what all runs of a database have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from orchestrator.stores.base import Finding, Page, Schedule
from orchestrator.stores.postgres import checking, listing, maintenance, questions, schedules, totals
from orchestrator.stores.postgres.connections import Connection
from orchestrator.stores.requests import QuestionQuery, RunQuery, StatsQuery
from orchestrator.stores.rows import OpenQuestion, QuestionPage, RunTotals
from orchestrator.stores.shared import check_key, page_cursor
from orchestrator.stores.statistics import By, StatsRow

T = TypeVar("T")


class PostgresLists:
    """Lists over the runs of a database, its schedules, and its maintenance."""

    @property
    def url(self) -> str:
        """See `Store.url`."""
        raise NotImplementedError

    async def _read(self, action: Callable[[Connection], T]) -> T:
        raise NotImplementedError

    async def _change(self, change: Callable[[Connection], T]) -> T:
        raise NotImplementedError

    def cursor_before(self, created: float) -> str:
        """See `Placing`."""
        return page_cursor(created, 0)

    async def runs(self, query: RunQuery) -> Page:
        return await self._read(partial(listing.runs, wanted=query))

    async def totals(self, run_id: str) -> RunTotals | None:
        return await self._read(partial(totals.totals, run_id=run_id))

    async def stats(self, query: StatsQuery) -> list[StatsRow]:
        return await self._read(partial(totals.stats, by=By.of(query.by), wanted=query))

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        return await self._read(partial(questions.of_run, run_id=run_id))

    async def questions(self, query: QuestionQuery) -> QuestionPage:
        return await self._read(partial(questions.page, query=query))

    # ----------------------------------------------------------------------------- schedules

    async def put_schedule(self, schedule: Schedule) -> None:
        check_key("the name of a schedule", schedule.name)
        await self._change(partial(schedules.put, schedule=schedule))

    async def schedules(self) -> list[Schedule]:
        return await self._read(partial(schedules.listed, url=self.url))

    async def move_schedule(self, name: str, *, at: float, to: float) -> bool:
        return await self._change(partial(schedules.move, name=name, at=at, to=to))

    async def delete_schedule(self, name: str) -> bool:
        return await self._change(partial(schedules.delete, name=name))

    # --------------------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        return await self._read(maintenance.compact)

    async def check(self, *, repair: bool = False) -> list[Finding]:
        found = await self._read(checking.look)
        if not repair:
            return found
        done = {one.what: one for one in await self._change(checking.tidy)}
        return [done.pop(one.what, one) for one in found] + list(done.values())
