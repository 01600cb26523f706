"""Code of the application that cancels itself, exits or closes itself fails, unless it was stopped from outside."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Any

import anyio
import pytest
from pydantic import AfterValidator, BaseModel

from orchestrator import Context, Executor, Graph, Message, Retry, Run, Toolbox, ToolCall, append, extend, node, tool
from orchestrator.errors import EffectFailed
from orchestrator.graph import Node
from orchestrator.models import Model, ModelEvent, ModelRequest, Reply, RequestModel
from orchestrator.nodes import Execute
from orchestrator.tools import Pool
from orchestrator.user_code import outside
from tests.support.programs import Piped

pytestmark = pytest.mark.anyio


class Odd(BaseException):
    """Neither an error nor a way out."""


class State(BaseModel):
    log: Annotated[list[str], append] = []
    calls: list[ToolCall] = []
    found: list[Message] = []


def graph(*nodes: Any, edges: str = "START -> work -> END", **more: Any) -> Graph:
    return Graph(name="g", state=State, nodes={"work": nodes[0], **more}, edges=edges)


def cancels() -> None:
    raise asyncio.CancelledError


def exits() -> None:
    sys.exit(2)


def closes() -> None:
    raise GeneratorExit


def is_odd() -> None:
    raise Odd("odd")


def is_all() -> None:
    raise BaseExceptionGroup("several", [SystemExit(3), ValueError("and an error")])


OWN: Mapping[Callable[[], None], str] = {
    cancels: "CancelledError: CancelledError of its own code",
    exits: "SystemExit: sys.exit(2)",
    closes: "GeneratorExit: GeneratorExit of its own code",
    is_odd: "Odd: odd",
    is_all: "BaseExceptionGroup: several (2 sub-exceptions)",
}


@pytest.fixture(params=OWN, ids=lambda one: one.__name__)
def end(request: pytest.FixtureRequest) -> Callable[[], None]:
    found: Callable[[], None] = request.param
    return found


def failed(run: Run, end: Callable[[], None]) -> None:
    """The run failed by this, and says where."""
    assert run.status == "failed"
    assert run.error is not None
    assert str(run.error).endswith(OWN[end])
    assert f"in {end.__name__}" in run.error.traceback


# -- doors -----------------------------------------------------------------------------------------------------------


class Ends(Node, kind="test_ends_by_itself"):
    """A kind of node of the application."""

    async def run(self, state: Any, ctx: Context) -> None:
        await anyio.lowlevel.checkpoint()
        self._end()

    _end: Any = None


def in_node(end: Callable[[], None]) -> Any:
    async def work(state: State) -> None:
        await anyio.lowlevel.checkpoint()
        end()

    return node(work)


def inline(end: Callable[[], None]) -> Any:
    return node(effect="pure")(lambda state: end())


def in_thread(end: Callable[[], None]) -> Any:
    return node(effect="idempotent")(lambda state: end())


def in_kind(end: Callable[[], None]) -> Any:
    one = Ends()
    object.__setattr__(one, "_end", end)
    return one


def in_effect(end: Callable[[], None]) -> Any:
    @node
    async def work(state: State, ctx: Context) -> None:
        await ctx.effect("call", end, returns=type(None), effect="idempotent")

    return work


def in_async_effect_of_a_task(end: Callable[[], None]) -> Any:
    async def call() -> None:
        await anyio.lowlevel.checkpoint()
        end()

    @node
    async def work(state: State, ctx: Context) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ctx.effect("call", call, returns=type(None), effect="idempotent"))

    return work


DOORS = [in_node, inline, in_thread, in_kind, in_effect, in_async_effect_of_a_task]


@pytest.mark.parametrize("door", DOORS)
async def test_what_a_step_raises_that_is_no_error_fails_it(door: Any, end: Callable[[], None]) -> None:
    async with Executor() as executor:
        other = await executor.submit(graph(in_sleep(0.05)), {})
        failed(await executor.start(graph(door(end)), {}, run_id="r"), end)
        assert (await executor.wait(other)).status == "completed"
        info = await executor.store.info("r")
        assert (info.status, info.deaths, info.fault) == ("failed", 0, "")


def in_sleep(seconds: float) -> Any:
    async def work(state: State) -> dict[str, str]:
        await anyio.sleep(seconds)
        return {"log": "slept"}

    return node(work)


async def test_retries_and_error_edges_take_it(end: Callable[[], None]) -> None:
    tries: list[int] = []

    @node(retry=Retry(attempts=3, wait=0, on=(type(caught(end)).__name__,)))
    async def work(state: State) -> dict[str, str]:
        tries.append(1)
        if len(tries) < 3:
            end()
        return {"log": "done"}

    async with Executor() as executor:
        run = await executor.start(graph(work), {})
        assert (run.status, len(tries)) == ("completed", 3)
        edges = "START -> work -> END\nwork -> other : error\nother -> END"
        other = node(effect="pure")(lambda state, ctx: {"log": ctx.error.type})
        run = await executor.start(graph(in_node(end), edges=edges, other=other), {})
        assert (run.status, run.values["log"]) == ("completed", [type(caught(end)).__name__])


def caught(end: Callable[[], None]) -> BaseException:
    try:
        end()
    except BaseException as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_ends_itself_gives_a_failed_result(is_async: bool, end: Callable[[], None]) -> None:
    def search(words: str) -> str:
        end()
        return words

    async def look(words: str) -> str:
        await anyio.lowlevel.checkpoint()
        return search(words)

    one = tool(risk="none", effect="read", name="search")(look if is_async else search)
    found = await Toolbox(one).execute(name="search", tool_input={"words": "x"})
    assert found.error is not None
    words = OWN[end].partition(": ")[2]
    assert found.error == f"Unexpected error executing tool search: {words}"
    assert found.metadata["exception"] == type(caught(end)).__name__
    assert (await one.invoke({"words": "x"})).error == found.error

    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": extend([str((await ctx.tool("search", words=word)).error) for word in "ab"])}

    calls = [ToolCall(id=name, name="search", arguments={"words": name}) for name in "ab"]
    execute = Graph(
        name="h",
        state=State,
        nodes={"do": Execute(calls="calls", results="found", on_failure="observe")},
        edges="START -> do -> END",
    )
    async with Executor(tools=[one]) as executor:
        run = await executor.start(graph(work), {})
        assert (run.status, run.values["log"]) == ("completed", [found.error] * 2)
        run = await executor.start(execute, {"calls": calls})
        assert run.status == "completed", run.error


async def test_a_validator_that_ends_itself_makes_arguments_and_updates_wrong(end: Callable[[], None]) -> None:
    def check(text: str) -> str:
        if text == "bad":
            end()
        return text

    @tool(risk="none", effect="read")
    def search(words: Annotated[str, AfterValidator(check)]) -> str:
        """Search."""
        return words

    class Checked(BaseModel):
        text: Annotated[str, AfterValidator(check)] = ""

    assert (await Toolbox(search).execute(name="search", tool_input={"words": "bad"})).failed
    update = Graph(name="u", state=Checked, nodes={"work": node(lambda: {"text": "bad"})}, edges="START -> work -> END")
    async with Executor() as executor:
        failed(await executor.start(update, {}), end)


async def test_a_reducer_that_ends_itself_fails_the_step(end: Callable[[], None]) -> None:
    def add(old: list[str], new: str) -> list[str]:
        end()
        return [*old, new]

    class Reduced(BaseModel):
        log: Annotated[list[str], add] = []

    reduced = Graph(name="u", state=Reduced, nodes={"work": node(lambda: {"log": "x"})}, edges="START -> work -> END")
    async with Executor() as executor:
        failed(await executor.start(reduced, {}), end)


@pytest.mark.parametrize("streams", [True, False])
async def test_a_model_that_ends_itself_fails_the_call(streams: bool, end: Callable[[], None]) -> None:
    class Mine(RequestModel):
        name = "mine"

        async def respond(self, request: ModelRequest) -> Reply:
            await anyio.lowlevel.checkpoint()
            end()
            raise AssertionError

    @node
    async def work(state: State, ctx: Context) -> None:
        if streams:
            async for _ in ctx.model.stream("hi"):
                pass
        else:
            await ctx.model.complete("hi")

    async with Executor(model=Mine()) as executor:
        failed(await executor.start(graph(work), {}), end)


async def test_a_stream_of_a_model_that_ends_itself_between_two_pieces_fails_the_call(end: Callable[[], None]) -> None:
    class Pieces(Model):
        name = "pieces"

        async def complete(self, *args: Any, **options: Any) -> Reply:
            raise AssertionError

        async def stream(self, *args: Any, **options: Any) -> AsyncIterator[ModelEvent]:
            yield ModelEvent(text="one ")
            end()

    @node
    async def work(state: State, ctx: Context) -> None:
        async for _ in ctx.model.stream("hi"):
            pass

    async with Executor(model=Pieces()) as executor:
        failed(await executor.start(graph(work), {}), end)


async def test_parts_of_a_pool_that_end_themselves_fail_the_call_and_close_nothing_else(
    end: Callable[[], None],
) -> None:
    closed: list[str] = []

    class Env:
        def close(self) -> None:
            closed.append("closed")
            end()

    def broken() -> Env:
        end()
        raise AssertionError

    @tool(risk="none", effect="read", pool=Pool(Env))
    def use(env: Env) -> str:
        """Use it."""
        return "used"

    @tool(risk="none", effect="read", pool=Pool(broken))
    def fail(env: Env) -> str:
        """Use it."""
        return "used"

    @node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": extend([(await ctx.tool("use")).text, str((await ctx.tool("fail")).failed)])}

    async with Executor(tools=[use, fail]) as executor:
        run = await executor.start(graph(work), {})
        assert (run.status, run.values["log"], closed) == ("completed", ["used", "True"], ["closed"])


async def test_observers_that_end_themselves_are_logged(
    end: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def observe(run: Run, seq: int) -> None:
        end()

    def watch(run: Run, seq: int) -> None:
        end()

    async with Executor(observers=[observe, watch]) as executor:
        for _ in range(2):
            assert (await executor.start(graph(in_sleep(0)), {})).status == "completed"
    assert {one.getMessage().split(" failed ")[0].rpartition(".")[2] for one in caplog.records} == {"observe", "watch"}


async def test_a_graph_called_as_a_tool_that_ends_itself_is_a_failed_result(end: Callable[[], None]) -> None:
    inner = Graph(name="inner", state=State, nodes={"work": in_node(end)}, edges="START -> work -> END")

    @node
    async def work(state: State, ctx: Context) -> dict[str, str]:
        return {"log": str((await ctx.tool("inner")).error)}

    async with Executor(tools=[inner.as_tool("inner", "Try it.", risk="none")]) as executor:
        run = await executor.start(graph(work), {})
        assert run.status == "completed"
        assert OWN[end] in run.values["log"][0]


# -- calls that cannot be undone -------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["effect", "tool", "node"])
async def test_the_outcome_of_a_call_that_ends_itself_is_asked_for(door: str, end: Callable[[], None]) -> None:
    made: list[str] = []

    async def pay() -> None:
        await anyio.lowlevel.checkpoint()
        made.append("paid")
        end()

    @tool(risk="none", effect="irreversible", name="pay")
    async def paying() -> None:
        """Pay."""
        await pay()

    @node
    async def work(state: State, ctx: Context) -> None:
        if door == "effect":
            await ctx.effect("pay", pay, returns=type(None), effect="irreversible")
        else:
            await ctx.tool("pay", {}, check=True)

    whole = node(effect="irreversible")(lambda state: (made.append("paid"), end())) if door == "node" else work
    async with Executor(tools=[paying]) as executor:
        run = await executor.start(graph(whole), {}, run_id="r")
        assert run.status == "failed"
        (settled,) = [one for one in await executor.store.read("r") if one.type == "effect_settled"]
        assert settled.unknown
        run = await executor.resume("r", retry=True)
        assert (run.status, made) == ("paused", ["paid"])
        assert run.waiting[0].kind == "unknown_outcome"


async def test_a_lookup_that_ends_itself_leaves_the_question_to_a_person(end: Callable[[], None]) -> None:
    async def pay() -> str:
        raise ConnectionError

    def look(key: str) -> str:
        end()
        return ""

    @node
    async def work(state: State, ctx: Context) -> None:
        await ctx.effect("pay", pay, returns=str, effect="irreversible", reconcile=look)

    async with Executor() as executor:
        assert (await executor.start(graph(work), {}, run_id="r")).status == "failed"
        run = await executor.resume("r", retry=True)
        assert run.status == "paused"
        assert "reconcile failed" in str(run.waiting[0].payload)


# -- what stops from outside -----------------------------------------------------------------------------------------


async def test_a_caller_that_cancels_interrupts_the_run() -> None:
    async with Executor() as executor:
        with anyio.move_on_after(0.05):
            await executor.start(graph(in_sleep(60)), {}, run_id="r")
        run = await executor.load("r")
        info = await executor.store.info("r")
        assert (run.status, run.error, info.deaths) == ("interrupted", None, 0)


ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


@ON_ASYNCIO
async def test_a_node_that_cancels_itself_while_its_caller_cancels_is_interrupted() -> None:
    @node
    async def work(state: State) -> None:
        scope.cancel()
        cancels()

    async with Executor() as executor:
        with anyio.CancelScope() as scope:
            await executor.start(graph(work), {}, run_id="r")
        run = await executor.load("r")
        assert (run.status, run.error) == ("interrupted", None)


@ON_ASYNCIO
async def test_a_task_of_its_own_that_a_node_cancels_fails_it_and_its_own_task_too() -> None:
    @node
    async def other_task(state: State) -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    @node
    async def own_task(state: State) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async with Executor() as executor:
        for work in (other_task, own_task):
            run = await executor.start(graph(work), {})
            assert run.status == "failed"
            assert str(run.error).endswith(OWN[cancels])


async def with_an_old_cancel(call: Callable[[], Any]) -> Any:
    """Call in a task that was cancelled once and went on: asyncio counts that for good."""

    async def work() -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        assert task.cancelling() == 1
        return await call()

    return await asyncio.create_task(work())


@ON_ASYNCIO
@pytest.mark.parametrize("door", ["node", "effect", "tool"])
async def test_a_caller_that_went_on_after_a_cancel_does_not_interrupt_what_cancels_itself(door: str) -> None:
    @tool(risk="none")
    async def stop() -> str:
        """Stop."""
        raise asyncio.CancelledError

    @node
    async def work(state: State, ctx: Context) -> dict[str, str]:
        if door == "effect":
            await ctx.effect("stop", cancels, returns=str)
        if door == "tool":
            assert (await ctx.tool("stop")).failed
        cancels()
        return {}

    async with Executor(tools=[stop]) as executor:
        run = await with_an_old_cancel(lambda: executor.start(graph(work), {}))
        assert run.status == "failed"
        assert str(run.error).endswith(OWN[cancels])
        assert (await with_an_old_cancel(lambda: Toolbox(stop).execute(name="stop"))).failed


@ON_ASYNCIO
async def test_a_caller_that_is_cancelled_again_interrupts_the_run() -> None:
    began = asyncio.Event()

    @node
    async def work(state: State) -> None:
        began.set()
        await asyncio.sleep(60)

    async with Executor() as executor:
        drive = asyncio.create_task(with_an_old_cancel(lambda: executor.start(graph(work), {}, run_id="r")))
        await began.wait()
        drive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drive
        run = await executor.load("r")
        assert (run.status, run.error) == ("interrupted", None)


@ON_ASYNCIO
@pytest.mark.parametrize("raises", [False, True])
async def test_a_node_that_cancels_its_task_and_returns_has_returned(raises: bool) -> None:
    @node(retry=Retry(attempts=2, wait=0, on=("ValueError",)))
    async def work(state: State, ctx: Context) -> dict[str, str]:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if raises and ctx.attempt == 1:
            raise ValueError("at the same time")
        return {"log": "returned"}

    @node
    async def then(state: State, ctx: Context) -> dict[str, str]:
        await anyio.lowlevel.checkpoint()
        return {"log": await ctx.effect("read", lambda: "went on", returns=str, effect="read")}

    edges = "START -> work -> then -> again -> last -> END"
    async with Executor() as executor:
        run = await executor.start(graph(work, edges=edges, then=then, again=work, last=then), {})
        assert (run.status, run.values["log"]) == ("completed", ["returned", "went on"] * 2)


@pytest.mark.parametrize("end", [exits, closes], ids=lambda one: one.__name__)
async def test_what_ends_a_thread_of_a_nodes_own_loses_no_run(end: Callable[[], None], anyio_backend_name: str) -> None:
    ends = [end]

    @node
    async def work(state: State) -> dict[str, str]:
        await anyio.to_thread.run_sync(ends.pop() if ends else lambda: None)
        return {"log": "repaired"}

    async with Executor() as executor:
        if end is closes and anyio_backend_name == "asyncio":  # it closes all that waits for the thread
            with pytest.raises(EffectFailed, match="GeneratorExit of its own code"):
                await executor.start(graph(work), {}, run_id="r")
            info = await executor.store.info("r")
            assert (info.deaths, info.fault) == (1, "GeneratorExit: GeneratorExit of its own code")
        else:
            failed(await executor.start(graph(work), {}, run_id="r"), end)
        run = await executor.resume("r", retry=anyio_backend_name == "trio" or end is exits)
        assert (run.status, run.values["log"]) == ("completed", ["repaired"])


@ON_ASYNCIO
async def test_a_node_may_stop_its_own_calls_and_go_on() -> None:
    began = asyncio.Event()

    async def slower() -> None:
        began.set()
        await asyncio.sleep(60)

    @node
    async def work(state: State, ctx: Context) -> dict[str, str]:
        async def slow() -> None:
            limit.reschedule(0)
            await asyncio.sleep(60)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                await ctx.effect("slow", slow, returns=type(None), effect="idempotent")
        task = asyncio.ensure_future(ctx.effect("slower", slower, returns=type(None), effect="idempotent"))
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        return {"log": "stopped" if task.cancelled() else "not stopped"}

    async with Executor() as executor:
        run = await executor.start(graph(work), {}, run_id="r")
        assert (run.status, run.values["log"]) == ("completed", ["stopped"])
        settled = [one for one in await executor.store.read("r") if one.type == "effect_settled"]
        assert [one.error.type for one in settled if one.error is not None] == ["Cancelled"] * 2


@pytest.mark.parametrize("cancel", ["the caller", "all tasks"])
def test_a_task_of_asyncio_that_is_cancelled_interrupts_its_run(cancel: str, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"

    async def main() -> None:
        began = asyncio.Event()

        @node
        async def work(state: State) -> None:
            began.set()
            await asyncio.sleep(60)

        async with Executor(url) as executor:
            drive = asyncio.create_task(executor.start(graph(work), {}, run_id="r"))
            await began.wait()
            for task in [drive] if cancel == "the caller" else asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # this task has to do with the others
                await drive

    async def look() -> tuple[str, int]:
        async with Executor(url) as executor:
            return (await executor.load("r")).status, (await executor.store.info("r")).deaths

    asyncio.run(main())
    assert asyncio.run(look()) == ("interrupted", 0)


async def test_a_closed_coroutine_is_stopped_and_one_that_raises_the_same_is_not() -> None:
    found: list[object] = []

    async def caller(call: Callable[[], Any]) -> None:
        try:
            await call()
        except BaseException as error:
            found.append(outside(error))
            raise

    async def waits() -> None:
        await anyio.sleep(60)

    async def raises() -> None:
        closes()

    waiting = caller(waits)
    waiting.send(None)
    waiting.close()
    with pytest.raises(GeneratorExit):
        caller(raises).send(None)
    assert [type(one) for one in found] == [GeneratorExit, type(None)]


def test_a_loop_that_is_given_up_leaves_its_run_as_it_is(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    loop, began = asyncio.new_event_loop(), asyncio.Event()

    @node
    async def work(state: State) -> None:
        began.set()
        await asyncio.sleep(60)

    async def main() -> None:
        async with Executor(url) as executor:
            await executor.start(graph(work), {}, run_id="r")

    loop.set_exception_handler(lambda *_: None)
    main_task = loop.create_task(main())
    loop.run_until_complete(began.wait())
    for task in [one for one in asyncio.all_tasks(loop) if one is not main_task]:
        coro: Any = task.get_coro()
        with contextlib.suppress(RuntimeError):  # it has something to wait for
            coro.close()

    async def look() -> list[str]:
        async with Executor(url) as executor:
            return [one.type for one in await executor.store.read("r")]

    assert "step_failed" not in anyio.run(look)


EXITS = """
import signal, sys, time, anyio
from orchestrator import Executor, node
from tests.contract.sample import single

def leave(number, frame):
    sys.exit(7)

class Handler:
    def __call__(self, *given):
        leave(*given)

signal.signal(signal.SIGTERM, [leave, lambda *_: sys.exit(7), Handler()][int(sys.argv[4])])

def busy(state):
    signal.raise_signal(signal.SIGTERM)
    for _ in range(1000):
        time.sleep(0.01)

async def calls(state, ctx):
    async def call():
        busy(state)
    await ctx.effect("call", call, returns=type(None), effect="irreversible")

async def main():
    async with Executor(sys.argv[2]) as ex:
        graph = single(node(effect="pure")(busy) if sys.argv[5] == "node" else node(calls))
        if sys.argv[3] == "start":
            await ex.start(graph, run_id="r")
        elif sys.argv[3] == "submit":
            await ex.submit(graph, run_id="r")
            await anyio.sleep_forever()
        else:
            async with ex.stream(graph, run_id="r") as live:
                async for event in live:
                    pass
    print("went on")

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("handler", [0, 1, 2])
@pytest.mark.parametrize(
    ("verb", "door", "backend"),
    [
        ("start", "node", "trio"),
        ("submit", "node", "asyncio"),
        ("stream", "node", "asyncio"),
        ("start", "call", "asyncio"),
    ],
)
def test_a_handler_of_a_signal_that_exits_ends_the_program_and_interrupts_its_run(
    verb: str, door: str, backend: str, handler: int, tmp_path: Any
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    program = Piped([EXITS, backend, url, verb, handler, door], module="tests.support.script")
    try:
        out, err = program.read()
        assert (program.wait(), out) == (7, ""), err
    finally:
        program.close()

    async def look() -> None:
        async with Executor(url) as executor:
            run, info = await executor.load("r"), await executor.store.info("r")
            assert (run.status, run.error) == ("interrupted", None)
            assert (info.deaths, info.fault) == (1, "SystemExit: sys.exit(7)")
            assert not any(one.type == "effect_settled" for one in await executor.store.read("r"))

    anyio.run(look)


async def test_a_handler_that_is_called_by_hand_raises_in_the_code_that_calls_it() -> None:
    def leave(number: int, frame: object) -> None:
        sys.exit(7)

    async with Executor() as executor:
        run = await executor.start(graph(node(lambda: leave(signal.SIGTERM, None))), {})
        assert run.status == "failed"
        assert str(run.error).endswith("SystemExit: sys.exit(7)")


async def test_ctrl_c_in_a_thread_of_a_node_stays_what_it_is() -> None:
    error = EffectFailed("x")
    assert outside(error) is None
    assert isinstance(outside(BaseExceptionGroup("x", [ValueError(), KeyboardInterrupt()])), KeyboardInterrupt)
