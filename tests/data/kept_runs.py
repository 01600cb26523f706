"""Kept stores: runs of every strategy in every status, and of a few graphs at every place where a run can be.

`python -m tests.data.kept_runs VERSION` writes the files of a release, with its code, into `releases/VERSION`. They are
never written again by later code: what they hold must still open, fold and go on. `VERSION.devN` is a state before a
release. This module names the runs, and has what they need to go on.

- `runs.db.xz`: a SQLite store.
- `runs.sql.xz`: the same runs in a PostgreSQL store, as `pg_dump` writes it.
- `archive.tar.xz`: a SQLite store, `runs.db`, and the archive of some of its runs, `archive/`.
- `runs.jsonl.xz`: an export.
- `graphs.json.xz`: all strategies in YAML, by their names.

`EARLIER`, the files `kept_*` beside this module, is from before the first release: schema version 7 of SQLite files and
4 of databases, without notes, graphs in YAML and the strategies of `LATER`.

Runs of strategies, and of graphs inside graphs, are named `GRAPH-STATUS`:

- `completed`, `failed`, `cancelled`, `exhausted`;
- `approval`, `input`, `unknown`: paused by a question of that kind; the last one is about a call that was under way
  when the process was killed;
- `interrupted`: killed in the middle of a call;
- `answered`: answered, and nobody resumed it;
- `message`: killed, and then somebody asked it to pause: the message was never read;
- `reopened`: it failed, and then came to its end.

A strategy that calls no tools is in fewer of them. Of `code_act`, which releases have, `approval` and `call` are at a
call inside a block of code: one asks, the other was killed in it. `ERRANDS` names the runs of the graph `errand`.
"""

from __future__ import annotations

import json
import lzma
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import anyio
from pydantic import BaseModel

from orchestrator import Approve, Context, Deny, Executor, Graph, Limits, Tool, Update, append, node, tool
from orchestrator.errors import ModelError
from orchestrator.executor import Seal
from orchestrator.graph import Migration
from orchestrator.models import OfflineModel
from orchestrator.nodes import ITEM, Confirm, Sleep, Subgraph, Wait
from orchestrator.stores import open_store
from orchestrator.testing import ScriptedModel
from tests.support.postgres import PostgresServer, programs

RELEASES = Path(__file__).with_name("releases")


@dataclass(frozen=True)
class Kept:
    """The files that one release wrote."""

    store: Path
    database: Path
    archive: Path
    export: Path
    graphs: Path | None = None


def release(version: str) -> Kept:
    """The files of a release."""
    names = ("runs.db", "runs.sql", "archive.tar", "runs.jsonl", "graphs.json")
    return Kept(*(RELEASES / version / f"{name}.xz" for name in names))


STORE = Path(__file__).with_name("kept_runs.db.xz")
DATABASE = STORE.with_name("kept_runs.sql.xz")
EARLIER = Kept(STORE, DATABASE, STORE.with_name("kept_archive.tar.xz"), STORE.with_name("kept_runs.jsonl.xz"))
KEPT = {"before": EARLIER, **{one.name: release(one.name) for one in sorted(RELEASES.glob("*"))}}
"""Release -> its files."""
SEAL = Seal(b"k" * 32, "kept")
"""The key of the runs `errand-sealed` and `errand-sealed_fork`."""
QUESTION = "What is 12 * 7 + 3?"
ANSWER = "87"
CALLING = ("chat", "function_call", "function_call_agent", "plan_and_solve", "react", "rewoo", "tool_user")
STRATEGIES = (*CALLING, "plan_and_solve_prompt")
LATER = (
    "code_act", "evaluator_optimizer", "llm_compiler", "orchestrator_workers", "plan_and_execute", "reflexion",
    "router", "self_ask", "self_consistency", "supervisor", "swarm", "tree_of_thoughts",
)  # fmt: skip
"""Strategies with runs in releases only: `completed`, `exhausted` and `interrupted`."""
INSIDE = ("over_words", "delegating")
"""A map over a graph inside with a join, and a graph that calls another one as a tool."""


def strategy(name: str) -> Graph:
    """A strategy with its defaults."""
    graph = import_module(f"orchestrator.strategies.{name}").graph
    assert isinstance(graph, Graph)
    return graph


# -- tools ----------------------------------------------------------------------------------------------------------


@tool(risk="write", effect="idempotent")
async def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The number to add to it.
    """
    return a + b


async def _multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    if hanging:
        hanging.append("a call")
        await anyio.sleep(3600)
    return a * b


async def _asks(a: float, b: float, ctx: Context[Any]) -> float:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    await ctx.ask("input", prompt=f"May I multiply {a:g} by {b:g}?")
    return a * b


hanging: list[str] = []
"""What hangs; empty: nothing is to hang."""
REPEATED = tool(name="multiply", risk="write", effect="idempotent")(_multiply)
ONCE = tool(name="multiply", risk="write", effect="irreversible")(_multiply)
ASKING = tool(name="multiply", risk="none", effect="idempotent")(_asks)


def tools_of(status: str) -> list[Tool]:
    """The tools of the runs in a status."""
    return [add, {"input": ASKING, "unknown": ONCE}.get(status, REPEATED)]


class Hanging(OfflineModel):
    """A model that never replies."""

    async def respond(self, request: Any) -> Any:
        hanging.append("a reply")
        await anyio.sleep(3600)


# -- graphs inside --------------------------------------------------------------------------------------------------


class Finding(BaseModel):
    """What the graph inside holds."""

    query: str = ""
    found: Annotated[list[str], append] = []


class Words(BaseModel):
    """What the graph around it holds."""

    words: list[str] = []
    log: Annotated[list[list[str]], append] = []


class Delegating(BaseModel):
    """What the graph that calls it as a tool holds."""

    question: str = ""
    answer: str = ""


@node
async def find(state: Finding, ctx: Context) -> Update:
    """Multiply."""
    return {"found": f"{state.query} {(await ctx.tool('multiply', a=6, b=7)).output}"}


@node
async def plan() -> None:
    """The fork of the map."""


@node(join="all")
async def gather() -> None:
    """Its join."""


@node
async def delegate(state: Delegating, ctx: Context) -> Update:
    """Call the graph."""
    return {"answer": str((await ctx.tool("finding", query=state.question)).output)}


FINDING = Graph(
    name="finding",
    state=Finding,
    input="query",
    nodes={"find": find, "sure": Confirm(prompt="Sure?")},
    edges="START -> find -> sure -> END : approved\nsure -> find : denied",
    output="found",
)
OVER_WORDS = Graph(
    name="over_words",
    state=Words,
    nodes={
        "plan": plan,
        "search": Subgraph(FINDING, inputs={"query": ITEM}, outputs={"log": "found"}),
        "gather": gather,
    },
    edges="START -> plan -> search : each words\nsearch -> gather -> END",
    output="log",
)
DELEGATING = Graph(
    name="delegating",
    state=Delegating,
    input="question",
    nodes={"delegate": delegate},
    edges="START -> delegate -> END",
    output="answer",
)
FOUND = FINDING.as_tool("finding", "Finds something.", risk="none")


# -- a graph that waits for everything ------------------------------------------------------------------------------


class Errand(BaseModel):
    """What it holds."""

    what: str = ""
    until: str = "2020-01-01T00:00:00Z"
    note: str = ""
    parcel: dict[str, str] = {}
    log: Annotated[list[str], append] = []


@node
async def remember(state: Errand, ctx: Context) -> Update:
    """Remember it across runs, and write a long text."""
    await ctx.memory.put(("kept", "ann"), state.what, {"errand": state.what}, text=f"an errand: {state.what}")
    return {"log": "remembered", "note": "a long text " * 4000 if state.what == "long" else ""}


@node(cache=10 * 365 * 86400, effect="pure")
async def last(state: Errand) -> Update:
    """Its result is kept for other runs."""
    return {"log": f"{state.what}: {state.parcel.get('content')}"}


def errand(asks: str = "sure") -> Graph:
    """The graph; in its former version the node that asks had another name."""
    return Graph(
        name="errand",
        state=Errand,
        nodes={
            "remember": remember,
            asks: Confirm(prompt="Really {what}?", show=("what", "log")),
            "wait": Wait(event="parcel", into="parcel"),
            "rest": Sleep(until="until"),
            "last": last,
        },
        edges=f"START -> remember -> {asks} -> wait : approved\n{asks} -> END : denied\nwait -> rest -> last -> END",
        output="log",
        migrations=[Migration(nodes={"ask": "sure"})] if asks == "sure" else [],
    )


ERRAND = errand()
LATE = "2100-01-01T00:00:00Z"
ERRANDS = {
    "completed": "completed",
    "long": "completed",
    "sealed": "completed",
    "sealed_fork": "paused",
    "approval": "paused",
    "event": "paused",
    "timer": "paused",
    "breakpoint": "paused",
    "paused": "paused",
    "enqueued": "running",
    "fork": "paused",
    "unstarted": "paused",
    "replay": "completed",
    "migrated": "paused",
    "unmigrated": "paused",
    "denied": "completed",
}
"""Place of a run of this graph -> its status. `timer` waits until 2100, `unmigrated` is a run of the former version."""


async def errands(url: str) -> None:
    """Write these runs, schedules and items."""
    async with Executor(url, graphs=[errand("ask")]) as executor:
        for place in ("migrated", "unmigrated"):
            await executor.start("errand", {"what": "move"}, run_id=f"errand-{place}")
    async with Executor(url, graphs=[ERRAND]) as executor:
        await executor.resume("errand-migrated")
    async with Executor(url, graphs=[ERRAND], idle="sleep") as executor:  # one that is awake waits for timers
        for place in ("completed", "long", "event", "timer", "breakpoint", "approval", "paused", "denied"):
            given: dict[str, Any] = {"pause_before": {"last"}} if place == "breakpoint" else {}
            values = {"what": place, **({"until": LATE} if place == "timer" else {})}
            run = await executor.start("errand", values, run_id=f"errand-{place}", labels={"place": place}, **given)
            if place == "denied":
                await executor.answer(run.run_id, run.waiting[0].id, Deny(reason="too far"), by="ann")
            elif place == "paused":
                await executor.pause(run.run_id, by="ann", reason="lunch")
            elif place != "approval":
                await executor.answer(run.run_id, run.waiting[0].id, Approve(), by="ann")
            if place in ("completed", "long", "timer", "breakpoint"):
                await executor.send(run.run_id, "parcel", {"content": "books"}, id="p1", by="post")
        await executor.enqueue("errand", {"what": "later"}, run_id="errand-enqueued")
        at = next(one.seq for one in await executor.store.read("errand-completed") if one.type == "answered")
        await executor.fork("errand-completed", at=at, run_id="errand-fork", update={"what": "other"}, by="ann")
        await executor.fork("errand-completed", at=at, run_id="errand-unstarted", start=False)
        await executor.replay("errand-completed", replay_id="errand-replay")
        await executor.schedules.put("errand", "0 0 1 1 *", {"what": "yearly"}, name="yearly", timezone="Europe/Vienna")
        await executor.schedules.put("errand", "0 0 1 2 *", {"what": "paused"}, name="paused", catch_up="all")
        await executor.schedules.pause("paused")
        await executor.memory.put(("kept", "bob"), "tea", {"likes": "tea"}, text="bob likes tea")
    async with Executor(url, graphs=[ERRAND], seal=SEAL) as executor:
        run = await executor.start("errand", {"what": "sealed"}, run_id="errand-sealed")
        await executor.answer(run.run_id, run.waiting[0].id, Approve(), by="ann")
        await executor.send(run.run_id, "parcel", {"content": "letters"})
        at = next(one.seq for one in await executor.store.read("errand-sealed") if one.type == "answered")
        await executor.fork("errand-sealed", at=at, run_id="errand-sealed_fork")
    async with Executor(url) as executor:
        found = {place: (await executor.load(f"errand-{place}")).status for place in ERRANDS}
        assert found == ERRANDS, {place: status for place, status in found.items() if status != ERRANDS[place]}


def graphs() -> list[Graph]:
    """All graphs of the store."""
    return [*map(strategy, (*STRATEGIES, *LATER)), OVER_WORDS, DELEGATING, ERRAND]


def graph_named(name: str) -> Graph:
    """One of them."""
    return next(graph for graph in graphs() if graph.name == name)


def input_of(name: str) -> object:
    """What its runs begin with."""
    return {"words": ["one", "two"]} if name == "over_words" else QUESTION


def opened(url: str, status: str, model: Any = None, **options: Any) -> Executor:
    """An executor that can go on with the runs in a status."""
    tools = [*tools_of(status), FOUND]
    return Executor(url, graphs=graphs(), model=model or OfflineModel(), tools=tools, **options)


def answer_to(kind: str) -> object:
    """An answer to a question of this kind."""
    return Approve() if kind == "approval" else "retry" if kind == "unknown_outcome" else "/bye"


# -- writing --------------------------------------------------------------------------------------------------------


async def killed(url: str) -> None:
    """Begin the runs that are to be killed, and be killed when all of them hang."""
    hanging.append("from now on")
    names = {status: [*CALLING, *INSIDE] for status in ("interrupted", "unknown", "message")}
    count = sum(map(len, names.values())) + len(names) + 1  # over_words hangs twice, and code_act in its code
    async with (
        opened(url, "interrupted", lease_ttl=1) as repeated,
        opened(url, "unknown", lease_ttl=1) as once,
        opened(url, "interrupted", Hanging(), lease_ttl=1) as mute,
    ):
        for status, wanted in names.items():
            for name in wanted:
                executor = once if status == "unknown" else repeated
                run_id = f"{name}-{status}"
                await executor.submit(name, input_of(name), run_id=run_id, approve="dangerous")
        await repeated.submit("code_act", QUESTION, run_id="code_act-call", approve="dangerous")
        for name in ("plan_and_solve_prompt", *LATER):
            await mute.submit(name, QUESTION, run_id=f"{name}-interrupted")
        seen = 0
        while len(hanging) < 1 + count + 1 + len(LATER) or len(hanging) > seen:  # some ask several models at once
            seen = len(hanging)
            await anyio.sleep(2)
        os.kill(os.getpid(), signal.SIGKILL)


async def write(url: str) -> None:
    """All others, and what becomes of the killed ones."""
    labels: Mapping[str, str] = {"user": "ann"}
    async with opened(url, "completed") as executor:
        for name in (*STRATEGIES, *INSIDE):
            given = {"approve": "dangerous", "labels": labels}
            run = await executor.start(name, input_of(name), run_id=f"{name}-completed", **given)
            while run.waiting:
                run = await executor.answer(run.run_id, run.waiting[0].id, answer_to(run.waiting[0].kind))
        for name in (*CALLING, *INSIDE):
            for status in ("approval", "answered", "cancelled"):
                run = await executor.start(name, input_of(name), run_id=f"{name}-{status}")
                assert run.waiting[0].kind == "approval", run
            await executor.cancel(f"{name}-cancelled", by="ann", reason="changed my mind")
            question = (await executor.load(f"{name}-answered")).waiting[0]
            await executor.answer(f"{name}-answered", question.id, Approve(), by="ann", resume=False)
        for name in LATER:
            run = await executor.start(name, QUESTION, run_id=f"{name}-completed", approve="dangerous", labels=labels)
            assert run.status == "completed", run.error
        run = await executor.start("code_act", QUESTION, run_id="code_act-approval")
        assert run.waiting[0].kind == "approval", run
        await executor.notes.write("react-completed", "a good answer", score=1.0, name="quality", by="ann")
        for name in (*STRATEGIES, *LATER, "over_words"):
            given = {"limits": Limits(steps=1 if name in LATER else 2), "approve": "dangerous"}
            await executor.start(name, input_of(name), run_id=f"{name}-exhausted", **given)
    async with opened(url, "input") as executor:
        for name in CALLING:
            run = await executor.start(name, QUESTION, run_id=f"{name}-input", approve="dangerous")
            assert run.waiting[0].kind == "input", run
    broken = ScriptedModel(lambda request: ModelError("the model is broken"))
    async with opened(url, "failed", broken) as executor:
        for name in STRATEGIES:
            await executor.start(name, QUESTION, run_id=f"{name}-failed")
        for name in ("react", "plan_and_solve_prompt"):
            await executor.start(name, QUESTION, run_id=f"{name}-reopened", approve="dangerous")
    async with opened(url, "reopened") as executor:
        for name in ("react", "plan_and_solve_prompt"):
            await executor.resume(f"{name}-reopened", retry=True)
    async with opened(url, "unknown") as executor:
        for name in (*CALLING, *INSIDE):
            run = await executor.resume(f"{name}-unknown", wait=5)
            assert run.waiting[0].kind == "unknown_outcome", run
    await errands(url)
    store = open_store(url)
    for name in (*CALLING, *INSIDE):
        await store.post(f"{name}-message", {"type": "pause", "by": "ann", "reason": "lunch"})
    await store.close()


async def exported(url: str) -> str:
    """An export of runs of each kind."""
    names = ("delegating-completed", "react-approval", "errand-fork", "errand-migrated", "errand-long", "rewoo-failed")
    async with Executor(url) as executor:
        return "".join([f"{line}\n" async for line in executor.export(names)])


async def archived(url: str, archive: str) -> None:
    """Write a store with an archive of runs that have ended."""
    async with opened(url, "archived", archive=archive) as executor:
        await executor.start("react", QUESTION, run_id="react-archived", approve="dangerous")
        await executor.start("react", QUESTION, run_id="react-approval")
        await executor.start("delegating", QUESTION, run_id="delegating-archived", approve="dangerous")
        run = await executor.load("delegating-archived")
        while run.waiting:
            run = await executor.answer(run.run_id, run.waiting[0].id, answer_to(run.waiting[0].kind))
        await executor.archive()
        await executor.start("react", QUESTION, run_id="react-completed", approve="dangerous")


def packed(data: bytes) -> bytes:
    """The same, compressed."""
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def written(url: str) -> None:
    """Write the runs to a store, the killed ones in a process of their own."""
    subprocess.run([sys.executable, "-m", "tests.data.kept_runs", "killed", url], check=False)
    anyio.run(write, url)


def dumped() -> bytes:
    """The statements that make the PostgreSQL store."""
    server = PostgresServer.make(durable=False)
    try:
        server.create_database("kept", tables=False)
        written(server.url("kept"))
        command = [programs() / "pg_dump", "--inserts", "--rows-per-insert=50", "--no-owner", "--dbname"]
        text = subprocess.run([*command, server.conninfo("kept")], check=True, capture_output=True).stdout
    finally:
        server.remove()
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith((b"\\", b"--")))


def main() -> None:
    """Write the files of a release."""
    vars(socket)["gethostname"] = lambda: "host"
    if sys.argv[1:2] == ["killed"]:
        anyio.run(killed, sys.argv[2])
        return
    kept = release(sys.argv[1])
    kept.store.parent.mkdir(parents=True)  # an error if they were written before
    with TemporaryDirectory() as folder:
        place = Path(folder)
        url = f"sqlite:///{place}/runs.db"
        written(url)
        kept.export.write_bytes(packed(anyio.run(exported, url).encode()))
        kept.store.write_bytes(packed((place / "runs.db").read_bytes()))
        kept.database.write_bytes(packed(dumped()))
        (place / "both").mkdir()
        anyio.run(archived, f"sqlite:///{place}/both/runs.db", f"{place}/both/archive")
        both = BytesIO()
        with tarfile.open(fileobj=both, mode="w") as file:
            file.add(place / "both", ".")
        kept.archive.write_bytes(packed(both.getvalue()))
        assert kept.graphs is not None
        texts = {name: strategy(name).to_yaml() for name in (*STRATEGIES, *LATER)}
        kept.graphs.write_bytes(packed(json.dumps(texts).encode()))


if __name__ == "__main__":
    main()
