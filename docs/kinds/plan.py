from orchestrator import Graph
from orchestrator.nodes import Plan
from orchestrator.testing import ScriptedModel

graph = Graph(
    name="plan",
    state=Plan.State,
    input="question",
    nodes={"plan": Plan()},
    edges="START -> plan -> END",
    output="steps",
)


# Run it.
async def main() -> None:
    run = await graph.run("Bake a cake.", model=ScriptedModel(["Plan:\n1. Mix.\n2. Bake.\n<END_OF_PLAN>"]))
    assert run.output == ["Mix.", "Bake."]
