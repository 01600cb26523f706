from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Classify, Complete
from orchestrator.testing import ScriptedModel


class Mail(BaseModel):
    question: str
    reply: str = ""


graph = Graph(
    name="mail",
    state=Mail,
    input="question",
    nodes={
        "sort": Classify(choices={"billing": "about money", "other": "everything else"}),
        "bill": Complete(system="You answer questions about bills."),
    },
    edges="""
        START -> sort
        sort -> bill : billing
        sort -> END : other
        bill -> END
    """,
    output="reply",
)


# Run it.
async def main() -> None:
    model = ScriptedModel({"sort": ["billing"], "bill": ["We pay it back."]})
    run = await graph.run("I was charged twice.", model=model)
    assert run.output == "We pay it back."
