"""Forks that make one call of a model again with another request: what is sent, what is kept, where they stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Retry, Update, node
from orchestrator.errors import InvalidValue, StaleAnswer
from orchestrator.executor import Run
from orchestrator.kernel import records as r
from orchestrator.kernel.requests import Requests
from orchestrator.models import ModelRequest, OfflineModel, Reply, system, user
from orchestrator.nodes import Subgraph
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref


class Letter(BaseModel):
    topic: str = ""
    draft: str = ""
    final: str = ""


@node
async def draft(state: Letter, ctx: Context) -> Update:
    return {"draft": (await ctx.model.complete([system("Be brief."), user(f"Write about {state.topic}")])).text}


@node
async def polish(state: Letter, ctx: Context) -> Update:
    return {"final": (await ctx.model.complete(f"Polish: {state.draft}", temperature=1)).text}


@node
async def streamed(state: Letter, ctx: Context) -> Update:
    text = ""
    async for event in ctx.model.stream([system("Be brief."), user(f"Write about {state.topic}")]):
        text += event.text
    return {"draft": text}


letters = Graph(
    name="letters", state=Letter, input="topic", output="final", nodes={"draft": draft, "polish": polish},
    edges="START -> draft -> polish -> END",
)  # fmt: skip


def echo(request: ModelRequest) -> Reply:
    """A model that repeats what it is told."""
    said = " | ".join(message.content for message in request.messages)
    return Reply(text=f"<{said}{' ' + str(request.options) if request.options else ''}>")


def executor(url: str, *graphs: Graph, **options: Any) -> Executor:
    return Executor(url, graphs=graphs or (letters,), model=ScriptedModel(echo), **options)


def calls(run: Run) -> list[r.EffectIntended]:
    return [one for one in run.records() if isinstance(one, r.EffectIntended) and one.kind == "model"]


def sent(run: Run, call: r.EffectIntended) -> list[str]:
    return [message["content"] for message in Requests(run.records()).whole(call)["messages"]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.anyio
async def test_one_step_runs_again_with_the_changed_request_and_then_the_fork_pauses(url: str) -> None:
    async with executor(url) as ex:
        run = await ex.start(letters, "bees")
        first = calls(run)[0]
        changed = {"messages": [{"ref": first.request["messages"][0]["digest"]}, user("Write about wasps")]}  # type: ignore[index]
        fork = await ex.fork(run.run_id, at=first.seq, request=changed, by="ann")
        assert (fork.status, fork.values["draft"]) == ("paused", "<Be brief. | Write about wasps>")
        assert [one.prompt for one in fork.waiting] == ["it pauses after the step that the fork ran again"]
        assert fork.machine.fork is not None
        assert (fork.machine.fork.by, fork.parent is not None and fork.parent.run_id) == ("ann", run.run_id)
        reply: Any = fork.machine.fork.asked.reply  # type: ignore[union-attr]
        assert reply["text"] == run.values["draft"]
        assert fork.usage.calls == 1
        done = await ex.resume(fork.run_id)
        assert (done.status, done.output) == (
            "completed",
            "<Polish: <Be brief. | Write about wasps> {'temperature': 1}>",
        )
        assert (await ex.load(run.run_id)).output == run.output


@pytest.mark.anyio
async def test_a_fork_may_go_on_behind_the_step(url: str) -> None:
    async with executor(url) as ex:
        run = await ex.start(letters, "bees")
        fork = await ex.fork(run.run_id, at=calls(run)[0].seq, request={"messages": "Hello"}, pause=False)
        assert (fork.status, fork.output) == ("completed", "<Polish: <Hello> {'temperature': 1}>")


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["call", "reply", "step"])
async def test_the_call_is_named_by_its_record_its_reply_or_its_step(url: str, where: str) -> None:
    async with executor(url) as ex:
        run = await ex.start(letters, "bees")
        first = calls(run)[0]
        at = first.seq + ["call", "reply", "step"].index(where)
        fork = await ex.fork(run.run_id, at=at, request={"options": {"temperature": 0}})
        assert fork.values["draft"] == "<Be brief. | Write about bees {'temperature': 0}>"


@pytest.mark.anyio
async def test_a_fork_that_is_made_first_runs_the_step_when_it_is_resumed(url: str) -> None:
    async with executor(url) as ex:
        run = await ex.start(letters, "bees")
        made = await ex.fork(run.run_id, at=calls(run)[0].seq, request={"messages": "Hello"}, start=False)
        assert (made.status, len(calls(made))) == ("paused", 1)
        fork = await ex.resume(made.run_id)
        assert (fork.status, fork.values["draft"]) == ("paused", "<Hello>")
        assert (await ex.resume(made.run_id)).status == "completed"


@pytest.mark.anyio
async def test_a_changed_fork_is_forked_changed_again_and_replayed(url: str) -> None:
    async with executor(url) as ex:
        run = await ex.start(letters, "bees")
        one = await ex.fork(run.run_id, at=calls(run)[0].seq, request={"messages": [user("Hello")]})
        again = calls(one)[-1]
        same = await ex.fork(one.run_id, at=again.seq, pause=True)  # the request stays the changed one
        assert same.values["draft"] == "<Hello>"
        two = await ex.fork(one.run_id, at=again.seq, request={"options": {"temperature": 0}})
        assert two.values["draft"] == "<Hello {'temperature': 0}>"
        whole = await ex.resume(one.run_id)
        replay = await ex.replay(one.run_id)
        assert replay.run.output == whole.output
        assert not [record for record in replay.run.records() if isinstance(record, r.Diverged)]


@pytest.mark.anyio
async def test_retries_and_streams_send_the_changed_request(url: str) -> None:
    failures = [True]

    @node(retry=Retry(attempts=3, wait=0.001, on=("ValueError",)))
    async def flaky(state: Letter, ctx: Context) -> Update:
        found = (await ctx.model.complete("one")).text
        if failures.pop() if failures else False:
            raise ValueError("once")
        return {"draft": found}

    graph = Graph(
        name="streams", state=Letter, input="topic", output="draft", nodes={"flaky": flaky, "streamed": streamed},
        edges="START -> flaky -> streamed -> END",
    )  # fmt: skip
    async with executor(url, graph) as ex:
        run = await ex.start(graph, "bees")
        failures.append(True)
        fork = await ex.fork(run.run_id, at=calls(run)[0].seq, request={"messages": "two"}, pause=False)
        assert [one.attempt for one in calls(fork)[1:3]] == [1, 2]
        assert [sent(fork, one) for one in calls(fork)[1:3]] == [["two"], ["two"]]
        last = calls(run)[-1]
        changed = await ex.fork(run.run_id, at=last.seq, request={"messages": "three"}, pause=False)
        assert changed.output == "<three>"


@pytest.mark.anyio
async def test_a_step_of_a_nested_graph_is_run_again(url: str) -> None:
    outer = Graph(
        name="outer", state=Letter, input="topic", output="final",
        nodes={"inner": Subgraph(letters, inputs={"topic": "topic"}, outputs={"final": "final"})},
        edges="START -> inner -> END",
    )  # fmt: skip
    async with executor(url, outer) as ex:
        run = await ex.start(outer, "bees")
        fork = await ex.fork(run.run_id, at=calls(run)[0].seq, request={"messages": "Hello"})
        assert fork.status == "paused"
        assert (await ex.resume(fork.run_id)).output == "<Polish: <Hello> {'temperature': 1}>"


@pytest.mark.anyio
async def test_a_changed_call_asks_again_what_the_parent_had_approved(url: str) -> None:
    """A reply that asks for the same call again is approved anew: an approval of the parent is not carried over."""
    made = react(confirm="none")
    tools = tools_from_ref("arithmetic")
    async with Executor(url, graphs=[made], model=OfflineModel(), tools=tools) as ex:
        run = await ex.start(made, "What is 2*4?")
        run = await ex.answer(run.run_id, run.waiting[0].id, Approve())
        fork = await ex.fork(run.run_id, at=calls(run)[0].seq, request={"options": {"temperature": 0}}, pause=False)
        assert [one.kind for one in fork.waiting] == ["approval"]


def faulty(run: Run) -> dict[str, tuple[int | None, Any]]:
    """Requests that cannot be made, by the reason."""
    first = calls(run)[0].seq
    return {
        "needs at=": (None, {"messages": "x"}),
        "has no record": (99, {"messages": "x"}),
        "is run_started": (1, {"messages": "x"}),
        "is the one that was made": (first, {"options": {}}),
        "object with messages": (first, {}),
        "'tools' cannot be changed": (first, {"tools": [{"name": "x"}]}),
        "'model' cannot be changed": (first, {"model": "other"}),
        "at least one": (first, {"messages": []}),
        "messages.0 is no message": (first, {"messages": [{"role": "nobody", "content": "x"}]}),
        "has no message": (first, {"messages": [{"ref": "0" * 32}]}),
        "options is an object": (first, {"options": [1]}),
    }


@pytest.mark.anyio
async def test_requests_that_cannot_be_made_are_refused_before_a_fork_is_made(url: str) -> None:
    async with executor(url) as ex:
        run = await ex.start(letters, "bees")
        for why, (at, request) in faulty(run).items():
            with pytest.raises(InvalidValue, match=why.replace(".", r"\.")):
                await ex.fork(run.run_id, at=at, request=request)
        with pytest.raises(InvalidValue, match="changed alone"):
            await ex.fork(run.run_id, at=calls(run)[0].seq + 1, request={"messages": "x"}, result="y")
        with pytest.raises(StaleAnswer):
            await ex.fork(run.run_id, at=calls(run)[0].seq, request={"messages": "x"}, digests=["f" * 32])
        deep: Any = "x"
        for _ in range(500):
            deep = [deep]
        with pytest.raises(InvalidValue):
            await ex.fork(run.run_id, at=calls(run)[0].seq, request={"options": {"deep": deep}})
        assert not await ex.forks.list(run.run_id)


@pytest.mark.anyio
async def test_calls_of_tools_and_steps_with_several_calls_are_refused(url: str) -> None:
    @node
    async def twice(state: Letter, ctx: Context) -> Update:
        await ctx.model.complete("one")
        return {"draft": (await ctx.model.complete("two")).text + str((await ctx.tool("add", a=1, b=2)).output)}

    graph = Graph(
        name="twice", state=Letter, input="topic", output="draft", nodes={"twice": twice}, edges="START -> twice -> END"
    )
    async with executor(url, graph, tools=tools_from_ref("arithmetic")) as ex:
        run = await ex.start(graph, "bees")
        tool, step = (next(one.seq for one in run.records() if test(one)) for test in (
            lambda one: isinstance(one, r.EffectIntended) and one.kind == "tool",
            lambda one: isinstance(one, r.StepDone),
        ))  # fmt: skip
        with pytest.raises(InvalidValue, match="only requests to models"):
            await ex.fork(run.run_id, at=tool, request={"messages": "x"})
        with pytest.raises(InvalidValue, match="made 2 calls of models"):
            await ex.fork(run.run_id, at=step, request={"messages": "x"})
        fork = await ex.fork(run.run_id, at=calls(run)[1].seq, request={"messages": "changed"}, pause=False)
        assert fork.output == "<changed>3"


@pytest.mark.anyio
async def test_what_can_be_changed_is_said(url: str) -> None:
    async with executor(url) as ex:
        run = await ex.start(letters, "bees")
        first = calls(run)[0]
        choices = await ex.forks.choices(run.run_id, first.seq)
        assert choices.request is not None
        assert choices.request.digest == first.digest
        assert [one["content"] for one in choices.request.request["messages"]] == ["Be brief.", "Write about bees"]  # type: ignore[union-attr, index, call-overload]
        assert (await ex.forks.choices(run.run_id, first.seq + 1)).request is None
        preview = await ex.forks.preview(run.run_id, first.seq, request={"messages": "x"})
        assert preview.steps == 0


PROGRAM = """
import sys, time, pathlib
import anyio
from orchestrator import Executor
from orchestrator.testing import ScriptedModel
from tests.executor.test_changed_requests import echo, letters

def slow(request):
    if request.messages[-1].content == "Hello":
        pathlib.Path(sys.argv[2]).touch()
        time.sleep(600)
    return echo(request)

async def main():
    async with Executor(sys.argv[1], graphs=[letters], model=ScriptedModel(slow), lease_ttl=1.0) as ex:
        run = await ex.start(letters, "bees", run_id="one")
        await ex.fork("one", at=2, request={"messages": "Hello"}, run_id="two")

anyio.run(main)
"""


def test_a_killed_step_is_made_again_with_the_changed_request(url: str, tmp_path: Path) -> None:
    """The process dies while the model is at it: the next one sends the same, and pauses at the same place."""
    asked = tmp_path / "asked"
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, url, str(asked)], cwd=root) as process:
        try:
            deadline = time.monotonic() + 60
            while not asked.exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGKILL)

    async def look() -> Run:
        async with executor(url) as ex:
            return await ex.load("two")

    async def go_on() -> tuple[Run, list[str]]:
        async with executor(url) as ex:
            await ex.recover()
            fork = await ex.wait("two", 60)
            return fork, [line async for line in ex.export("two")]

    while (status := anyio.run(look).status) == "running":  # until its lease has lapsed
        assert time.monotonic() < deadline + 60
    assert status == "interrupted"
    fork, exported = anyio.run(go_on)
    assert (fork.status, fork.values["draft"]) == ("paused", "<Hello>")
    again = [one for one in calls(fork) if one.key == calls(fork)[-1].key]
    assert [one.again for one in again] == [False, True]
    assert any('"asked"' in line for line in exported)
