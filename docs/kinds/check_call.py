from orchestrator import Graph
from orchestrator.nodes import CheckCall

graph = Graph(
    name="check",
    state=CheckCall.State,
    input="call",
    nodes={"check": CheckCall()},
    edges="""
        START -> check
        check -> END : valid
        check -> END : invalid
    """,
    output="args",
)


# Run it.
async def main() -> None:
    call = {"id": "1", "name": "add", "arguments": {"a": "2", "b": "3"}}
    run = await graph.run({"call": call}, tools="arithmetic")
    assert run.output == {"a": 2.0, "b": 3.0}
