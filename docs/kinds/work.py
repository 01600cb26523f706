from orchestrator import Graph
from orchestrator.nodes import Execute, Plan, Work


class Calls(Plan.BlueprintState, Work.State):
    question: str = ""


graph = Graph(
    name="work",
    state=Calls,
    input="steps",
    nodes={"work": Work(), "act": Execute(on_failure="observe")},
    edges="""
        START -> work : each steps
        work -> act : call
        act -> work
        work -> END : done
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
    assert run.state.evidence["E2"].tool_output == 20
