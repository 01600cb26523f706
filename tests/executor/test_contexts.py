"""The context of a run: given when it is started, never stored, and given or made again when it is taken up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator import Approve, Context, Executor, Update, node
from orchestrator.errors import ContextMissing
from orchestrator.stores.base import RunInfo, Store
from tests.support.executors import Log, chain

pytestmark = pytest.mark.anyio


@dataclass
class User:
    """Who a run is for."""

    name: str
    token: str = "secret-token-of-a-user"


@node
async def greet(state: Log, ctx: Context[object, User]) -> Update:
    """Greet the user."""
    return {"log": f"{ctx.context.name} {ctx.labels.get('team', '-')}"}


@node
async def ask(state: Log, ctx: Context[object, User]) -> Update:
    """Ask a person."""
    await ctx.ask("approval", prompt=f"go on, {ctx.context.name}?")
    return {}


@node
async def has_none(state: Log, ctx: Context) -> Update:
    """See what there is."""
    return {"log": repr(ctx.context)}


graph = chain(greet, ask, greet, name="greeting")


async def test_nodes_get_the_context_and_the_labels_of_their_run(store: Store) -> None:
    async with Executor(store) as executor:
        run = await executor.start(graph, run_id="r", context=User("ann"), labels={"team": "blue"})
        assert run.values["log"] == ["ann blue"]
        run = await executor.answer("r", run.waiting[0].id, Approve(), context=User("bob"))
        assert run.output == ["ann blue", "bob blue"]
        assert (await executor.start(chain(has_none))).output == ["None"]


async def test_a_context_is_not_stored(tmp_path: Path) -> None:
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        run = await executor.start(graph, run_id="r", context=User("ann"))
        (begun, *_) = [event async for event in executor.events("r")]
        assert begun.data["context"] is True
        await executor.answer("r", run.waiting[0].id, Approve(), context=User("ann"))
    assert all(b"secret-token" not in path.read_bytes() for path in tmp_path.iterdir())


async def test_without_its_context_a_run_is_not_taken_up(store: Store) -> None:
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r", context=User("ann"))
        question = run.waiting[0].id
        for act in (
            executor.resume("r"),
            executor.resume("r", background=True),
            executor.answer("r", question, Approve()),
        ):
            with pytest.raises(ContextMissing, match=r"run 'r' was started with a context, which is not stored"):
                await act
        with pytest.raises(ContextMissing):
            async with executor.stream(run_id="r", answers={question: Approve()}):
                pass
        assert (await executor.load("r")).waiting  # nothing was answered
        await executor.answer("r", question, Approve(), resume=False)  # this needs no code, and no context
        assert await executor.recover() == []
        async with executor.stream(run_id="r", context=User("carl")) as live:
            assert [event async for event in live]
        assert live.run.output == ["ann -", "carl -"]


@node
async def receive(state: Log, ctx: Context[object, User]) -> Update:
    """Wait for an event."""
    return {"log": f"{ctx.context.name} {await ctx.receive('paid')}"}


waiting = chain(receive, greet, name="waiting")


async def test_an_event_that_continues_a_run_brings_its_context(store: Store) -> None:
    async with Executor(store, graphs=[waiting]) as executor:
        for name in "rst":
            await executor.start(waiting, run_id=name, labels={"team": "red"}, context=User("ann"))
        with pytest.raises(ContextMissing, match=r"run 'r' was started with a context"):
            await executor.send("r", "paid", 1)
        assert (await executor.load("r")).waiting  # the event was not journaled
        run = await executor.send("r", "paid", 2, context=User("bob"))
        assert run.output == ["bob 2", "bob red"]
        runs = await executor.send(labels={"team": "red"}, event="paid", data=3, all=True, context=User("carl"))
        assert [one.output for one in runs] == [["carl 3", "carl red"]] * 2
        await executor.start(waiting, run_id="u", context=User("ann"))
    async with Executor(store, graphs=[waiting]) as executor:
        await executor.send("u", "paid", 4, context=User("dora"), background=True)
        assert (await executor.wait("u")).output == ["dora 4", "dora -"]
        await executor.start(waiting, run_id="v", context=User("ann"))
        await executor.send("v", "paid", 5, resume=False)  # this needs no code, and no context


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_an_executor_makes_contexts_by_the_row_of_a_run(store: Store, form: str) -> None:
    made: list[tuple[str, str]] = []

    def make(info: RunInfo) -> User:
        made.append((info.run_id, info.graph))
        return User(info.labels["user"])

    async def make_later(info: RunInfo) -> User:
        return make(info)

    contexts = make if form == "sync" else make_later
    async with Executor(store, contexts=contexts) as executor:
        run = await executor.start(graph, run_id="r", labels={"user": "dora"})
        assert run.values["log"] == ["dora -"]
        assert (await executor.answer("r", run.waiting[0].id, Approve())).output == ["dora -", "dora -"]
        assert made == [("r", "greeting")] * 2
        run = await executor.start(graph, run_id="s", context=User("given"))
        assert run.values["log"] == ["given -"]
        assert len(made) == 2
    async with Executor(store, graphs=[graph]) as other:
        with pytest.raises(ContextMissing):
            await other.resume("s")


async def test_a_function_that_fails_begins_no_run_and_leaves_others_as_they_are(store: Store) -> None:
    def make(info: RunInfo) -> User:
        raise LookupError("no such user")

    async with Executor(store, contexts=make, graphs=[graph]) as executor:
        with pytest.raises(LookupError, match="no such user"):
            await executor.start(graph, run_id="r")
        assert not (await executor.runs()).runs
        await executor.start(graph, run_id="r", context=User("ann"))
        with pytest.raises(LookupError, match="no such user"):
            await executor.resume("r")
        assert (await executor.resume("r", context=User("ann"))).status == "paused"  # its lease was given back


async def test_a_graph_that_is_a_tool_has_the_context_of_its_caller(store: Store) -> None:
    inner = chain(greet, name="inner")

    @node
    async def calls(state: Log, ctx: Context[object, User]) -> Update:
        return {"log": (await ctx.tool("inner", question="x")).text}

    async with Executor(store, tools=[inner.as_tool("inner", "Greets.")]) as executor:
        run = await executor.start(chain(calls), run_id="r", context=User("eve"))
        assert run.status == "completed"
        assert "eve -" in run.output[0]


async def test_a_fork_has_a_context_of_its_own_and_is_not_made_without_one(store: Store) -> None:
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r", context=User("ann"))
        with pytest.raises(ContextMissing, match="run 'r' was started with a context"):
            await executor.fork("r", 2)
        assert len((await executor.runs()).runs) == 1
        fork = await executor.fork("r", answers={run.waiting[0].id: Approve()}, context=User("fay"))
        assert fork.output == ["ann -", "fay -"]
