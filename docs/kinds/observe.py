from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph, Message, ToolCall, append
from orchestrator.nodes import Execute, Observe, Respond
from orchestrator.testing import ScriptedModel


class Talk(BaseModel):
    question: str
    messages: Annotated[list[Message], append] = []
    pending: list[ToolCall] = []
    answer: str = ""
    rounds: int = 0


graph = Graph(
    name="observe",
    state=Talk,
    input="question",
    nodes={
        "respond": Respond(question="question"),
        "act": Execute(calls="pending", results="messages", on_failure="observe"),
        "observe": Observe(rounds="rounds", most=3),
    },
    edges="""
        START -> respond
        respond -> act : calls
        respond -> END : answer
        act -> observe
        observe -> respond : more
        observe -> END : finished
        observe -> END : spent
    """,
    output=("answer", "rounds"),
)


# Run it.
async def main() -> None:
    call = ToolCall(id="1", name="add", arguments={"a": 2, "b": 3})
    run = await graph.run("What is 2 + 3?", tools="arithmetic", model=ScriptedModel([[call], "It is 5."]))
    assert run.output == {"answer": "It is 5.", "rounds": 1}
