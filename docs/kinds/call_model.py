from orchestrator import Graph, ToolCall
from orchestrator.nodes import CallModel, Execute, ReadReply
from orchestrator.testing import ScriptedModel


class State(CallModel.State, ReadReply.State):
    pass


graph = Graph(
    name="call_model",
    state=State,
    input="question",
    nodes={
        "call_model": CallModel(question="question"),
        "read": ReadReply(),
        "act": Execute(calls="pending", results="messages", on_failure="observe"),
    },
    edges="""
        START -> call_model -> read
        read -> call_model : again
        read -> act : calls
        read -> END : answer
        act -> call_model
    """,
    output="answer",
)


# Run it.
async def main() -> None:
    call = ToolCall(id="1", name="add", arguments={"a": 2, "b": 3})
    run = await graph.run("What is 2 + 3?", tools="arithmetic", model=ScriptedModel([[call], "It is 5."]))
    assert run.output == "It is 5."
