from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Complete
from orchestrator.testing import ScriptedModel


class Title(BaseModel):
    text: str
    title: str = ""


graph = Graph(
    name="title",
    state=Title,
    input="text",
    nodes={"name": Complete(system="You write titles.", prompt="Give this text a title: {text}", result="title")},
    edges="START -> name -> END",
    output="title",
)


# Run it.
async def main() -> None:
    run = await graph.run("It rained all day.", model=ScriptedModel(["A wet day"]))
    assert run.output == "A wet day"
