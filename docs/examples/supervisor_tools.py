"""A supervisor that calls three agents as tools."""

from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph, Limits, Message, ToolCall, append
from orchestrator.nodes import Complete, Execute, Respond


class Asked(BaseModel):
    question: str
    reply: str = ""


def agent(name: str, system: str) -> Graph:
    return Graph(
        name=name,
        state=Asked,
        input="question",
        nodes={"say": Complete(model="cheap", system=system)},
        edges="START -> say -> END",
        output="reply",
    )


AGENTS = (
    agent("research", "Research. You find facts.").as_tool("research", "Finds facts.", risk="none"),
    agent("write", "Writing. You write texts.").as_tool("write", "Writes texts.", risk="none"),
    agent("review", "Review. You improve texts.").as_tool("review", "Improves texts.", risk="none"),
)


class Work(BaseModel):
    question: str
    messages: Annotated[list[Message], append] = []
    pending: list[ToolCall] = []
    answer: str = ""


graph = Graph(
    name="supervisor_tools",
    state=Work,
    input="question",
    nodes={
        "lead": Respond(model="clever", system="You lead a team.", question="question", tools=AGENTS),
        "work": Execute(calls="pending", results="messages", on_failure="observe", tools=AGENTS),
    },
    edges="START -> lead\nlead -> work : calls\nlead -> END : answer\nwork -> lead",
    output="answer",
    limits=Limits(steps=20),
)
