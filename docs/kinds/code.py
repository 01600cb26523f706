from orchestrator import Graph, tool
from orchestrator.nodes import Code


@tool(risk="read", effect="read")
def price(shop: str) -> float:
    """Look up the price in a shop."""
    return {"north": 3.5, "south": 2.8}[shop]


graph = Graph(
    name="code",
    state=Code.State,
    input="code",
    nodes={"run": Code(confirm="write")},
    edges="""
        START -> run
        run -> END : done
        run -> END : finished
        run -> END : failed
    """,
    output="output",
)


# Run it.
async def main() -> None:
    run = await graph.run('print(min(price(shop) for shop in ["north", "south"]))', tools=[price])
    assert run.output == "2.8"
