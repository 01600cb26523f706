"""Runs to make pages of: real ones, with everything in them that a page shows, and with what strangers may say."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Limits, Outcome, Retry, Update, append, extend, node, tool
from orchestrator import merge as merged
from orchestrator.executor import Run
from orchestrator.models.messages import Message
from orchestrator.nodes import ITEM, Confirm, Subgraph
from orchestrator.testing import MockClock, ScriptedModel

EVIL = (
    "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'> \u202edlrow\x1b[31m <b>bold</b> ]]>"
)
SECRET = "sk-abcdefghijklmnop1234567890"


class Inner(BaseModel):
    query: str = ""
    notes: Annotated[list[str], append] = []


class Tour(BaseModel):
    question: str = ""
    parts: list[str] = []
    notes: Annotated[list[str], extend] = []
    found: Annotated[dict[str, Any], merged] = {}
    password: str = ""
    big: int = 0
    score: float = 0
    talk: str = ""


@tool(risk="read", effect="read")
def look(topic: str) -> str:
    """Look something up."""
    return f"about {topic}: {EVIL} {SECRET}"


@node
async def plan(state: Tour, ctx: Context[object]) -> Update:
    reply = await ctx.model.complete([Message(role="system", content="Be brief."), Message(role="user", content=EVIL)])
    return {"parts": ["one", "two", "three"], "talk": reply.text, "password": "hunter2hunter2", "big": 2**60 + 1}


@node
async def search(state: Inner, ctx: Context[object]) -> Update:
    return {"notes": str((await ctx.tool("look", topic=state.query)).output)}


@node(effect="pure", outcomes=("good", "more"))
def grade(state: Tour) -> Outcome[str]:
    score = state.score + 0.5
    return Outcome("good" if score >= 1 else "more", score=score, found={f"score {score}": score})


@node(effect="pure")
def again(state: Tour) -> Update:
    return {"notes": ["again"], "talk": state.talk + " and more"}


class Shaky:
    """Fails the first time."""

    def __init__(self) -> None:
        self.tries = 0


def tour() -> Graph:
    """A map over a graph inside, a join, a loop, a retry, a question."""
    shaky = Shaky()

    @node(retry=Retry(attempts=3, wait=0.01, on=("ValueError",)), effect="pure")
    def write(state: Tour) -> Update:
        shaky.tries += 1
        if shaky.tries == 1:
            raise ValueError(f"not yet {EVIL}")
        return {"found": {"written": True}}

    inside = Graph(
        name="inside",
        state=Inner,
        input="query",
        nodes={"search": search},
        edges="START -> search -> END",
        output="notes",
    )
    return Graph(
        name="tour",
        state=Tour,
        input="question",
        nodes={
            "plan": plan,
            "look": Subgraph(inside, inputs={"query": ITEM}, outputs={"notes": "notes"}),
            "grade": grade.with_(join="all"),
            "again": again,
            "write": write,
            "publish": Confirm(prompt=f"Publish {EVIL}?", show=("score", "password")),
        },
        edges="""
            START -> plan
            plan -> look : each parts
            look -> grade
            grade -> again : more
            again -> grade
            grade -> write : good
            write -> publish
            publish -> END : approved
            publish -> again : denied
        """,
        output="notes",
        limits=Limits(steps=100),
    )


async def run_tour(url: str, run_id: str = "tour", *, answer: bool = True) -> Run:
    """A run of it, found again by a process that has no code."""
    model = ScriptedModel({"plan": [f"I say {EVIL}"]})
    made = tour()
    async with Executor(store=url, graphs=[made], model=model, tools=[look]) as ex:
        run = await ex.start(made, {"question": f"What? {EVIL}"}, run_id=run_id, labels={"by": EVIL})
        if answer:
            await ex.answer(run_id, run.waiting[0].id, Approve(), by=f"ann {EVIL}")
    async with Executor(store=url) as ex:
        return await ex.load(run_id)


@node
def breaks(state: Inner) -> Update:
    raise ValueError(f"broken {SECRET}")


@node(effect="pure")
def mends(state: Inner) -> Update:
    return {"notes": "mended"}


async def run_mended(url: str) -> Run:
    """A step fails, and an edge takes that."""
    made = Graph(
        name="mended",
        state=Inner,
        nodes={"breaks": breaks, "mends": mends},
        edges="START -> breaks -> mends : error\nbreaks -> END\nmends -> END",
    )
    async with Executor(store=url, graphs=[made]) as ex:
        return await ex.start(made, {}, run_id="mended")


def price_of(thing: str) -> str:
    return {"tea": "2"}[thing]


@node(effect="pure")
def begins(state: Inner) -> Update:
    return {}


@node
async def looks_up(state: Inner) -> Update:
    await anyio.sleep(0.02)
    return {"notes": price_of(state.query)}


@node
async def waits_long(state: Inner) -> Update:
    await anyio.sleep(60)
    return {}


async def run_failed(url: str) -> Run:
    """A branch fails, and the other one is dropped."""
    made = Graph(
        name="failed",
        state=Inner,
        nodes={"begins": begins, "looks_up": looks_up, "waits_long": waits_long},
        edges="START -> begins -> looks_up -> END\nbegins -> waits_long -> END",
    )
    async with Executor(store=url, graphs=[made]) as ex:
        return await ex.start(made, {"query": f"{EVIL} {SECRET}"}, run_id="failed")


class Count(BaseModel):
    n: int = 0
    seen: Annotated[list[str], append] = []


@node(effect="pure", outcomes=("more", "done"))
def count(state: Count) -> Outcome[str]:
    return Outcome("more" if state.n + 1 < STEPS[0] else "done", n=state.n + 1, seen=f"number {state.n}")


STEPS = [50]
"""How many steps `run_count` takes."""


async def run_count(url: str, steps: int) -> Run:
    """So many steps, each of which adds to a list."""
    STEPS[0] = steps
    made = Graph(
        name="count",
        state=Count,
        nodes={"count": count},
        edges="START -> count -> count : more\ncount -> END : done",
        limits=Limits(steps=steps + 1),
    )
    async with Executor(store=url, graphs=[made]) as ex:
        return await ex.start(made, {}, run_id=f"count-{steps}")


async def run_forked(clock: MockClock) -> Run:
    """A fork of a run that ended the day before."""
    graph = Graph(
        name="short", state=Tour, nodes={"first": again, "second": again}, edges="START -> first -> second -> END"
    )
    async with Executor(graphs=[graph], clock=clock) as executor:
        await executor.start(graph, {}, run_id="parent")
        await anyio.sleep(86_400)
        return await executor.fork("parent", at=2, run_id="fork")
