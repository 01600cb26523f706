from orchestrator import Graph
from orchestrator.nodes import Solve
from orchestrator.testing import ScriptedModel

graph = Graph(
    name="solve",
    state=Solve.State,
    input=("question", "steps", "evidence"),
    nodes={"solve": Solve()},
    edges="START -> solve -> END",
    output="answer",
)


# Run it.
async def main() -> None:
    step = {"id": "E1", "thought": "Add them.", "tool": "add", "input": "2, 3"}
    evidence = {"E1": {"question": "Add them.", "tool_choice": "add", "tool_output": 5}}
    model = ScriptedModel(["5"])
    run = await graph.run({"question": "What is 2 + 3?", "steps": [step], "evidence": evidence}, model=model)
    assert run.output == "5"
