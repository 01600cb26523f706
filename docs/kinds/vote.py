from orchestrator import Graph
from orchestrator.nodes import Vote

graph = Graph(
    name="vote",
    state=Vote.State,
    input="answers",
    nodes={"count": Vote()},
    edges="START -> count -> END",
    output="answer",
)


# Run it.
async def main() -> None:
    run = await graph.run({"answers": ["28", "17", "28."]})
    assert run.output == "28"
