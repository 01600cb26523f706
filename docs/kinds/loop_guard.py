from orchestrator import Graph, Limits, ToolCall, tool
from orchestrator.nodes import Execute, LoopGuard, Respond
from orchestrator.testing import ScriptedModel

graph = Graph(
    name="stuck",
    state=Respond.State,
    input="question",
    nodes={
        "think": Respond(question="question"),
        "act": Execute(calls="pending", results="messages"),
        "watch": LoopGuard(most=2),
    },
    edges="""
        START -> think
        think -> END   : answer
        think -> act   : calls
        act   -> watch
        watch -> think
        watch -> END   : loop
    """,
    output="answer",
    limits=Limits(steps=100),
)


# Run it.
async def main() -> None:
    @tool(risk="none")
    def look(what: str) -> str:
        """Look something up."""
        return "nothing found"

    call = ToolCall(id="1", name="look", arguments={"what": "it"})
    model = ScriptedModel([[call], [call]])
    run = await graph.run("What is it?", model=model, tools=[look])
    assert (run.status, run.output, len(model.requests)) == ("completed", "", 2)
