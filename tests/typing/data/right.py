"""A user's program without mistakes: both checkers, at their strictest, find nothing in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict, assert_type

from pydantic import BaseModel

from orchestrator import (
    AnyQuestion,
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    Outcome,
    Question,
    Run,
    Update,
    append,
    extend,
    node,
    replace,
)
from orchestrator.graph import Extend, Node, Replace
from orchestrator.nodes import Confirm


class Essay(BaseModel):
    """The state."""

    topic: str
    drafts: Annotated[list[str], append] = []
    score: float = 0
    feedback: str = ""


class EssayUpdate(TypedDict, total=False):
    """What updates may hold, for type checkers: of `drafts` one more, some more, or all."""

    topic: str
    drafts: str | Extend[str] | Replace[list[str]]
    score: float
    feedback: str


class Library(BaseModel):
    """What the nodes get as `ctx.deps`."""

    url: str


@dataclass
class Reader:
    """What the nodes get as `ctx.context`."""

    name: str


@node
async def write(state: Essay, ctx: Context) -> Update:
    reply = await ctx.model.complete(f"Write about {state.topic}. {state.feedback}")
    return {"drafts": reply.text}


@node(timeout=20, writes=("drafts", "feedback"))
async def look_up(state: Essay, ctx: Context[Library]) -> EssayUpdate:
    found = await ctx.effect("look up", fetch, ctx.deps.url, state.topic, returns=list[str])
    assert_type(found, list[str])
    return {"drafts": extend(found), "feedback": ""}


@node
async def greet(state: Essay, ctx: Context[Library, Reader]) -> EssayUpdate:
    assert_type(ctx.context, Reader)
    assert_type(ctx.deps, Library)
    assert_type(ctx.labels["language"], str)
    return {"feedback": ctx.context.name}


async def fetch(url: str, topic: str) -> list[str]:
    return [url, topic]


@node(effect="pure")
def forget(state: Essay) -> EssayUpdate | None:
    return {"drafts": replace(["first"])} if state.drafts else None


@node
def grade(state: Essay) -> Outcome[Literal["good", "retry"]]:
    score = min(len(state.drafts[-1]) / 100, 1)
    return Outcome("good" if score > 0.5 else "retry", score=score)


@node
def judge(state: Essay) -> Outcome[Literal["good", "retry"], EssayUpdate]:
    if not state.drafts:
        return Outcome("retry")
    return Outcome("good" if state.score > 0.5 else "retry", EssayUpdate(feedback="longer"))


class Shorten(Node, outcomes=("done",)):
    """A node kind of the user's."""

    by: int = 10

    async def run(self, state: Essay, ctx: Context[Library]) -> EssayUpdate:
        return {"drafts": state.drafts[-1][: -self.by]}


essay = Graph(
    name="essay",
    state=Essay,
    input="topic",
    nodes={
        "write": write,
        "look_up": look_up,
        "forget": forget,
        "grade": grade,
        "judge": judge,
        "shorten": Shorten(by=3),
        "publish": Confirm(prompt="Publish?", show=("drafts",)),
    },
    edges="""
        START   -> look_up -> forget -> write -> grade
        grade   -> write    : retry
        grade   -> judge    : good
        judge   -> shorten  : retry
        judge   -> publish  : good
        shorten -> publish
        publish -> END      : approved
        publish -> write    : denied
    """,
    output="drafts",
)
assert_type(essay, Graph[Essay])
assert_type(essay.with_limits(steps=3), Graph[Essay])


def test_nodes_are_called_like_their_functions() -> None:
    assert_type(forget(Essay(topic="tea")), EssayUpdate | None)
    assert_type(grade(Essay(topic="tea", drafts=["x"])).update["score"], object)
    assert_type(judge(Essay(topic="tea")).name, Literal["good", "retry"])


def score_of(run: Run[Essay]) -> float:
    return run.state.score


def name_of(graph: Graph) -> str:
    return graph.name


def prompt_of(question: Question) -> str:
    return f"{question.kind}: {question.prompt}, {question.payload.get('drafts')}"


def answer_to(question: AnyQuestion) -> Approve | Deny | str:
    if question.kind == "approval":
        payload = question.payload
        if "tool" not in payload or "args" not in payload:
            return Approve() if "shown" in payload and payload["shown"]["drafts"] else Deny(reason="nothing is written")
        assert_type(payload["args"], dict[str, object])
        return Approve(args={**payload["args"], "quick": True}) if payload.get("risk") == "read" else Deny()
    if question.kind == "unknown_outcome":
        return "retry" if question.payload["attempt"] < 3 and question.payload["why"] == "timeout" else "failed"
    if question.kind == "input":
        return str(question.payload["drafts"])
    return prompt_of(question)


async def main() -> None:
    run = await essay.run("tea", deps=Library(url="https://example.org"))
    assert_type(run, Run[Essay])
    assert_type(run.state, Essay)
    assert_type(run.output_as(list[str]), list[str])
    assert_type(run.at(3).state.drafts, list[str])
    print(score_of(run), name_of(essay), [answer_to(question) for question in run.waiting])

    async def notify(run: Run, seq: int) -> None:
        print(run.status, seq)

    def count(run: Run, seq: int) -> None:
        print(run.usage.calls, seq)

    made = Executor(observers=[notify, count], on_pause=notify, contexts=lambda info: Reader(info.labels["user"]))
    assert_type(made, Executor)
    async with Executor(graphs=[essay], streams="always") as executor:
        assert_type(await executor.start(essay, {"topic": "tea"}), Run[Essay])
        assert_type(await executor.answer("a run", "question", Approve(), background=True), Run)
        await executor.start(essay, "tea", context=Reader("ann"), pause_before={"look_up"})
        async with executor.stream(run_id="a run", answers={"question": Approve()}, context=Reader("ann")) as again:
            assert_type(again.run.status, str)
        async with executor.stream(essay, "tea") as live:
            async for event in live:
                print(event.type)
            assert_type(live.run, Run[Essay])
        found: Run[Essay] = await executor.load("a run")
        print(score_of(found))
        for question in found.waiting:
            await executor.answer(found.run_id, question.id, answer_to(question))
        by_name = await executor.start("essay", "tea")
        print(score_of(by_name))

    loaded = Graph.load("essay.yaml")
    print(loaded.run_sync("tea").state.whatever)
