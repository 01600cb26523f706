from orchestrator import Graph
from orchestrator.nodes import CallModel, ReadReply
from orchestrator.testing import ScriptedModel


class State(CallModel.State, ReadReply.State):
    pass


graph = Graph(
    name="read_reply",
    state=State,
    input="question",
    nodes={
        "ask": CallModel(question="question", tools_offered=False),
        "read_reply": ReadReply(tools_offered=False, retries=2),
    },
    edges="""
        START -> ask -> read_reply
        read_reply -> ask : again
        read_reply -> END : answer
    """,
    output="answer",
)


# Run it.
async def main() -> None:
    model = ScriptedModel(["", "It is 5."])  # the empty reply goes back to the model
    run = await graph.run("What is 2 + 3?", model=model)
    assert run.output == "It is 5."
    assert len(model.requests) == 2
