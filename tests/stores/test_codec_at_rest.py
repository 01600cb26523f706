"""What lies in a SQLite file, and in its log, after runs of all kinds with a codec: nothing that they said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Deny, Executor, Graph, Limits, Outcome, Update, Value, append, node, tool
from orchestrator.executor.schedules import fire_due
from orchestrator.models.base import ModelRequest
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.nodes import Ask, Wait
from orchestrator.stores import open_store
from orchestrator.stores.codec import AESGCMCodec, Codec
from orchestrator.stores.requests import RunQuery
from orchestrator.strategies.plan_and_solve import plan_and_solve
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio

KEY = bytes(range(32))
SECRETS = {
    name: f"zq{number}{name}7x".encode()
    for number, name in enumerate(
        (
            "question", "thought", "argument", "result", "answer", "reason", "error", "remembered", "found", "looped",
            "prompted", "replied", "sent", "payload", "scheduled", "forked", "planned", "emitted", "cached", "posted",
            "faulty", "stopper",
        )
    )
}  # fmt: skip
"""Where a word is planted -> the word."""
CLEAR = b"zqlabel7x"


def word(name: str) -> str:
    return SECRETS[name].decode()


class Notes(BaseModel):
    text: str = ""
    n: int = 0
    log: Annotated[list[str], append] = []
    event: dict[str, str] = {}


@tool(risk="read")
def look(what: str) -> str:
    """Look something up."""
    return word("result")


@tool(risk="dangerous")
def pay(to: str) -> str:
    """Pay."""
    return word("result")


@node
def fail(state: Notes) -> Update:
    """Fails with what it was given."""
    raise ValueError(f"cannot use {word('error')}")


@node
async def remember(state: Notes, ctx: Context) -> Update:
    """Writes to memory, and searches it."""
    await ctx.memory.put(("users", "42"), "likes", {"drink": word("remembered")})
    (found,) = await ctx.memory.search(("users",), word("remembered"))
    assert found.value == {"drink": word("remembered")}
    await ctx.emit("said", {"text": word("emitted")})
    return {"text": word("found")}


@node(cache=3600)
def slow(state: Notes) -> Update:
    """Has its result kept."""
    return {"text": word("cached")}


@node(outcomes=("again", "enough"))
def loop(state: Notes) -> Outcome:
    """Goes round, so that there are snapshots."""
    outcome = "again" if state.n < 60 else "enough"
    return Outcome(outcome, n=state.n + 1, log=f"{word('looped')} {state.n}")


FAILING = Graph(name="failing", state=Notes, nodes={"fail": fail}, edges="START -> fail -> END", input="text")
MEMORY = Graph(
    name="memory", state=Notes, nodes={"remember": remember, "slow": slow}, edges="START -> remember -> slow -> END",
    input="text", output="text",
)  # fmt: skip
LOOPING = Graph(
    name="looping", state=Notes,
    nodes={
        "loop": loop,
        "ask": Ask(prompt="What about {text}?", answer="text", show=("text", "n", "log")),
        "wait": Wait(event="paid", into="event"),
    },
    edges="START -> loop\nloop -> loop : again\nloop -> ask : enough\nask -> wait -> END", output="text",
    limits=Limits(steps=200),
)  # fmt: skip


def reply(request: ModelRequest) -> str | Reply:
    """Call both tools, then answer."""
    said = [one.role for one in request.messages]
    if "tool" in said:
        return f"{word('thought')}\n{word('answer')}"
    calls = [
        ToolCall(id="1", name="look", arguments={"what": word("argument")}),
        ToolCall(id="2", name="pay", arguments={"to": word("argument")}),
    ]
    return Reply(text=word("thought"), tool_calls=(*calls,))


async def live(url: str, codec: Codec | None) -> None:
    """Runs of all kinds in one store."""
    graphs = [FAILING, MEMORY, LOOPING, react(confirm="write")]
    with ScriptedModel(reply) as model:
        async with Executor(url, graphs=graphs, model=model, tools=[look, pay], codec=codec) as ex:
            for decision in (Approve(args={"to": word("argument")}), Deny(reason=word("reason"))):
                run = await ex.start("react", word("question"), labels={"team": CLEAR.decode()})
                assert run.status == "paused", run.error
                run = await ex.answer(run.run_id, run.waiting[0].id, decision)
                assert run.status == "completed", run
            assert (await ex.start("failing", word("question"))).status == "failed"
            assert (await ex.start("memory", word("question"))).output == word("cached")
            paused = await ex.start(LOOPING, {"text": word("prompted")}, run_id="l")
            assert (paused.status, paused.waiting[0].kind) == ("paused", "input")
            fork = await ex.fork("l", update={"text": word("forked")}, answers={}, start=False)
            assert fork.status == "paused"
            waiting = await ex.answer("l", paused.waiting[0].id, Value(value=word("replied")))
            assert waiting.waiting[0].kind == "event"
            done = await ex.send("l", "paid", {"order": word("sent")})
            assert done.status == "completed"
            await ex.cancel(fork.run_id, reason=word("stopper"))
            await ex.schedules.put(MEMORY, "* * * * *", {"text": word("scheduled")}, name="s")
            await fire_due(ex._host)
            await ex.enqueue(FAILING, {"text": word("payload")}, run_id="queued")
    with ScriptedModel(lambda request: f"1. {word('planned')}") as model:
        async with Executor(url, graphs=[plan_and_solve()], model=model, tools=[look], codec=codec) as ex:
            await ex.start("plan_and_solve", word("question"))
    store = open_store(url, codec=codec)
    try:
        from orchestrator.stores import Lease

        assert await store.take_lease(Lease("queued", "token", "holder"), ttl=30)
        await store.drop_lease("queued", "token", fault=f"ValueError: {word('faulty')}")
        body = {"type": "event", "name": "other", "data": {"is": word("posted")}, "id": "1"}
        await store.post("queued", body)
        assert [one.body for one in await store.inbox(["queued"])] == [body]
        assert word("faulty") in (await store.info("queued")).fault
        assert (await store.runs(RunQuery(search=word("question")))).runs == () or codec is None
        assert len((await store.runs(RunQuery(search=CLEAR.decode()))).runs) == 2
    finally:
        await store.close()


def raw(folder: Path) -> Mapping[str, bytes]:
    """The bytes of all files of a folder."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def planted(folder: Path) -> dict[str, list[str]]:
    """Where a planted word stands in the clear, also in base64 or hex digits -> its names."""
    found: dict[str, list[str]] = {}
    for file, data in raw(folder).items():
        for name, secret in SECRETS.items():
            if secret in data or secret.hex().encode() in data or secret.decode().encode("utf-16-le") in data:
                found.setdefault(file, []).append(name)
    return found


@pytest.mark.full
@quick_on("asyncio")
async def test_no_word_of_a_run_lies_in_the_file_or_its_log(tmp_path: Path) -> None:
    clear, coded = tmp_path / "clear", tmp_path / "coded"
    for folder in (clear, coded):
        folder.mkdir()
    holder = open_store(f"sqlite:///{clear}/runs.db")  # as long as it is open, the log stays
    other = open_store(f"sqlite:///{coded}/runs.db")
    try:
        for store in (holder, other):
            await store.put_graph("opens the file", {})
        await live(f"sqlite:///{clear}/runs.db", None)
        await live(f"sqlite:///{coded}/runs.db", AESGCMCodec({"k1": KEY}))
        names = set(raw(coded))
        assert {"runs.db", "runs.db-wal"} <= names
        there = set().union(*planted(clear).values())
        assert there == set(SECRETS) - {"emitted"}, "without a codec each word is found, so the search works"
        assert planted(coded) == {}
        assert any(CLEAR in data for data in raw(coded).values()), "labels stay clear"
        assert not any(KEY in data or KEY.hex().encode() in data for data in raw(coded).values())
    finally:
        await holder.close()
        await other.close()
    assert planted(coded) == {}
