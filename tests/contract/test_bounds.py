"""What lists show of runs has a size: labels at every door, and in stores of strangers texts, names and moments too."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from orchestrator import Executor
from orchestrator.errors import InvalidExport, InvalidValue
from orchestrator.executor.schedules import fire_due
from orchestrator.kernel.question import until
from orchestrator.render.terminal.run_report import run_text
from orchestrator.render.terminal.tables import run_table
from orchestrator.render.terminal.texts import ago
from orchestrator.stores import Store, open_store
from orchestrator.stores.requests import NewRun
from orchestrator.values import EARLIEST, LATEST, MAX_LABEL, MAX_LABELS, MAX_NAME, in_calendar, new_labels, utc
from orchestrator.views.run import explainer_of
from orchestrator.views.worker_info import Standby
from orchestrator.web.documents import result_of, row_of
from tests.support import stores
from tests.support.executors import chain, says
from tests.support.shell import Shell
from tests.support.sizes import quick_on
from tests.support.stores import kinds
from tests.web.api import api

pytestmark = pytest.mark.anyio
GRAPH = chain(says("a"))
LONGEST = {"n" * MAX_NAME: "v" * MAX_LABEL, **{f"l{number}": "" for number in range(MAX_LABELS - 2)}}
"""As many and as long as they may be, with room for one more."""
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "value": ({"team": "v" * 1001}, "label 'team': its value has 1,001 characters, and the limit is 1,000"),
    "name": ({"n" * 201: ""}, f"label '{'n' * 36}...: its name has 201 characters, and the limit is 200"),
    "colon": ({"a:b": "c"}, "label 'a:b': its name has a colon: use another sign, such as 'a.b'"),
    "no name": ({"": "c"}, "label '': it has no name"),
    "number": ({f"l{number}": "" for number in range(101)}, "a run has at most 100 labels, and these are 10"),
}

Door = Callable[[Executor, dict[str, str]], Awaitable[Any]]


async def _started(executor: Executor, labels: dict[str, str]) -> Any:
    return await executor.start(GRAPH, "x", run_id="new", labels=labels)


async def _enqueued(executor: Executor, labels: dict[str, str]) -> Any:
    return await executor.enqueue(GRAPH, "x", run_id="new", labels=labels)


async def _submitted(executor: Executor, labels: dict[str, str]) -> Any:
    return await executor.submit(GRAPH, "x", run_id="new", labels=labels)


async def _forked(executor: Executor, labels: dict[str, str]) -> Any:
    await executor.start(GRAPH, "x", run_id="one")
    return await executor.fork("one", at=1, run_id="new", labels=labels)


async def _scheduled(executor: Executor, labels: dict[str, str]) -> Any:
    return await executor.schedules.put(GRAPH, "30 6 * * *", "x", name="new", labels=labels)


async def _imported(executor: Executor, labels: dict[str, str]) -> Any:
    await executor.start(GRAPH, "x", run_id="new")
    lines = [line async for line in executor.export("new")]
    await executor.delete("new")
    return await executor.import_(with_labels(lines, labels))


def with_labels(lines: list[str], labels: dict[str, str]) -> list[str]:
    """An export whose run has these labels."""
    changed = [
        json.dumps({**json.loads(line), "labels": labels}) if '"type":"run_started"' in line else line
        for line in lines[:-1]
    ]
    digest = hashlib.sha256("".join(f"{line}\n" for line in changed).encode()).hexdigest()
    return [*changed, json.dumps({**json.loads(lines[-1]), "sha256": digest})]


DOORS: tuple[Door, ...] = (_started, _enqueued, _submitted, _forked, _scheduled, _imported)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", REFUSED)
async def test_labels_have_names_lengths_and_a_number_at_every_door(door: Door, what: str) -> None:
    labels, said = REFUSED[what]
    async with Executor(graphs=[GRAPH]) as executor:
        with pytest.raises((InvalidValue, InvalidExport), match=re.escape(said)):
            await door(executor, labels)
        assert [info.run_id for info in (await executor.runs()).runs] in ([], ["one"])
        assert await executor.schedules.list() == []


@pytest.mark.parametrize("door", DOORS)
async def test_labels_of_the_largest_size_are_accepted_at_every_door(door: Door) -> None:
    async with Executor(graphs=[GRAPH]) as executor:
        await door(executor, LONGEST)
        if door is not _scheduled:
            assert dict((await executor.store.info("new")).labels) == LONGEST


def test_labels_of_a_parent_count_with_those_of_its_fork() -> None:
    with pytest.raises(InvalidValue, match="at most 100 labels, and these are 101"):
        new_labels({"a": "", "b": ""}, LONGEST)
    assert new_labels({"a": ""}, LONGEST) == {**LONGEST, "a": ""}
    assert len(new_labels({}, {f"l{number}": "" for number in range(200)})) == 200


def test_labels_have_bounds_in_requests() -> None:
    with api() as server:
        server.start("plain", run_id="one")
        for labels, _ in REFUSED.values():
            server.post("runs", 422, graph="plain", input="x", labels=labels)
            server.post("runs/one/fork", 422, at=1, labels=labels)
            server.post("runs/one/fork/preview", 422, at=1, labels=labels)
        assert [row["run_id"] for row in server.get("runs")["runs"]] == ["one"]
        assert server.post("runs/one/fork", 201, at=1, labels=LONGEST)["labels"] == LONGEST


def test_labels_have_bounds_on_the_command_line(tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    labels, said = REFUSED["value"]
    given = ("--label", f"team={labels['team']}")
    assert shell("run", "react", "2+2", "--run-id", "one").code == 0
    for words in (
        ("run", "react", "2+2", *given), ("enqueue", "react", "2+2", *given), ("fork", "one", "--at", 1, *given),
        ("schedule", "react", "30 6 * * *", "2+2", *given),
    ):  # fmt: skip
        done = shell(*words)
        assert (done.code, said in done.err) == (2, True), done.err
    assert [row["run_id"] for row in shell("runs", "--json").json] == ["one"]


async def odd_run(store: Store, labels: dict[str, str]) -> None:
    """A run of the id `odd`, as an earlier version could have written it."""
    async with Executor(graphs=[GRAPH]) as executor:
        await executor.start(GRAPH, "x", run_id="odd")
        info, records = await executor.store.info("odd"), await executor.store.read("odd")
        await store.put_graph(info.content, await executor.store.graph(info.content))
        first = structs.replace(records[0], labels=labels)
        await store.create(NewRun(info.changed(labels=labels), [first, *records[1:]]))


@kinds("sqlite")
async def test_a_store_with_more_labels_opens_and_shows_them_cut(url: str) -> None:
    labels = {"a-team": "v" * 5000, "a" * 900: "x", **{f"l{number:03}": "" for number in range(300)}}
    store = open_store(url)
    await odd_run(store, labels)
    async with Executor(store, graphs=[GRAPH]) as executor:
        (info,) = (await executor.runs(labels={"a-team": "v" * 5000})).runs
        run = await executor.load("odd")
        assert run.labels == info.labels == labels
        assert (await executor.fork("odd", at=1, run_id="fork")).labels == labels
        shown = row_of(info).labels
        assert (await result_of(run)).labels == shown
        assert len(shown) == MAX_LABELS
        assert (shown["a-team"], max(map(len, shown))) == ("v" * 999 + "…", 200)
        for text in (run_table([info]), run_text(run, [], explainer_of(run).reasons(), [], "", "")):
            assert len(text) < 5000
            assert "a-team=" + "v" * 999 + "…" in text
    await store.close()


@kinds("sqlite")
async def test_a_schedule_that_has_longer_labels_still_begins_its_runs(url: str) -> None:
    store = open_store(url)
    labels = {"team": "v" * 5000}
    async with Executor(store, graphs=[GRAPH]) as executor:
        schedule = await executor.schedules.put(GRAPH, "30 6 * * *", "x", name="s", catch_up="one")
        await store.put_schedule(replace(schedule, labels=labels, next_at=1_700_000_000.0))
        await fire_due(executor._host)
        (run,) = (await executor.runs()).runs
        assert run.labels == {**labels, "schedule": "s"}
    await store.close()


@kinds("sqlite")
@quick_on("asyncio")
async def test_texts_and_moments_of_a_stranger_s_rows_are_cut_where_they_are_read(url: str) -> None:
    async with Executor(url, graphs=[GRAPH]) as executor:
        for name in ("late", "early"):
            await executor.start(GRAPH, "x", run_id=name)
    texts = ", ".join(f"{name} = '{'t' * 100_000}'" for name in ("error", "input", "output", "question"))
    stores.execute(url, f"UPDATE summaries SET {texts}")
    stores.execute(url, f"UPDATE runs SET fault = '{'t' * 100_000}', deaths = 1, retry_at = 1e300")
    for name, moment in (("late", "1e300"), ("early", "-1e300")):
        stores.execute(
            url, f"UPDATE runs SET created = {moment}, updated = {moment}, due = {moment} WHERE run_id = '{name}'"
        )
    async with Executor(url, graphs=[GRAPH]) as executor:
        found = {info.run_id: info for info in (await executor.runs()).runs}
        for name, moment in (("late", LATEST), ("early", EARLIEST)):
            info = found[name]
            assert (info.created, info.updated, info.due, info.retry_at) == (moment, moment, moment, LATEST)
            for text in (info.error, info.input, info.output, info.question, info.fault):
                assert text == "t" * 1999 + "…"
            assert len(run_table([info])) < 6000
            assert max(map(len, re.findall("[0-9]+", row_of(info).model_dump_json()))) < 20


@pytest.mark.parametrize("moment", [1e308, -1e308])
def test_moments_of_a_stranger_s_journal_are_short_where_they_are_shown(moment: float) -> None:
    for said in (
        Standby(due=moment).line(), Standby(deaths=1, retry_at=moment).line(), until(moment), ago(moment, 0.0),
    ):  # fmt: skip
        assert max(map(len, re.findall("[0-9]+", said)), default=0) <= 6


def test_moments_are_in_the_calendar() -> None:
    for value, moment in (
        (1e308, LATEST), (-1e308, EARLIEST), (float("inf"), LATEST), (10**400, LATEST), (12, 12.0), (0.5, 0.5),
        ("x", 0.0), (None, 0.0),
    ):  # fmt: skip
        assert in_calendar(value) == moment
    assert EARLIEST <= in_calendar(float("nan")) <= LATEST
    assert (utc(1e308).isoformat(), utc(-1e308).isoformat()) == (
        "9999-12-31T23:59:59+00:00",
        "0001-01-01T00:00:00+00:00",
    )
    assert utc(1_700_000_000.25).isoformat() == "2023-11-14T22:13:20.250000+00:00"
