from orchestrator import Graph
from orchestrator.nodes import Select

graph = Graph(
    name="beam",
    state=Select.State,
    input="candidates",
    nodes={"select": Select(best=2)},
    edges="""
        START  -> select
        select -> END : more
        select -> END : done
    """,
    output="selected",
)


# Run it.
async def main() -> None:
    candidates = [{"text": "a", "score": 2}, {"text": "b", "score": 9}, {"text": "c", "score": 5}]
    run = await graph.run({"candidates": candidates})
    assert run.output == ["b", "c"]
