"""Executors and streams: opened in one task and closed in another, opened again, abandoned, used from elsewhere."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from orchestrator import Context, Executor, Graph, Run, Toolbox, Update, node
from orchestrator.errors import StoreError, ToolUnavailable
from orchestrator.stores import Message, Store, open_store
from orchestrator.stores.base import Lease, RunInfo
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import ClaimRequest
from orchestrator.tools.pool import Pool
from tests.support.executors import Log, chain, counting, hanging, says, single
from tests.support.stores import kinds

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Server(Toolbox):
    """A toolbox with a task group, which has to be left by the task that entered it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    @property
    def connections(self) -> tuple[Toolbox, ...]:
        return (self,)

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(anyio.sleep_forever)
        self.opened += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self.opened -= 1
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)


class Slow(Server):
    """A server that does not answer."""

    async def __aenter__(self) -> Self:
        self.opened += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.opened -= 1
        return self


async def _in_another_task(call: Any) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)


async def _until(is_so: Callable[[], object]) -> None:
    with anyio.fail_after(60):
        while True:
            if is_so():
                return
            await anyio.sleep(0.01)


async def _status(store: Store, run_id: str) -> tuple[str, bool]:
    """A run's status for others, and whether it has a lease."""
    async with Executor(store) as other:
        return (await other.load(run_id)).status, await store.lease(run_id) is not None


# -- tasks ---------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_what_one_task_opens_another_one_closes(store: Store) -> None:
    slow, began = hanging()
    server = Server()
    executor = Executor(store, graphs=[chain(slow)], tools=[server], observers=[lambda run, seq: None])
    await _in_another_task(executor.open)
    assert server.opened == 1
    await executor.submit("chain", run_id="r")
    await began.wait()
    await _in_another_task(executor.close)
    assert server.opened == 0
    assert await _status(store, "r") == ("interrupted", False)


@pytest.mark.anyio
async def test_a_toolbox_and_an_instance_of_a_pool_are_closed_by_another_task() -> None:
    first, second, server = Server(), Server(), Server()
    box, pool = first | second, Pool(lambda: server)
    await _in_another_task(box.__aenter__)

    async def call() -> None:
        async with pool.use("a"):
            assert server.opened == 1

    await _in_another_task(call)
    await pool.release("a")
    await box.__aexit__(None, None, None)
    assert (first.opened, second.opened, server.opened) == (0, 0, 0)


@pytest.mark.anyio
async def test_closing_interrupts_what_other_tasks_drive_themselves(store: Store) -> None:
    slow, began = hanging()
    found: list[Run] = []
    executor = await Executor(store, graphs=[chain(slow)]).open()

    async def call() -> None:
        found.append(await executor.start("chain", run_id="r"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await began.wait()
            await executor.close()
            assert await _status(store, "r") == ("interrupted", False)
    assert [run.status for run in found] == ["interrupted"]


@pytest.mark.anyio
async def test_an_opener_that_is_cancelled_leaves_nothing_open() -> None:
    server = Slow()
    executor = Executor(tools=[server])
    with anyio.fail_after(60):
        with anyio.move_on_after(0.05):
            await executor.open()
        assert server.opened == 0
        with pytest.raises(RuntimeError, match="the executor is not open"):
            await executor.submit(chain(says("a")))


@pytest.mark.anyio
@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/runs.db"])
async def test_calls_of_a_closed_executor_say_that_it_is_closed(url: str, tmp_path: Path) -> None:
    graph = single(says("x").run)
    executor = Executor(url.format(tmp_path), graphs=[graph])
    async with executor:
        await executor.start(graph, "?", run_id="r")
    calls = (
        partial(executor.enqueue, graph, "?"), partial(executor.cancel, "r"), partial(executor.pause, "r"),
        partial(executor.delete, "r"), partial(executor.start, graph, "?"), partial(executor.fork, "r"),
    )  # fmt: skip
    for call in calls:
        with pytest.raises((StoreError, RuntimeError), match=r"the executor (that was given its URL|is not open)"):
            await call()


@pytest.mark.anyio
async def test_an_executor_is_open_once() -> None:
    async with Executor() as executor:
        with pytest.raises(RuntimeError, match=r"Executor\('memory://'\) is already open"):
            await executor.open()
        assert (await executor.start(chain(says("a")))).output == ["a"]
    await executor.close()


@pytest.mark.anyio
async def test_nodes_see_the_context_variables_of_who_began_the_run() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")

    async def tell(state: Log) -> Update:
        return {"log": user.get()}

    user.set("opener")
    async with Executor() as executor:
        user.set("caller")
        assert (await executor.wait(await executor.submit(single(tell)))).output == ["caller"]


@pytest.mark.anyio
async def test_an_error_in_the_background_closes_the_executor_and_is_raised_where_it_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(MemoryStore):
        async def inbox(self, run_ids: Sequence[str]) -> list[Message]:
            if began.is_set():
                raise LookupError("the store has a bug")
            return await super().inbox(run_ids)

    slow, began = hanging()
    graph = chain(slow)
    executor = await Executor(Broken(), graphs=[graph]).open()
    await executor.submit(graph, run_id="r")
    with caplog.at_level(logging.ERROR, "orchestrator"):
        await _until(lambda: caplog.records)
    assert (await executor.wait("r")).status == "interrupted"
    with pytest.raises(RuntimeError, match="the executor is not open") as refused:
        await executor.submit(graph)
    assert isinstance(refused.value.__cause__, LookupError)
    assert [record.getMessage() for record in caplog.records] == ["Executor('memory://') has ended because of an error"]
    with pytest.raises(LookupError, match="the store has a bug"):
        await executor.close()
    assert await executor.open() is executor
    await executor.close()


@pytest.mark.anyio
@pytest.mark.parametrize("own", [True, False])
async def test_work_ends_when_the_executor_is_closed_and_blames_no_run(own: bool, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    store = open_store(url)
    slow, began = hanging()
    graph, returned = chain(slow), anyio.Event()
    executor = await Executor(url if own else store, graphs=[graph]).open()

    async def work() -> None:
        await executor.work(poll=0.01)
        returned.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            await executor.enqueue(graph, run_id="r")
            tasks.start_soon(work)
            await began.wait()
            await executor.close()
            async with Executor(store, graphs=[graph]) as other:
                await other.enqueue(graph, run_id="later")
            await returned.wait()
        assert await executor.open() is executor  # also after that, no worker is left
        await executor.close()
    for run_id in ("r", "later"):
        info = await store.info(run_id)
        assert (info.status, info.deaths, info.lease) == ("running", 0, None)
    await store.close()


@pytest.mark.anyio
async def test_a_run_that_is_claimed_while_the_executor_closes_is_given_back_and_not_blamed() -> None:
    class Slow(MemoryStore):
        async def claim(self, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
            taken = await super().claim(request)
            if taken and not closing.is_set():
                closing.set()
                with anyio.CancelScope(shield=True):
                    await executor._host.closed.wait()
            return taken

    closing, store, graph = anyio.Event(), Slow(), chain(says("a"))
    executor = await Executor(store, graphs=[graph]).open()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            await executor.enqueue(graph, run_id="r")
            tasks.start_soon(executor.work)
            await closing.wait()
            await executor.close()
    info = await store.info("r")
    assert (info.status, info.deaths, info.lease) == ("running", 0, None)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["start", "submit", "stream", "resume", "background"])
@pytest.mark.parametrize("own", [True, False])
async def test_a_run_that_is_taken_up_while_the_executor_closes_is_given_back_and_not_driven(
    how: str, own: bool, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    store, steps = open_store(url), list[int]()
    refused: list[str] = []

    @node
    async def step(state: Log) -> Update:
        steps.append(1)
        return {"log": "done"}

    graph = chain(step)
    executor = await Executor(url if own else store, graphs=[graph]).open()
    taken, resumes = anyio.Event(), how in ("resume", "background")
    if resumes:
        await executor.enqueue(graph, run_id="r")
    name = "take_lease" if resumes else "create"
    method = getattr(executor.store, name)

    async def until_closing(*args: Any, **options: Any) -> Any:
        found = await method(*args, **options)
        taken.set()
        with anyio.CancelScope(shield=True):
            await executor._host.closed.wait()
        return found

    async def call() -> None:
        try:
            if how == "stream":
                async with executor.stream(graph, run_id="r"):
                    pass
            elif resumes:
                await executor.resume("r", background=how == "background")
            else:
                await getattr(executor, how)(graph, run_id="r")
        except RuntimeError as error:
            refused.append(str(error))

    setattr(executor.store, name, until_closing)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await taken.wait()
            await executor.close()
            assert await store.lease("r") is None
    assert (["the executor was closed in the meantime" in one for one in refused], steps) == ([True], [])
    setattr(executor.store, name, method)
    async with Executor(store, graphs=[graph]) as other:
        assert (await other.resume("r")).output == ["done"]
        assert (await store.info("r")).deaths == 0
    await store.close()


@pytest.mark.anyio
async def test_a_drive_that_has_not_begun_its_steps_ends_when_the_executor_closes() -> None:
    class Slow(MemoryStore):
        async def post(self, *args: Any, **options: Any) -> Any:
            found = await super().post(*args, **options)
            if not posted.is_set():
                posted.set()
                with anyio.CancelScope(shield=True):
                    await executor._host.closed.wait()
            return found

    posted, store, graph = anyio.Event(), Slow(), chain(says("a"))
    executor = await Executor(store, graphs=[graph], observers=[lambda run, seq: None]).open()

    async def call() -> None:
        with pytest.raises(RuntimeError, match="the executor was closed in the meantime"):
            await executor.start(graph, run_id="r")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await posted.wait()
            await executor.close()
            assert await _status(store, "r") == ("interrupted", False)


# -- streams -------------------------------------------------------------------------------------------------------


async def _types(executor: Executor, graph: Graph) -> AsyncIterator[str]:
    async with executor.stream(graph, run_id="r") as live:
        async for event in live:
            yield event.type


@pytest.mark.anyio
async def test_a_generator_over_a_stream_may_be_left_early(caplog: pytest.LogCaptureFixture) -> None:
    async with Executor() as executor:
        slow, began = hanging()
        types = _types(executor, chain(slow))
        async for kind in types:
            assert kind == "run_started"
            break
        await began.wait()
        await _in_another_task(types.aclose)  # type: ignore[attr-defined]
        assert (await executor.load("r")).status == "interrupted"
        assert (await executor.start(chain(says("a")))).output == ["a"]
    assert caplog.records == []


@pytest.mark.full
@both_loops
def test_a_generator_over_a_stream_may_be_forgotten(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Executor() as executor:
            slow, began = hanging()
            async for _ in _types(executor, chain(slow)):
                break
            await began.wait()
            gc.collect()
            with anyio.fail_after(60):
                assert (await executor.wait("r")).status == "interrupted"
            assert (await executor.start(chain(says("a")))).output == ["a"]

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Async generator .*_types", category=ResourceWarning)  # of trio
        anyio.run(main, backend=backend)
    assert [record.getMessage() for record in caplog.records if record.name != "trio"] == []


@pytest.mark.anyio
async def test_closing_the_executor_ends_the_streams_of_other_tasks() -> None:
    slow, _ = hanging()
    executor = await Executor(graphs=[chain(slow)]).open()
    with anyio.fail_after(60):
        async with executor.stream("chain") as live:
            assert (await anext(live)).type == "run_started"
            await _in_another_task(executor.close)
            assert "ended" not in [event.type async for event in live]
        assert live.run.status == "interrupted"


# -- opened again --------------------------------------------------------------------------------------------------


def _everything(url: str) -> tuple[Executor, Graph]:
    """An executor that has all that belongs to an event loop, and a graph that uses it."""

    def in_thread(state: Log) -> Update:
        return {"log": "thread"}

    graph = Graph(
        name="all", state=Log, output="log", pools={"p": 1}, edges="START -> a -> b -> END",
        nodes={"a": node(in_thread), "b": node(pool="p")(in_thread)},
    )  # fmt: skip
    return Executor(url, graphs=[graph, counting()], concurrency=1, pools={"p": 1}, tools=[Server()]), graph


@kinds("memory", "sqlite")
@pytest.mark.parametrize("backends", [("asyncio",) * 3, ("trio",) * 3, ("asyncio", "trio", "asyncio")])
def test_an_executor_is_opened_again_in_one_event_loop_after_another(url: str, backends: tuple[str, ...]) -> None:
    executor, graph = _everything(url)

    async def main(run_id: str) -> list[str]:
        async with executor:
            assert (await executor.start(graph, run_id=run_id)).output == ["thread", "thread"]
        async with executor:
            async with executor.stream("counting", {"until": 2}) as live:
                assert [event.type async for event in live][-1] == "ended"
            return sorted(info.run_id for info in (await executor.runs(graph="all")).runs)

    for number, backend in enumerate(backends):
        found = anyio.run(main, str(number), backend=backend)
        assert found == [str(one) for one in range(number + 1)]  # the runs of before are there, in memory too


def test_an_executor_with_a_store_of_the_users_is_opened_again(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    executor = Executor(store)

    async def main() -> object:
        async with executor:
            return (await executor.start(chain(says("a")))).output

    assert [asyncio.run(main()), asyncio.run(main())] == [["a"], ["a"]]
    asyncio.run(store.close())


@pytest.mark.anyio
async def test_a_server_that_could_not_be_reached_may_be_tried_again() -> None:
    class Away(Server):
        away = True

        async def __aenter__(self) -> Self:
            if self.away:
                raise ToolUnavailable("it is away")
            return await super().__aenter__()

    server = Away()
    executor = Executor(tools=[server])
    with pytest.raises(ToolUnavailable, match="it is away"):
        await executor.open()
    server.away = False
    async with executor:
        assert (await executor.start(chain(says("a")))).output == ["a"]


# -- never closed --------------------------------------------------------------------------------------------------


@pytest.mark.full
@both_loops
@pytest.mark.parametrize("begun", [True, False])
def test_an_executor_that_is_not_closed_gives_its_runs_back_when_the_event_loop_ends(
    backend: str, begun: bool, tmp_path: Path
) -> None:
    server = Server()

    async def main() -> None:
        slow, began = hanging()
        executor = Executor(
            f"sqlite:///{tmp_path}/runs.db", graphs=[chain(slow)], tools=[server], observers=[lambda run, seq: None]
        )
        await executor.open()
        await executor.submit("chain", run_id="r")
        if begun:
            await began.wait()

    with warnings.catch_warnings(record=True, action="always") as told:
        anyio.run(main, backend=backend)
        gc.collect()
    words = [str(one.message) for one in told if begun or one.category is ResourceWarning]  # else AnyIO has one, too
    assert words == [f"Executor('sqlite:///{tmp_path}/runs.db') was not closed before its event loop ended"]
    assert server.opened == 0

    async def look() -> tuple[str, bool]:
        store = open_store(f"sqlite:///{tmp_path}/runs.db")
        try:
            return await _status(store, "r")
        finally:
            await store.close()

    assert anyio.run(look, backend=backend) == ("interrupted", False)


def test_an_executor_whose_event_loop_was_closed_over_it_is_opened_again(tmp_path: Path) -> None:
    slow, began = hanging()
    executor = Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[chain(slow)])

    async def main() -> None:
        await executor.open()
        await executor.submit("chain", run_id="r")
        await began.wait()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    tasks = asyncio.all_tasks(loop)
    loop.close()

    async def again() -> Run:
        async with executor:
            return await executor.resume("r")

    assert asyncio.run(again()).output == ["done"]
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


# -- from elsewhere ------------------------------------------------------------------------------------------------


_FURTHER: dict[str, dict[str, Any]] = {"resume_all": {"retry": True}, "send": {"run_id": "r", "event": "e"}}
"""Arguments that a call needs although they have defaults."""


def _calls() -> list[str]:
    return sorted(
        name for name, method in inspect.getmembers(Executor, inspect.iscoroutinefunction) if not name.startswith("_")
    )


@pytest.mark.anyio
async def test_no_method_can_be_called_from_another_event_loop(anyio_backend_name: str) -> None:
    def elsewhere(name: str) -> BaseException | None:
        method = getattr(executor, name)
        needed = [
            one.name
            for one in inspect.signature(method).parameters.values()
            if one.default is one.empty and one.kind is one.KEYWORD_ONLY
        ]
        places = sum(
            one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.POSITIONAL_ONLY)
            for one in inspect.signature(method).parameters.values()
        )

        async def call() -> None:
            await method(*["r"] * places, **dict.fromkeys(needed, "r"), **_FURTHER.get(name, {}))

        try:
            anyio.run(call, backend=anyio_backend_name)
        except BaseException as error:
            return error
        return None

    async with Executor(graphs=[chain(says("a"))]) as executor:
        assert "submit" in _calls()
        found = {name: str(await anyio.to_thread.run_sync(elsewhere, name)) for name in _calls()}
        assert {name: said for name, said in found.items() if "is open in another event loop" not in said} == {}

        def stream() -> None:
            async def read() -> None:
                async with executor.stream("chain"):
                    pass

            anyio.run(read, backend=anyio_backend_name)

        with pytest.raises(RuntimeError, match=r"open in another event loop.*run_coroutine_threadsafe"):
            await anyio.to_thread.run_sync(stream)
        assert (await executor.start("chain")).output == ["a"]


@pytest.mark.anyio
async def test_threads_call_it_in_its_event_loop(anyio_backend_name: str) -> None:
    async with Executor(graphs=[chain(says("a"))]) as executor:
        call = anyio.from_thread.run
        run = await anyio.to_thread.run_sync(lambda: call(executor.start, "chain"))
        assert run.output == ["a"]
        if anyio_backend_name == "asyncio":
            loop, done = asyncio.get_running_loop(), Future[Run]()

            def other() -> None:
                done.set_result(asyncio.run_coroutine_threadsafe(executor.start("chain"), loop).result(60))

            threading.Thread(target=other).start()
            assert (await asyncio.wrap_future(done)).output == ["a"]


@pytest.mark.anyio
async def test_a_node_cannot_close_the_executor_that_runs_it_and_may_close_one_of_its_own() -> None:
    @node
    async def closes(state: Log) -> Update:
        async with Executor(graphs=[single(says("inner"))]) as inner:
            await inner.start("single", {})
        await executor.close()
        return {"log": "closed"}

    async with Executor(graphs=[single(closes)]) as executor:
        with anyio.fail_after(60):
            run = await executor.start("single", {})
        assert run.error is not None
        assert (run.status, run.error.type) == ("failed", "RuntimeError")
        assert "cannot be closed by a run that it drives" in run.error.message


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["observers", "on_pause", "in_background"])
async def test_what_closing_waits_for_cannot_close_the_executor(how: str) -> None:
    said: list[str] = []
    tried = anyio.Event()

    async def close(*_: object) -> None:
        try:
            with anyio.move_on_after(30):
                await executor.close()
        except RuntimeError as error:
            said.append(str(error))
        tried.set()

    async def work(status: Any) -> None:
        status.started()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)

    async def asks(state: Log, ctx: Context) -> Update:
        return {"log": str(await ctx.ask("input", prompt="?"))}

    options: Any = {"observers": {"observers": [close]}, "on_pause": {"on_pause": close}}.get(how, {})
    executor = Executor(graphs=[single(asks if how == "on_pause" else says("a"))], **options)
    with anyio.fail_after(60):
        async with executor:
            if how == "in_background":
                await executor.workers.start_task(work)
            else:
                await executor.start("single", {})
            await tried.wait()
            assert (await executor.start(chain(says("a")))).output == ["a"]
    assert {"cannot be closed by a run that it drives, nor by its observers" in one for one in said} == {True}


@pytest.mark.anyio
async def test_an_observer_may_close_an_executor_of_its_own() -> None:
    said: list[str] = []

    async def inner_observer(run: Run, seq: int) -> None:
        for one in (outer, inner[0]):
            try:
                await one.close()
            except RuntimeError as error:
                said.append(str(error))

    inner: list[Executor] = []

    async def observer(run: Run, seq: int) -> None:
        if not inner:
            inner.append(Executor("memory://", observers=[inner_observer]))
            async with inner[0]:
                await inner[0].start(chain(says("a")))
            said.append("closed")

    with anyio.fail_after(60):
        async with Executor("memory://", observers=[observer]) as outer:
            await outer.start(chain(says("a")))
    assert said[-1] == "closed"
    assert len(said) >= 3
    assert all("cannot be closed by a run that it drives" in one for one in said[:-1])
