"""The example of the contract, word for word, as a module."""

# fmt: off
# ruff: noqa: I001

from typing import Annotated, Literal
from pydantic import BaseModel
from orchestrator import Context, Graph, Limits, Outcome, Update, append, node
from orchestrator.nodes import Confirm

class Essay(BaseModel):
    topic: str
    drafts: Annotated[list[str], append] = []
    score: float = 0
    feedback: str = ""

@node
async def write(state: Essay, ctx: Context) -> Update:
    reply = await ctx.model.complete(f"Write about {state.topic}. {state.feedback}")
    return {"drafts": reply.text}

@node
def grade(state: Essay) -> Outcome[Literal["good", "retry"]]:
    score = min(len(state.drafts[-1]) / 100, 1)
    return Outcome("good" if score > 0.5 else "retry", score=score)

essay = Graph(
    name="essay",
    state=Essay,
    input="topic",
    nodes={"write": write, "grade": grade, "publish": Confirm(prompt="Publish?", show=("drafts",), reason="feedback")},
    edges="""
        START   -> write -> grade
        grade   -> write    : retry
        grade   -> publish  : good
        publish -> END      : approved
        publish -> write    : denied
    """,
    output="drafts",
    limits=Limits(steps=20, seconds=60),
)
