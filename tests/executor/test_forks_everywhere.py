"""Runs of every strategy and of generated graphs, forked at every record: what is settled never happens again.

A witness notes what really happens. What a fork does, together with what is settled in the records that it copied, is
what its parent did; so are its output, its state and its status. A value that is set to what it was changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import pytest

from orchestrator import Approve, Executor, OfflineModel, Question, Run, tool
from orchestrator.executor.calls.effect import Effect, witness
from orchestrator.json import canonical
from orchestrator.kernel.records import Answered, Asked, EffectIntended, EffectSettled, Record
from tests.frozen.strategies import MAKERS, SUM, bye
from tests.support.sizes import in_turn, quick_on, sized
from tests.testing.acting import KINDS, drawn_graph, ends, said
from tests.testing.acting import tools as acting_tools
from tests.testing.shop import Echo

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]
T = TypeVar("T")


@tool(risk="write", effect="idempotent")
async def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@tool(risk="write", effect="irreversible")
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


TOOLS = [multiply, add]
WITHOUT_CALLS = (
    "evaluator_optimizer", "function_call", "plan_and_solve_prompt", "self_consistency", "swarm", "tree_of_thoughts",
)  # fmt: skip
"""Strategies that make no irreversible call here."""


class Diary:
    """Outside: what was really done, in order, and which results were given back."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, str]] = []

    async def call(self, effect: Effect[T], key: str) -> T:
        self.done.append((effect.kind, effect.name, effect.digest))
        return await effect.run(key)

    def reuse(self, effect: Effect[Any], settled: EffectSettled) -> None:
        pass


Answers = Callable[[Question], object]


async def to_the_end(executor: Executor, run: Run, answer: Answers) -> tuple[Run, list[Question]]:
    """Answer what a run asks until it asks nothing more; and what a fork asked before calls."""
    asked: list[Question] = []
    while run.waiting:
        question = run.waiting[0]
        given: object = answer(question)
        if "family" in question.payload:
            asked.append(question)
            given = Approve()
        run = await executor.answer(run.run_id, question.id, given, digest=question.digest or None)
    return run, asked


def settled_in(records: Sequence[Record]) -> Counter[tuple[str, str, str]]:
    """The calls that records have a result of."""
    intents = {one.key: one for one in records if isinstance(one, EffectIntended)}
    last = {one.key: one for one in records if isinstance(one, EffectSettled) and one.next_at is None}
    found = [intents[key] for key, one in last.items() if one.error is None or one.error.type != "Suspended"]
    return Counter((one.kind, one.name, one.digest) for one in found)


def under_way_in(records: Sequence[Record]) -> list[EffectIntended]:
    """The irreversible calls that they have no result of."""
    ends = {one.key for one in records if isinstance(one, EffectSettled)}
    return [
        one for one in records
        if isinstance(one, EffectIntended) and one.effect == "irreversible" and one.key not in ends
    ]  # fmt: skip


async def forked_everywhere(
    executor: Executor,
    parent: Run,
    answer: Answers,
    *,
    most: int,
    edit: Callable[[Run], Mapping[str, Any]] | None = None,
    compare: Callable[[Run], object] = lambda run: (run.status, canonical(run.output), canonical(run.values)),
) -> int:
    """Fork a run at its records, at `most` of them; how often a fork asked before a call that its parent had begun."""
    records = await executor.store.read(parent.run_id)
    whole, asked_between = settled_in(records), 0
    last = len(records) - (parent.status == "completed")
    places = range(1, last + 1)
    for at in places[:: max(1, len(places) // most)]:
        diary = Diary()
        token = witness.set(diary)
        changes: Mapping[str, Any] = {} if edit is None else edit(await executor.load(parent.run_id, at))
        try:
            fork = await executor.fork(parent.run_id, at=at, **changes)
            fork, asked = await to_the_end(executor, fork, answer)
        finally:
            witness.reset(token)
        place = f"{parent.run_id}@{at} ({records[at - 1].type})"
        assert compare(fork) == compare(parent), place
        before = settled_in(records[:at])
        assert before + Counter(diary.done) == whole, place
        for call in under_way_in(records[:at]):
            (question,) = [one for one in asked if one.payload["tool"] == call.name][:1]
            known = question.payload["family"][0]  # type: ignore[index]
            assert (known["run"], known["status"]) == (parent.run_id, "returned"), place
            asked_between += 1
        stored = await executor.store.read(fork.run_id)
        assert list(stored[:at]) == list(records[:at])
    return asked_between


def question_again(run: Run, field: str = "question") -> Mapping[str, Any]:
    """An edit that changes nothing: a field that no node writes, as it is; nothing at a place without a branch."""
    if not run.branches:
        return {}
    trunk = next((one for one in run.branches if not one.path), None)
    at = trunk or run.branches[0]
    values: Mapping[str, Any] = at.values
    if sum(one.path == at.path for one in run.branches) > 1:
        return {}  # tokens at equal places: they would write one field in two branches
    if field not in values or "/" in at.path or at.phase == "pending":
        return {}
    return {"update": {field: values[field]}, **({} if trunk else {"branch": at.path})}


@pytest.mark.parametrize(("name", "edited"), in_turn([*MAKERS], [False, True]))
async def test_every_strategy_is_forked_at_every_record(name: str, edited: bool) -> None:
    graph = MAKERS[name]()
    async with Executor(graphs=[graph], model=OfflineModel(), tools=TOOLS, concurrency=1) as executor:
        parent = await executor.start(graph, SUM, run_id=name)
        parent, _ = await to_the_end(executor, parent, bye)
        assert parent.status == "completed"
        between = await forked_everywhere(
            executor, parent, bye, most=sized(4, 1000), edit=question_again if edited else None
        )
        assert between or sized(True, name in WITHOUT_CALLS)


@quick_on("asyncio")
@pytest.mark.parametrize("name", MAKERS)
async def test_a_strategy_with_another_question_is_as_one_that_was_asked_it(name: str) -> None:
    graph = MAKERS[name]()
    other = "What is 7*6?"
    async with Executor(graphs=[graph], model=OfflineModel(), tools=TOOLS, concurrency=1) as executor:
        wanted, _ = await to_the_end(executor, await executor.start(graph, other), bye)
        await to_the_end(executor, await executor.start(graph, SUM, run_id="r"), bye)
        field = graph.input if isinstance(graph.input, str) else "question"
        start = (await executor.load(wanted.run_id, at=1)).values
        changed = {key: value for key, value in start.items() if value != (await executor.load("r", at=1)).values[key]}
        assert field in changed
        branches = (await executor.load("r", at=1)).branches
        branch = None if any(not one.path for one in branches) else branches[0].path
        fork, _ = await to_the_end(executor, await executor.fork("r", at=1, update=changed, branch=branch), bye)
        assert (fork.output, fork.values) == (wanted.output, wanted.values)


def lists_again(run: Run) -> Mapping[str, Any]:
    """The same for generated graphs."""
    return question_again(run, "xs")


def as_it_is(run: Run, *, edited: bool) -> str:
    """The state. An edit is an update, a cause of what its branch does later: that may change an order (R6)."""
    log = sorted(run.values["log"]) if edited else run.values["log"]
    return canonical({**run.values, "log": log, "trail": sorted(run.values["trail"])})


async def everywhere(kind: str, seed: int, most: int) -> int | None:
    """Fork a run of a generated graph at its records; None: it is of no use."""
    found = drawn_graph(kind, seed)
    if found is None or not await ends(*found):
        return None
    graph, values = found
    async with Executor(graphs=[graph], model=Echo(), tools=acting_tools(), concurrency=1) as executor:
        parent, _ = await to_the_end(executor, await executor.start(graph, values, run_id=f"{kind}-{seed}"), said)
        if parent.status == "failed":
            return None
        return await forked_everywhere(
            executor, parent, said, most=most, edit=lists_again if seed % 2 else None,
            compare=lambda run: (run.status, as_it_is(run, edited=bool(seed % 2))),
        )  # fmt: skip


@quick_on("trio")
def test_generated_graphs_are_forked_at_every_record(anyio_backend: str) -> None:
    tried = between = 0
    seed = 0
    while tried < sized(4, 200):
        for kind in KINDS:
            found = anyio.run(everywhere, kind, seed, sized(4, 12), backend=anyio_backend)
            tried += found is not None
            between += found or 0
        seed += 1
    assert between > 0


# -- what could not be done without forks ------------------------------------------------------------------------------


async def test_a_conversation_goes_another_way_from_any_of_its_turns() -> None:
    graph = MAKERS["chat"]()
    async with Executor(graphs=[graph], model=OfflineModel(), tools=TOOLS, concurrency=1) as executor:
        run = await executor.start(graph, "What is 1+1?", run_id="r")
        for said_ in ("What is 2+2?", "What is 3+3?"):
            while run.waiting[0].kind != "input":
                run = await executor.answer("r", run.waiting[0].id, Approve())
            run = await executor.answer("r", run.waiting[0].id, said_)
        answered = [one for one in await executor.store.read("r") if isinstance(one, Answered)]
        texts = {one.question: one for one in answered}
        asked = [one.question for one in await executor.store.read("r") if isinstance(one, Asked)]
        second = texts[next(one.id for one in asked if one.kind == "input")]
        fork = await executor.fork("r", at=second.seq, answer="What is 5+5?")
        while fork.waiting[0].kind != "input":
            fork = await executor.answer(fork.run_id, fork.waiting[0].id, Approve())
        transcript = canonical(fork.values)
        assert "5+5" in transcript
        assert "10" in transcript
        assert "2+2" not in transcript
        assert "1+1" in transcript
