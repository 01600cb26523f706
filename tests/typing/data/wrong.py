"""A user's program with the common mistakes: both checkers report each line that is marked, and no other."""

from __future__ import annotations

from typing import Literal, TypedDict

from pydantic import BaseModel

import orchestrator
from orchestrator import Context, Executor, Graph, Outcome, Run, Update, node
from orchestrator.kernel.question import AnyQuestion
from orchestrator.models import Model


class Essay(BaseModel):
    """The state."""

    topic: str
    score: float = 0


class EssayUpdate(TypedDict, total=False):
    """What updates may hold."""

    topic: str
    score: float


class Library(BaseModel):
    """What the nodes get as `ctx.deps`."""

    url: str


# -- updates and outcomes --------------------------------------------------------------------------------------------


@node
def misspelt_field(state: Essay) -> EssayUpdate:
    return {"scor": 1.0}  # E: there is no such field


@node
def wrong_value(state: Essay) -> EssayUpdate:
    return {"score": "good"}  # E: a text is no number


@node
def misspelt_field_beside_an_outcome(state: Essay) -> Outcome[Literal["good"], EssayUpdate]:
    return Outcome("good", EssayUpdate(scor=1.0))  # E: there is no such field


@node
def misspelt_field_as_a_key(state: Essay) -> Outcome[Literal["good"], EssayUpdate]:
    return Outcome("good", {"scor": 1.0})  # E: there is no such field


@node
def wrong_value_beside_an_outcome(state: Essay) -> Outcome[Literal["good"], EssayUpdate]:
    return Outcome("good", EssayUpdate(score="good"))  # E: a text is no number


@node
def keywords_beside_a_typed_outcome(state: Essay) -> Outcome[Literal["good"], EssayUpdate]:
    return Outcome("good", score=1.0)  # E: keywords are not checked: give EssayUpdate(score=1.0)


@node
def wrong_outcome(state: Essay) -> Outcome[Literal["good", "retry"]]:
    return Outcome("god", score=1.0)  # E: no such outcome is declared


@node
def wrong_typed_outcome(state: Essay) -> Outcome[Literal["good", "retry"], EssayUpdate]:
    return Outcome("god", EssayUpdate(score=1.0))  # E: no such outcome is declared


@node
def wrong_field_of_the_state(state: Essay) -> Update:
    return {"score": len(state.topc)}  # E: there is no such field


@node  # E: a node returns an outcome, an update or None
def no_result(state: Essay) -> float:
    return state.score


# -- options, calls, deps --------------------------------------------------------------------------------------------


@node(effect="idempotnt")  # E: there is no such effect
def wrong_effect(state: Essay) -> None:
    return None


@node(outcomes="good")  # E: outcomes are a tuple
def outcomes_in_a_text(state: Essay) -> Update:
    return None


@node
async def wrong_deps(state: Essay, ctx: Context[Library]) -> Update:
    return {"topic": ctx.deps.uri}  # E: there is no such attribute


@node
async def wrong_context(state: Essay, ctx: Context[Library, Essay]) -> Update:
    ctx.labels["user"] = "ann"  # E: labels are read only
    return {"topic": ctx.context.topics}  # E: there is no such attribute


@node
async def forgotten_await(state: Essay, ctx: Context[Library]) -> Update:
    reply = ctx.model.complete(state.topic)
    return {"topic": reply.text}  # E: a coroutine has no text


@node
async def wrong_result_of_an_effect(state: Essay, ctx: Context[Library]) -> EssayUpdate:
    found = await ctx.effect("count", len, state.topic, returns=int)
    return {"topic": found}  # E: a number is not a string


misspelt_field("tea")  # E: the function takes an Essay
misspelt_field()  # E: the function takes an Essay
print(misspelt_field(Essay(topic="tea")).name)  # E: an update has no name

# -- graphs and runs -------------------------------------------------------------------------------------------------

essay = Graph(name="essay", state=Essay, nodes={"work": wrong_value}, edges="START -> work -> END", output="score")
without_edges = Graph(name="essay", state=Essay, nodes={"work": wrong_value})  # E: edges are missing
instance = Graph(name="essay", state=Essay(topic="tea"), nodes={}, edges="")  # E: give the class, not a state


def of_another_state(run: Run[Library]) -> str:
    return run.state.url


async def runs() -> None:
    run = await essay.run({"topic": "tea"})
    print(run.state.scor)  # E: there is no such field
    print(run.ouput)  # E: there is no such attribute
    length: int = run.output_as(list[str])  # E: a list is no number
    of_another_state(run)  # E: it is a run of essays
    print((await essay.run_sync("tea")).status)  # E: a run cannot be awaited
    print(essay.run("tea").status)  # E: a coroutine has no status
    print(length)

    async with Executor(graphs=[essay], on_change="ignore") as executor:  # E: there is no such policy
        started = await executor.start(essay, "tea")
        print(started.state.scor)  # E: there is no such field
        await executor.start(Essay, "tea")  # E: a state is no graph


# -- questions -------------------------------------------------------------------------------------------------------


def answers(question: AnyQuestion) -> object:
    if question.kind == "aproval":  # E: there is no such kind
        return None
    if question.kind == "approval":
        print(question.payload["tol"])  # E: there is no such key
        return question.payload["args"] + 1 if "args" in question.payload else None  # E: arguments are no number
    if question.kind == "unknown_outcome":
        return question.payload["risk"]  # E: there is no such key
    if question.kind == "pause":
        return question.payload["reason"]  # E: there is no such key
    return question.payload["anything"]


misspelt = orchestrator.Grahp  # E: no such name in the package


# -- interfaces ------------------------------------------------------------------------------------------------------


class Silent(Model):
    @property
    def name(self) -> str:
        return "silent"


Silent()  # E: it has no `complete`
