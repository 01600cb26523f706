"""Irreversible effects whose end nobody knows: not done again without asking, wherever in a graph they are."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, field_validator

from orchestrator import Approve, Context, Executor, Graph, Question, Retry, Run, Tool, ToolResult, Update, node, tool
from orchestrator.errors import InvalidAnswer, RunEnded, StoreError, StoreUnavailable, ToolError
from orchestrator.executor.retries import outcome_is_open
from orchestrator.graph.model import ITEM
from orchestrator.kernel.records import EffectSettled
from orchestrator.nodes import Execute, Subgraph
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from tests.support.executors import Log, says, single

pytestmark = pytest.mark.anyio


class Power(MemoryStore):
    """A store that takes no more records when the power fails: what was not written by then never was."""

    fails = False

    async def append(self, append: Append) -> int:
        if self.fails:
            raise StoreUnavailable("no power")
        return await super().append(append)


class World:
    """Something outside that pays. The power can fail when it was asked to, and errors can come."""

    def __init__(self) -> None:
        self.store = Power()
        self.paid: list[Any] = []
        self.keys: list[str] = []
        self.fails_at: Any = None
        self.wrong: list[BaseException] = []
        self.hangs = False

    async def pay(self, what: Any, key: str = "") -> str:
        self.paid.append(what)
        self.keys.append(key)
        if what == self.fails_at:
            self.fails_at, self.store.fails = None, True
        if self.wrong:
            raise self.wrong.pop(0)
        if self.hangs:
            self.hangs = False
            await anyio.sleep(60)
        return f"paid {what}"

    def tool(self, **options: Any) -> Tool:
        @tool(name="pay", **options)
        async def pay(amount: int, idempotency_key: str) -> str:
            """Pay."""
            return await self.pay(amount, idempotency_key)

        found: Tool = pay
        return found

    async def crashed(self, graph: Graph, *tools: Tool, **options: Any) -> None:
        """Run a graph until the power fails."""
        async with Executor(self.store, graphs=[graph], tools=tools) as executor:
            with pytest.raises(StoreError):
                await executor.start(graph, run_id="r", **options)
        self.store.fails = False

    async def resumed(self, graph: Graph, *tools: Tool) -> Run:
        async with Executor(self.store, graphs=[graph], tools=tools) as executor:
            return await executor.resume("r")

    async def answered(self, question: Question, answer: Any, graph: Graph, *tools: Tool) -> Run:
        async with Executor(self.store, graphs=[graph], tools=tools) as executor:
            return await executor.answer("r", question.id, answer, digest=question.digest)


# -- wherever it is ----------------------------------------------------------------------------------------------------


@node
async def pays(state: Log, ctx: Context) -> Update:
    amount = ctx.item if isinstance(ctx.item, int) else state.n
    return {"log": (await ctx.tool("pay", amount=amount)).text}


def alone(world: World) -> Graph:
    return single(pays.run, takes=None)


def mapped(world: World) -> Graph:
    return Graph(
        name="mapped", state=Log, nodes={"begin": says("b"), "pays": pays, "join": says("e", join="all")},
        edges="START -> begin\nbegin -> pays : each items\npays -> join -> END", output="log",
    )  # fmt: skip


def beside(world: World) -> Graph:
    return Graph(
        name="beside", state=Log, output="log",
        nodes={"begin": says("b"), "pays": pays, "other": says("o"), "join": says("e", join="all")},
        edges="START -> begin -> pays, other -> join -> END",
    )  # fmt: skip


def inside(world: World) -> Graph:
    done = node(effect="pure")(lambda state: {"answer": " ".join(state.log)})
    inner = Graph(
        name="inner", state=Log, nodes={"pays": pays, "done": done}, edges="START -> pays -> done -> END", output="log"
    )
    sub = Subgraph(inner, inputs={"n": ITEM}, outputs={"log": "answer"})
    return Graph(
        name="outer", state=Log, nodes={"begin": says("b"), "sub": sub, "join": says("e", join="all")},
        edges="START -> begin\nbegin -> sub : each items\nsub -> join -> END", output="log",
    )  # fmt: skip


def as_effect(world: World) -> Graph:
    async def work(state: Log, ctx: Context) -> Update:
        return {"log": await ctx.effect("pay", world.pay, state.n, returns=str, effect="irreversible")}

    return single(work, takes=None)


def as_node(world: World) -> Graph:
    async def work(state: Log) -> Update:
        return {"log": await world.pay(state.n)}

    return single(work, effect="irreversible", takes=None)


def in_tasks(world: World) -> Graph:
    async def work(state: Log, ctx: Context) -> Update:
        said: dict[int, str] = {}

        async def one(amount: int) -> None:
            said[amount] = (await ctx.tool("pay", amount=amount)).text

        for amount in state.items[:1]:
            await one(amount)
        async with anyio.create_task_group() as tasks:
            for amount in state.items[1:]:
                tasks.start_soon(one, amount)
        return {"log": " ".join(said[amount] for amount in state.items)}

    return single(work, takes=None)


SHAPES = [alone, mapped, beside, inside, as_effect, as_node, in_tasks]
ITEMS = [1, 2, 3]


@pytest.mark.parametrize("choice", ["retry", "happened", "failed"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_crash_while_it_pays_is_asked_about_and_each_choice_does_what_it_says(
    shape: Callable[[World], Graph], choice: str
) -> None:
    world = World()
    pay = world.tool()
    graph = shape(world)
    world.fails_at = 2
    await world.crashed(graph, pay, input={"items": ITEMS, "n": 2})
    asked: dict[str, Question] = {}
    run = await world.resumed(graph, pay)
    paid = list(world.paid)
    assert paid.count(2) == 1
    while run.status == "paused":
        again = await world.resumed(graph, pay)  # asking does nothing outside, however often
        assert again.waiting == run.waiting
        assert world.paid == paid
        for question in run.waiting:
            assert question.kind == "unknown_outcome"
            asked[question.id] = question
        question = run.waiting[0]
        args = question.payload["args"]
        about = args["amount"] if isinstance(args, dict) and "amount" in args else 2
        said: Any = choice if about == 2 else "happened"
        if said == "happened":
            text = f"{about} by hand"
            result = {"log": text} if shape is as_node else text
            said = {"choice": "happened", "result": result}
        run = await world.answered(question, said, graph, pay)
        paid = list(world.paid)
    about_two = [q for q in asked.values() if q.payload["args"] in ({"amount": 2}, [2], {}, {"args": [2]})]
    assert len(about_two) == 1, asked
    assert world.paid.count(2) == (2 if choice == "retry" else 1)
    assert all(world.paid.count(other) <= 1 for other in (1, 3))
    if choice == "failed":
        assert run.status == "failed" or shape in (alone, mapped, beside, inside, in_tasks)
    else:
        assert run.status == "completed", run.error
        words = " ".join(str(word) for word in run.output)
        assert ("paid 2" in words) == (choice == "retry")
        assert ("2 by hand" in words) == (choice == "happened")
    if choice == "retry" and shape is not as_node and shape is not as_effect:
        assert len({key for what, key in zip(world.paid, world.keys, strict=True) if what == 2}) == 1


async def test_the_question_says_what_is_known() -> None:
    world = World()
    graph, pay = alone(world), world.tool()
    world.fails_at = 2
    await world.crashed(graph, pay, input={"n": 2})
    run = await world.resumed(graph, pay)
    (question,) = run.waiting
    payload = dict(question.payload)
    assert str(payload.pop("began")).startswith("20")
    assert payload == {
        "tool": "pay", "args": {"amount": 2}, "effect": "irreversible", "key": world.keys[0], "attempt": 1,
        "why": "interrupted",
    }  # fmt: skip
    assert "under way when the run was stopped" in question.prompt
    assert question.digest


# -- errors that leave it open -----------------------------------------------------------------------------------------


def caused(cause: BaseException) -> Exception:
    """An error of some library that a connection's error caused, as those of HTTP clients are."""
    try:
        try:
            raise cause
        except BaseException as error:
            raise LookupError("the library's own") from error
    except LookupError as error:
        return error


OPEN = [
    (ConnectionResetError("reset"), "connection"),
    (TimeoutError("slow"), "timeout"),
    (http.client.IncompleteRead(b"half"), "connection"),
    (caused(ConnectionAbortedError("gone")), "connection"),
    (ExceptionGroup("several", [ValueError("a"), TimeoutError("b")]), "connection"),
]


@pytest.mark.parametrize(("error", "why"), OPEN)
@pytest.mark.parametrize("how", ["tool", "effect", "node"])
async def test_a_retry_of_a_step_asks_before_it_does_it_again(error: Exception, why: str, how: str) -> None:
    world = World()
    world.wrong = [error]

    async def work(state: Log, ctx: Context) -> Update:
        if how == "node":
            return {"log": await world.pay(1)}
        if how == "effect":
            return {"log": await ctx.effect("pay", world.pay, 1, returns=str, effect="irreversible")}
        result = await ctx.tool("pay", amount=1)
        if result.failed:
            raise error
        return {"log": result.text}

    names = ("Exception",)
    graph = single(work, retry=Retry(wait=0, on=names), effect="irreversible" if how == "node" else "idempotent")
    async with Executor(tools=[world.tool()]) as executor:
        run = await executor.start(graph)
        (question,) = run.waiting
        assert (question.kind, question.payload["why"]) == ("unknown_outcome", why)
        assert question.payload["error"]
        assert world.paid == [1]
        run = await executor.answer(run.run_id, question.id, "retry")
    assert run.output == ["paid 1"]
    assert world.paid == [1, 1]


class Busy(Exception):
    """What some tool's other side says before it does anything."""


@pytest.mark.parametrize(
    ("effect", "error", "calls"),
    [
        ("irreversible", ConnectionResetError("reset"), 1),
        ("irreversible", TimeoutError("slow"), 1),
        ("irreversible", caused(TimeoutError("slow")), 1),
        ("irreversible", Busy("later"), 2),
        ("irreversible", ToolError("later"), 2),
        ("idempotent", ConnectionResetError("reset"), 2),
        ("idempotent", caused(TimeoutError("slow")), 2),
    ],
)
async def test_a_tools_own_retry_never_makes_an_irreversible_call_again_whose_end_is_open(
    effect: Any, error: Exception, calls: int
) -> None:
    world = World()
    world.wrong = [error]
    pay = world.tool(effect=effect, retry=Retry(wait=0, on=("Exception",)))

    async def work(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.tool("pay", amount=1)).text}

    async with Executor(tools=[pay]) as executor:
        run = await executor.start(single(work))
        settled = [e.data async for e in executor.events(run.run_id) if e.type == "effect_settled"]
    assert len(world.paid) == calls
    assert (run.output == ["paid 1"]) is (calls == 2)
    assert [data.get("unknown", False) for data in settled] == [calls == 1]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("node_retries", [False, True])
@pytest.mark.parametrize(
    ("inner", "calls"), [("happened", 1), ("unknown", 1), ("refused", 1), ("in a graph", 1), ("failed", 3)]
)
async def test_a_tools_own_retry_does_not_repeat_what_was_done_inside_of_it(
    inner: str, calls: int, node_retries: bool, deep: bool
) -> None:
    always = Retry(attempts=3, wait=0, on=("Exception",))
    paid: list[str] = []

    def pay() -> str:
        paid.append("paid")
        if inner in ("unknown", "failed"):
            raise TimeoutError("slow") if inner == "unknown" else ValueError("no money")
        return "A-17"

    async def paying(state: Log, ctx: Context) -> Update:
        return {"log": [await ctx.effect("pay", pay, returns=str, effect="irreversible")]}

    @tool(risk="none", effect="idempotent", retry=None if deep else always)
    async def order(ctx: Context) -> str:
        """Pay, then write a mail."""
        if inner == "in a graph":
            await ctx.tool("inner", check=True)
        else:
            await ctx.effect("pay", pay, returns=int if inner == "refused" else str, effect="irreversible")
        raise ConnectionError("no mail server")

    @tool(risk="none", effect="idempotent", retry=always)
    async def outer(ctx: Context) -> str:
        """Order."""
        return (await ctx.tool("order", check=True)).text

    async def work(state: Log, ctx: Context) -> Update:
        return {"log": [(await ctx.tool("outer" if deep else "order", check=True)).text]}

    graph = single(node(retry=always if node_retries and inner != "failed" else None)(work))
    tools = [order, outer, single(paying).as_tool("inner", "Pays.", risk="none")]
    async with Executor(tools=tools) as executor:
        run = await executor.start(graph)
        asked = [one.kind for one in run.waiting]
    assert asked == (["unknown_outcome"] if node_retries and inner in ("unknown", "refused") else [])
    assert len(paid) == calls


@pytest.mark.parametrize("whose", ["tool", "node"])
async def test_a_time_limit_leaves_it_open_too(whose: str) -> None:
    world = World()
    world.hangs = True
    pay = world.tool(timeout=0.05 if whose == "tool" else None, retry=Retry(wait=0))

    async def work(state: Log, ctx: Context) -> Update:
        result = await ctx.tool("pay", amount=1)
        if result.failed:
            raise ConnectionError(result.error)
        return {"log": result.text}

    async with Executor(tools=[pay]) as executor:
        run = await executor.start(single(work, retry=Retry(wait=0), timeout=0.3 if whose == "node" else None))
        assert world.paid == [1]
        (question,) = run.waiting
        assert (question.kind, question.payload["why"]) == ("unknown_outcome", "timeout")
        run = await executor.answer(run.run_id, question.id, {"choice": "happened", "result": "by hand"})
    assert (run.output, world.paid) == (["by hand"], [1])


async def test_a_node_that_stops_waiting_by_itself_is_asked_about_when_it_is_tried_again() -> None:
    world = World()
    world.hangs = True

    async def work(state: Log, ctx: Context) -> Update:
        with anyio.fail_after(0.05 if ctx.attempt == 1 else 20):
            return {"log": (await ctx.tool("pay", amount=1)).text}

    async with Executor(tools=[world.tool()]) as executor:
        run = await executor.start(single(work, retry=Retry(wait=0)))
        (question,) = run.waiting
        assert (question.kind, world.paid) == ("unknown_outcome", [1])
        run = await executor.answer(run.run_id, question.id, "failed")
    assert (run.status, world.paid) == ("failed", [1])


# -- reconcile ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("how", ["tool", "effect"])
@pytest.mark.parametrize("finds", ["it", "nothing", "an error", "nonsense"])
async def test_reconcile_is_asked_first_and_its_own_error_becomes_a_question(kind: str, how: str, finds: str) -> None:
    world = World()
    keys: list[str] = []

    def look(key: str) -> Any:
        keys.append(key)
        if finds == "an error":
            raise RuntimeError("the bank is closed")
        return {"it": "found", "nothing": None}.get(finds, object())

    async def look_slowly(key: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return look(key)

    reconcile = look if kind == "sync" else look_slowly

    async def work(state: Log, ctx: Context) -> Update:
        if how == "tool":
            return {"log": (await ctx.tool("pay", amount=1)).text}
        found = await ctx.effect("pay", world.pay, 1, returns=str, effect="irreversible", reconcile=reconcile)
        return {"log": found}

    graph, pay = single(work), world.tool()
    if how == "tool":
        pay = pay.with_(reconcile=reconcile)
    world.fails_at = 1
    await world.crashed(graph, pay)
    run = await world.resumed(graph, pay)
    if finds in ("it", "nothing"):
        assert run.output == ["found" if finds == "it" else "paid 1"]
        assert len(world.paid) == (1 if finds == "it" else 2)
        assert len(keys) == 1
        return
    (question,) = run.waiting
    assert question.kind == "unknown_outcome"
    words = str(question.payload["reconcile"])
    assert words.startswith("reconcile failed: ")
    assert "the bank is closed" in words or finds == "nonsense"
    assert words in question.prompt
    assert world.paid == [1]
    asked = len(keys)
    run = await world.answered(question, {"choice": "happened", "result": "by hand"}, graph, pay)
    assert (run.output, world.paid) == (["by hand"], [1])
    assert len(keys) == asked  # what a person said counts


# -- results that a person gives ---------------------------------------------------------------------------------------


class Even(BaseModel):
    """A number that no JSON Schema describes whole."""

    number: int

    @field_validator("number")
    @classmethod
    def check(cls, number: int) -> int:
        if number % 2:
            raise ValueError("an odd number")
        return number


async def _asks(world: World, how: str, **options: Any) -> tuple[Graph, Tool, Question]:
    """A run that asks what became of a call of a tool, an effect or a node."""

    async def number(what: int) -> int:
        await world.pay(what)
        return what

    async def even(what: int) -> Even:
        await world.pay(what)
        return Even(number=2)

    async def work(state: Log, ctx: Context) -> Update:
        if how == "node":
            return {"log": await world.pay(1)}
        if how == "tool":
            return {"log": (await ctx.tool("pay", amount=1)).text}
        if how == "even":
            found = await ctx.effect("even", even, 1, returns=Even, effect="irreversible")
            return {"log": str(found.number)}
        return {"log": str(await ctx.effect("number", number, 1, returns=int, effect="irreversible"))}

    graph, pay = single(work, effect="irreversible" if how == "node" else "idempotent"), world.tool()
    pay.output_schema = options.get("returns", {"type": "string"})
    world.fails_at = 1
    await world.crashed(graph, pay)
    (question,) = (await world.resumed(graph, pay)).waiting
    return graph, pay, question


async def test_a_result_that_only_the_step_can_refuse_is_asked_for_again() -> None:
    world = World()
    graph, pay, first = await _asks(world, "even")
    run = await world.answered(first, {"choice": "happened", "result": {"number": 3}}, graph, pay)
    (question,) = run.waiting
    assert question.id != first.id
    assert "cannot be its result" in question.prompt
    run = await world.answered(question, {"choice": "happened", "result": {"number": 4}}, graph, pay)
    assert (run.status, run.output, world.paid) == ("completed", ["4"], [1])


WRONG = [
    ("effect", "happened", "needs the result"),
    ("effect", {"choice": "happened"}, "needs the result"),
    ("effect", {"choice": "happened", "result": None}, "the result must be a whole number, not null"),
    ("effect", {"choice": "happened", "result": "many"}, "must be a whole number"),
    ("effect", {"choice": "happened", "result": {"output": 5}}, "must be a whole number"),
    ("node", {"choice": "happened", "result": {"nothing": 1}}, "nothing is unknown"),
    ("node", {"choice": "happened", "result": {"log": 5}}, "log must be a string, not 5"),
    ("node", {"choice": "happened", "result": {"outcome": "elsewhere"}}, 'must be one of "done"'),
    ("node", {"choice": "happened", "result": "by hand"}, "must be an object"),
    ("tool", "happened", 'needs the result of the call: give {"choice": "happened", "result": ...}'),
    ("tool", {"choice": "happened", "result": 5}, "the result must be a string, not 5"),
    ("tool", {"choice": "happened", "result": {"output": "x", "exit_code": "bad"}}, "must be a string"),
    ("tool", {"choice": "happened", "result": {"output": 5}}, "must be a string"),
    ("tool", {"choice": "happened", "reslt": "x"}, "wants one of happened, failed, retry"),
    ("tool", {"choice": "retry", "result": "x"}, 'wants one of happened, failed, retry, or {"choice": "happened"'),
    ("tool", "maybe", "wants one of happened, failed, retry"),
]


@pytest.mark.parametrize(("how", "said", "words"), WRONG)
@pytest.mark.parametrize("door", ["answer", "fork", "replaced"])
async def test_an_answer_that_cannot_be_is_refused_at_once_and_changes_nothing(
    door: str, how: str, said: Any, words: str
) -> None:
    world = World()
    graph, pay, question = await _asks(world, how)
    async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
        if door == "replaced":
            await executor.answer("r", question.id, "failed", resume=False)
        head = (await executor.load("r")).seq
        doors = {
            "answer": partial(executor.answer, "r", question.id, said),
            "fork": partial(executor.fork, "r", answers={question.id: said}),
            "replaced": partial(executor.fork, "r", at=head, answer=said),
        }
        with pytest.raises(InvalidAnswer, match=re.escape(words)):
            await doors[door]()
        assert (await executor.load("r")).seq == head
        assert [info.run_id for info in (await executor.runs()).runs] == ["r"]
    assert world.paid == [1]


RIGHT = [
    ("effect", {"choice": "happened", "result": 5}, ["5"]),
    ("even", {"choice": "happened", "result": {"number": 4}}, ["4"]),
    ("node", {"choice": "happened", "result": {"log": "by hand"}}, ["by hand"]),
    ("node", {"choice": "happened", "result": {"outcome": "done", "update": {"log": "x"}}}, ["x"]),
    ("node", {"choice": "happened", "result": None}, []),
    ("node", "happened", []),
    ("tool", {"choice": "happened", "result": "by hand"}, ["by hand"]),
    ("tool", {"choice": "happened", "result": {"output": "x", "exit_code": 1}}, ["Error: x"]),
    ("tool", {"choice": "happened", "result": {"error": "no money"}}, ["Error: no money"]),
    ("tool", "failed", None),
    ("effect", "failed", None),
    ("node", "failed", None),
]


@pytest.mark.parametrize(("how", "said", "output"), RIGHT)
@pytest.mark.parametrize("door", ["answer", "fork", "replaced"])
async def test_what_a_person_says_became_of_it_counts_through_every_door(
    door: str, how: str, said: Any, output: list[str] | None
) -> None:
    world = World()
    graph, pay, question = await _asks(world, how)
    async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
        if door == "answer":
            run = await executor.answer("r", question.id, said)
        elif door == "fork":
            run = await executor.fork("r", answers={question.id: said}, run_id="f")
            again = await executor.fork("r", answers={question.id: said}, run_id="f")
            assert again.run_id == "f"
        else:
            other = "failed" if said != "failed" else "retry"
            head = (await executor.answer("r", question.id, other, resume=False)).seq
            run = await executor.fork("r", at=head, answer=said)
        assert world.paid == [1]
        if output is None:
            assert (run.status, run.waiting) == ("failed", ())
            assert "failed, according to the answer" in str(run.error)
        else:
            assert (run.status, run.output) == ("completed", output)
        if door != "answer" and output is not None:
            replayed = await executor.replay(run.run_id)
            assert (replayed.status, replayed.run.output) == ("completed", output)
    assert world.paid == [1]


async def test_a_fork_that_is_told_to_call_again_asks_before_it_does() -> None:
    world = World()
    graph, pay, question = await _asks(world, "tool")
    async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
        fork = await executor.fork("r", answers={question.id: "retry"})
        (asked,) = fork.waiting
        assert (asked.kind, world.paid) == ("approval", [1])
        fork = await executor.answer(fork.run_id, asked.id, Approve())
    assert (fork.output, world.paid) == (["paid 1"], [1, 1])


@pytest.mark.parametrize("door", ["resume", "resume_all"])
@pytest.mark.parametrize("how", ["effect", "node", "tool"])
async def test_answered_with_failed_it_is_asked_about_again_each_time_the_run_is_reopened(how: str, door: str) -> None:
    world = World()
    graph, pay, question = await _asks(world, how)
    seen = {question.id}
    async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
        for _ in range(2):
            assert (await executor.answer("r", question.id, "failed")).status == "failed"
            await (executor.resume("r", retry=True) if door == "resume" else executor.resume_all("failed", retry=True))
            (question,) = (await executor.load("r")).waiting
            seen.add(question.id)
            assert (question.kind, question.payload["why"]) == ("unknown_outcome", "failed")
            assert "by an earlier answer it counts as failed" in question.prompt
            assert world.paid == [1]
        run = await executor.answer("r", question.id, "retry")
        assert (run.status, world.paid, len(seen)) == ("completed", [1, 1], 3)
        with pytest.raises(RunEnded):
            await executor.resume("r", retry=True)


async def test_answered_with_failed_the_repaired_step_asks_before_it_makes_another_call() -> None:
    world, amounts = World(), [1]

    async def work(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.tool("pay", amount=amounts[0], check=True)).text}

    graph, pay = single(work, takes=None), world.tool()
    world.fails_at = 1
    await world.crashed(graph, pay)
    (question,) = (await world.resumed(graph, pay)).waiting
    async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
        await executor.answer("r", question.id, "failed")
        amounts[0] = 2
        (question,) = (await executor.resume("r", retry=True)).waiting
    assert (question.kind, world.paid) == ("approval", [1])
    assert "pay failed, according to the answer" in question.prompt


@pytest.mark.parametrize("ends", [ConnectionResetError("reset"), 5])
async def test_the_retry_of_a_subgraph_does_not_repeat_a_call_that_was_answered_with_failed(ends: Any) -> None:
    paid, world = list[int](), World()

    def call() -> Any:
        paid.append(1)
        if isinstance(ends, Exception):
            raise ends
        return ends

    async def work(state: Log, ctx: Context) -> Update:
        return {"answer": await ctx.effect("pay", call, returns=str, effect="irreversible")}

    inner = single(work, takes=None, retry=Retry(attempts=2, wait=0, on=("EffectFailed", "OSError", "InvalidUpdate")))
    sub = Subgraph(inner, outputs={"answer": "answer"}, retry=Retry(attempts=3, wait=0, on=("Exception",)))
    graph = Graph(name="outer", state=Log, nodes={"sub": sub}, edges="START -> sub -> END", output="answer")
    async with Executor(world.store, graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        run = await executor.answer("r", run.waiting[0].id, "failed")
        assert run.error is not None
        assert "not tried again: what was done inside cannot be undone" in run.error.message
        run = await executor.resume("r", retry=True)
        assert [one.kind for one in run.waiting] == ["unknown_outcome"]
    assert paid == [1]


async def test_a_call_inside_a_called_graph_is_answered_in_the_run_of_that_graph() -> None:
    world = World()
    pay, inner = world.tool(), single(pays.run, name="inner")
    payer = inner.as_tool("payer", "Pays.")

    async def work(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.tool("payer", question="?")).text}

    graph = single(work, name="outer")
    world.fails_at = 0
    await world.crashed(graph, pay, payer)
    (question,) = (await world.resumed(graph, pay, payer)).waiting
    said = {"choice": "happened", "result": "by hand"}
    async with Executor(world.store, graphs=[graph], tools=[pay, payer]) as executor:
        with pytest.raises(InvalidAnswer, match="answer it in that run"):
            await executor.fork("r", answers={question.id: said})
        with pytest.raises(InvalidAnswer, match="the result must be a string"):
            await executor.answer("r", question.id, {"choice": "happened", "result": 5})
        run = await executor.answer("r", question.id, said)
    assert (run.status, world.paid) == ("completed", [0])


@pytest.mark.parametrize("returns", [{"type": "null"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}])
async def test_no_result_is_needed_where_the_call_may_return_nothing(returns: dict[str, Any]) -> None:
    world = World()
    graph, pay, question = await _asks(world, "tool", returns=returns)
    run = await world.answered(question, "happened", graph, pay)
    assert (run.status, run.output, world.paid) == ("completed", ["null"], [1])


async def test_a_tool_that_does_not_say_what_it_returns_takes_any_result_that_is_given() -> None:
    world = World()
    graph, pay, question = await _asks(world, "tool", returns=None)
    assert question.schema is None
    with pytest.raises(InvalidAnswer, match="null if it returned nothing"):
        await world.answered(question, "happened", graph, pay)
    run = await world.answered(question, {"choice": "happened", "result": None}, graph, pay)
    assert (run.status, run.output) == ("completed", ["null"])


async def test_the_question_has_the_schema_of_the_result() -> None:
    expected: dict[str, Any] = {"tool": {"type": "string"}, "effect": {"type": "integer"}}
    for how in ("tool", "effect", "even", "node"):
        _, _, question = await _asks(World(), how)
        schema: Any = question.schema
        if how in expected:
            assert schema == expected[how]
        elif how == "even":
            assert schema["properties"]["number"]["type"] == "integer"
        else:
            update, whole, nothing = schema["anyOf"]
            assert update["properties"]["log"] == {"type": "string"}
            assert update["properties"]["items"]["type"] == "array"
            assert whole["properties"]["outcome"]["enum"] == ["done"]
            assert nothing == {"type": "null"}


# -- at the ends of branches and runs ----------------------------------------------------------------------------------


async def test_of_a_cancelled_run_it_is_shown_as_unknown_and_not_asked() -> None:
    world = World()
    graph, pay = mapped(world), world.tool()
    world.fails_at = 2
    await world.crashed(graph, pay, input={"items": ITEMS})
    async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
        run = await executor.cancel("r")
        assert (run.status, run.waiting) == ("cancelled", ())
        settled = [e.data async for e in executor.events("r") if e.type == "effect_settled"]
    assert any(data.get("unknown") for data in settled)
    assert world.paid.count(2) == 1


async def test_execute_with_several_calls_of_which_some_ended_and_some_did_not() -> None:
    world = World()
    pay = world.tool()

    @tool(name="pay_all")
    async def other(amount: int) -> str:
        """Pay, and take long."""
        await anyio.sleep(0.01)
        return await world.pay(amount)

    calls = [{"id": str(n), "name": "pay" if n else "pay_all", "arguments": {"amount": n}} for n in range(3)]
    graph = Graph(
        name="several", state=Execute.ListState,
        nodes={"execute": Execute(calls="pending", results="observations", on_failure="observe")},
        edges="START -> execute\nexecute -> END", output="observations",
    )  # fmt: skip
    world.fails_at = 0
    await world.crashed(graph, pay, other, input={"pending": calls})
    run = await world.resumed(graph, pay, other)
    while run.status == "paused":
        assert [question.kind for question in run.waiting] == ["unknown_outcome"]
        run = await world.answered(run.waiting[0], "failed", graph, pay, other)
    results = [ToolResult.model_validate(message["data"]) for message in run.output]
    assert [message["tool_call_id"] for message in run.output] == ["0", "1", "2"]
    assert results[0].failed
    assert sorted(world.paid) == [0, 1, 2]


async def test_of_a_graph_that_is_a_tool_only_the_call_inside_is_unknown() -> None:
    world = World()
    pay = world.tool()
    inner = single(pays.run, name="inner")
    payer = inner.as_tool("payer", "Pays.")

    async def work(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.tool("payer", question="?")).text}

    graph = single(work, name="outer")
    world.fails_at = 0
    await world.crashed(graph, pay, payer)
    for _ in range(3):
        run = await world.resumed(graph, pay, payer)
        (question,) = run.waiting  # the outer call is no second one
        assert (question.kind, question.payload["tool"]) == ("unknown_outcome", "pay")
        assert world.paid == [0]
    run = await world.answered(question, {"choice": "happened", "result": "by hand"}, graph, pay, payer)
    assert (run.status, world.paid) == ("completed", [0])
    assert "by hand" in str(run.output)


async def test_what_the_node_itself_stops_waiting_for_is_shown_as_unknown() -> None:
    begun = anyio.Event()

    @tool(effect="irreversible")
    async def pay() -> str:
        """Pays, some time."""
        begun.set()
        await anyio.sleep(60)
        return "never"

    async def work(ctx: Context) -> Update:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(ctx.tool, "pay"))
            await begun.wait()
            tasks.cancel_scope.cancel()
        return {"log": "went on"}

    graph = single(work)
    async with Executor(graphs=[graph], tools=[pay]) as executor:
        run = await executor.start(graph, run_id="r")
        assert (run.status, run.output) == ("completed", ["went on"])
        records = await executor.store.read("r")
    (settled,) = [record for record in records if isinstance(record, EffectSettled)]
    assert (settled.ok, settled.unknown) == (False, True)
    assert settled.error is not None
    assert "stopped waiting" in settled.error.message


async def test_slow_beginnings_of_tasks_beside_each_other_are_no_changed_code() -> None:
    done: list[str] = []
    first = True

    @tool(effect="irreversible", risk="none")
    async def pay(what: str) -> str:
        """Pays."""
        done.append(what)
        return what

    async def work(ctx: Context) -> Update:
        async def asks_and_pays() -> None:
            await ctx.ask("approval", prompt="y?")
            await ctx.tool("pay", what="y")

        async def pays_late() -> None:
            await anyio.sleep(0 if first else 1.2)  # longer than calls in one task are waited for
            await ctx.tool("pay", what="z")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asks_and_pays)
            tasks.start_soon(pays_late)
        return {"log": "paid"}

    graph = single(work)
    async with Executor(graphs=[graph], tools=[pay]) as executor:
        run = await executor.start(graph, run_id="r")
        first = False
        run = await executor.answer("r", run.waiting[0].id, Approve())
    assert (run.status, run.output) == ("completed", ["paid"])
    assert sorted(done) == ["y", "z"]


@pytest.mark.parametrize(
    ("error", "open_end"),
    [
        (EOFError(), True),
        (anyio.EndOfStream(), True),
        (anyio.BrokenResourceError(), True),
        (http.client.IncompleteRead(b""), True),
        (ValueError("no"), False),
        (ToolError("no"), False),
    ],
)
def test_which_errors_leave_it_open(error: Exception, open_end: bool) -> None:
    assert outcome_is_open(error) is open_end


def test_errors_of_http_clients_leave_it_open() -> None:
    import httpx2

    assert outcome_is_open(httpx2.ReadError("gone"))
    assert outcome_is_open(httpx2.RemoteProtocolError("gone"))
    assert not outcome_is_open(httpx2.InvalidURL("no"))
