"""Checks of rows and totals of runs, of lists, searches and statistics over them, and of open questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex
from typing import Any, cast
from uuid import uuid4

from orchestrator.errors import InvalidValue, RunUnknown, StoreError
from orchestrator.graph.limits import Usage
from orchestrator.stores.base import Parent, Relation, RunInfo, RunSummary, Schedule, Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append, NewRun, QuestionQuery, RunQuery, Sort, StatsQuery
from orchestrator.stores.rows import OpenQuestion, ReplayFacts, RunTotals, Total
from orchestrator.stores.statistics import By, Groups
from orchestrator.testing.store_conformance.helpers import (
    a_lease,
    created,
    equal,
    event,
    events,
    new_run,
    raises,
    started,
    texts,
    that,
)

_SUMMARY = RunSummary(
    error="Boom: no 日本語 'quoted'",
    input="naïve question \x00?",
    output='{"answer": "🧭"}',
    question="Publish?",
    usage=Usage(steps=3, calls=2, input_tokens=10, output_tokens=20, cost=0.25, seconds=1.5, estimated=True),
    steps=3,
)


async def check_summaries(store: Store) -> None:
    """A run's summary is stored whole with its first records and with any append; an append without one keeps it."""
    info, records = new_run()
    info = replace(info, input="first", parent=Parent("other", 7, "fork"), deaths=2, retry_at=9.5, fault="gave up")
    await store.create(NewRun(info, records))
    equal(await store.info(info.run_id), info, "the row of a run that was created with a summary")
    await store.append(Append(info.run_id, events(2), after=1))
    equal((await store.info(info.run_id)).summary, info.summary, "a summary that an append left")
    await store.append(Append(info.run_id, events(3), after=2, summary=_SUMMARY))
    found = await store.info(info.run_id)
    equal(found.summary, _SUMMARY, "a summary that came with an append")
    equal((found.parent, found.status, found.head), (info.parent, info.status, 3), "the rest of the row")
    equal((await store.runs(RunQuery(parent="other", graph=info.graph))).runs, (found,), "the row in the list")
    empty = await created(store)
    equal((await store.info(empty)).summary, RunSummary(), "the summary of a run that was created without one")
    long = RunSummary(input="x" * 2000, output="y" * 2000, question="z" * 2000, error="e" * 2000)
    await store.append(Append(empty, events(2), after=1, summary=long))
    equal((await store.info(empty)).summary, long, "texts of 2,000 characters")


async def check_heads(store: Store) -> None:
    """Head and status of many runs come from one query, and are exact after every append."""
    ids = [await created(store) for _ in range(7)]
    for index, run_id in enumerate(ids):
        await store.append(Append(run_id, events(2, index), after=1, status="paused" if index % 2 else None))
    wanted = {run_id: (1 + index, "paused" if index % 2 else "running") for index, run_id in enumerate(ids)}
    equal(await store.heads([*ids, "no such run"]), wanted, "the heads of seven runs")
    equal(await store.heads([]), {}, "the heads of no runs")
    equal(await store.heads(ids[3:4]), {ids[3]: wanted[ids[3]]}, "the head of one run")
    await store.append(Append(ids[3], events(5), after=4))
    await store.append(Append(ids[2], events(4), after=3, status="completed"))
    await store.append(Append(ids[1], [], after=2, status="running"))
    await store.delete(ids[0])
    wanted |= {ids[3]: (5, "paused"), ids[2]: (4, "completed"), ids[1]: (2, "running")}
    del wanted[ids[0]]
    equal(await store.heads(ids), wanted, "the heads of runs that moved, ended and were deleted")


async def check_long_names(store: Store) -> None:
    """Names of 1,000 bytes are kept, longer ones are refused before anything is written; labels may be longer."""
    fits, too_long = token_hex(500), f"{token_hex(500)}x"
    info, records = new_run(labels={token_hex(2000): token_hex(2000)})
    info = replace(info, run_id=fits, graph=fits)
    await store.create(NewRun(info, [started(info)]))
    equal(await store.info(fits), info, "the row of a run with long names")
    equal((await store.runs(RunQuery(graph=fits, labels=info.labels))).runs, (info,), "runs by long names")
    await store.post(fits, {}, key=fits)
    await store.put_schedule(Schedule(fits, fits, "* * * * *", 1.0))
    for what, call in (
        ("id", store.create(NewRun(replace(info, run_id=too_long), records))),
        ("graph", store.create(NewRun(replace(info, run_id="other", graph="ä" * 501), records))),
        ("key of a message", store.post(fits, {}, key=too_long)),
        ("schedule", store.put_schedule(Schedule(too_long, "g", "* * * * *", 1.0))),
    ):
        await raises(InvalidValue, call, f"a name that is too long: {what}")
    equal([one.name for one in await store.schedules() if one.name in (fits, too_long)], [fits], "long schedules")
    await store.delete_schedule(fits)
    await store.delete(fits)


async def check_filters(store: Store) -> None:
    """Runs are found by parent, relation and time, together with the other filters and page by page."""
    mark, mother = uuid4().hex, f"check-{uuid4().hex}"
    infos: list[RunInfo] = []
    relations: tuple[Relation | None, ...] = ("fork", "replay", "call", None)
    for number in range(12):
        info, records = new_run(labels={"mark": mark})
        relation = relations[number % 4]
        info = replace(
            info,
            created=1000.0 + number,
            updated=2000.0 + 10 * number,
            parent=None if relation is None else Parent(mother, number, relation),
            status="failed" if number % 3 else "completed",
            input=f"What about case {number}, Zoë?",
            waiting=2 if number in (3, 8) else 0,
        )
        await store.create(NewRun(info, records))
        infos.append(info)

    async def found(**filters: Any) -> list[int]:
        numbers: list[int] = []
        cursor: str | None = None
        while True:
            page = await store.runs(RunQuery(labels={"mark": mark}, after=cursor, limit=5, **filters))
            numbers += [infos.index(info) for info in page.runs]
            cursor = page.cursor
            if cursor is None:
                return numbers

    equal(await found(parent=mother), [10, 9, 8, 6, 5, 4, 2, 1, 0], "runs by their parent")
    equal(await found(parent="none"), [], "runs of no parent")
    equal(await found(relation="replay"), [9, 5, 1], "runs by their relation")
    equal(await found(parent=mother, relation="call", status="failed"), [10, 2], "runs by parent, relation and status")
    equal(await found(waiting=True), [8, 3], "runs with open questions")
    equal(await found(waiting=True, status="completed"), [3], "runs with open questions and a status")
    equal(await found(waiting=False), [11, 10, 9, 7, 6, 5, 4, 2, 1, 0], "runs without open questions")
    equal(await found(since=2080.0), [11, 10, 9, 8], "runs written to at a time or later")
    equal(await found(begun_since=1005.0, begun_before=1008.0), [7, 6, 5], "runs created in a range of time")
    equal(await found(begun_before=1002.0, status="failed"), [1], "runs created before a time, with a status")
    equal(await found(replays=False), [11, 10, 8, 7, 6, 4, 3, 2, 0], "runs without replays")
    equal(await found(ascending=True, begun_since=1003.0), [3, 4, 5, 6, 7, 8, 9, 10, 11], "the oldest run first")
    equal(await found(ascending=True, status=["failed", "completed"]), [*range(12)], "the oldest of two statuses first")
    await store.append(Append(infos[0].run_id, [event(2)], after=1))
    equal(
        len((await store.runs(RunQuery(labels={"mark": mark}, since=1002.0))).runs),
        12,
        "runs written to since they were",
    )
    infos[0] = await store.info(infos[0].run_id)
    for number in (3, 8):
        await store.append(Append(infos[number].run_id, [event(2)], after=1, waiting=number - 3))
        infos[number] = await store.info(infos[number].run_id)
    equal(await found(waiting=True), [8], "runs with open questions after one was answered")


async def check_sorting(store: Store) -> None:
    """A list is sorted by each key, in both directions and page by page, with the newest first among equals."""
    mark = uuid4().hex
    infos: list[RunInfo] = []
    for number in range(14):
        info, records = new_run(labels={"mark": mark, "side": ("even", "odd")[number % 2]})
        seconds, cost = [(0.0, 12.0), (2.5, 0.25), (1e-7, 1e-6), (40.0, 0.0)][number % 4]
        info = replace(
            info,
            graph=f"{mark} {['b', 'a', 'ä', 'B'][number % 4]}",
            status=("failed", "completed", "running")[number % 3],
            created=1000.0 + number,
            updated=5000.0 - 10 * (number % 5),
            usage=None if number == 5 else Usage(seconds=seconds, cost=cost),
        )
        await store.create(NewRun(info, records))
        infos.append(info)

    def is_even(info: RunInfo) -> bool:
        return info.labels["side"] == "even"

    keys: dict[Sort, Callable[[RunInfo], Any]] = {
        "started": lambda info: info.created,
        "updated": lambda info: info.updated,
        "duration": lambda info: 0.0 if info.usage is None else info.usage.seconds,
        "cost": lambda info: 0.0 if info.usage is None else info.usage.cost,
        "status": lambda info: info.status,
        "graph": lambda info: info.graph,
    }
    some: tuple[tuple[dict[str, Any], Callable[[RunInfo], bool]], ...] = (
        ({}, lambda info: True),
        ({"status": ["failed", "completed"]}, lambda info: info.status != "running"),
        ({"status": "running", "search": "even"}, lambda info: info.status == "running" and is_even(info)),
        (
            {"labels": {"side": "a"}, "begun_since": 1003.0},
            lambda info: info.input == "even" and info.created >= 1003.0,
        ),
        ({"graph": f"{mark} ä"}, lambda info: info.graph.endswith("ä")),
        ({"search": ""}, lambda info: False),
    )
    for sort, key in keys.items():
        for ascending in (False, True):
            for filters, fits in some:
                newest = sorted(filter(fits, infos), key=lambda info: info.created, reverse=True)
                right = sorted(newest, key=key, reverse=not ascending)
                query = RunQuery(sort=sort, ascending=ascending, limit=3, **filters)
                query = replace(query, labels={"mark": mark, **query.labels})
                equal(
                    [one.run_id for one in await _all(store, query)], [one.run_id for one in right], f"runs by {sort}"
                )
    await raises(ValueError, store.runs(RunQuery(sort=cast(Any, "size"))), "an unknown key")
    for sort, cursor in (("cost", "1.0_1"), ("cost", "updated=1.0|1.0_1"), ("updated", "updated=nan|1.0_1")):
        query = RunQuery(sort=cast(Any, sort), after=cursor)
        await raises(StoreError, store.runs(query), f"the cursor of another list: {cursor}")


async def _all(store: Store, query: RunQuery) -> list[RunInfo]:
    """Return the runs of all pages of a list."""
    found: list[RunInfo] = []
    while True:
        page = await store.runs(query)
        found += page.runs
        if page.cursor is None:
            return found
        query = replace(query, after=page.cursor)


async def check_replays(store: Store) -> None:
    """A replay has its facts in lists, also after an append, and replays that diverged are found."""
    mark = uuid4().hex
    facts = (None, ReplayFacts(False, 3, 1200, 0.5), ReplayFacts(True, 0, 0, 0.0), ReplayFacts(True, 7, 10, 1e-9))
    infos = []
    for number, replay in enumerate(facts):
        info, records = new_run(labels={"mark": mark})
        parent = None if replay is None else Parent("replayed", 1, "replay")
        usage = Usage() if number == 2 else None
        info = replace(info, created=1000.0 + number, parent=parent, replay=replay, usage=usage, totals=_totals(number))
        await store.create(NewRun(info, records))
        found = await store.info(info.run_id)
        equal((found.replay, found.usage, found.diverged), (replay, usage, info.diverged), "the facts of a replay")
        infos.append(info)

    async def found_by(**filters: Any) -> list[int]:
        page = await store.runs(RunQuery(labels={"mark": mark}, **filters))
        return [[one.run_id for one in infos].index(info.run_id) for info in page.runs]

    equal(await found_by(diverged=True), [3, 2], "replays that diverged")
    equal(await found_by(diverged=False), [1, 0], "runs that are no such replay")
    equal(await found_by(diverged=True, sort="started", ascending=True), [2, 3], "the oldest of them first")
    equal(await found_by(diverged=True, sort="cost"), [3, 2], "replays that diverged, sorted")
    equal(await found_by(replays=False, diverged=True), [], "replays without replays")
    changed = replace(infos[1].summary, replay=ReplayFacts(True, 4, 1300, 0.75), error="diverged: there")
    await store.append(Append(infos[1].run_id, [event(2)], after=1, status="cancelled", summary=changed))
    info = await store.info(infos[1].run_id)
    equal((info.summary, info.ended_diverged), (changed, True), "a replay that ended where it diverged")
    equal(await found_by(diverged=True, status="cancelled"), [1], "and it is found")
    (sums,) = await store.stats(StatsQuery(labels={"mark": mark}))
    equal((sums.replay_savings, sums.replayed_calls), (0.75 + 1e-9, 11), "what replays saved")


async def check_parts(store: Store) -> None:
    """Runs are found by a model or a tool that they called, and by a node that ran, whatever their names are."""
    mark = uuid4().hex
    names = ("gpt-4o", 'say "hi"', "a\\b", "Ünïcode 🧭", "%_'", "gpt")
    ids: list[str] = []
    for number, name in enumerate(names):
        info, records = new_run(labels={"mark": mark})
        rows = (Total("act", "tool", name), Total(f"in/{name}", "step", ""), Total("think", "model", f"{name}/m"))
        info = replace(info, created=1000.0 + number, totals=RunTotals(rows))
        await store.create(NewRun(info, records))
        ids.append(info.run_id)

    async def found(**filters: Any) -> list[int]:
        return [ids.index(info.run_id) for info in (await store.runs(RunQuery(labels={"mark": mark}, **filters))).runs]

    for number, name in enumerate(names):
        equal(await found(tool=name), [number], f"runs that called the tool {name!r}")
        equal(await found(model=f"{name}/m", tool=name), [number], f"runs that called the model {name!r}/m")
        equal(await found(node=f"in/{name}", sort="cost"), [number], f"runs with the node in/{name!r}, sorted")
        equal(await found(model=name), [], f"runs that called a model named as the tool {name!r}")
    equal(await found(node="think"), [5, 4, 3, 2, 1, 0], "runs with a node that all of them have")
    equal(await found(tool='x"]'), [], "runs that called a tool that none has")


async def check_search_with_filters(store: Store) -> None:
    """A run must match both the search and the other filters."""
    mark = uuid4().hex
    ids: list[str] = []
    for number in range(6):
        info, records = new_run(labels={"mark": mark})
        status = "failed" if number % 3 else "completed"
        await store.create(NewRun(replace(info, status=status, input=f"What about case {number}, Zoë?"), records))
        ids.append(info.run_id)

    async def found(**filters: Any) -> list[int]:
        page = await store.runs(RunQuery(labels={"mark": mark}, **filters))
        return sorted(ids.index(info.run_id) for info in page.runs)

    equal(await found(search="case 4"), [4], "runs by two words")
    equal(await found(search="ZOE what"), list(range(6)), "runs by words in any order, case and diacritics")
    equal(await found(search="zoë", status="completed"), [0, 3], "runs by a word and a status")


async def check_search(store: Store) -> None:
    """Words are searched in the current inputs and outputs; there is no query syntax."""
    mark = uuid4().hex

    async def add(given: str, output: str = "", **labels: str) -> str:
        info, records = new_run(labels={"mark": mark, **labels})
        await store.create(NewRun(replace(info, input=given, output=output), records))
        return info.run_id

    async def found(text: str) -> set[str]:
        return {info.run_id for info in (await store.runs(RunQuery(labels={"mark": mark}, search=text))).runs}

    first = await add("The quick brown fox", "Löwe straße 3.14 日本語")
    second = await add('NEAR AND OR NOT fox* "quoted" (col:on) -minus ^caret', "a_b c--d; DROP TABLE runs;")
    equal(await found("fox"), {first, second}, "runs that have a word")
    equal(await found("FOX, quick!"), {first}, "runs that have two words")
    equal(await found("lowe"), {first}, "a word by its letters without diacritics")
    equal(await found("Löwe STRASSE"), {first}, "words without regard to case")
    equal(await found("3.14"), {first}, "a number")
    equal(await found("日本語"), {first}, "a word of another script")
    equal(await found("fo"), set(), "a part of a word")
    equal(await found("quick NOT"), set(), "words of which no run has both")
    for text in ('"', "'", "*", "()", "", " ", "-", "\x00", "^", ":"):
        equal(await found(text), set(), f"runs that have the words of {text!r}: it has none")
    for text in ('"quoted"', "near(fox)", "NOT fox", "col:on", "a_b", "fox*", '"fox'):
        that(second in await found(text), f"the words of {text!r} are found as they are")
    for text in ("words: fox", "fox OR missing", "a b c d e f g " * 200, "🧭"):
        equal(await found(text), set(), f"runs that have all words of {text[:20]!r}")
    labelled = await add("a run with labels", team="Böblingen north", tier="3")
    equal(await found("boblingen NORTH"), {labelled}, "words in the value of a label")
    equal(await found("tier"), {labelled}, "the name of a label")
    equal(await found("north labels 3"), {labelled}, "words in the input and in labels")
    await store.append(
        Append(first, events(2), after=1, summary=RunSummary(input="The quick brown fox", output="tiger"))
    )
    equal(await found("lowe"), set(), "a word that is gone")
    equal(await found("tiger quick"), {first}, "a word that has come")
    third = await add("fox again")
    equal(await found("fox"), {first, second, third}, "runs after one was added")
    await store.delete(second)
    equal(await found("fox"), {first, third}, "runs after one was deleted")
    await raises(ValueError, store.runs(RunQuery(search="fox", status="nothing")), "search with an unknown status")


async def check_listing(store: Store) -> None:
    """Runs are found by status, graph and labels, alone and together, newest first."""
    mark = uuid4().hex
    infos: list[RunInfo] = []
    for number in range(24):
        info, records = new_run(labels={"mark": mark, "user": f"u{number % 3}", "parity": str(number % 2)})
        status = ("running", "paused", "completed", "failed")[number % 4]
        info = replace(info, graph=f"{mark} {number % 2}", status=status, created=1000.0 + number // 2)
        await store.create(NewRun(info, records))
        infos.append(info)
    newest_first = list(reversed(infos))

    async def expect(what: str, fits: Callable[[RunInfo], bool], **filters: Any) -> None:
        labels = {"mark": mark, **texts(filters.pop("labels", {}))}
        page = await store.runs(RunQuery(labels=labels, limit=100, **filters))
        equal(list(page.runs), [info for info in newest_first if fits(info)], f"runs by {what}")
        equal(page.cursor, None, f"the cursor after all runs by {what}")

    await expect("one label", lambda info: True)
    await expect("status", lambda info: info.status == "paused", status="paused")
    await expect("statuses", lambda info: info.status in ("paused", "failed"), status=["paused", "failed"])
    await expect("no status at all", lambda info: False, status=[])
    await expect("status, interrupted", lambda info: info.status == "running", status="interrupted")
    await expect(
        "statuses, interrupted among them",
        lambda info: info.status in ("running", "failed"),
        status=["running", "interrupted", "failed"],
    )
    error = await raises(ValueError, store.runs(RunQuery(status="complete")), "runs of a status that there is not")
    that("completed" in str(error), f"the message names the status that may be meant: {error}")
    await raises(ValueError, store.runs(RunQuery(status=["paused", ""])), "runs of an empty status")
    await expect("graph", lambda info: info.graph == f"{mark} 1", graph=f"{mark} 1")
    await expect("two labels", lambda info: info.labels["user"] == "u1", labels={"user": "u1"})
    await expect("a label that none has", lambda info: False, labels={"user": "u1", "none": "x"})
    await expect(
        "everything",
        lambda info: (info.status, info.graph, info.labels["user"]) == ("running", f"{mark} 0", "u0"),
        status={"running"},
        graph=f"{mark} 0",
        labels={"user": "u0", "parity": "0"},
    )
    page = await store.runs(RunQuery(graph=f"{mark} 0", status="running", limit=100))
    wanted = [info for info in newest_first if info.graph == f"{mark} 0" and info.status == "running"]
    equal(list(page.runs), wanted, "runs by graph and status, without labels")
    await store.append(Append(infos[0].run_id, events(2), after=1, status="paused"))
    moved = await store.runs(RunQuery(labels={"mark": mark}, status="running", limit=100))
    that(infos[0].run_id not in [info.run_id for info in moved.runs], "a run that was paused is listed as running")


async def check_pages(store: Store) -> None:
    """Pages follow each other without gap or repeat, even while runs are added and others removed."""
    mark = uuid4().hex

    async def add(created: float) -> str:
        info, records = new_run(labels={"mark": mark})
        info = replace(info, created=created, graph=mark)
        await store.create(NewRun(info, records))
        return info.run_id

    ids = [await add(100.0 + number // 4) for number in range(30)]
    several: tuple[dict[str, Any], ...] = (
        {"labels": {"mark": mark}},
        {"graph": mark},
        {"graph": mark, "status": ["running", "paused"]},
    )
    for filters in several:
        seen: list[str] = []
        cursor: str | None = None
        pages = 0
        while pages < 20:
            page = await store.runs(RunQuery(after=cursor, limit=7, **filters))
            seen.extend(info.run_id for info in page.runs)
            that(len(page.runs) <= 7, "a page holds more than its limit")
            pages += 1
            cursor = page.cursor
            if cursor is None:
                break
            await add(500.0)  # newer than all: must not change the following pages
        equal([run_id for run_id in seen if run_id in ids], list(reversed(ids)), f"all pages of {filters}")
        equal(len(seen), len(set(seen)), f"runs seen once on the pages of {filters}")
    first = await store.runs(RunQuery(graph=mark, limit=5))
    await store.delete(first.runs[-1].run_id)
    second = await store.runs(RunQuery(graph=mark, limit=5, after=first.cursor))
    equal(len(second.runs), 5, "the page behind a run that was deleted")
    await raises(StoreError, store.runs(RunQuery(after="nonsense")), "runs(after=nonsense)")


async def check_delete(store: Store) -> None:
    """Nothing of a deleted run is left, its id is free, and other runs are unchanged."""
    info, records = new_run(labels={"mark": uuid4().hex})
    other = await created(store)
    await store.create(NewRun(info, records))
    await store.put_snapshot(info.run_id, 1, b"fold")
    await store.take_lease(a_lease(info.run_id, "t"), ttl=60.0)
    message = await store.post(info.run_id, {"kind": "pause"})
    equal(await store.delete(info.run_id), True, "delete, of a run that is there")
    equal(await store.delete(info.run_id), False, "delete, asked again")
    await raises(RunUnknown, store.info(info.run_id), "info of a deleted run")
    await raises(RunUnknown, store.read(info.run_id), "read of a deleted run")
    equal((await store.runs(RunQuery(labels=info.labels))).runs, (), "runs by the label of a deleted run")
    equal(await store.inbox([info.run_id]), [], "the inbox of a deleted run")
    await store.create(NewRun(info, records))
    equal(await store.read(info.run_id), records, "the records of a new run under a freed id")
    equal(await store.lease(info.run_id), None, "the lease of a new run under a freed id")
    equal(await store.snapshot(info.run_id), None, "the snapshot of a new run under a freed id")
    equal(await store.inbox([info.run_id]), [], "the inbox of a new run under a freed id")
    that(await store.post(info.run_id, {}) > message, "the id of a deleted message is used again")
    equal(len(await store.read(other)), 1, "the records of another run")


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
    """Totals are stored as given, replaced as a whole, and deleted with their run."""
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
    """Sums are those of the totals of the runs in a group, for every kind of group."""
    mark, groups = uuid4().hex, ("day", "graph", "model", "tool", "node", "label:team", "label:none")
    runs = []
    for number in range(30):
        labels = {"mark": mark} | ({"team": f"t{number % 2}"} if number % 5 else {})
        info, records = new_run(labels=labels)
        info = replace(
            info,
            graph=f"{mark} {number % 3}",
            created=20_000 * _DAY + number * _DAY / 7,
            status=("completed", "failed", "running", "paused")[number % 4],
            totals=None if number % 10 == 7 else _totals(number),
            usage=Usage(cache_savings=0.25 * (number % 3)),
            parent=Parent("caller", 1, "call") if number % 4 == 1 else None,
        )
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
    own = [0.25 * (number % 3) for number in range(30) if number % 10 != 7 and number % 4 != 1]
    equal(everything.cache_savings, sum(own), "savings of caches: those of runs that no call started")
    since: dict[str, Any] = {"since": runs[4].created}
    until: dict[str, Any] = {"until": runs[20].created}
    team: dict[str, Any] = {"labels": {"team": "t1"}}
    graph: dict[str, Any] = {"graph": f"{mark} 1"}
    for filters in (since, until, since | until, team, graph, {**graph, **since, "labels": {"team": "t0"}}):
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
    """Open questions of all runs are listed, oldest first, on pages that stay consistent during changes."""
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
