"""Graphs and models of the tests of evaluations. Commands load them from this file."""

from __future__ import annotations

from typing import Annotated

import anyio.lowlevel
from pydantic import BaseModel

from orchestrator import Context, Graph, append, node
from orchestrator.graph.limits import Usage
from orchestrator.models import ModelRequest, Reply
from orchestrator.models.base import WordsModel
from orchestrator.models.prices import Price


class Asked(BaseModel):
    """The state of the graphs."""

    question: str = ""
    answer: str = ""
    words: Annotated[list[str], append] = []


def _asking(prompt: str, field: str = "answer"):  # type: ignore[no-untyped-def]
    @node
    async def ask(state: Asked, ctx: Context) -> dict[str, str]:
        return {field: (await ctx.model.complete(f"{prompt} {state.question}")).text}

    return ask


@node(effect="pure")
async def choose(state: Asked) -> dict[str, str]:
    """Take the first of several answers."""
    return {"answer": sorted(state.words)[0]}


def direct(prompt: str = "Answer:", name: str = "direct") -> Graph:
    """One call."""
    return Graph(
        name=name, state=Asked, input="question", output="answer", nodes={"ask": _asking(prompt)},
        edges="START -> ask -> END",
    )  # fmt: skip


def refined() -> Graph:
    """Two calls, one after the other."""
    return Graph(
        name="refined", state=Asked, input="question", output="answer",
        nodes={"ask": _asking("Draft:"), "refine": _asking("Refine:")}, edges="START -> ask -> refine -> END",
    )  # fmt: skip


def voted() -> Graph:
    """Two calls at the same time."""
    return Graph(
        name="voted", state=Asked, input="question", output="answer",
        nodes={"a": _asking("One:", "words"), "b": _asking("Two:", "words"), "c": choose.with_(join="all")},
        edges="START -> a, b -> c -> END",
    )  # fmt: skip


def checked() -> Graph:
    """Two calls, the second about the question alone."""
    return Graph(
        name="checked", state=Asked, input="question", output="answer",
        nodes={"ask": _asking("First:", "words"), "check": _asking("Check:")}, edges="START -> ask -> check -> END",
    )  # fmt: skip


class Counted(WordsModel):
    """Repeats the last word of a request for a price of 1, counts requests, and fails or errs when it is told to."""

    takes_seed = True

    def __init__(self, name: str = "counted", *, priced: bool = True, wrong: str = "") -> None:
        self.name, self.wrong = name, wrong
        self.requests: list[ModelRequest] = []
        if not priced:
            self.price: Price | None = None

    async def respond(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        await anyio.lowlevel.checkpoint()
        word = request.messages[-1].content.split()[-1]
        if word == "fail":
            raise ValueError("told to fail")
        text = "wrong" if word in self.wrong.split() else word
        return Reply(text=text, usage=Usage(input_tokens=1, output_tokens=1, cost=1.0), model=self.name)
