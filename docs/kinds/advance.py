from orchestrator import Graph
from orchestrator.nodes import Advance, Complete, Subgraph
from orchestrator.testing import ScriptedModel

do = Graph(
    name="do",
    state=Complete.State,
    nodes={"write": Complete()},
    edges="START -> write -> END",
)
graph = Graph(
    name="advance",
    state=Advance.State,
    input=("question", "steps"),
    nodes={"next": Advance(), "do": Subgraph(do, inputs={"question": "step"}, outputs={"results": "reply"})},
    edges="""
        START -> next
        next -> do : step
        next -> END : done
        do -> next
    """,
    output="answer",
)


# Run it.
async def main() -> None:
    model = ScriptedModel(["Mixed.", "Baked."])
    run = await graph.run({"question": "Bake a cake.", "steps": ["Mix.", "Bake."]}, model=model)
    assert run.output == "Baked."
