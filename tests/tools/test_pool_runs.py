"""Runs and what they hold of pools: one instance per run, given up when it ends in whatever way."""

from __future__ import annotations

import random
import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Outcome, Tool, ToolCall, Update, append, node, tool
from orchestrator.errors import RunEnded, RunUnknown
from orchestrator.nodes import Confirm, Execute
from orchestrator.nodes.conversation import BEGAN_ANEW
from orchestrator.tools import Pool
from tests.support.one_node import of_calls
from tests.support.programs import CODE, Piped
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio


class Shell:
    """Counts how many of it there are, and keeps what it was told."""

    def __init__(self, shells: Shells) -> None:
        self.shells = shells
        self.said: list[str] = []
        shells.alive += 1
        shells.made += 1
        shells.most = max(shells.most, shells.alive)

    async def run(self, command: str) -> str:
        if command == "fail":
            raise ValueError("failed")
        if command == "hang":
            self.shells.hangs.set()
            await anyio.sleep(60)
        self.said.append(command)
        await anyio.sleep(0.001)
        return " ".join(self.said)

    def close(self) -> None:
        self.shells.alive -= 1


class Shells:
    """A pool of them, and the tool that has it."""

    def __init__(self, size: int = 2, **given: Any) -> None:
        self.alive = self.made = self.most = 0
        self.hangs = anyio.Event()
        self.pool: Pool[Shell] = Pool(lambda: Shell(self), size, **given)

        @tool(risk="write", effect="idempotent", pool=self.pool)
        async def shell(command: str, env: Shell) -> str:
            """Run a command."""
            return await env.run(command)

        self.tool: Tool = shell

    @property
    def idle(self) -> bool:
        """Whether nobody holds or waits for anything, and nothing is left behind."""
        found = self.pool.statistics()
        return (found.held, found.waiting, found.free, self.alive) == (0, 0, 0, 0)


class Session(BaseModel):
    commands: list[str] = []
    said: Annotated[list[str], append] = []


@node
async def work(state: Session, ctx: Context[Any]) -> Outcome[Literal["done"]]:
    """Run the commands one after the other."""
    said = []
    for command in state.commands:
        result = await ctx.tool("shell", command=command)
        if result.failed:
            raise RuntimeError(result.error)
        said.append(result.text)
    return Outcome("done", said=said[-1])


plain = Graph(
    name="plain", state=Session, input="commands", nodes={"work": work}, edges="START -> work -> END", output="said"
)
asking = Graph(
    name="asking", state=Session, input="commands", output="said",
    nodes={"before": work, "ask": Confirm(prompt="Go on?"), "after": work},
    edges="START -> before -> ask\nask -> after : approved\nask -> END : denied\nafter -> END",
)  # fmt: skip


async def test_a_run_has_an_instance_of_its_own_until_it_ends() -> None:
    shells = Shells()
    async with Executor(tools=[shells.tool]) as executor:
        for word in ("a", "b"):
            run = await executor.start(plain, [word, word.upper()])
            assert run.output == [f"{word} {word.upper()}"]
            assert shells.idle
    assert shells.made == 2


async def test_many_runs_two_instances() -> None:
    shells = Shells(2)
    async with Executor(tools=[shells.tool]) as executor, anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(executor.start, plain, [str(n), "x"])
    assert (shells.most, shells.made, shells.idle) == (2, 20, True)


@pytest.mark.parametrize("how", ["fails", "cancelled", "interrupted", "executor closed", "time-out of the step"])
async def test_whatever_ends_a_run_gives_up_what_it_held(how: str) -> None:
    shells = Shells(1)
    graph = plain
    if how == "time-out of the step":
        graph = plain.replace(work=work.with_(timeout=0.5))
    async with Executor(tools=[shells.tool]) as executor, anyio.create_task_group() as tasks:
        if how == "fails":
            run = await executor.start(graph, ["a", "fail"])
            assert run.status == "failed"
        else:
            tasks.start_soon(_start, executor, graph)
            await shells.hangs.wait()
            assert shells.pool.statistics().held == 1
            if how == "cancelled":
                assert (await executor.cancel("r")).status == "cancelled"
            elif how == "interrupted":
                tasks.cancel_scope.cancel()
            elif how == "time-out of the step":
                assert (await executor.wait("r")).status == "failed"
        if how in ("fails", "cancelled", "time-out of the step"):
            assert shells.idle
        tasks.cancel_scope.cancel()
    assert shells.idle


async def _start(executor: Executor, graph: Graph) -> None:
    await executor.start(graph, ["a", "hang"], run_id="r")


async def test_a_paused_run_keeps_its_instance_while_nobody_else_wants_it() -> None:
    shells = Shells(1)
    async with Executor(tools=[shells.tool]) as executor:
        run = await executor.start(asking, ["a"], run_id="r")
        assert run.status == "paused"
        assert shells.pool.statistics().held == 1
        run = await executor.answer("r", run.waiting[0].id, Approve())
        assert (run.status, run.output) == ("completed", ["a", "a a"])
        assert shells.idle


async def test_a_paused_run_gives_way_and_the_model_is_told_that_it_began_anew() -> None:
    shells = Shells(1)
    call = ToolCall(id="c", name="shell", arguments={"command": "a"})

    class State(BaseModel):
        pending: list[ToolCall] = [call]
        seen: Annotated[list[Any], append] = []

    again = Execute(calls="pending", results="seen", on_failure="observe")
    graph = Graph(
        name="g", state=State, nodes={"before": again, "ask": Confirm(prompt="?"), "after": again}, output="seen",
        edges="START -> before -> ask\nask -> after : approved\nask -> END : denied\nafter -> END",
    )  # fmt: skip
    async with Executor(tools=[shells.tool]) as executor:
        paused = await executor.start(graph, {}, run_id="r")
        with anyio.fail_after(60):
            assert (await executor.start(plain, ["b"])).output == ["b"]
        run = await executor.answer("r", paused.waiting[0].id, Approve())
        assert [message["content"] for message in run.output] == ["a", f"{BEGAN_ANEW}\na"]
    assert (shells.most, shells.idle) == (1, True)


async def test_so_it_is_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    results: list[dict[str, Any]] = []
    question = ""
    for shells in (Shells(), Shells()):
        async with Executor(url, tools=[shells.tool], graphs=[asking]) as executor:
            if not results:
                run = await executor.start(asking, ["a"], run_id="r")
                question = run.waiting[0].id
                assert shells.pool.statistics().held == 1
            else:
                run = await executor.answer("r", question, Approve())
                assert run.output == ["a", "a"]
            results = [dict(e.data["result"]) async for e in executor.events("r") if e.type == "effect_settled"]  # type: ignore[call-overload]
        assert shells.idle
    assert [result["metadata"] for result in results] == [
        {"new_instance": True},
        {"new_instance": True, "began_anew": True},
    ]


async def test_cancelling_a_paused_run_gives_up_what_it_held() -> None:
    shells = Shells(1)
    async with Executor(tools=[shells.tool]) as executor:
        await executor.start(asking, ["a"], run_id="r")
        assert (await executor.cancel("r")).status == "cancelled"
        assert shells.idle


async def test_runs_of_one_id_in_two_stores_share_nothing() -> None:
    shells = Shells(2)
    async with Executor(tools=[shells.tool]) as one, Executor(tools=[shells.tool]) as other:
        first = await one.start(asking, ["a"], run_id="r")
        second = await other.start(asking, ["b"], run_id="r")
        assert (first.state.said, second.state.said) == (["a"], ["b"])
    assert shells.idle


async def test_calls_of_one_list_that_share_an_instance_are_made_in_their_order() -> None:
    shells = Shells(2)
    calls = [ToolCall(id=str(n), name="shell", arguments={"command": str(n)}) for n in range(8)]
    graph = of_calls()
    for _ in range(3):
        run = await graph.run({"pending": calls}, tools=[shells.tool])
        said = [message["content"] for message in run.output]
        assert said == [" ".join(map(str, range(n + 1))) for n in range(8)]
    assert shells.idle


async def test_a_graph_that_is_called_as_a_tool_is_a_run_of_its_own() -> None:
    shells = Shells(2)
    inner = plain.as_tool("inner", "Run commands elsewhere.")

    @node
    async def outer(state: Session, ctx: Context[Any]) -> Update:
        await ctx.tool("shell", command="mine")
        found = await ctx.tool("inner", commands=["its"])
        return {"said": f"{found.output} {(await ctx.tool('shell', command='own')).text}"}

    graph = Graph(name="outer", state=Session, nodes={"o": outer}, edges="START -> o -> END", output="said")
    async with Executor(tools=[shells.tool, inner]) as executor:
        run = await executor.start(graph, {})
    assert run.output == ["['its'] mine own"]
    assert shells.idle


async def runs_of_all_kinds(rounds: int, seed: int) -> None:
    """Runs that end well, fail, pause, and are answered, cancelled or interrupted at any moment."""
    dice = random.Random(seed)
    shells = Shells(2)

    async def one(executor: Executor, n: int) -> None:
        graph, name = dice.choice([plain, asking]), f"r{n}"
        with suppress(RunEnded), anyio.move_on_after(dice.choice([0.02, 0.1, 5])):
            run = await executor.start(graph, [str(n), dice.choice(["x", "fail"])], run_id=name)
            if run.status == "paused":
                if dice.random() < 0.5:
                    await executor.answer(name, run.waiting[0].id, Approve())
                elif dice.random() < 0.5:
                    await executor.cancel(name)
            return
        with suppress(RunUnknown, RunEnded):
            await executor.cancel(name)

    async with Executor(tools=[shells.tool]) as executor:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for n in range(rounds):
                    tasks.start_soon(one, executor, n)
                    await anyio.sleep(dice.random() / 100)
    assert (shells.most <= 2, shells.idle) == (True, True)


@pytest.mark.full
@quick_on("asyncio")
async def test_runs_of_all_kinds_leave_nothing_behind() -> None:
    await runs_of_all_kinds(25, 1)


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(10))
async def test_storm_of_runs(seed: int, scale: int) -> None:
    await runs_of_all_kinds(60 * scale, seed)


_PROGRAM = """
import os, sys
import anyio
from pydantic import BaseModel
from orchestrator import Context, Executor, Graph, node
from orchestrator.tools import Pool, tool

class State(BaseModel):
    out: str = ""

@node
async def work(state: State, ctx: Context):
    await ctx.tool("shell", command="a")

plain = Graph(name="g", state=State, nodes={"work": work}, edges="START -> work -> END")

class Shell:
    async def run(self, command):
        print("begun", flush=True)
        await anyio.sleep(60)
    def close(self):
        print("closed", flush=True)

@tool(pool=Pool(Shell))
async def shell(command: str, env: Shell) -> str:
    "Run."
    return await env.run(command)

async def main():
    async with Executor(tools=[shell]) as executor:
        await executor.start(plain, {})

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize(
    ("number", "backend"),
    [
        (signal.SIGTERM, "trio"),
        pytest.param(signal.SIGINT, "asyncio", marks=pytest.mark.storm),
    ],
)
def test_a_process_that_is_told_to_end_closes_what_its_runs_held(number: signal.Signals, backend: str) -> None:
    with closing(Piped([_PROGRAM, backend], module=CODE)) as process:
        assert process.line() == "begun\n"
        process.signal(number)
        assert process.read()[0] == "closed\n"


async def test_waiting_for_an_instance_takes_no_place_among_the_steps_that_run() -> None:
    """Else the one that holds the instance could wait for the place of the one that waits for the instance."""
    shells = Shells(1)
    steps = plain.replace(work=work)
    two = Graph(
        name="two", state=Session, input="commands", nodes={"a": work, "b": work}, edges="START -> a -> b -> END",
        output="said",
    )  # fmt: skip
    async with Executor(tools=[shells.tool], concurrency=1) as executor, anyio.create_task_group() as tasks:
        with anyio.fail_after(20):
            for n in range(6):
                tasks.start_soon(executor.start, two if n % 2 else steps, ["x", "y"])
            await executor.start(two, ["z"])
    assert (shells.made, shells.most, shells.idle) == (7, 1, True)


async def test_a_graph_that_is_called_as_a_tool_needs_no_further_place() -> None:
    @node
    async def outer(state: Session, ctx: Context[Any]) -> Update:
        return {"said": (await ctx.tool("inner", commands=["its"])).text}

    shells = Shells(1)
    graph = Graph(name="outer", state=Session, nodes={"o": outer}, edges="START -> o -> END", output="said")
    tools = [shells.tool, plain.as_tool("inner", "Run commands elsewhere.")]
    async with Executor(tools=tools, concurrency=1) as executor:
        with anyio.fail_after(10):
            run = await executor.start(graph, {})
    assert run.status == "completed"


async def test_runs_that_wait_for_each_other_do_not_wait_for_ever() -> None:
    """Two tools, each with an instance, in either order: the one that gives up lets the other one go on."""
    first, second = Shells(1), Shells(1)
    one, other = first.tool.with_(name="one"), second.tool.with_(name="other")
    both = Both(2)

    @node
    async def in_order(state: Order, ctx: Context) -> Update:
        names = ("one", "other") if state.forward else ("other", "one")
        found = [await ctx.tool(names[0], command="x")]
        await both.here()
        return {"said": [found[0].text, (await ctx.tool(names[1], command="y")).text]}

    graph = Graph(name="o", state=Order, nodes={"n": in_order}, edges="START -> n -> END", output="said")
    ended: list[Any] = []
    async with Executor(tools=[one, other]) as executor:

        async def go(forward: bool) -> None:
            ended.append((await executor.start(graph, {"forward": forward})).output)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(go, True)
                tasks.start_soon(go, False)
    assert sorted(said.partition(":")[0] for _, said in ended) == ["Error", "y"]
    assert "deadlock" in str(ended)
    assert first.idle
    assert second.idle


@pytest.mark.parametrize("runs", [1, 2, 5])
async def test_runs_inside_of_runs_do_not_wait_for_ever(runs: int) -> None:
    """Each holds an instance, and one that it began needs another: who holds none is patient."""
    shells = Shells(2)
    both = Both(min(runs, 2))

    @node
    async def inside(state: Order, ctx: Context) -> Update:
        return {"said": [(await ctx.tool("shell", command="inside")).text]}

    @node
    async def outside(state: Order, ctx: Context) -> Update:
        await ctx.tool("shell", command="outside")
        await both.here()
        return {"said": [str((await ctx.tool("sub", forward=True)).output)]}

    sub = Graph(name="sub", state=Order, nodes={"n": inside}, edges="START -> n -> END", input="forward", output="said")
    graph = Graph(name="o", state=Order, nodes={"n": outside}, edges="START -> n -> END", output="said")
    ended: list[str] = []
    async with Executor(tools=[shells.tool, sub.as_tool("sub", "Go on inside.")]) as executor:

        async def go() -> None:
            ended.extend((await executor.start(graph, {"forward": True})).output)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(runs):
                    tasks.start_soon(go)
        gave_up = [said for said in ended if "deadlock" in said]
        assert len(ended) == runs
        assert len(ended) - len(gave_up) == sum(said == "['inside']" for said in ended)
        assert len(gave_up) < runs
        assert bool(gave_up) == (runs > 1)
    assert shells.idle


async def test_who_waits_for_somebody_who_goes_on_is_patient() -> None:
    """An id that a program holds can be released at any time."""
    shells = Shells(1)

    @node
    async def n(state: Order, ctx: Context) -> Update:
        return {"said": [(await ctx.tool("shell", command="x")).text]}

    graph = Graph(name="o", state=Order, nodes={"n": n}, edges="START -> n -> END", output="said")
    async with Executor(tools=[shells.tool]) as executor, anyio.create_task_group() as tasks:
        async with shells.pool.use("a program's"):
            pass

        async def release() -> None:
            await anyio.sleep(0.5)
            await shells.pool.release("a program's")

        tasks.start_soon(release)
        assert (await executor.start(graph, {"forward": True})).output == ["x"]


class Order(BaseModel):
    forward: bool = True
    said: list[str] = []


class Both:
    """Goes on when so many are here; who comes later goes on at once."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.all = anyio.Event()

    async def here(self) -> None:
        self.number -= 1
        if self.number <= 0:
            self.all.set()
        await self.all.wait()
