"""A graph whose parts can be imported, as a user's module would have it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.graph import Limits, Node, Outcome, Port, Retry, Update, append, node


class Essay(BaseModel):
    topic: str
    drafts: Annotated[list[str], append] = []
    score: float = 0
    feedback: str = ""


@node
async def write(state: Essay) -> Update:
    return {"drafts": f"About {state.topic}. {state.feedback}"}


@node(retry=Retry(attempts=5))
def grade(state: Essay) -> Outcome[Literal["good", "retry"]]:
    score = min(len(state.drafts[-1]) / 100, 1)
    return Outcome("good" if score > 0.5 else "retry", score=score)


def plain(state: Essay) -> Update:
    return {"feedback": "none"}


class Ask(Node, kind="ask_sample", outcomes=("approved", "denied")):
    """A kind of the user's."""

    prompt: str
    reason: Annotated[str | None, Port(str)] = None

    async def run(self, state: Essay, ctx: object) -> Outcome[str]:
        return Outcome("approved")


def make(**changes: object) -> Graph:
    options: dict[str, object] = {
        "name": "essay",
        "state": Essay,
        "input": "topic",
        "nodes": {"write": write, "grade": grade, "publish": Ask(prompt="Publish?\nReally?", reason="feedback")},
        "edges": """
            START   -> write -> grade
            grade   -> write    : retry
            grade   -> publish  : good
            publish -> END      : approved
            publish -> write    : denied
        """,
        "output": "drafts",
        "limits": Limits(steps=20, seconds=60),
    }
    return Graph(**{**options, **changes})  # type: ignore[arg-type]
