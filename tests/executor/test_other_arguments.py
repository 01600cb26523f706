"""Calls that cannot be undone, with other arguments in a later attempt or after a crash: they are asked about."""

from __future__ import annotations

from itertools import count
from typing import Any

import anyio
import pytest

from orchestrator import Approve, Context, Deny, Executor, Retry, Run, Update, tool
from orchestrator.errors import StoreError
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


@pytest.mark.parametrize("how", ["effect", "tool"])
async def test_after_a_crash_while_it_paid_the_step_asks_before_it_pays_otherwise(how: str) -> None:
    world, amounts = World(), [1]
    world.fails_at = 1

    async def work(state: Log, ctx: Context) -> Update:
        if how == "tool":
            return {"log": (await ctx.tool("pay", amount=amounts[0])).text}
        return {"log": await ctx.effect("pay", world.pay, amounts[0], returns=str, effect="irreversible")}

    graph, pay = single(work, takes=None), world.tool(risk="none", effect="irreversible")
    await world.crashed(graph, pay)
    amounts[0] = 2
    question = asked(await world.resumed(graph, pay))
    assert "When this step was stopped, it was making another call" in question.prompt
    assert asked(await world.resumed(graph, pay)).id == question.id
    assert world.paid == [1]
    run = await world.answered(question, Approve(), graph, pay)
    assert (run.status, run.output, world.paid) == ("completed", ["paid 2"], [1, 2])


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
