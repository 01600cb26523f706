"""Checks of what lists show of a run beside its journal, and of finding runs by it."""

from __future__ import annotations

from dataclasses import replace
from secrets import token_hex
from typing import Any
from uuid import uuid4

from orchestrator.errors import InvalidValue
from orchestrator.graph.limits import Usage
from orchestrator.stores.base import Parent, Relation, RunInfo, RunSummary, Schedule, Store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.testing.store_conformance.helpers import created, equal, event, events, new_run, raises, started, that

_SUMMARY = RunSummary(
    error="Boom: no 日本語 'quoted'",
    input="naïve question \x00?",
    output='{"answer": "🧭"}',
    question="Publish?",
    usage=Usage(steps=3, calls=2, input_tokens=10, output_tokens=20, cost=0.25, seconds=1.5, estimated=True),
    steps=3,
)


async def check_summaries(store: Store) -> None:
    """A run's summary is stored with its first records and with any append, whole; without one it stays."""
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
    """Head and status of many runs are one question, and exact after every append."""
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
            info, created=1000.0 + number, updated=2000.0 + 10 * number,
            parent=None if relation is None else Parent(mother, number, relation),
            status="failed" if number % 3 else "completed", input=f"What about case {number}, Zoë?",
            waiting=2 if number in (3, 8) else 0,
        )  # fmt: skip
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


async def check_search_with_filters(store: Store) -> None:
    """A search and other filters of runs all have to match."""
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
    """Words are looked for in inputs and outputs as they are now; no text of a user is a query."""
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
