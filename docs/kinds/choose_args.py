from orchestrator import Graph
from orchestrator.nodes import ChooseArgs, ChooseTool
from orchestrator.testing import ScriptedModel

graph = Graph(
    name="choose",
    state=ChooseArgs.State,
    input="question",
    nodes={"choose_tool": ChooseTool(), "choose_args": ChooseArgs()},
    edges="START -> choose_tool -> choose_args -> END",
    output="args",
)


# Run it.
async def main() -> None:
    model = ScriptedModel({"choose_tool": ["add"], "choose_args": ['{"a": 2, "b": 3}']})
    run = await graph.run("What is 2 + 3?", tools="arithmetic", model=model)
    assert run.output == {"a": 2.0, "b": 3.0}
