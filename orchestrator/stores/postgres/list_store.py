"""The part of `PostgresStore` that lists, counts and tidies up what all runs of a database have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from orchestrator.stores.base import Finding, Page, Relation, Schedule
from orchestrator.stores.postgres import checking, listing, maintenance, questions, schedules, totals
from orchestrator.stores.postgres.connections import Connection
from orchestrator.stores.rows import OpenQuestion, QuestionPage, RunTotals
from orchestrator.stores.shared import as_statuses, check_key, page_cursor
from orchestrator.stores.statistics import By, StatsRow
from orchestrator.stores.words import words

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

    async def runs(
        self,
        *,
        status: Collection[str] | str | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent: str | None = None,
        relation: Relation | None = None,
        search: str | None = None,
        since: float | None = None,
        waiting: bool | None = None,
        failed_tool: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        found = None if search is None else words(search)
        wanted = listing.RunFilter(
            as_statuses(status), graph, dict(labels or {}), parent, relation, found, since, waiting, failed_tool
        )
        return await self._read(lambda connection: listing.runs(connection, wanted, after, limit))

    async def totals(self, run_id: str) -> RunTotals | None:
        return await self._read(partial(totals.totals, run_id=run_id))

    async def stats(
        self,
        *,
        by: Sequence[str] = (),
        since: float | None = None,
        until: float | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[StatsRow]:
        wanted, having = By.of(by), dict(labels or {})
        return await self._read(lambda connection: totals.stats(connection, wanted, since, until, graph, having))

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        return await self._read(partial(questions.of_run, run_id=run_id))

    async def questions(
        self,
        *,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        kinds: Collection[str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> QuestionPage:
        having, some = dict(labels or {}), None if kinds is None else tuple(kinds)
        return await self._read(lambda connection: questions.page(connection, graph, having, some, after, limit))

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
