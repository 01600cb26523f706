"""Never twice without asking: models, tools and effects over interruptions, retries and changed code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Limits, Message, Retry, Tool, Update, node, tool
from orchestrator.errors import EffectFailed, GraphUnknown, InvalidAnswer, ReplayMismatch, ToolError
from orchestrator.executor import Run
from orchestrator.graph import Usage
from orchestrator.models import Reply
from orchestrator.models.base import ModelEvent, ModelRequest, RequestModel
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import ScriptedModel
from tests.support.executors import Log, chain, says, single

pytestmark = pytest.mark.anyio


class Bank:
    """Something outside. Its transfers can hang, so that a run is interrupted while one is under way."""

    def __init__(self, effect: Any = "irreversible", **options: Any) -> None:
        self.calls: list[tuple[int, str]] = []
        self.hang = False
        self.wrong: Exception | None = None
        self.began = anyio.Event()
        self.began_twice = anyio.Event()

        @tool(name="pay", risk="dangerous", effect=effect, **options)
        async def pay(amount: int, idempotency_key: str) -> str:
            """Pay."""
            self.calls.append((amount, idempotency_key))
            self.began.set()
            if len(self.calls) == 2:
                self.began_twice.set()
            if self.wrong is not None:
                raise self.wrong
            if self.hang:
                await anyio.sleep(60)
            return f"paid {amount}"

        self.tool: Tool = pay


async def interrupted(
    executor: Executor, graph: Graph, when: anyio.Event | Callable[[], anyio.Event], **options: Any
) -> str:
    """Run a graph and cancel the awaiting task when something has happened; the run's id."""
    run_id = "r1"
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                await (when if isinstance(when, anyio.Event) else when()).wait()
                scope.cancel()

            tasks.start_soon(stop)
            run = await executor.start(graph, run_id=run_id, **options)
            raise AssertionError(f"nothing interrupted {run}: {run.error}")
    return run_id


async def pays(state: Log, ctx: Context) -> Update:
    """A node that pays twice."""
    first = await ctx.tool("pay", amount=10)
    second = await ctx.tool("pay", amount=20)
    return {"log": f"{first.text}, {second.text}"}


def both(records: list[Any], kind: str) -> list[Any]:
    return [event.data for event in records if event.type == kind]


async def events(executor: Executor, run_id: str) -> list[Any]:
    return [event async for event in executor.events(run_id)]


# -- what is journaled -----------------------------------------------------------------------------------------------


async def test_a_call_is_journaled_before_and_after() -> None:
    bank = Bank()
    async with Executor(tools=[bank.tool]) as executor:
        run = await executor.start(single(pays))
        records = await events(executor, run.run_id)
    assert run.output == ["paid 10, paid 20"]
    assert run.usage.calls == 2
    kinds = [record.type for record in records]
    assert kinds == ["run_started", *["effect_intended", "effect_settled"] * 2, "step_done", "ended"]
    first = both(records, "effect_intended")[0]
    assert (first["kind"], first["name"], first["effect"], first["request"]["args"]) == (
        "tool", "pay", "irreversible", {"amount": 10},
    )  # fmt: skip
    assert first["key"] == bank.calls[0][1] != bank.calls[1][1]
    assert both(records, "effect_settled")[0]["result"] == {"output": "paid 10"}


async def test_messages_that_the_journal_has_are_references() -> None:
    async def chats(state: Log, ctx: Context) -> Update:
        said = [Message(role="system", content="be brief"), Message(role="user", content="one")]
        first = await ctx.model.complete(said)
        await ctx.model.complete([*said, first.message, Message(role="user", content="two")])
        return None

    async with Executor(model=ScriptedModel(["1", "2"])) as executor:
        run = await executor.start(single(chats))
        first, second = both(await events(executor, run.run_id), "effect_intended")
    assert [message["content"] for message in first["request"]["messages"]] == ["be brief", "one"]
    assert second["request"]["messages"][0] == {"ref": [0, 2]}
    assert [message["content"] for message in second["request"]["messages"][1:]] == ["1", "two"]


async def test_usage_is_added_up_and_limits_are_asked_before_each_call() -> None:
    class Paid(RequestModel):
        name = "paid"

        async def respond(self, request: ModelRequest) -> Reply:
            return Reply(text="x", usage=Usage(input_tokens=60, output_tokens=10, cost=0.5))

    async def talks(state: Log, ctx: Context) -> Update:
        await ctx.model.complete(state.question)
        return {"log": "talked"}

    graph = chain(*[node(talks)] * 4)
    async with Executor(model=Paid()) as executor:
        run = await executor.start(graph, "?")
        assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.cost, run.usage.calls) == (240, 40, 2.0, 4)
        for limits, calls in ((Limits(tokens=100), 2), (Limits(cost=1.5), 3), (Limits(calls=1), 1)):
            run = await executor.start(graph, "?", limits=limits)
            assert run.status == "exhausted"
            assert run.usage.calls == calls
            assert run.output == ["talked"] * calls
            assert "limit_spent" in [event.type for event in await events(executor, run.run_id)]


async def test_a_reply_that_does_not_fit_is_journaled_and_paid_for_once() -> None:
    class Answer(BaseModel):
        word: str

    asked: list[str] = []

    async def asks(state: Log, ctx: Context) -> Update:
        asked.append("asked")
        reply = await ctx.model.complete("a word", output=Answer)
        return {"log": reply.parsed.word}

    async with Executor(model=ScriptedModel(['{"word": "yes"}', "no JSON"])) as executor:
        assert (await executor.start(single(asks))).output == ["yes"]
        run = await executor.start(single(asks))
        records = await events(executor, run.run_id)
    assert run.error is not None
    assert run.error.type == "AgentError"
    assert both(records, "effect_settled")[0]["result"]["text"] == "no JSON"


class Pieces(RequestModel):
    """A model that says a word in two pieces."""

    name = "pieces"

    async def respond(self, request: ModelRequest) -> Reply:
        return Reply(text="word")

    async def stream(self, *args: Any, **options: Any) -> Any:
        yield ModelEvent(text="wo")
        yield ModelEvent(text="rd")
        await anyio.lowlevel.checkpoint()
        yield ModelEvent(reply=Reply(text="word"))


@pytest.mark.parametrize("tasks", [1, 2])
async def test_a_node_may_ask_while_it_reads_a_reply(tasks: int) -> None:
    async def work(ctx: Context) -> Update:
        said: list[str] = []

        async def read(what: str) -> None:
            async with aclosing(ctx.model.stream(what)) as events:
                async for event in events:
                    if event.text == "wo" or event.reply is not None:
                        said.append((await ctx.ask("input", prompt=f"{what}?")).value)
                        return

        async with anyio.create_task_group() as group:
            for number in range(tasks):
                group.start_soon(read, str(number))
        return {"log": " ".join(sorted(said))}

    async with Executor(model=Pieces()) as executor:
        with anyio.fail_after(20):
            run = await executor.start(single(work), run_id="r")
            for _ in range(tasks):
                assert run.status == "paused"
                run = await executor.answer("r", run.waiting[0].id, run.waiting[0].prompt)
        assert run.status == "completed", run.error
        assert run.output == [" ".join(["0?", "1?"][:tasks])]


async def test_a_step_that_read_a_part_of_a_reply_and_asks_then_goes_on() -> None:
    async def work(ctx: Context) -> Update:
        async with aclosing(ctx.model.stream("?")) as events:
            await anext(events)
        return {"log": str((await ctx.ask("input", prompt="Well?")).value)}

    async with Executor(model=Pieces()) as executor:
        run = await executor.start(single(work), run_id="r")
        run = await executor.answer("r", run.waiting[0].id, "yes")
        assert (run.output, run.error) == (["yes"], None)


@pytest.mark.parametrize("edges", ["START -> work -> END", "START -> work -> after -> END"])
async def test_a_reply_that_is_not_read_to_its_end_is_settled_before_its_step_ends(edges: str) -> None:
    reading: list[Any] = []

    async def work(ctx: Context) -> Update:
        reading.append(ctx.model.stream("?"))
        await anext(reading[0])
        return {"log": "enough"}

    nodes = {"after": says("after")} if "after" in edges else {}
    async with Executor(model=Pieces()) as executor:
        await executor.start(single(work, edges=edges, nodes=nodes), run_id="r")
        await reading[0].aclose()
        await anyio.sleep(0.05)
        records = [record.type for record in await executor.store.read("r")]
        assert records[1:4] == ["effect_intended", "effect_settled", "step_done"]
        assert records[-1] == "ended"


async def test_a_streamed_reply_is_one_effect_with_tokens_on_the_way() -> None:
    class Streaming(RequestModel):
        name = "streaming"

        async def respond(self, request: ModelRequest) -> Reply:
            return Reply(text="one two")

        async def stream(self, *args: Any, **options: Any) -> Any:
            yield ModelEvent(text="one ")
            yield ModelEvent(text="two")
            yield ModelEvent(reply=Reply(text="one two"))

    async def streams(state: Log, ctx: Context) -> Update:
        parts = [event async for event in ctx.model.stream("count")]
        assert parts[-1].reply is not None
        return {"log": "|".join(part.text for part in parts[:-1]) + "=" + parts[-1].reply.text}

    async with (
        Executor(model=Streaming()) as executor,
        executor.stream(single(streams), "?") as live,
    ):
        seen = [event async for event in live]
    assert [event.data["text"] for event in seen if event.type == "token"] == ["one ", "two"]
    assert live.run.output == ["one |two=one two"]
    assert len(both(seen, "effect_settled")) == 1


async def test_functions_as_effects_are_replayed_with_their_type() -> None:
    class Order(BaseModel):
        number: int

    keys: list[str] = []

    def place(goods: str, idempotency_key: str) -> Order:
        keys.append(idempotency_key)
        return Order(number=len(goods))

    stop = anyio.Event()

    async def orders(state: Log, ctx: Context) -> Update:
        order = await ctx.effect("place", place, "book", returns=Order)
        if not stop.is_set():
            stop.set()
            await anyio.sleep(60)
        assert isinstance(order, Order)
        return {"log": str(order.number)}

    async with Executor() as executor:
        run_id = await interrupted(executor, single(orders), stop)
        run = await executor.resume(run_id)
    assert run.output == ["4"]
    assert len(keys) == 1


# -- after an interruption ---------------------------------------------------------------------------------------------


async def test_settled_effects_are_reused_and_unsettled_ones_that_may_be_run_again_with_the_same_key() -> None:
    bank = Bank(effect="idempotent")

    async def pays_slowly(state: Log, ctx: Context) -> Update:
        first = await ctx.tool("pay", amount=10)
        bank.hang = len(bank.calls) == 1
        second = await ctx.tool("pay", amount=20)
        return {"log": f"{first.text}, {second.text}"}

    async with Executor(tools=[bank.tool]) as executor:
        run_id = await interrupted(executor, single(pays_slowly), bank.began_twice)
        assert (await executor.load(run_id)).status == "interrupted"
        bank.hang = False
        run = await executor.resume(run_id)
        records = await events(executor, run_id)
    assert run.output == ["paid 10, paid 20"]
    assert [amount for amount, _ in bank.calls] == [10, 20, 20]
    assert bank.calls[1][1] == bank.calls[2][1]
    assert [data.get("again", False) for data in both(records, "effect_intended")] == [False, False, True]


async def test_a_model_reply_that_arrived_is_never_paid_for_again() -> None:
    stop = anyio.Event()

    async def talks(state: Log, ctx: Context) -> Update:
        reply = await ctx.model.complete("hello")
        if not stop.is_set():
            stop.set()
            await anyio.sleep(60)
        return {"log": reply.text}

    model = ScriptedModel(["once"])
    async with Executor(model=model) as executor:
        run_id = await interrupted(executor, single(talks), stop)
        run = await executor.resume(run_id)
    assert run.output == ["once"]
    model.assert_done()


@pytest.mark.parametrize(
    ("answer", "output", "calls"),
    [
        ("retry", ["paid 10, paid 20"], [10, 10, 20]),
        ({"choice": "happened", "result": "paid by hand"}, ["paid by hand, paid 20"], [10, 20]),
        ({"choice": "happened", "result": {"output": "by hand", "exit_code": 0}}, ["by hand, paid 20"], [10, 20]),
        ("failed", None, [10]),
    ],
)
async def test_an_irreversible_effect_of_unknown_end_becomes_a_question(
    answer: Any, output: Any, calls: list[int]
) -> None:
    bank = Bank()
    bank.hang = True
    async with Executor(tools=[bank.tool]) as executor:
        run_id = await interrupted(executor, single(pays), bank.began)
        bank.hang = False
        run = await executor.resume(run_id)
        assert run.status == "paused"
        (question,) = run.waiting
        assert question.kind == "unknown_outcome"
        assert question.choices == ("happened", "failed", "retry")
        assert question.payload["tool"] == "pay"
        assert question.payload["args"] == {"amount": 10}
        assert len(bank.calls) == 1
        with pytest.raises(InvalidAnswer, match="wants one of happened, failed, retry"):
            await executor.answer(run_id, question.id, Approve())
        run = await executor.answer(run_id, question.id, answer)
    assert [amount for amount, _ in bank.calls] == calls
    assert run.output == output
    if output is None:
        assert run.error is not None
        assert run.error.type == "EffectFailed"


async def test_a_retry_that_is_interrupted_again_is_asked_about_again() -> None:
    bank = Bank()
    bank.hang = True
    async with Executor(tools=[bank.tool]) as executor:
        run_id = await interrupted(executor, single(pays), bank.began)
        run = await executor.resume(run_id)
        bank.began = anyio.Event()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def stop() -> None:
                    await bank.began.wait()
                    scope.cancel()

                tasks.start_soon(stop)
                await executor.answer(run_id, run.waiting[0].id, "retry")
                raise AssertionError("nothing interrupted the answered run")
        bank.hang = False
        again = await executor.resume(run_id)
        assert again.status == "paused"
        assert again.waiting[0].id != run.waiting[0].id
        run = await executor.answer(run_id, again.waiting[0].id, "retry")
    assert run.output == ["paid 10, paid 20"]
    assert len({key for amount, key in bank.calls if amount == 10}) == 1
    assert [amount for amount, _ in bank.calls] == [10, 10, 10, 20]


async def test_a_tool_that_can_reconcile_is_asked_instead() -> None:
    bank = Bank()
    bank.hang = True
    known: list[str | None] = ["found", None]
    keys: list[str] = []

    def reconcile(key: str) -> str | None:
        keys.append(key)
        return known.pop(0)

    bank.tool.reconcile = reconcile  # type: ignore[attr-defined]
    for calls in ([10, 20], [10, 10, 20]):
        async with Executor(tools=[bank.tool]) as executor:
            run_id = await interrupted(executor, single(pays), bank.began)
            bank.hang = False
            run = await executor.resume(run_id)
        assert run.status == "completed"
        assert [amount for amount, _ in bank.calls] == calls
        bank.calls.clear()
        bank.hang, bank.began = True, anyio.Event()
    assert len(keys) == 2


async def test_several_calls_at_once_are_asked_about_one_by_one_and_others_are_not_cut_off(tmp_path: Path) -> None:
    calls: list[str] = []
    hang = True

    @tool
    async def act(what: str) -> str:
        """Act."""
        calls.append(what)
        if len(calls) == 3:
            began.set()
        if hang and what != "c":
            await anyio.sleep(60)
        await anyio.sleep(0.05)
        return what

    async def acts(state: Log, ctx: Context) -> Update:
        found: dict[str, str] = {}

        async def one(what: str) -> None:
            found[what] = (await ctx.tool("act", what=what)).text

        async with anyio.create_task_group() as tasks:
            for what in ("a", "b", "c"):
                tasks.start_soon(one, what)
        return {"log": " ".join(found[what] for what in "abc")}

    began = anyio.Event()
    async with Executor(tools=[act]) as executor:
        run_id = await interrupted(executor, single(acts), began)
        hang = False
        run = await executor.resume(run_id)
        for _ in range(3):
            assert [question.kind for question in run.waiting] == ["unknown_outcome"]
            run = await executor.answer(run_id, run.waiting[0].id, {"choice": "happened", "result": "by hand"})
    assert run.output == ["by hand by hand by hand"]
    assert sorted(calls) == ["a", "b", "c"]


async def test_a_new_call_beside_one_of_unknown_end_is_not_cut_off_by_the_question() -> None:
    bank = Bank()
    bank.hang = True

    async def pays_beside(state: Log, ctx: Context) -> Update:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ctx.tool("pay", amount=1))
            if not bank.hang:
                tasks.start_soon(lambda: ctx.tool("pay", amount=2))
        return {"log": "done"}

    async with Executor(tools=[bank.tool]) as executor:
        run_id = await interrupted(executor, single(pays_beside), bank.began)
        bank.hang = False
        run = await executor.resume(run_id)
        (question,) = run.waiting
        run = await executor.answer(run_id, question.id, {"choice": "happened", "result": "paid"})
    assert run.status == "completed"
    assert sorted(amount for amount, _ in bank.calls) == [1, 2]


# -- changed code ------------------------------------------------------------------------------------------------------


async def test_changed_code_never_leaves_a_settled_irreversible_effect_behind() -> None:
    bank = Bank()
    amount, stop = 10, anyio.Event()

    async def pays_once(state: Log, ctx: Context) -> Update:
        if amount:
            await ctx.tool("pay", amount=amount)
        if not stop.is_set():
            stop.set()
            await anyio.sleep(60)
        return {"log": "paid"}

    async with Executor(tools=[bank.tool]) as executor:
        run_id = await interrupted(executor, single(pays_once), stop)
        amount = 0
        with pytest.raises(ReplayMismatch, match=r"work did pay .* which cannot be undone"):
            await executor.resume(run_id)
        assert (await executor.load(run_id)).status == "interrupted"
        amount = 20
        (question,) = (await executor.resume(run_id)).waiting
        assert (question.kind, question.payload["args"]) == ("unknown_outcome", {"amount": 10})
        assert "the step asks for it with other arguments now" in question.prompt
        run = await executor.answer(run_id, question.id, {"choice": "happened", "result": "paid 10"})
    assert run.status == "completed"
    assert len(bank.calls) == 1


async def test_a_changed_request_of_an_idempotent_effect_is_a_new_call() -> None:
    bank = Bank(effect="idempotent")
    amount, stop = 10, anyio.Event()

    async def pays_once(state: Log, ctx: Context) -> Update:
        found = await ctx.tool("pay", amount=amount)
        if not stop.is_set():
            stop.set()
            await anyio.sleep(60)
        return {"log": found.text}

    async with Executor(tools=[bank.tool]) as executor:
        run_id = await interrupted(executor, single(pays_once), stop)
        amount = 20
        assert (await executor.resume(run_id)).output == ["paid 20"]


# -- retries -----------------------------------------------------------------------------------------------------------


async def test_a_retry_makes_fresh_calls_but_never_a_settled_irreversible_one_again() -> None:
    bank, look = Bank(), Bank(effect="read")
    look.tool.name = "look"

    async def flaky(state: Log, ctx: Context) -> Update:
        seen = await ctx.tool("look", amount=1)
        paid = await ctx.tool("pay", amount=10)
        if ctx.attempt < 3:
            raise ConnectionError("later")
        return {"log": f"{seen.text} {paid.text}"}

    async with Executor(tools=[bank.tool, look.tool]) as executor:
        run = await executor.start(single(flaky, retry=Retry(wait=0)))
    assert run.output == ["paid 1 paid 10"]
    assert len(bank.calls) == 1
    assert len(look.calls) == 3
    assert len({key for _, key in look.calls}) == 3


async def test_a_call_that_broke_off_is_not_made_again_by_a_retry_without_asking() -> None:
    bank = Bank()
    bank.wrong = ConnectionError("reset")

    async def flaky(state: Log, ctx: Context) -> Update:
        result = await ctx.tool("pay", amount=10)
        if result.failed:
            raise ConnectionError(result.error)
        return {"log": result.text}

    async with Executor(tools=[bank.tool]) as executor:
        run = await executor.start(single(flaky, retry=Retry(wait=0)))
        assert run.status == "paused"
        assert run.waiting[0].kind == "unknown_outcome"
        bank.wrong = None
        run = await executor.answer(run.run_id, run.waiting[0].id, "retry")
        settled = both(await events(executor, run.run_id), "effect_settled")
    assert run.output == ["paid 10"]
    assert len(bank.calls) == 2
    assert [data.get("unknown", False) for data in settled] == [True, False]


async def test_a_tool_that_says_why_not_is_a_result_and_its_own_retry_is_inside_the_effect() -> None:
    bank = Bank(effect="idempotent", retry=Retry(attempts=3, wait=0, on=("ToolError",)))
    bank.wrong = ToolError("no funds")

    async def tries(state: Log, ctx: Context) -> Update:
        result = await ctx.tool("pay", amount=10)
        return {"log": result.text}

    async with Executor(tools=[bank.tool]) as executor:
        run = await executor.start(single(tries))
        records = await events(executor, run.run_id)
    assert run.output == ["Error: no funds"]
    assert len(bank.calls) == 3
    assert len(both(records, "effect_intended")) == 1


async def test_an_irreversible_node_is_treated_as_an_irreversible_call() -> None:
    began, ran, hang = anyio.Event(), 0, True

    async def launches(state: Log) -> Update:
        nonlocal ran
        ran += 1
        began.set()
        if hang:
            await anyio.sleep(60)
        return {"log": "launched"}

    graph = single(launches, effect="irreversible", edges="START -> work -> after -> END", nodes={"after": says("x")})
    async with Executor() as executor:
        run_id = await interrupted(executor, graph, began)
        hang = False
        run = await executor.resume(run_id)
        assert [question.kind for question in run.waiting] == ["unknown_outcome"]
        assert ran == 1
        run = await executor.answer(run_id, run.waiting[0].id, {"choice": "happened", "result": {"log": "by hand"}})
        assert run.output == ["by hand", "x"]
        fresh = await executor.start(graph)
    assert fresh.output == ["launched", "x"]
    assert ran == 2


async def test_an_irreversible_node_may_ask_first() -> None:
    async def launches(state: Log, ctx: Context) -> Update:
        answer = await ctx.ask("input", prompt="go?")
        return {"log": answer.value}

    async with Executor() as executor:
        run = await executor.start(single(launches, effect="irreversible"))
        assert run.waiting[0].kind == "input"
        run = await executor.answer(run.run_id, run.waiting[0].id, "yes")
    assert run.output == ["yes"]


# -- stopped by the run ------------------------------------------------------------------------------------------------


async def test_a_step_timeout_leaves_its_call_journaled_as_unknown() -> None:
    bank = Bank()
    bank.hang = True
    async with Executor(tools=[bank.tool]) as executor:
        run = await executor.start(single(pays, timeout=0.1))
        records = await events(executor, run.run_id)
    assert run.error is not None
    assert run.error.type == "StepTimeout"
    (settled,) = both(records, "effect_settled")
    assert settled["unknown"] is True
    assert settled["error"]["type"] == "StepTimeout"


@pytest.mark.parametrize("effect", ["irreversible", "idempotent"])
async def test_a_loser_of_a_race_has_its_call_settled_and_shown(effect: str) -> None:
    bank = Bank(effect=effect)
    bank.hang = True

    async def wins(state: Log) -> Update:
        await bank.began.wait()
        return {"log": "won"}

    graph = Graph(
        name="race",
        state=Log,
        nodes={"fork": says("f"), "wins": node(wins), "pays": node(pays), "first": says("first", join=1)},
        edges="START -> fork -> wins, pays -> first -> END",
        output="log",
    )
    async with Executor(tools=[bank.tool]) as executor:
        run = await executor.start(graph)
        records = await events(executor, run.run_id)
    assert run.output == ["f", "won", "first"]
    (settled,) = both(records, "effect_settled")
    assert settled["ok"] is False
    assert settled.get("unknown", False) is (effect == "irreversible")


# -- what is missing ---------------------------------------------------------------------------------------------------


async def test_a_missing_model_or_tool_interrupts_and_says_what_to_give() -> None:
    async def talks(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.model.complete("hi")).text}

    store = MemoryStore()
    async with Executor(store=store) as executor:
        with pytest.raises(GraphUnknown, match=r"node 'work' uses a model.* has none.*Executor\(model="):
            await executor.start(single(talks), run_id="r1")
        with pytest.raises(GraphUnknown, match=r"uses model 'cheap', and models= has none"):
            await executor.start(single(talks, model="cheap"), run_id="r2")
        with pytest.raises(GraphUnknown, match=r"uses tool 'pay', and tools= has none"):
            await executor.start(single(pays, tools={"pay"}), run_id="r3")
        assert [info.run_id for info in (await executor.runs()).runs] == ["r1"]
        assert (await executor.load("r1")).status == "interrupted"
    async with Executor(store=store, model=ScriptedModel(["hello"]), graphs=[single(talks)]) as executor:
        assert (await executor.resume("r1")).output == ["hello"]


async def test_a_node_gets_the_model_and_tools_that_it_or_its_subgraph_names() -> None:
    from orchestrator.nodes import Subgraph

    seen: list[tuple[str, list[str]]] = []

    @node
    async def looks(state: Log, ctx: Context) -> Update:
        seen.append((ctx.model.name, [tool.name for tool in ctx.tools]))
        return None

    bank, look = Bank(), Bank()
    look.tool.name = "look"
    inner = Graph(
        name="inner",
        state=Log,
        nodes={"looks": looks, "own": looks.with_(model="c")},
        edges="START -> looks -> own -> END",
    )
    graph = Graph(
        name="outer",
        state=Log,
        nodes={"plain": looks, "sub": Subgraph(inner, model="b", tools=("look",))},
        edges="START -> plain -> sub -> END",
    )
    models = {name: ScriptedModel([], name=name) for name in "abc"}
    async with Executor(model=models["a"], models=models, tools=[bank.tool, look.tool]) as executor:
        await executor.start(graph)
    assert seen == [("a", ["pay", "look"]), ("b", ["look"]), ("c", ["look"])]


async def test_a_recorded_failure_is_the_same_failure_when_it_is_replayed() -> None:
    stop, calls = anyio.Event(), 0

    async def breaks() -> str:
        nonlocal calls
        calls += 1
        raise ValueError("broken")

    caught: list[str] = []

    async def tries(state: Log, ctx: Context) -> Update:
        try:
            await ctx.effect("breaks", breaks, returns=str)
        except (ValueError, EffectFailed) as error:
            caught.append(f"{getattr(error, 'type', type(error).__name__)}")
        if not stop.is_set():
            stop.set()
            await anyio.sleep(60)
        return None

    async with Executor() as executor:
        run_id = await interrupted(executor, single(tries), stop)
        run: Run = await executor.resume(run_id)
    assert run.status == "completed"
    assert caught == ["ValueError", "ValueError"]
    assert calls == 1
