"""What lists say of runs is what their journals say: at every change of status, and soon after anything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import Approve, Context, Executor, Update
from orchestrator.executor import journal
from orchestrator.executor.journal import short_text
from orchestrator.graph.limits import Limits
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import RunState
from orchestrator.models import OfflineModel
from orchestrator.nodes import Ask, Confirm
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from orchestrator.strategies.react import graph as react
from tests.executor.test_deleting import family
from tests.support.executors import chain, says, single

pytestmark = pytest.mark.anyio


class Watched(MemoryStore):
    """A store that looks after each append whether the run's row is as exact as it has to be."""

    def __init__(self, *graphs: Any) -> None:
        super().__init__()
        self._plans = {graph.content: Plan.of(graph) for graph in graphs}
        self.statuses: dict[str, list[str]] = {}

    async def append(self, append: Append) -> int:
        run_id, head = append.run_id, await super().append(append)
        info, records = await self.info(run_id), await self.read(run_id)
        machine = RunState(self._plans[info.content])
        for record in records:
            apply(machine, record)
        assert (info.status, info.head, info.updated) == (machine.status, machine.head, records[-1].ts)
        assert info.waiting == len(machine.questions)
        seen = self.statuses.setdefault(run_id, ["running"])
        if seen[-1] != info.status:
            seen.append(info.status)
            assert info.usage == machine.own_usage
            assert info.steps == machine.own_usage.steps
            assert bool(info.question) == bool(machine.questions)
            assert info.error == ("" if machine.ended is None else str(machine.ended.error or ""))
        return head


async def test_a_row_is_exact_at_every_change_of_status() -> None:
    async def breaks() -> Update:
        raise ValueError("no such page")

    graph = chain(says("a"), Ask(prompt="Go on?", answer="question"), says("b"), Confirm(prompt="Sure?"))
    broken, endless = single(breaks), chain(says("a"), says("b"))
    store = Watched(graph, broken, endless)
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {"question": "What?"}, run_id="r")
        assert (await store.info("r")).question == "Go on?"
        run = await executor.answer("r", run.waiting[0].id, "yes")
        assert (await store.info("r")).question == "Sure?"
        run = await executor.answer("r", run.waiting[0].id, Approve())
        assert store.statuses["r"] == ["running", "paused", "running", "paused", "running", "completed"]
        info = await store.info("r")
        assert (info.output, info.question, info.input) == ('["a","b"]', "", "What?")
        await executor.start(broken, run_id="f")
        assert (await store.info("f")).error == "ValueError: no such page"
        await executor.start(endless, run_id="e", limits=Limits(steps=1))
        assert store.statuses == {"r": store.statuses["r"], "f": ["running", "failed"], "e": ["running", "exhausted"]}


async def test_a_run_of_a_strategy_is_found_by_its_question_and_answer() -> None:
    store = Watched(react)
    async with Executor(store, model=OfflineModel(), tools=["arithmetic"]) as executor:
        run = await executor.start(react, "What is 12 * 7 + 3?")
        (info,) = (await executor.runs(search="87", status="completed")).runs
        assert (info.run_id, info.input) == (run.run_id, "What is 12 * 7 + 3?")
        assert (info.usage, info.steps) == (run.usage, run.steps)
        assert (await executor.runs(search="12 * 7 = 85")).runs == ()


async def test_runs_of_graph_tools_and_forks_name_where_they_come_from() -> None:
    graph, tools = family()
    async with Executor(graphs=[graph], tools=tools) as executor:
        await executor.start(graph, "x", run_id="r")
        children = (await executor.runs(parent="r", relation="call")).runs
        records = await executor.store.read("r")
        intents = [record.seq for record in records if record.type == "effect_intended"]
        assert [child.parent.seq for child in children if child.parent is not None] == intents[::-1]
        assert len(children) == 2
        fork = await executor.fork("r", at=1, start=False)
        assert [one.run_id for one in (await executor.runs(parent="r", relation="fork")).runs] == [fork.run_id]
        info = await executor.store.info(fork.run_id)
        assert (info.parent, info.status) == (fork.parent, "paused")
        assert [one.run_id for one in await executor.forks.list("r")] == [fork.run_id]


async def test_what_a_long_step_used_is_there_while_it_runs() -> None:
    store = MemoryStore()
    seen: list[tuple[int, int]] = []

    async def work(ctx: Context) -> Update:
        for number in range(3):
            await ctx.effect(f"e{number}", lambda: "done", returns=str)
            info = await store.info("r")
            seen.append((info.head, info.steps))
        return {"log": "done"}

    async with Executor(store) as executor:
        await executor.start(chain(says("a"), work), run_id="r")
    assert [head for head, _ in seen] == sorted(head for head, _ in seen)


def test_texts_are_cut_between_words_so_that_no_part_of_a_secret_is_left() -> None:
    assert short_text(None) == ""
    assert short_text({"a": [1, "ü"]}) == '{"a":[1,"ü"]}'
    assert short_text("x" * 2000) == "x" * 2000
    assert short_text("x" * 2001) == "x" * 1999 + "…"
    long = short_text("word " * 398 + "secret-" + "s" * 100)
    assert long.endswith("word…")
    assert len(long) <= 2000
    assert short_text("\ud800 half") == "\ufffd half"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=60) | st.just("\ud83d\ude00" * 30),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=20), inner, max_size=12),
    max_leaves=60,
)


@pytest.mark.full
@given(json_values)
def test_the_text_of_a_large_value_is_the_beginning_of_its_whole_text(value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "MAX_TEXT", 40)
        text = short_text(value)
        patch.setattr(journal, "_beginning", lambda value, room: (value, room))
        assert text == short_text(value)


def test_a_row_costs_the_same_for_an_input_ten_times_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    real = journal.canonical

    def canonical(value: object) -> str:
        written.append(len(text := real(value)))
        return text

    monkeypatch.setattr(journal, "canonical", canonical)
    for count in (1_000, 10_000):
        short_text({"messages": [{"role": "user", "content": "hello " * 50, "number": n} for n in range(count)]})
    assert written[1] == written[0] < 6 * journal.MAX_TEXT


@pytest.mark.parametrize("room", [-3, 0, 1, 4, 5, 9])
def test_the_beginning_of_a_list_is_that_of_its_items_one_by_one(room: int) -> None:
    for value in ([], [1, 2.5, None, True, 5], [1, "two", 3], [1, [2, 3], 4], [[], 1], {"a": [1, 2], "b": [3]}):
        found = journal._beginning(value, room)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal, "_SHORT", frozenset())
            assert found == journal._beginning(value, room)
