"""Pools: at most so many instances, one per id, first come first served, nothing left behind."""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import FrozenInstanceError
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from orchestrator import Tool, ToolResult, tool
from orchestrator.errors import AgentError, PoolTimeout
from orchestrator.testing import MockClock
from orchestrator.tools import Pool, ToolFailure

pytestmark = pytest.mark.anyio


class Env:
    """Something that keeps a state, counts how many of it there are, and how many work at a time."""

    alive: int
    most: int
    made: int

    def __init__(self) -> None:
        type(self).made += 1
        type(self).alive += 1
        type(self).most = max(self.most, self.alive)
        self.number = self.made
        self.seen: list[str] = []
        self.busy = False
        self.closed = False

    async def step(self, word: str, seconds: float = 0.0) -> str:
        assert not self.busy, "two calls at the same time"
        assert not self.closed, "used after it was closed"
        self.busy = True
        try:
            await anyio.sleep(seconds)
            self.seen.append(word)
            return " ".join(self.seen)
        finally:
            self.busy = False

    def reset(self) -> None:
        assert not self.closed
        self.seen = []

    async def aclose(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True
        type(self).alive -= 1


@pytest.fixture
def counted() -> type[Env]:
    """A class of its own for each test."""

    class Counted(Env):
        alive = most = made = 0

    return Counted


# -- as the seeds write it -----------------------------------------------------------------------------------------


class PythonSandboxEnv:
    def __init__(self) -> None:
        self.names: dict[str, object] = {}

    async def step(self, code: str) -> str:
        printed: list[str] = []
        exec(code, {**self.names, "print": lambda *words: printed.append(" ".join(map(str, words)))}, self.names)
        return "\n".join(printed)


async def test_the_code_interpreter_of_the_seeds() -> None:
    @tool(
        pool=Pool(PythonSandboxEnv, 16),
        name="code_interpreter",
        description="Run the code in docker container and return the output from stdout or stderr",
    )
    async def code_interpreter(code: str, env: PythonSandboxEnv) -> str:
        """
        Run the code in docker container and return the output from stdout or stderr
        Args:
            code (str): The code to run.
        Returns:
            str: The output from stdout or stderr
        """
        try:
            obs = await env.step(code)
            return obs  # noqa: RET504  as it is written there
        except Exception as e:
            return f"Error: {e!s}\n{traceback.format_exc()}"

    result = await code_interpreter("print('Hello World')", id="12345")
    assert result == "Hello World"
    assert code_interpreter.to_param()["function"] == {
        "name": "code_interpreter",
        "description": "Run the code in docker container and return the output from stdout or stderr",
        "parameters": {
            "type": "object", "properties": {"code": {"type": "string", "description": "The code to run."}},
            "required": ["code"], "additionalProperties": False,
        },
    }  # fmt: skip
    await code_interpreter(code="x = 1", id="12345")
    assert await code_interpreter("print(x)", id="12345") == "1"
    assert (await code_interpreter("print(x)", id="other")).startswith("Error: name 'x' is not defined\nTraceback")
    await code_interpreter.release(id="12345")
    assert (await code_interpreter("print(x)", id="12345")).startswith("Error: name 'x' is not defined")


# -- tools with a pool ---------------------------------------------------------------------------------------------


def parameters_of(one: Tool) -> set[str]:
    """What a model can give."""
    return set(one.to_param()["function"]["parameters"]["properties"])


def stateful(pool: Pool[Any], **given: Any) -> Tool:
    """A tool that remembers words."""

    @tool(risk="none", effect="pure", pool=pool, **given)
    async def remember(word: str, env: Env, seconds: float = 0.0) -> str:
        """Remember a word."""
        if word == "fail":
            raise ValueError("failed")
        return await env.step(word, seconds)

    return remember


async def test_a_tool_cannot_wait_for_its_own_instance(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 2)
    remember = stateful(pool)

    @tool(pool=pool)
    async def twice(env: Env) -> str:
        """Call another one."""
        return str(await remember("a", id="x"))

    with pytest.raises(RuntimeError, match="this call already has the instance, and would wait for itself"):
        await twice(id="x")
    assert await twice(id="y") == "a"
    async with pool:
        pass
    assert counted.alive == 0


async def test_without_an_id_a_call_has_an_instance_for_itself(counted: type[Env]) -> None:
    remember = stateful(Pool(counted, 1))
    assert await remember("a") == "a"
    assert await remember.invoke({"word": "b"}) == ToolResult(output="b", metadata={"new_instance": True})
    assert (counted.made, counted.alive) == (2, 0)


async def test_arguments_by_place_and_by_name_and_none_of_the_injected(counted: type[Env]) -> None:
    remember = stateful(Pool(counted, 1))
    await remember("a", id=7)
    await remember("b", seconds=0, id=7)
    assert await remember(word="c", id=7) == "a b c"
    for wrong in ({"env": 1}, {"id": "x"}):
        with pytest.raises(AgentError, match="is unknown"):
            remember.validate({"word": "a", **wrong})
    await remember.release(id=7)


async def test_a_class_with_a_pool_of_its_own(counted: type[Env]) -> None:
    class Remember(Tool):
        """Remember words."""

        risk = "none"

        def __init__(self, size: int) -> None:
            self.pool = Pool(counted, size)

        async def call(self, word: str, env: Env) -> str:
            return await env.step(word)

    one, other = Remember(1), Remember(1)
    await one("a", id="x")
    assert await other("b", id="x") == "b"  # ids of one pool say nothing to another
    assert parameters_of(one) == {"word"}
    assert await one.release(id="x")
    assert await other.release(id="x")


def test_what_a_tool_with_a_pool_cannot_be() -> None:
    def takes_none(word: str) -> str:
        return word

    def takes_an_id(id: str, env: Env) -> str:  # noqa: A002  that is what is wrong with it
        return id

    with pytest.raises(TypeError, match="takes no instance: give it a parameter env"):
        tool(pool=Pool(Env))(takes_none)
    with pytest.raises(TypeError, match="rename its parameter id"):
        tool(pool=Pool(Env))(takes_an_id)
    with pytest.raises(ValueError, match="size=0: a pool must have at least one instance"):
        Pool(Env, 0)
    with pytest.raises(ValueError, match="acquire_timeout=0"):
        Pool(Env, acquire_timeout=0)

    @tool
    def plain(env: str) -> str:
        """Without a pool `env` and `id` are parameters like any other."""
        return env

    assert parameters_of(plain) == {"env"}


class Named:
    """A context that says who holds the instance."""

    def __init__(self, holder: str) -> None:
        self.holder = holder


# -- ids -----------------------------------------------------------------------------------------------------------


async def test_one_id_one_instance_and_turns(counted: type[Env]) -> None:
    remember = stateful(Pool(counted, 3))
    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon(lambda n=n: remember(str(n), 0.001, id="x"))
    assert counted.made == 1
    assert sorted((await remember("z", id="x")).split()) == ["0", "1", "2", "3", "4", "5", "z"]
    assert await remember.release(id="x") is True
    assert await remember.release(id="x") is False


async def test_a_new_id_waits_until_one_is_released(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 2)
    remember = stateful(pool)
    await remember("a", id=1)
    await remember("b", id=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: remember("c", id=3))
        await anyio.wait_all_tasks_blocked()
        assert pool.statistics().waiting == 1
        assert await remember("a2", id=1) == "a a2"  # who has one goes on
        await anyio.sleep(0.02)
        await remember.release(id=1)
    found = pool.statistics()
    assert (found.held, found.waiting, found.made, found.closed) == (2, 0, 3, 1)
    assert 0.01 < found.waited == found.longest_wait
    await remember.release(id=2)
    await remember.release(id=3)
    assert counted.alive == 0


async def test_statistics_are_frozen_and_a_result_says_how_long_it_waited(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 1)
    remember = stateful(pool)
    with pytest.raises(FrozenInstanceError):
        pool.statistics().size = 3  # type: ignore[misc]
    found: list[ToolResult] = []

    async def call() -> None:
        found.append(await remember.invoke({"word": "a"}))

    await remember("first", id=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.sleep(0.02)
        await remember.release(id=1)
    assert found[0].metadata["new_instance"] is True
    assert 0.01 < float(str(found[0].metadata["waited"])) == round(pool.statistics().waited, 3)


def rising(order: list[int]) -> int:
    """Return the least number of rising sequences that a sequence is made of."""
    ends: list[int] = []
    for n in order:
        fitting = [end for end in ends if end < n]
        if fitting:
            ends.remove(max(fitting))
        ends.append(n)
    return len(ends)


@pytest.mark.parametrize("size", [1, 2])
async def test_fifty_ids_come_first_come_first_served(counted: type[Env], size: int) -> None:
    pool: Pool[Env] = Pool(counted, size)
    order: list[int] = []
    most = 0

    async def work(n: int) -> None:
        nonlocal most
        async with pool.use(n) as env:
            order.append(n)
            most = max(most, pool.statistics().held)
            await env.step(str(n), random.random() / 1000)
        await pool.release(n)

    async with anyio.create_task_group() as tasks:
        for n in range(size):
            async with pool.use(f"before {n}"):
                pass
        for n in range(50):
            tasks.start_soon(work, n)
            while pool.statistics().waiting <= n:
                await anyio.lowlevel.checkpoint()
        for n in range(size):
            tasks.start_soon(pool.release, f"before {n}")
    assert sorted(order) == [*range(50)]
    assert rising(order) <= size, "each instance goes to those who wait in the order in which they came"
    assert (most, counted.most, counted.made, counted.alive) == (size, size, 50 + size, 0)
    assert pool.statistics().held == pool.statistics().waiting == 0


async def test_with_reset_instances_are_used_again_as_new(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 2, reset=counted.reset)
    remember = stateful(pool)
    for n in range(10):
        assert await remember(str(n), id=n) == str(n)
        await remember.release(id=n)
    found = pool.statistics()
    assert (found.made, found.closed, found.free, found.held) == (1, 0, 1, 0)
    await pool.aclose()
    assert (counted.alive, pool.statistics().free) == (0, 0)


@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_what_cannot_be_reset_is_closed(counted: type[Env], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.tools.pool.CLOSING", 0.05)

    async def reset(env: Env) -> None:
        if how == "raises":
            raise OSError("gone")
        await anyio.sleep(60)

    pool: Pool[Env] = Pool(counted, 1, reset=reset)
    for n in range(2):
        async with pool.use() as env:
            assert await env.step(str(n)) == str(n)
    assert (counted.made, counted.alive) == (2, 0)


async def test_what_does_not_work_any_more_is_replaced(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 1, check=lambda env: env.seen != ["poison"])
    remember = stateful(pool)
    await remember("poison", id=1)
    assert await remember("a", id=1) == "a"
    assert (counted.most, counted.made, pool.statistics().held) == (1, 2, 1)
    await remember.release(id=1)
    assert (counted.alive, pool.statistics().held) == (0, 0)


async def test_waiting_has_an_end_if_one_is_set(counted: type[Env], clock: MockClock) -> None:
    pool: Pool[Env] = Pool(counted, 1, acquire_timeout=0.8)
    remember = stateful(pool, timeout=0.4)  # the time of a call does not run while it waits
    await remember("a", id=1)
    with pytest.raises(PoolTimeout, match=r"Pool\(Counted, 1\): the only instance is taken, .* within 0.8 s: release"):
        await remember("b", id=2)
    assert clock.steady() == pytest.approx(0.8)
    failure = await remember.invoke({"word": "c"})
    assert isinstance(failure, ToolFailure)
    assert (failure.error or "").startswith("Pool(Counted, 1): the only instance is taken")
    assert pool.statistics().waiting == 0
    await remember.release(id=1)
    assert await remember("d", id=2) == "d"
    await remember.release(id=2)


# -- errors, time-outs, cancels ------------------------------------------------------------------------------------


async def test_an_error_of_a_call_leaves_the_instance_as_it_is(counted: type[Env]) -> None:
    remember = stateful(Pool(counted, 1))
    await remember("a", id=1)
    with pytest.raises(ValueError, match="failed"):
        await remember("fail", id=1)
    assert await remember("b", id=1) == "a b"
    await remember.release(id=1)


async def test_a_call_that_was_stopped_in_the_middle_closes_its_instance(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 1, reset=counted.reset)
    remember = stateful(pool, timeout=0.4)
    await remember("a", id=1)
    with pytest.raises(TimeoutError):
        await remember("b", 5, id=1)
    assert (counted.alive, pool.statistics().held) == (0, 0)
    assert await remember("c", id=1) == "c"
    with anyio.move_on_after(0.01):
        async with pool.use(1):
            await anyio.sleep(5)
    assert (counted.alive, pool.statistics().held) == (0, 0)


async def test_who_is_cancelled_while_waiting_takes_nothing_with_him(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 1)
    order: list[int] = []

    async def work(n: int) -> None:
        async with pool.use():
            order.append(n)

    async with anyio.create_task_group() as tasks, pool.use(), anyio.create_task_group() as others:
        for n in range(4):
            (others if n % 2 else tasks).start_soon(work, n)
            await anyio.wait_all_tasks_blocked()
        others.cancel_scope.cancel()
    assert order == [0, 2]
    assert pool.statistics().held == counted.alive == 0


async def test_a_factory_that_fails_or_is_cancelled_takes_no_place(counted: type[Env]) -> None:
    fails = True

    async def factory() -> Env:
        await anyio.sleep(0.01)
        if fails:
            raise OSError("no room")
        return counted()

    pool: Pool[Env] = Pool(factory, 1, acquire_timeout=1)
    for _ in range(3):
        with pytest.raises(OSError, match="no room"):
            async with pool.use(1):
                pass
    with anyio.move_on_after(0.001):
        async with pool.use(1):
            pass
    fails = False
    async with pool.use() as env:
        assert env.number == 1
    assert pool.statistics().held == counted.alive == 0


async def test_a_sync_factory_is_waited_for_by_who_is_cancelled() -> None:
    closed: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    class Slow:
        def __init__(self) -> None:
            began.set()
            go_on.wait(20)

        def close(self) -> None:
            closed.append("closed")

    pool: Pool[Slow] = Pool(Slow, 1)

    async def use() -> None:
        async with pool.use(1):
            await anyio.sleep(5)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        await anyio.to_thread.run_sync(began.wait)
        tasks.cancel_scope.cancel()
        go_on.set()
    assert closed == ["closed"]
    assert pool.statistics().held == 0


async def test_a_thread_that_goes_on_keeps_its_instance_until_it_is_done() -> None:
    events: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    class Shell:
        def __init__(self) -> None:
            events.append("made")

        def close(self) -> None:
            events.append("closed")

    pool: Pool[Shell] = Pool(Shell, 1)

    @tool(risk="none", effect="pure", pool=pool, timeout=0.5)
    def run(command: str, env: Shell) -> str:
        """Run."""
        if command == "hang":
            began.set()
            go_on.wait(20)
            events.append("done")
        return command

    with pytest.raises(TimeoutError):
        await run("hang", id=1)
    assert began.is_set()
    assert pool.statistics().held == 1  # one of one, though nobody waits for it
    found: list[str] = []

    async def another() -> None:
        found.append(await run("x", id=2))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(another)
        await anyio.wait_all_tasks_blocked()
        assert (events, pool.statistics().waiting) == (["made"], 1)
        go_on.set()
    assert (found, events) == (["x"], ["made", "done", "closed", "made"])
    await run.release(id=2)
    assert (events[-1], pool.statistics().held) == ("closed", 0)


async def test_a_thread_of_a_generator_keeps_its_instance_too() -> None:
    events: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    class Shell:
        def close(self) -> None:
            events.append("closed")

    pool: Pool[Shell] = Pool(Shell, 1)

    @tool(pool=pool, timeout=0.5)
    def run(env: Shell) -> Iterator[str]:
        """Run."""
        yield "begun"
        began.set()
        go_on.wait(20)
        events.append("done")
        yield "never seen"

    with pytest.raises(TimeoutError):
        await run(id=1)
    try:
        assert began.is_set()
        assert (events, pool.statistics().held) == ([], 1)
    finally:
        go_on.set()
    async with pool.use(2):
        assert events == ["done", "closed"]


async def test_an_instance_by_place() -> None:
    @tool(pool=Pool(list[int]))
    def push(env: list[int], n: int, /) -> int:
        """Push."""
        env.append(n)
        return sum(env)

    assert [await push(n, id="a") for n in (1, 2)] == [1, 3]


async def test_what_a_loop_has_to_close_is_not_left_to_a_thread(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 1)
    go_on = threading.Event()

    @tool(pool=pool, timeout=0.5)
    def hang(env: Env) -> None:
        """Hang."""
        go_on.wait(20)

    with pytest.raises(TimeoutError):
        await hang(id=1)
    go_on.set()
    assert (counted.alive, pool.statistics().held) == (0, 0)


async def test_who_is_cancelled_while_an_instance_is_looked_at_loses_none(counted: type[Env]) -> None:
    slow = False

    async def check(env: Env) -> bool:
        await anyio.sleep(5 if slow else 0)
        return True

    pool: Pool[Env] = Pool(counted, 1, reset=counted.reset, check=check)
    async with pool.use():
        pass
    slow = True
    with anyio.move_on_after(0.01):
        async with pool.use(1):
            pass
    found = pool.statistics()
    assert (found.free, found.held, found.made) == (1, 0, 1)
    await pool.aclose()


async def test_a_call_that_fails_leaves_it_to_the_next_one_to_say_that_the_instance_is_new(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 1)
    remember = stateful(pool)
    async with pool:
        assert (await remember.invoke({"word": "fail"}, ctx=Named("x"))).failed
        assert (await remember.invoke({"word": "a"}, ctx=Named("x"))).metadata["new_instance"] is True
        assert "new_instance" not in (await remember.invoke({"word": "a"}, ctx=Named("x"))).metadata


async def test_release_waits_for_the_calls_that_came_before(counted: type[Env]) -> None:
    pool: Pool[Env] = Pool(counted, 1)
    remember = stateful(pool)
    order: list[str] = []

    async def call(word: str) -> None:
        order.append(await remember(word, 0.01, id=1))

    async def release() -> None:
        await remember.release(id=1)
        order.append("released")

    async with anyio.create_task_group() as tasks:
        for what in (lambda: call("a"), lambda: call("b"), release, lambda: call("c")):
            tasks.start_soon(what)
            await anyio.wait_all_tasks_blocked()
    assert order == ["a", "a b", "released", "c"]
    async with pool:
        pass
    assert pool.statistics().held == counted.alive == 0


# -- factories -----------------------------------------------------------------------------------------------------


async def test_context_managers_are_entered_and_left() -> None:
    diary: list[str] = []

    @contextmanager
    def sync(word: str) -> Iterator[str]:
        diary.append(f"+{word}")
        yield word
        diary.append(f"-{word}")

    @asynccontextmanager
    async def asynchronous(word: str) -> AsyncIterator[str]:
        diary.append(f"+{word}")
        yield word
        diary.append(f"-{word}")

    async def later() -> Any:
        return asynchronous("c")

    for factory, word in ((lambda: sync("a"), "a"), (lambda: asynchronous("b"), "b"), (later, "c"), (list, [])):
        async with Pool[Any](factory).use() as found:
            assert found == word
    assert diary == ["+a", "-a", "+b", "-b", "+c", "-c"]


async def test_what_goes_wrong_in_closing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn:
        def close(self) -> None:
            raise OSError("will not")

    pool: Pool[Stubborn] = Pool(Stubborn)
    async with pool.use():
        pass
    assert "closing an instance of Stubborn failed: will not" in caplog.text
    assert pool.statistics().held == 0


def test_a_pool_outlives_event_loops_and_serves_one_at_a_time() -> None:
    closed: list[int] = []

    class Shell:
        def close(self) -> None:
            closed.append(1)

    pool: Pool[Shell] = Pool(Shell, 1, acquire_timeout=1)

    async def hold() -> None:
        async with pool.use("x"):
            pass

    anyio.run(hold, backend="trio")
    anyio.run(hold, backend="asyncio")  # what the first loop left behind is closed
    assert len(closed) == 1

    async def twice() -> None:
        async with pool.use("x"):
            with pytest.raises(RuntimeError, match="in use in another event loop"):
                await anyio.to_thread.run_sync(lambda: anyio.run(hold))
        await pool.release("x")

    anyio.run(twice)
    assert len(closed) == 3
    assert pool.statistics().held == 0


# -- storms --------------------------------------------------------------------------------------------------------


async def mixed(counted: type[Env], rounds: int, seed: int) -> None:
    """Calls of few ids that end well, fail, are cancelled at any moment, and are released at any moment."""
    pool: Pool[Env] = Pool(counted, 2, reset=counted.reset, acquire_timeout=0.02)
    dice = random.Random(seed)

    async def use(n: int, seconds: float) -> None:
        with anyio.move_on_after(dice.random() / 50):
            try:
                async with pool.use(n % 5 or None) as env:
                    await env.step("x", seconds)
                    if dice.random() < 0.2:
                        raise ValueError(n)
                if dice.random() < 0.7:
                    await pool.release(n % 5)
            except (ValueError, PoolTimeout):
                await pool.release(n % 5)

    async with anyio.create_task_group() as tasks:
        for n in range(rounds):
            tasks.start_soon(use, n, dice.random() / 200)
            if n % 3 == 0:
                await anyio.sleep(dice.random() / 200)
    async with pool:
        pass
    found = pool.statistics()
    assert (found.held, found.free, found.waiting, counted.alive) == (0, 0, 0, 0)
    assert counted.most <= 2
    assert found.made == found.closed == counted.made


async def test_whatever_happens_nothing_leaks(counted: type[Env]) -> None:
    await mixed(counted, 60, 1)


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(20))
async def test_storm_of_pools(counted: type[Env], seed: int, scale: int) -> None:
    await mixed(counted, 200 * scale, seed)
