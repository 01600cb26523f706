"""The contract of owners, versions and chats."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from orchestrator import Approve, Context, Executor, Graph, Update, node
from orchestrator.errors import GraphChanged, InvalidAnswer, RunConflict
from orchestrator.nodes import Ask
from orchestrator.stores.requests import Append
from orchestrator.testing import ScriptedModel
from tests.contract.hanging import goes_on
from tests.contract.sample import State, logs, single
from tests.support.programs import Begun, next_line

pytestmark = pytest.mark.anyio


async def sleeps() -> Update:
    await anyio.sleep(30)
    return None


# -- owners ---------------------------------------------------------------------------------------------------------


async def test_two_executors_on_one_run_cannot_both_win(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    graph = single(node(sleeps))
    async with Executor(url, graphs=[graph]) as one, Executor(url, graphs=[graph]) as two:
        await one.submit(graph, run_id="r")
        await anyio.sleep(0.05)
        with pytest.raises(RunConflict, match="holds it"):
            await two.resume("r")
        lease = await two.store.lease("r")
        assert lease is not None
        assert {"host", "machine", "boot", "pid", "start"} <= lease.owner.keys()
        run = await two.cancel("r")  # from any executor, seen within a second
        assert run.status == "cancelled"


async def test_a_zombie_is_fenced_out(tmp_path: Path) -> None:
    from orchestrator.kernel.records import Paused

    url = f"sqlite:///{tmp_path}/runs.db"
    released = anyio.Event()

    @node
    async def work() -> Update:
        await released.wait()
        return {"log": "late"}

    graph = single(work)
    async with Executor(url, graphs=[graph]) as ex, Executor(url) as other:
        run_id = await ex.submit(graph)
        await anyio.sleep(0.05)
        head = (await other.load(run_id)).seq
        await other.store.append(Append(run_id, after=head, records=[Paused(seq=head + 1, ts=0.0)]))
        released.set()
        with pytest.raises(RunConflict):
            await ex.wait(run_id)
        with pytest.raises(RunConflict):
            await other.store.append(Append(run_id, after=head, records=[Paused(seq=head + 1, ts=0.0)]))
        assert (await other.load(run_id)).values["log"] == []


KILLED = """
import sys, anyio
from orchestrator import Executor
from tests.contract.hanging import goes_on

async def main():
    async with Executor(sys.argv[1]) as ex:
        await ex.start(goes_on, run_id="r")

anyio.run(main)
"""


async def test_a_run_of_a_dead_holder_is_taken_over_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    read, write = os.pipe()
    program = Begun([KILLED, url], module="tests.support.script", streams=(0, write, 2))
    os.close(write)
    try:
        assert next_line(read) == "at b\n"
        async with Executor(url, graphs=[goes_on]) as ex:
            with pytest.raises(RunConflict):
                await ex.resume("r")
    finally:
        program.close()
        os.close(read)
    async with Executor(url, graphs=[goes_on], deps="go on") as ex:
        assert (await ex.load("r")).status == "interrupted"
        run = await ex.resume("r")
    assert (run.status, run.output) == ("completed", ["a", "went on"])


# -- versions -------------------------------------------------------------------------------------------------------


async def asked(url: str, graph: Graph) -> str:
    async with Executor(url, graphs=[graph]) as ex:
        run = await ex.start(graph, run_id="r")
        assert run.status == "paused"
    return run.waiting[0].id


ASKS = single(logs("work"), "START -> work -> ask -> late -> END", ask=Ask(prompt="?"), late=logs("late"))


async def test_a_changed_content_goes_on_and_its_diff_is_journaled(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    question = await asked(url, ASKS)
    changed = ASKS.replace(late=logs("later").with_(version="2"))
    async with Executor(url, graphs=[changed], on_change="strict") as ex:
        with pytest.raises(GraphChanged, match="node 'late'"):
            await ex.answer("r", question, "x")
        assert len((await ex.load("r")).waiting) == 1
    async with Executor(url, graphs=[changed]) as ex:
        run = await ex.answer("r", question, "x")
        assert run.output == ["work", "later"]
        (changes,) = [event.data["changes"] async for event in ex.events("r") if event.type == "resumed"]
    assert any("'late'" in line for line in changes)


STRUCTURE: dict[str, Graph] = {
    "the node that it sits on is renamed": single(
        logs("work"), "START -> work -> question -> late -> END", question=Ask(prompt="?"), late=logs("late")
    ),
    "a node ahead is gone": single(logs("work"), "START -> work -> ask -> END", ask=Ask(prompt="?")),
    "an edge ahead is another": single(
        logs("work"),
        "START -> work -> ask -> new -> late -> END",
        ask=Ask(prompt="?"),
        late=logs("late"),
        new=logs("new"),
    ),
}


@pytest.mark.parametrize("what", STRUCTURE)
async def test_a_changed_structure_on_or_ahead_of_live_tokens_is_refused_with_a_diff(what: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    question = await asked(url, ASKS)
    async with Executor(url, graphs=[STRUCTURE[what]]) as ex:
        for verb in (lambda: ex.resume("r"), lambda: ex.answer("r", question, "x")):
            with pytest.raises(GraphChanged) as caught:
                await verb()
            assert "\n  - " in str(caught.value)
        assert await ex.recover() == []
        assert (await ex.load("r")).status == "paused"


async def test_a_changed_structure_behind_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    question = await asked(url, ASKS)
    nodes = {"first": logs("first"), "ask": Ask(prompt="?"), "late": logs("late")}
    behind = Graph(
        name="single",
        state=State,
        input="question",
        nodes=nodes,
        edges="START -> first -> ask -> late -> END",
        output="log",
    )
    async with Executor(url, graphs=[behind]) as ex:
        run = await ex.answer("r", question, "x")
    assert (run.status, run.output) == ("completed", ["work", "late"])


# -- chats ----------------------------------------------------------------------------------------------------------


async def test_a_chat_is_one_run_that_waits_between_turns(tmp_path: Path) -> None:
    @node
    async def say(state: State, ctx: Context) -> Update:
        return {"log": (await ctx.model.complete(state.reply)).text}

    graph = single(Ask(prompt="You?"), "START -> work -> say -> work\nsay -> END : error", say=say)
    url = f"sqlite:///{tmp_path}/runs.db"
    model = ScriptedModel(lambda request: request.messages[-1].content.upper())
    async with Executor(url, graphs=[graph], model=model) as ex:
        run = await ex.start(graph)
        for words in ("one", "two"):
            run = await ex.answer(run.run_id, run.waiting[0].id, words)
            assert run.status == "paused"
    async with Executor(url, graphs=[graph], model=model) as ex:
        run = await ex.answer(run.run_id, run.waiting[0].id, "three")
        with pytest.raises(InvalidAnswer):
            await ex.answer(run.run_id, run.waiting[0].id, Approve())
    assert run.values["log"] == ["ONE", "TWO", "THREE"]
