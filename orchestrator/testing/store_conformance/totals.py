"""Checks of what a store keeps beside a run's row: totals, the statistics over them, and open questions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

from orchestrator.errors import InvalidValue, RunUnknown, StoreError
from orchestrator.stores.base import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append, NewRun, QuestionQuery, RunQuery, StatsQuery
from orchestrator.stores.rows import OpenQuestion, RunTotals, Total
from orchestrator.stores.statistics import By, Groups
from orchestrator.testing.store_conformance.helpers import created, equal, event, new_run, raises, started, that

_DAY = 86_400.0


def _totals(number: int) -> RunTotals:
    rows = [
        Total("plan", "model", "large", 2 + number % 3, number % 2, 100 * number, 7, 0.01 * number, 1.5 + number),
        Total("plan", "step", "", 1, 0, seconds=2.0 * number),
        Total("work/look", "step", "", 3, number % 2, seconds=0.1 * number),
        Total("work/look", "tool", "search \x00 ü", 4, 1 if number % 4 == 1 else 0, seconds=0.5),
    ]
    if number % 3 == 0:
        rows.append(Total("work/read", "model", "small", 1, 0, 5, 5, 0.001, 0.25))
        rows.append(Total("work/read", "tool", "fetch", 2, 2 if number == 9 else 0, cost=0.5))
    return RunTotals(tuple(rows), 10.0 + number)


async def check_totals(store: Store) -> None:
    """Totals are kept as they are given, replaced as a whole, and gone with their run."""
    run_id = await created(store)
    equal(await store.totals(run_id), None, "the totals of a run that was created without")
    await store.append(Append(run_id, [event(2)], after=1))
    equal(await store.totals(run_id), None, "the totals after an append without")
    await store.append(Append(run_id, [event(3)], after=2, totals=_totals(3)))
    equal(await store.totals(run_id), _totals(3), "the totals that an append gave")
    await store.append(Append(run_id, [event(4)], after=3, status="paused"))
    equal(await store.totals(run_id), _totals(3), "the totals after an append that leaves them")
    await store.append(Append(run_id, [], after=4, totals=_totals(1)))
    equal(await store.totals(run_id), _totals(1), "the totals that others replaced")
    info, records = new_run()
    await store.create(NewRun(replace(info, totals=_totals(6)), records))
    equal(await store.totals(info.run_id), _totals(6), "the totals of a new run")
    other = MemoryStore()
    await store.copy(info.run_id, other)
    equal(await other.totals(info.run_id), _totals(6), "the totals of a copy")
    await store.delete(info.run_id)
    await raises(RunUnknown, store.totals(info.run_id), "totals of a deleted run")
    await store.create(NewRun(info, records))
    equal(await store.totals(info.run_id), None, "the totals of a new run under a freed id")


async def check_failed_tools(store: Store) -> None:
    """Runs are found by a tool of which a call failed."""
    mark = uuid4().hex
    ids: list[str] = []
    for number in range(12):
        info, records = new_run(labels={"mark": mark})
        totals = _totals(number) if number != 5 else None
        await store.create(NewRun(replace(info, created=1000.0 + number, totals=totals), records))
        ids.append(info.run_id)

    async def found(tool: str, **filters: Any) -> list[int]:
        numbers: list[int] = []
        cursor: str | None = None
        while True:
            page = await store.runs(RunQuery(labels={"mark": mark}, failed_tool=tool, after=cursor, limit=2, **filters))
            numbers += [ids.index(info.run_id) for info in page.runs]
            cursor = page.cursor
            if cursor is None:
                return numbers

    equal(await found("search \x00 ü"), [9, 1], "runs in which a call of a tool failed")
    equal(await found("fetch"), [9], "runs in which a call of another tool failed")
    equal(await found("search"), [], "runs in which a call of a tool failed that there is not")
    equal(await found("large"), [], "runs in which a model failed, by its name as that of a tool")
    for name in ("", "*"):
        equal(await found(name), [9, 1], "runs in which a call of any tool failed")
    equal(await found("*", since=3000.0), [], "the same, and a time")
    await store.append(Append(ids[9], [event(2)], after=1, totals=_totals(0)))
    equal(await found("*"), [1], "after the totals of a run were replaced")


async def check_stats(store: Store) -> None:
    """Sums are those of the totals of the runs in a group, whatever makes the group."""
    mark, groups = uuid4().hex, ("day", "graph", "model", "tool", "node", "label:team", "label:none")
    runs = []
    for number in range(30):
        labels = {"mark": mark} | ({"team": f"t{number % 2}"} if number % 5 else {})
        info, records = new_run(labels=labels)
        info = replace(
            info, graph=f"{mark} {number % 3}", created=20_000 * _DAY + number * _DAY / 7,
            status=("completed", "failed", "running", "paused")[number % 4],
            totals=None if number % 10 == 7 else _totals(number),
        )  # fmt: skip
        await store.create(NewRun(info, records))
        runs.append(info)
    await store.append(Append(runs[3].run_id, [event(2)], after=1, status="failed", totals=_totals(8)))
    runs[3] = replace(runs[3], status="failed", totals=_totals(8))

    def right(by: tuple[str, ...], **filters: Any) -> object:
        found = Groups(By.of(by))
        for info in runs:
            if (
                filters.get("since", 0.0) <= info.created < filters.get("until", 1e12)
                and filters.get("graph", info.graph) == info.graph
                and info.labels.items() >= filters.get("labels", {}).items()
            ):
                found.add_run(info, info.totals)
        return found.rows()

    several: list[tuple[str, ...]] = [(), *((name,) for name in groups)]
    several += [
        ("day", "graph"),
        ("graph", "model"),
        ("node", "model"),
        ("tool", "node", "day"),
        ("label:team", "node"),
    ]
    for by in several:
        there = await store.stats(StatsQuery(by=by, labels={"mark": mark}))
        equal(there, right(by), f"stats by {by}")
    (everything,) = await store.stats(StatsQuery(labels={"mark": mark}))
    equal((everything.runs, everything.uncounted), (30, 3), "runs, and those without totals")
    equal(everything.statuses, {"completed": 8, "failed": 9, "paused": 6, "running": 7}, "runs by status")
    equal((everything.p50, everything.p95), (24.0, 38.0), "percentiles: the nearest rank")
    first, last = runs[4].created, runs[20].created
    several_filters: tuple[dict[str, Any], ...] = (
        {"since": first}, {"until": last}, {"since": first, "until": last}, {"labels": {"team": "t1"}},
        {"graph": f"{mark} 1"}, {"graph": f"{mark} 1", "labels": {"team": "t0"}, "since": first},
    )  # fmt: skip
    for filters in several_filters:
        labels = {"mark": mark, **filters.get("labels", {})}
        for by in ((), ("model", "day")):
            there = await store.stats(StatsQuery(by=by, **{**filters, "labels": labels}))
            equal(there, right(by, **filters), f"stats by {by} of {filters}")
    equal(await store.stats(StatsQuery(labels={"mark": "none"})), [], "stats of no runs")
    for odd in ("hour", "label", "label:", ""):
        await raises(InvalidValue, store.stats(StatsQuery(by=[odd])), f"stats by {odd!r}")
    await raises(InvalidValue, store.stats(StatsQuery(by=["day", "day"])), "stats by a day twice")
    await raises(InvalidValue, store.stats(StatsQuery(by=["model", "tool"])), "stats by model and tool")


def _question(name: str, asked: float, kind: str = "approval") -> OpenQuestion:
    return OpenQuestion(name, asked, kind, {"id": name, "prompt": "a \x00 b", "payload": {"n": [1, None]}})


async def check_questions(store: Store) -> None:
    """Open questions of all runs are listed, the oldest first, on pages that follow on whatever changes."""
    mark = uuid4().hex
    ids: list[str] = []
    for number in range(6):
        info, _ = new_run(labels={"mark": mark, "team": f"t{number % 2}"}, waiting=0 if number == 4 else 2)
        asked = tuple(
            _question(f"{number}_{mark} {part}", 100.0 + number - 10 * part, ("approval", "input")[part])
            for part in (1, 0)
        )
        questions = None if number == 5 else () if number == 4 else asked
        info = replace(info, graph=f"{mark} {number % 3}", questions=questions)
        await store.create(NewRun(info, [started(info)]))
        ids.append(info.run_id)

    async def found(limit: int = 3, **filters: Any) -> list[str]:
        names: list[str] = []
        cursor: str | None = None
        while True:
            filters = {"labels": {"mark": mark}, **filters}
            page = await store.questions(QuestionQuery(after=cursor, limit=limit, **filters))
            that(len(page.questions) <= limit, "a page holds more than its limit")
            names += [f"{ids.index(one.run_id)}.{one.question.id[-1]}" for one in page.questions]
            cursor = page.cursor
            if cursor is None:
                return names

    order = ["0.1", "1.1", "2.1", "3.1", "0.0", "1.0", "2.0", "3.0"]
    equal(await found(), order, "open questions of all runs")
    equal(await found(limit=1), order, "the same, one on each page")
    equal(await found(graph=f"{mark} 0"), ["0.1", "3.1", "0.0", "3.0"], "open questions of a graph's runs")
    equal(await found(labels={"mark": mark, "team": "t1"}), ["1.1", "3.1", "1.0", "3.0"], "of runs with a label")
    equal(await found(kinds=["input"]), ["0.1", "1.1", "2.1", "3.1"], "of a kind")
    equal(await found(kinds=[]), [], "of no kind")
    page = await store.questions(QuestionQuery(labels={"mark": mark}, limit=3))
    equal(page.unlisted, (ids[5],), "runs with questions that are not known")
    equal(page.questions[0].question, _question(f"0_{mark} 1", 90.0, "input"), "a question")
    equal((page.questions[0].graph, page.questions[0].labels["team"]), (f"{mark} 0", "t0"), "whose it is")
    equal(await store.open_questions(ids[4]), (), "the questions of a run that has none")
    equal(await store.open_questions(ids[5]), None, "the questions of a run that are not known")
    asked = (_question(f"0_{mark} 1", 90.0, "input"), _question(f"0_{mark} 0", 100.0))
    equal(await store.open_questions(ids[0]), asked, "the questions of a run, the oldest first")
    await store.append(Append(ids[0], [event(2)], after=1))
    equal(await store.open_questions(ids[0]), asked, "the questions after an append that leaves them")
    new = _question(f"0_{mark} 2", 500.0)
    await store.append(Append(ids[0], [event(3)], after=2, waiting=1, questions=[new]))
    await store.append(Append(ids[1], [event(2)], after=1, status="completed", waiting=0, questions=[]))
    await store.append(
        Append(ids[5], [], after=1, questions=[_question(f"5_{mark} 3", 1.0), _question(f"5_{mark} 4", 2.0)])
    )
    equal(await found(), ["5.3", "5.4", "2.1", "3.1", "2.0", "3.0", "0.2"], "questions after some were answered")
    behind = await store.questions(QuestionQuery(labels={"mark": mark}, limit=9, after=page.cursor))
    equal([one.question.id[-1] for one in behind.questions], ["1", "0", "0", "2"], "the page behind a cursor")
    equal(behind.unlisted, (), "runs with questions that are not known, after they were told")
    await store.delete(ids[2])
    equal(await found(), ["5.3", "5.4", "3.1", "3.0", "0.2"], "questions after a run was deleted")
    other = MemoryStore()
    await store.copy(ids[3], other)
    equal(await other.open_questions(ids[3]), await store.open_questions(ids[3]), "the questions of a copy")
    for cursor in ("nonsense", "1_x_y", ""):
        await raises(StoreError, store.questions(QuestionQuery(after=cursor)), f"questions(after={cursor!r})")
    await raises(RunUnknown, store.open_questions("no run " + mark), "open questions of a run that is not there")
