"""A supervisor that says who works next, and three agents as graphs inside it."""

from typing import Annotated, Literal

from pydantic import BaseModel

from orchestrator import Graph, Limits, append
from orchestrator.nodes import Complete, Route, Subgraph


class Asked(BaseModel):
    question: str
    reply: str = ""


class Decision(BaseModel):
    next: Literal["research", "write", "review", "finish"]
    task: str


class Work(BaseModel):
    question: str
    decision: Decision | None = None
    notes: Annotated[list[str], append] = []


def agent(name: str, system: str) -> Subgraph:
    graph = Graph(
        name=name,
        state=Asked,
        nodes={"say": Complete(model="cheap", system=system)},
        edges="START -> say -> END",
    )
    return Subgraph(graph, inputs={"question": "question"}, outputs={"notes": "reply"})


graph = Graph(
    name="supervisor_subgraphs",
    state=Work,
    input="question",
    nodes={
        "lead": Complete(model="clever", prompt="{question}\nDone: {notes}", output=Decision, result="decision"),
        "next": Route(cases={name: f"decision.next == '{name}'" for name in ("research", "write", "review")},
                      default="finish"),
        "research": agent("research", "Research. You find facts."),
        "write": agent("write", "Writing. You write texts."),
        "review": agent("review", "Review. You improve texts."),
    },
    edges="""
        START -> lead -> next
        next -> research : research
        next -> write : write
        next -> review : review
        next -> END : finish
        research, write, review -> lead
    """,
    output="notes",
    limits=Limits(steps=30),
)  # fmt: skip
