"""Calls that returned, and whose results are refused: what they did has happened, so none is made again unasked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import AfterValidator, BaseModel, SecretStr, model_validator

from orchestrator import Approve, Context, Executor, Graph, Outcome, Question, Retry, Run, ToolResult, node, tool
from orchestrator.errors import EffectFailed, InvalidAnswer, InvalidUpdate, ReplayMismatch
from orchestrator.kernel.records import EffectSettled
from orchestrator.nodes import Execute, Subgraph
from orchestrator.stores.memory import MemoryStore
from orchestrator.values import MAX_BYTES
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


DEEP = nested(300)


def only_small(old: int, new: int) -> int:
    """A reducer that refuses what is large."""
    if new > 100:
        raise ValueError(f"{new} is too large")
    return old + new


def even(number: int) -> int:
    """A validator that refuses what is odd."""
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


class State(BaseModel):
    """What the graphs here know."""

    id: int = 0
    said: Any = None
    items: list[int] = []
    total: Annotated[int, only_small] = 0
    pair: Annotated[int, AfterValidator(even)] = 0
    tool: str = "pay"
    args: dict[str, Any] = {}
    result: ToolResult | None = None


class World:
    """Something outside: `paid` is the diary of what was done, `wrong` what its next calls return."""

    def __init__(self, wrong: Any = None) -> None:
        self.paid: list[str] = []
        self.wrong = wrong
        self.store = MemoryStore()
        self.retry: Retry | None = None

    def pay(self) -> Any:
        self.paid.append("paid")
        return self.wrong

    def executor(self, graph: Graph, *tools: Any) -> Executor:
        return Executor(self.store, graphs=[graph], tools=tools)


def one(world: World, work: Any) -> Graph:
    return Graph(name="g", state=State, nodes={"n": work}, edges="START -> n -> END")


def by_effect(world: World, returns: Any = int) -> tuple[Graph, list[Any]]:
    @node(retry=world.retry)
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        return {"said": await ctx.effect("pay", world.pay, returns=returns, effect="irreversible")}

    return one(world, work), []


def paying(world: World) -> Any:
    @tool(name="pay", risk="none", effect="irreversible")
    def pay() -> Any:
        """Pay."""
        return world.pay()

    return pay


def by_tool(world: World) -> tuple[Graph, list[Any]]:
    @node(retry=world.retry)
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        return {"said": (await ctx.tool("pay", check=True)).output}

    return one(world, work), [paying(world)]


def by_execute(world: World) -> tuple[Graph, list[Any]]:
    return one(world, Execute(retry=world.retry)), [paying(world)]


def by_node(world: World) -> tuple[Graph, list[Any]]:
    @node(effect="irreversible", retry=world.retry)
    def work(state: State) -> Any:
        return world.pay()

    return one(world, work), []


def by_async_node(world: World) -> tuple[Graph, list[Any]]:
    @node(effect="irreversible", retry=world.retry)
    async def work(state: State) -> Any:
        return world.pay()

    return one(world, work), []


def by_map(world: World) -> tuple[Graph, list[Any]]:
    @node(effect="irreversible", retry=world.retry)
    def work(state: State) -> Any:
        return world.pay()

    each = node(effect="pure")(lambda state: None)
    return (
        Graph(
            name="g", state=State, nodes={"n": work, "each": each},
            edges="START -> n\nn -> each : each items\neach -> END",
        ),
        [],
    )  # fmt: skip


def inside(world: World) -> tuple[Graph, list[Any]]:
    inner, tools = by_effect(world)
    return one(world, Subgraph(inner, outputs={"said": "said"}, retry=world.retry)), tools


def again(state: State) -> Outcome[Literal["again", "enough"]]:
    """Go round once more."""
    return Outcome("enough" if state.total else "again", total=1)


Door = Callable[[World], tuple[Graph, list[Any]]]
ROWS: list[tuple[str, Door, Any, Any, Any, str, str]] = [
    # door, how it is called, what it returns, a result in its place, one that is refused again, why, what is shown
    ("type", by_effect, "A-17", 17, "many", "input should be a valid integer", "A-17"),
    ("nan", partial(by_effect, returns=Any), float("nan"), 1.5, None, "nan is not a number", "nan"),
    ("bytes", partial(by_effect, returns=Any), b"\xff", "ff", None, "", r"b'\xff'"),
    ("deep", partial(by_effect, returns=Any), DEEP, [], None, "nested too deeply", "[[[["),
    ("secret", partial(by_effect, returns=Any), {"key": SecretStr("hush-hush")}, "none", None, "a secret", "**"),
    ("known by its look", by_effect, "sk-0123456789abcdefghij", 1, "many", "valid integer", "[redacted]"),
    ("inside", inside, "A-17", 17, "many", "input should be a valid integer", "A-17"),
    ("tool, deep", by_tool, DEEP, [], None, "its result cannot be stored", "[[[["),
    ("tool, secret", by_tool, {"key": SecretStr("hush-hush")}, "none", None, "a secret", "**"),
    ("tool, by hand", by_tool, ToolResult(output=nested(120)), 1, None, "its result cannot be stored", "[[[["),
    ("execute", by_execute, DEEP, [], None, "its result cannot be stored", "[[[["),
    ("misspelt", by_node, {"idd": 1}, {"id": 1}, {"idd": 1}, "there is no field 'idd'", "{'idd': 1}"),
    ("value", by_async_node, {"id": "one"}, {"id": 1}, {"id": "x"}, "valid integer", "{'id': 'one'}"),
    ("no update", by_async_node, 17, {"id": 1}, None, "returned 17", "17"),
    ("outcome", by_node, Outcome("elsewhere", id=5), {"id": 1}, {"outcome": "none"}, "'elsewhere'", "id=5"),
    ("reserved", by_node, Outcome("error"), None, None, "reserved for failures", "Outcome('error')"),
    ("reducer", by_node, {"total": 101}, {"total": 1}, {"total": 102}, "101 is too large", "{'total': 101}"),
    ("validator", by_node, {"pair": 3}, {"pair": 2}, {"pair": 5}, "3 is odd", "{'pair': 3}"),
    ("map", by_map, Outcome("nowhere", items=[1]), {"items": []}, None, "'nowhere'", "items=[1]"),
    ("node, secret", by_node, {"said": SecretStr("hush-hush")}, None, None, "a secret", "**"),
]  # fmt: skip
COLUMNS = ("name", "door", "wrong", "right", "again", "why", "shown")
ONE_EACH = ("type", "inside", "tool, deep", "execute", "misspelt", "value", "map")
"""Of each door one row."""
all_doors = pytest.mark.parametrize(COLUMNS, ROWS)
each_door = pytest.mark.parametrize(COLUMNS, sized([row for row in ROWS if row[0] in ONE_EACH], ROWS))
ALWAYS = Retry(attempts=3, wait=0, on=("Exception",))


def of_call(run: Run) -> Question:
    (question,) = run.waiting
    assert question.kind == "unknown_outcome"
    return question


@all_doors
async def test_a_later_attempt_asks_and_takes_a_result_in_its_place(
    name: str, door: Door, wrong: Any, right: Any, again: Any, why: str, shown: str
) -> None:
    world = World(wrong)
    graph, tools = door(world)
    async with world.executor(graph, *tools) as executor:
        run = await executor.start(graph, {}, run_id="r")
        assert (run.status, world.paid) == ("failed", ["paid"])
        assert run.error is not None
        assert why in run.error.message
        settled = [one for one in await world.store.read("r") if isinstance(one, EffectSettled)]
        assert [(one.unknown, one.returned is not None) for one in settled] == [(True, True)]
        run = await executor.resume("r", retry=True)
        question = of_call(run)
        assert question.payload["why"] == "refused"
        assert why in str(question.payload["error"])
        assert shown in str(question.payload["returned"])
        assert "hush" not in str(question.payload)
        assert "was called and returned, but its result was refused" in question.prompt
        if again is not None and name not in ("reducer", "validator"):
            with pytest.raises(InvalidAnswer, match="the result"):
                await executor.answer("r", question.id, {"choice": "happened", "result": again})
        elif again is not None:  # no schema says what a reducer or a validator takes
            run = await executor.answer("r", question.id, {"choice": "happened", "result": again})
            question = of_call(run)
            assert question.payload["result"].startswith("that cannot be its result: ")
        run = await executor.answer("r", question.id, {"choice": "happened", "result": right})
        assert run.status == "completed", run.error
    assert world.paid == ["paid"]


@each_door
async def test_no_retry_makes_it_again_and_each_further_call_is_asked_about(
    name: str, door: Door, wrong: Any, right: Any, again: Any, why: str, shown: str
) -> None:
    world = World(wrong)
    world.retry = ALWAYS
    graph, tools = door(world)
    async with world.executor(graph, *tools) as executor:
        run = await executor.start(graph, {}, run_id="r")
        first = of_call(run)
        assert (first.payload["why"], world.paid) == ("refused", ["paid"])
        run = await executor.answer("r", first.id, "retry")
        assert world.paid == ["paid", "paid"]
        second = of_call(run)
        assert second.id != first.id
        replay = await executor.replay("r")  # it asks as the run did, and takes the results of the run
        assert replay.run.status == "paused"
    assert world.paid == ["paid", "paid"]


async def test_a_graph_inside_is_not_run_again_by_the_retry_of_its_node() -> None:
    world = World("A-17")
    inner, _ = by_effect(world)
    graph = one(world, Subgraph(inner, outputs={"said": "said"}, retry=ALWAYS))
    async with world.executor(graph) as executor:
        run = await executor.start(graph, {}, run_id="r")
        assert run.error is not None
        assert "not tried again: what was done inside cannot be undone" in run.error.message
    assert world.paid == ["paid"]


@pytest.mark.parametrize("answered", [False, True])
async def test_what_the_validator_of_the_whole_state_refuses_fails_the_run_and_not_the_call(answered: bool) -> None:
    world, most = World(), [4]

    class Balanced(State):
        @model_validator(mode="after")
        def check_balance(self) -> Balanced:
            if self.id > most[0]:
                raise ValueError("more was paid than there is")
            return self

    @node(effect="irreversible")
    def work(state: State) -> Any:
        world.pay()
        if answered:
            raise ConnectionError("reset")
        return {"id": 5}

    graph = Graph(name="g", state=Balanced, nodes={"n": work}, edges="START -> n -> END")
    async with world.executor(graph) as executor:
        run = await executor.start(graph, {}, run_id="r")
        if answered:
            run = await executor.resume("r", retry=True)
            run = await executor.answer("r", of_call(run).id, {"choice": "happened", "result": {"id": 5}})
        run = await executor.resume("r", retry=True)
        assert run.error is not None
        assert (run.status, "more was paid than there is" in run.error.message) == ("failed", True)
        most[0] = 5  # the code is repaired
        run = await executor.resume("r", retry=True)
        assert run.status == "completed", run.error
    assert world.paid == ["paid"]


@quick_on("asyncio")
@each_door
async def test_neither_resume_all_nor_a_worker_makes_it_again(
    name: str, door: Door, wrong: Any, right: Any, again: Any, why: str, shown: str
) -> None:
    world = World(wrong)
    graph, tools = door(world)
    async with world.executor(graph, *tools) as executor:
        for number in range(3):
            await executor.start(graph, {}, run_id=f"r{number}")
        assert world.paid == ["paid"] * 3
        await executor.resume_all(retry=True, status="failed")
        for number in range(3):
            assert of_call(await executor.load(f"r{number}")).payload["why"] == "refused"
        await executor.recover()
    async with world.executor(graph, *tools) as executor:
        with anyio.move_on_after(0.3):
            await executor.work(slots=2)
        for number in range(3):
            assert of_call(await executor.load(f"r{number}")).payload["why"] == "refused"
    assert world.paid == ["paid"] * 3


@each_door
async def test_a_fork_asks_and_a_replay_gives_the_same_refusal(
    name: str, door: Door, wrong: Any, right: Any, again: Any, why: str, shown: str
) -> None:
    world = World(wrong)
    graph, tools = door(world)
    async with world.executor(graph, *tools) as executor:
        run = await executor.start(graph, {}, run_id="r")
        replayed = await executor.load((await executor.replay("r")).run.run_id)
        assert run.error is not None
        assert replayed.error is not None
        assert (replayed.error.type, replayed.error.message) == (run.error.type, run.error.message)
        fork = await executor.fork("r", at=1)
        (question,) = fork.waiting
        (call,) = question.payload["family"]
        assert (question.kind, call["status"]) == ("approval", "unknown")
        assert shown in call["error"]
        assert "which was refused: " in question.prompt
        late = await executor.fork("r")  # it has the call
        if late.status == "failed":
            late = await executor.resume(late.run_id, retry=True)
        (later,) = late.waiting
        (call,) = later.payload["family"]
        assert (later.kind, call["status"], shown in call["error"]) == ("approval", "unknown", True)
        assert world.paid == ["paid"]
        world.wrong = right
        done = await executor.answer(fork.run_id, question.id, Approve())
        assert world.paid == ["paid", "paid"]
        assert done.status in ("completed", "failed")


@pytest.mark.parametrize("door", [by_effect, by_tool, by_node])
async def test_an_approval_in_a_fork_is_for_one_call(door: Door) -> None:
    world = World({"id": 1} if door is by_node else 1)
    graph, tools = door(world)
    twice = Graph(
        name="twice", state=State, nodes={"n": graph.nodes["n"], "again": node(effect="pure")(again)},
        edges="START -> n -> again\nagain -> n : again\nagain -> END : enough",
    )  # fmt: skip
    async with world.executor(twice, *tools) as executor:
        await executor.enqueue(twice, {}, run_id="r")  # and it is not driven
        fork = await executor.fork("r", at=1)
        for made in (0, 1):
            assert len(world.paid) == made
            fork = await executor.answer(fork.run_id, fork.waiting[0].id, Approve())
        assert (fork.status, world.paid) == ("completed", ["paid"] * 2)


@each_door
async def test_other_calls_with_other_arguments_after_a_repair_are_asked_about(
    name: str, door: Door, wrong: Any, right: Any, again: Any, why: str, shown: str
) -> None:
    world = World(wrong)
    graph, tools = door(world)
    async with world.executor(graph, *tools) as executor:
        await executor.start(graph, {}, run_id="r")
    world.wrong = right
    async with world.executor(graph, *tools) as executor:  # its function returns what fits now
        run = await executor.resume("r", retry=True)
        assert of_call(run).payload["why"] == "refused"
        run = await executor.answer("r", run.waiting[0].id, "retry")
        assert run.status == "completed", run.error
    assert world.paid == ["paid", "paid"]


@pytest.mark.parametrize(
    ("name", "door", "wrong", "right", "again", "why", "shown"),
    [row for row in ROWS if row[0] != "execute"],  # it goes on with the failure as its result
)
async def test_answered_with_failed_it_is_asked_about_again_each_time_the_run_is_reopened(
    name: str, door: Door, wrong: Any, right: Any, again: Any, why: str, shown: str
) -> None:
    world = World(wrong)
    graph, tools = door(world)
    seen: set[str] = set()
    async with world.executor(graph, *tools) as executor:
        await executor.start(graph, {}, run_id="r")
        await executor.resume("r", retry=True)
        for _ in range(2):
            question = of_call(await executor.load("r"))
            seen.add(question.id)
            fork = await executor.fork("r", answers={question.id: "failed"})
            assert (fork.status, fork.waiting) == ("failed", ())
            run = await executor.answer("r", question.id, "failed")
            assert run.error is not None
            assert (run.status, "failed, according to the answer" in run.error.message) == ("failed", True)
            await executor.resume_all(retry=True, status="failed")
        question = of_call(await executor.load("r"))
        assert len({*seen, question.id}) == 3
        assert shown in str(question.payload["returned"])
        run = await executor.answer("r", question.id, {"choice": "happened", "result": right})
        assert run.status == "completed", run.error
    assert world.paid == ["paid"]


async def test_answered_with_failed_other_arguments_are_asked_about_when_the_run_is_reopened() -> None:
    world = World("A-17")
    counted = iter(range(10))

    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        number = next(counted)
        paid = await ctx.effect("pay", lambda _: world.pay(), max(number - 1, 0), returns=int, effect="irreversible")
        return {"id": paid}

    graph = one(world, work)
    async with world.executor(graph) as executor:
        await executor.start(graph, {}, run_id="r")
        run = await executor.resume("r", retry=True)
        next(counted)
        run = await executor.answer("r", of_call(run).id, "failed")
        run = await executor.resume("r", retry=True)
        assert [one.kind for one in run.waiting] == ["approval"]
    assert world.paid == ["paid"]


@pytest.mark.parametrize("wrong", ["A-17", ConnectionError("reset")])
async def test_an_answer_of_failed_in_a_reopened_run_holds_after_a_crash_and_for_the_retry_of_the_node(
    wrong: Any,
) -> None:
    world = World()
    began = anyio.Event()

    def pay() -> Any:
        world.pay()
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    @node(retry=Retry(attempts=9, wait=0, on=("EffectFailed",)))
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        try:
            await ctx.effect("pay", pay, returns=int, effect="irreversible")
        except EffectFailed:
            if not began.is_set():
                began.set()
                await anyio.sleep_forever()
            raise
        return {}

    graph = one(world, work)
    async with world.executor(graph) as executor:
        await executor.start(graph, {}, run_id="r")
        run = await executor.resume("r", retry=True)
        await executor.answer("r", of_call(run).id, "failed", resume=False)
    async with world.executor(graph) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(executor.resume, "r")
        with anyio.fail_after(30):
            await began.wait()
        tasks.cancel_scope.cancel()
    async with world.executor(graph) as executor:
        run = await executor.resume("r")
        assert run.error is not None
        assert (run.status, run.error.type) == ("failed", "EffectFailed")
    assert world.paid == ["paid"]


@pytest.mark.parametrize("returns", [int, Any])
async def test_the_node_gets_the_same_error_the_first_time_and_after_a_crash(returns: Any) -> None:
    world = World("A-17" if returns is int else DEEP)
    seen: list[tuple[str, str]] = []
    began = anyio.Event()

    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        try:
            await ctx.effect("pay", world.pay, returns=returns, effect="irreversible")
        except InvalidUpdate as error:
            seen.append((type(error).__name__, str(error)))
        if not began.is_set():
            began.set()
            await anyio.sleep_forever()
        return {"said": "went on"}

    graph = one(world, work)
    async with world.executor(graph) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(executor.start, graph, {}, run_id="r"))
        with anyio.fail_after(30):
            await began.wait()
        tasks.cancel_scope.cancel()
    async with world.executor(graph) as executor:
        run = await executor.resume("r")
        assert (run.status, run.state.said) == ("completed", "went on")
        replay = await executor.replay("r")
        assert (await executor.load(replay.run.run_id)).status == "completed"
    assert (len(seen), len(set(seen)), world.paid) == (3, 1, ["paid"])


async def test_code_that_no_longer_asks_for_it_is_refused() -> None:
    world = World("A-17")
    began = anyio.Event()

    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        if began.is_set():
            return {"said": "forgotten"}
        try:
            await ctx.effect("pay", world.pay, returns=int, effect="irreversible")
        except InvalidUpdate:
            began.set()
            await anyio.sleep_forever()
        return {}

    graph = one(world, work)
    async with world.executor(graph) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(executor.start, graph, {}, run_id="r"))
        with anyio.fail_after(30):
            await began.wait()
        tasks.cancel_scope.cancel()
    async with world.executor(graph) as executor:
        with pytest.raises(ReplayMismatch, match="ended without it"):
            await executor.resume("r")
    assert world.paid == ["paid"]


@pytest.mark.parametrize("finds", ["nothing", "what does not fit", "it"])
@pytest.mark.parametrize("how", ["effect", "tool"])
async def test_reconcile_never_has_a_call_made_again_that_returned(how: str, finds: str) -> None:
    world = World("A-17" if how == "effect" else DEEP)

    def look(key: str) -> Any:
        return {"nothing": None, "what does not fit": DEEP, "it": 5}[finds]

    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        if how == "tool":
            return {"said": (await ctx.tool("pay", check=True)).output}
        return {"said": await ctx.effect("pay", world.pay, returns=int, effect="irreversible", reconcile=look)}

    graph, pay = one(world, work), paying(world).with_(reconcile=look)
    async with world.executor(graph, pay) as executor:
        await executor.start(graph, {}, run_id="r")
        run = await executor.resume("r", retry=True)
        if finds != "it":
            question = of_call(run)
            assert question.payload["reconcile"].startswith("reconcile ")
            run = await executor.answer("r", question.id, {"choice": "happened", "result": 5})
        assert (run.status, run.state.said) == ("completed", 5)
    assert world.paid == ["paid"]


@pytest.mark.parametrize("effect", ["pure", "read", "idempotent"])
async def test_what_may_be_made_again_is_made_again_as_before(effect: Any) -> None:
    world = World("A-17")
    world.retry = ALWAYS

    @node(retry=ALWAYS)
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        return {"said": await ctx.effect("look", world.pay, returns=int, effect=effect)}

    graph = one(world, work)
    async with world.executor(graph) as executor:
        run = await executor.start(graph, {}, run_id="r")
        settled = [one for one in await world.store.read("r") if isinstance(one, EffectSettled)]
    assert (run.status, len(world.paid)) == ("failed", 3)
    assert [(one.unknown, one.returned) for one in settled] == [(False, "A-17")] * 3


async def test_a_tools_own_retry_does_not_make_it_again() -> None:
    world = World(DEEP)
    graph, (pay,) = by_tool(world)
    async with world.executor(graph, pay.with_(retry=ALWAYS)) as executor:
        run = await executor.start(graph, {}, run_id="r")
    assert (run.status, world.paid) == ("failed", ["paid"])


async def test_a_model_is_told_and_the_run_goes_on() -> None:
    world = World(DEEP)

    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        result = await ctx.tools.execute(name="pay", tool_input={})
        return {"said": result.text}

    graph = one(world, work)
    async with world.executor(graph, paying(world)) as executor:
        run = await executor.start(graph, {}, run_id="r")
    assert run.status == "completed"
    assert str(run.state.said).startswith("Error: the call was made, but its result cannot be stored: ")


async def test_a_graph_that_is_a_tool_is_not_run_again_if_its_output_is_refused() -> None:
    world = World("done")

    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        await ctx.effect("pay", world.pay, returns=str, effect="irreversible")
        return {"said": nested(120)}  # a state holds it, a tool's result does not

    inner = Graph(name="inner", state=State, nodes={"n": work}, edges="START -> n -> END", output="said")

    @node(retry=ALWAYS)
    async def call(state: State, ctx: Context) -> dict[str, Any]:
        return {"said": (await ctx.tool("inner", check=True)).output}

    graph = one(world, call)
    async with world.executor(graph, inner.as_tool("inner", "Pays.", risk="none")) as executor:
        run = await executor.start(graph, {}, run_id="r")
        run = await executor.resume("r", retry=True)
    assert run.status in ("failed", "paused")
    assert world.paid == ["paid"]


@pytest.mark.full
async def test_a_result_that_is_too_large_is_shown_in_part() -> None:
    world = World("x" * (MAX_BYTES + 1))
    graph, tools = by_effect(world, returns=str)
    async with world.executor(graph, *tools) as executor:
        await executor.start(graph, {}, run_id="r")
        question = of_call(await executor.resume("r", retry=True))
        assert len(question.payload["returned"]) < 3_000
        assert "bytes, and the limit is" in question.payload["error"]
    assert world.paid == ["paid"]
