from orchestrator import Graph
from orchestrator.nodes import Execute, Fill, Plan, Record


class Calls(Plan.BlueprintState, Record.State):
    question: str = ""


graph = Graph(
    name="fill",
    state=Calls,
    input="steps",
    nodes={"fill": Fill(), "act": Execute(on_failure="observe"), "record": Record()},
    edges="""
        START -> fill : each steps
        fill -> act : call
        fill -> record : done
        act -> record
        record -> END
    """,
    output="evidence",
)


# Run it.
async def main() -> None:
    steps = [
        {"id": "E1", "tool": "add", "input": "2, 3"},
        {"id": "E2", "tool": "multiply", "input": "#E1, 4", "needs": ["E1"]},
    ]
    run = await graph.run({"steps": steps}, tools="arithmetic")
    assert run.state.evidence["E2"].tool_args == {"a": 5, "b": 4}
