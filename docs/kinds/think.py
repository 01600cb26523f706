from orchestrator import Graph
from orchestrator.nodes import Ask, Think
from orchestrator.testing import ScriptedModel

graph = Graph(
    name="think",
    state=Think.State,
    input="question",
    nodes={"think": Think(), "ask": Ask(prompt="{current}", show=("current",), answer="answer")},
    edges="""
        START -> think
        think -> ask : question
        think -> END : answer
        ask -> END
    """,
    output="answer",
)


# Run it.
async def main() -> None:
    run = await graph.run("Who was at home?", model=ScriptedModel(["Final Answer: Ann"]))
    assert run.output == "Ann"
