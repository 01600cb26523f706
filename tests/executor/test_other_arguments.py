"""Calls that cannot be undone, with other arguments in a later attempt or after a crash: they are asked about."""

from __future__ import annotations

from itertools import count
from typing import Any

import anyio
import pytest

from orchestrator import Approve, Context, Deny, Executor, Retry, Run, Update, tool
from orchestrator.errors import StoreError
from orchestrator.views.call_questions import outcome_choices
from tests.executor.test_refused_results import DEEP
from tests.executor.test_unknown import World
from tests.support.executors import Log, single

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]
ALWAYS = Retry(attempts=3, wait=0, on=("Exception",))


def asked(run: Run) -> Any:
    (question,) = run.waiting
    assert question.kind == "approval"
    return question


@pytest.mark.parametrize("how", ["effect", "tool"])
@pytest.mark.parametrize("what", ["happened", "refused", "unknown"])
@pytest.mark.parametrize("answer", [Approve(), Deny(reason="it is paid")])
async def test_the_retry_of_a_node_asks_before_it_pays_otherwise(how: str, what: str, answer: Any) -> None:
    world, wrong = World(), [what]
    numbers = count(1)

    async def pay(amount: int) -> Any:
        said = await world.pay(amount)
        ends = wrong.pop() if wrong else "well"
        if ends == "unknown":
            raise TimeoutError("slow")
        return DEEP if ends == "refused" else said

    @tool(name="pay", risk="none", effect="irreversible")
    async def paying(amount: int) -> Any:
        """Pay."""
        return await pay(amount)

    async def work(state: Log, ctx: Context) -> Update:
        # As the reply of a model: another one in each attempt.
        amount = await ctx.effect("choose", lambda: next(numbers), returns=int, effect="read")
        if how == "tool":
            said = (await ctx.tool("pay", amount=amount, check=True)).text
        else:
            said = await ctx.effect("pay", pay, amount, returns=str, effect="irreversible")
        if amount == 1:
            raise OSError("later")
        return {"log": said}

    graph = single(work, retry=ALWAYS)
    async with Executor(world.store, graphs=[graph], tools=[paying]) as executor:
        run = await executor.start(graph, run_id="r")
        question = asked(run)
        assert "An attempt of this step that failed made another call" in question.prompt
        assert question.payload["family"][0]["status"] == ("returned" if what == "happened" else "unknown")
        assert world.paid == [1]
        run = await executor.answer("r", question.id, answer)
        if isinstance(answer, Approve):
            assert (run.status, run.output, world.paid) == ("completed", ["paid 2"], [1, 2])
            replay = await executor.replay("r")
            assert replay.run.status == "completed"
            assert world.paid == [1, 2]
        else:
            assert world.paid == [1]


def differing(world: World, how: str, power: list[str]) -> tuple[Any, Any]:
    """A step whose arguments differ each time it runs, as those of `uuid4()` do; the power may fail behind the call."""
    numbers = count(1)

    async def work(state: Log, ctx: Context) -> Update:
        amount = next(numbers)
        if how == "tool":
            said = (await ctx.tool("pay", amount=amount, check=True)).text
        else:
            said = await ctx.effect("pay", world.pay, amount, returns=str, effect="irreversible")
        await ctx.effect("note", int, returns=int, effect="read")
        if power:
            power.pop()
            world.store.fails = True
            await ctx.effect("more", int, returns=int, effect="read")
        return {"log": said}

    return single(work, takes=None), world.tool(risk="none", effect="irreversible")


ANSWERS = [
    ("effect", {"choice": "happened", "result": "by hand"}, ["by hand"], [1]),
    ("effect", "retry", ["paid 3"], [1, 3]),
    ("effect", "failed", None, [1]),
    ("tool", {"choice": "happened", "result": "by hand"}, ["by hand"], [1]),
    ("tool", "retry", ["paid 1"], [1, 1]),
    ("tool", "failed", None, [1]),
]


@pytest.mark.parametrize(("how", "answer", "output", "paid"), ANSWERS)
@pytest.mark.parametrize("again", [False, True])
async def test_what_became_of_a_call_is_asked_once_though_its_arguments_differ_each_time(
    how: str, answer: Any, output: Any, paid: list[int], again: bool
) -> None:
    world, power = World(), ["fails behind the answer"] if again and output else []
    world.fails_at = 1
    graph, pay = differing(world, how, power)
    await world.crashed(graph, pay)
    (question,) = (await world.resumed(graph, pay)).waiting
    assert (question.kind, question.payload["why"], world.paid) == ("unknown_outcome", "interrupted", [1])
    assert question.payload["args"] == ({"amount": 1} if how == "tool" else [1])
    assert "the step asks for it with other arguments now" in question.prompt
    for _ in range(2):
        assert (await world.resumed(graph, pay)).waiting == (question,)
    if power:
        with pytest.raises(StoreError):
            await world.answered(question, answer, graph, pay)
        world.store.fails = False
        run = await world.resumed(graph, pay)
        if answer == "retry":  # it is a call that returned: it is asked whether the step means another one
            (question,) = run.waiting
            assert question.payload["why"] == "returned"
            assert question.payload["args"] == ({"amount": 1} if how == "tool" else [3])  # those of the call
            run = await world.answered(question, {"choice": "happened", "result": output[0]}, graph, pay)
    else:
        run = await world.answered(question, answer, graph, pay)
    if output is None:
        assert run.error is not None
        assert (run.status, "pay failed, according to the answer" in run.error.message) == ("failed", True)
    else:
        assert (run.status, run.output) == ("completed", output)
        async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
            assert (await executor.load("r")).status == "completed"
    assert world.paid == paid


@pytest.mark.parametrize("how", ["effect", "tool"])
@pytest.mark.parametrize("answer", ["retry", {"choice": "happened", "result": "paid 1"}])
async def test_a_call_that_returned_before_a_crash_is_asked_about_when_its_arguments_differ(
    how: str, answer: Any
) -> None:
    world = World()
    graph, pay = differing(world, how, ["fails behind the call"])
    await world.crashed(graph, pay)
    (question,) = (await world.resumed(graph, pay)).waiting
    assert (question.kind, question.payload["why"]) == ("unknown_outcome", "returned")
    assert outcome_choices(question)[0].label == "It is this call; its result is ..."
    assert "pay was called and returned: paid 1. (the step asks" in question.prompt
    assert (await world.resumed(graph, pay)).waiting == (question,)
    assert world.paid == [1]
    run = await world.answered(question, answer, graph, pay)
    assert run.status == "completed"
    assert len(world.paid) == (2 if answer == "retry" else 1)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("beside", [False, True])
async def test_calls_of_a_loop_and_one_more_are_made_without_asking(beside: bool, crash: bool) -> None:
    world, orders = World(), [[1, 2], [2, 1, 3] if beside else [1, 2, 3]]

    async def work(state: Log, ctx: Context) -> Update:
        wanted = orders[0]

        async def one(amount: int) -> None:
            await ctx.tool("pay", amount=amount)

        if beside:
            async with anyio.create_task_group() as tasks:
                for amount in wanted:
                    tasks.start_soon(one, amount)
        else:
            for amount in wanted:
                await one(amount)
        if len(orders) > 1:
            orders.pop(0)
            if crash:
                await ctx.effect("note", int, returns=int, effect="read")  # what was paid is in the journal
                world.store.fails = True
            else:
                raise OSError("later")
        return {"log": "done"}

    graph, pay = single(work, takes=None, retry=ALWAYS), world.tool(risk="none", effect="irreversible")
    async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
        if crash:
            with pytest.raises(StoreError):
                await executor.start(graph, run_id="r")
        else:
            await executor.start(graph, run_id="r")
    world.store.fails = False
    async with Executor(world.store, graphs=[graph], tools=[pay]) as executor:
        run = await executor.resume("r") if crash else await executor.load("r")
    assert (run.status, run.output) == ("completed", ["done"])
    assert sorted(world.paid) == [1, 2, 3]


async def test_what_a_call_made_whose_result_is_given_back_is_no_call_of_the_node() -> None:
    world = World()
    stops = [True]

    @tool(risk="none", effect="irreversible")
    async def order(ctx: Context) -> str:
        """Pay inside of it."""
        return (await ctx.tool("pay", amount=1)).text

    async def work(state: Log, ctx: Context) -> Update:
        said = (await ctx.tool("order")).text
        if stops:
            stops.pop()
            raise OSError("later")
        return {"log": f"{said}, {(await ctx.tool('pay', amount=2)).text}"}

    graph = single(work, retry=ALWAYS, takes=None)
    async with Executor(
        world.store, graphs=[graph], tools=[order, world.tool(risk="none", effect="irreversible")]
    ) as executor:
        run = await executor.start(graph)
    assert (run.status, run.output) == ("completed", ["paid 1, paid 2"])
    assert world.paid == [1, 2]
