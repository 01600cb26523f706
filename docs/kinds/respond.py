from orchestrator import Graph, ToolCall
from orchestrator.nodes import Execute, Respond
from orchestrator.testing import ScriptedModel

graph = Graph(
    name="respond",
    state=Respond.State,
    input="question",
    nodes={
        "respond": Respond(question="question"),
        "act": Execute(calls="pending", results="messages", on_failure="observe"),
    },
    edges="""
        START -> respond
        respond -> act : calls
        respond -> END : answer
        act -> respond
    """,
    output="answer",
)


# Run it.
async def main() -> None:
    call = ToolCall(id="1", name="add", arguments={"a": 2, "b": 3})
    run = await graph.run("What is 2 + 3?", tools="arithmetic", model=ScriptedModel([[call], "It is 5."]))
    assert run.output == "It is 5."
