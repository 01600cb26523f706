from orchestrator import Graph
from orchestrator.nodes import ChooseTool
from orchestrator.testing import ScriptedModel

graph = Graph(
    name="choose",
    state=ChooseTool.State,
    input="question",
    nodes={"choose": ChooseTool()},
    edges="START -> choose -> END",
    output="tool",
)


# Run it.
async def main() -> None:
    run = await graph.run("What is 2 + 3?", tools="arithmetic", model=ScriptedModel(["add"]))
    assert run.output == "add"
