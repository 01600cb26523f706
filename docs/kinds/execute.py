from orchestrator import Graph, ToolResult
from orchestrator.nodes import Execute

graph = Graph(
    name="execute",
    state=Execute.State,
    input=("tool", "args"),
    nodes={"execute": Execute()},
    edges="""
        START -> execute
        execute -> END : done
        execute -> END : finished
        execute -> END : failed
    """,
    output="result",
)


# Run it.
async def main() -> None:
    run = await graph.run({"tool": "add", "args": {"a": 2, "b": 3}}, tools="arithmetic")
    assert run.output_as(ToolResult).output == 5
