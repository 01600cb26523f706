"""Runs that ask a model twice, to be compared and replayed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from orchestrator import Context, Graph, Update, node
from orchestrator.graph import Usage
from orchestrator.models import Reply
from orchestrator.testing import ScriptedModel

TEXT = (
    "A short guide for people who have never made it before, in words that a child can follow, "
    "with what you need, how long it takes, and what to do when it goes wrong."
)


class Essay(BaseModel):
    """The state."""

    topic: str = ""
    style: str = TEXT
    text: str = ""


def writing(prompt: str = "Write about", name: str = "writing") -> Graph:
    """Two calls of a model, the second about the reply to the first."""

    @node
    async def draft(state: Essay, ctx: Context) -> Update:
        return {"text": (await ctx.model.complete(f"{prompt} {state.topic}.\n\n{state.style}")).text}

    @node
    async def polish(state: Essay, ctx: Context) -> Update:
        return {"text": (await ctx.model.complete(f"Polish this:\n{state.text}")).text}

    @node(effect="pure")
    async def check(state: Essay) -> None:
        return None

    return Graph(
        name=name, state=Essay, input="topic", output="text", nodes={"check": check, "draft": draft, "polish": polish},
        edges="START -> check -> draft -> polish -> END",
    )  # fmt: skip


def model() -> ScriptedModel:
    """A model whose reply follows from what it was asked."""

    def said(request: Any) -> Reply:
        text = str(request.messages[-1].content)
        usage = Usage(input_tokens=len(text), output_tokens=40, cost=len(text) / 10_000)
        if text.startswith("Polish"):
            return Reply(text=f"Polished: {text.partition(chr(10))[2]}", usage=usage)
        return Reply(text=f"An essay that answers: {text.partition('.')[0]}", usage=usage)

    return ScriptedModel(said)
