"""Runs are found by what was said in them: labels, inputs and outputs by the index, prompts and tool data by a scan."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Context, Executor, Update
from orchestrator.errors import StoreError
from orchestrator.executor import run_search
from orchestrator.kernel.records import EffectIntended, EffectSettled, EventReceived, Record
from orchestrator.stores import RunInfo, Store
from orchestrator.stores.requests import NewRun, words
from orchestrator.stores.rows import Scanned
from orchestrator.strategies.react import graph as react
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tool
from tests.support.executors import single
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


async def add(store: Store, run_id: str, *said: str, created: float = 0.0, given: str = "", **labels: str) -> None:
    """A run whose records say something."""
    records: list[Record] = [
        EventReceived(seq=seq, ts=1.0, name="event", data={"deep": [{"text": text}]})
        for seq, text in enumerate(said, 1)
    ]
    await store.create(
        NewRun(RunInfo(run_id, "g", "completed", labels, created=created, head=len(records), input=given), records)
    )


async def found(executor: Executor, q: str, **options: Any) -> tuple[list[str], list[Scanned]]:
    """All runs with these words, over all pages, and how far each page looked."""
    ids: list[str] = []
    scans: list[Scanned] = []
    cursor: str | None = None
    while True:
        page = await executor.runs(q=q, after=cursor, **options)
        ids += [info.run_id for info in page.runs]
        scans += [] if page.scanned is None else [page.scanned]
        cursor = page.cursor
        if cursor is None:
            return ids, scans


async def test_words_in_prompts_and_in_arguments_and_results_of_tools_are_found(url: str) -> None:
    @tool
    async def look_up(city: str) -> str:
        """Look a city up.

        Args:
            city: the city.
        """
        return f"{city} lies on the river Akerselva"

    script = ['{"tool": "look_up", "args": {"city": "Oslo"}}', "Final Answer: by the sea"]
    async with Executor(
        url, model=ScriptedModel(lambda request: script[len(request.messages) > 2]), tools=[look_up]
    ) as ex:
        graph = react
        run = await ex.start(graph, "Where is the capital?", run_id="r", labels={"team": "maps"})
        records = await ex.store.read("r")
        said = " ".join(text for record in records for text in run_search._texts(record))
        assert run.run_id == "r"
        await ex.start(single(lambda: {"log": "nothing"}, effect="pure"), "Another", run_id="other")
        for word in {*words(said)}:
            assert "r" in (await found(ex, word))[0], word
        assert (await found(ex, "maps CAPITAL"))[0] == ["r"]
        assert (await found(ex, "maps capital nowhere"))[0] == []


async def test_the_index_comes_first_and_the_scan_goes_from_the_newest_run_on(url: str) -> None:
    async with Executor(url) as executor:
        store = executor.store
        await add(store, "by label", "x", created=1.0, team="violet")
        await add(store, "by input", "x", created=2.0, given="a VIOLET sky")
        await add(store, "deep old", "x", "nothing", "one violet", created=3.0)
        await add(store, "deep new", "ultra-violet", created=4.0)
        await add(store, "none", "violets", created=5.0)
        ids, scans = await found(executor, "violet")
        assert ids == ["by input", "by label", "deep new", "deep old"]
        assert [(one.runs, one.records, one.stopped) for one in scans] == [(3, 5, False)]
        assert scans[0].back_to == 3.0
        page = await executor.runs(q="violet", limit=2)
        assert ([info.run_id for info in page.runs], page.scanned) == (ids[:2], None)
        assert (await found(executor, "violet", limit=1))[0] == ids
        assert (await found(executor, "violet", labels={"team": "violet"}))[0] == ["by label"]
        assert (await found(executor, "ultra sky"))[0] == []
        assert (await found(executor, ", . !"))[0] == []
        with pytest.raises(ValueError, match="use one of them"):
            await executor.runs(q="a", search="b")
        for cursor in ("nonsense", "1.0_5", "journal||x|0|", "index|", "other||0|0|", "journal|nonsense|0|0|"):
            with pytest.raises(StoreError):
                await executor.runs(q="violet", after=cursor)


async def test_a_scan_stops_at_its_bound_and_the_cursor_goes_on_inside_a_journal(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_search, "MOST_RECORDS", 10)
    monkeypatch.setattr(run_search, "_RECORDS_AT_ONCE", 5)
    async with Executor(url) as executor:
        store = executor.store
        await add(store, "long", "first half", *["x"] * 40, "second part", created=2.0)
        await add(store, "short", "first", created=1.0)
        await add(store, "both", "part first", created=0.5)
        ids, scans = await found(executor, "first part")
        assert ids == ["long", "both"]
        assert [one.stopped for one in scans] == [True, True, True, True, False]
        assert all(one.records <= 10 + 5 for one in scans)
        page = await executor.runs(q="first part")
        assert (page.runs, page.cursor is not None) == ((), True)
        await store.delete("long")  # what was found in it counts for no other run
        page = await executor.runs(q="first part", after=page.cursor)
        assert [info.run_id for info in page.runs] == ["both"]


@pytest.mark.parametrize("seed", range(sized(2, 12)))
async def test_pages_of_any_size_and_any_bound_find_what_is_there(
    url: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    vocabulary = ["alpha", "Bêta", "γάμμα", "delta-4", "5", "zeta"]
    async with Executor(url) as executor:
        said: dict[str, set[str]] = {}
        for number in range(25):
            texts = [" ".join(dice.choices(vocabulary, k=2)) for _ in range(dice.randrange(1, 9))]
            given, label = (dice.choice(["", dice.choice(vocabulary)]) for _ in range(2))
            await add(executor.store, f"r{number}", *texts, created=float(number // 3), given=given, label=label)
            said[f"r{number}"] = {word for text in (*texts, given, label, "label") for word in words(text)}
        for _ in range(4):
            wanted = dice.sample(vocabulary, dice.randrange(1, 4))
            monkeypatch.setattr(run_search, "MOST_RECORDS", dice.choice([1, 3, 20, 1000]))
            monkeypatch.setattr(run_search, "MOST_CHARACTERS", dice.choice([1, 100, 100_000]))
            monkeypatch.setattr(run_search, "MOST_RUNS", dice.choice([1, 5, 100]))
            monkeypatch.setattr(run_search, "_RECORDS_AT_ONCE", dice.choice([1, 2, 500]))
            ids, _ = await found(executor, " ".join(wanted), limit=dice.choice([1, 2, 7, 50]))
            right = {run_id for run_id, has in said.items() if has.issuperset(words(" ".join(wanted)))}
            assert len(ids) == len(set(ids))
            assert set(ids) == right, wanted


async def test_keys_and_digests_of_requests_are_no_text() -> None:
    intended = EffectIntended(
        seq=1, ts=1.0, activation="a", node="n", key="k", kind="model", name="m", effect="read", digest="d",
        request={"messages": [{"digest": "hash", "role": "user", "content": "spoken"}], "tools": [{"name": "offered"}]},
    )  # fmt: skip
    settled = EffectSettled(
        seq=2, ts=2.0, activation="a", node="n", key="k", result={"total": 41.5, "ok": True, "none": None}
    )
    assert sorted(run_search._texts(intended)) == ["spoken", "user"]
    assert [*run_search._texts(settled)] == ["41.5"]


async def test_a_damaged_journal_is_passed_over(tmp_path: Path) -> None:
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        for number in range(3):
            await add(executor.store, f"r{number}", "violet", created=float(number))
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as file:
            file.execute("UPDATE records SET data = x'00' WHERE id >> 32 = 2")
        assert (await found(executor, "violet"))[0] == ["r2", "r0"]


async def test_runs_that_wait_are_found_among_others(url: str) -> None:
    async def ask(ctx: Context[Any]) -> Update:
        return {"log": str(await ctx.ask("input", prompt="Really?"))}

    graph = single(ask)
    async with Executor(url, graphs=[graph]) as executor:
        await executor.start(graph, run_id="asks")
        await add(executor.store, "other", "x")
        assert [info.run_id for info in (await executor.runs(waiting=True)).runs] == ["asks"]
        assert [info.run_id for info in (await executor.runs(waiting=False)).runs] == ["other"]
        assert len((await executor.runs()).runs) == 2
