from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Complete, Guard, Rule
from orchestrator.testing import ScriptedModel


class Question(BaseModel):
    question: str
    reason: str = ""
    reply: str = ""


graph = Graph(
    name="guarded",
    state=Question,
    input="question",
    nodes={
        "check": Guard(
            rules=(
                Rule(name="mail address", patterns=(r"[\w.]+@[\w.]+",), then="change", replacement="[address]"),
                Rule(name="too long", when="size(value) > 1000"),
            ),
            reason="reason",
        ),
        "answer": Complete(),
    },
    edges="""
        START  -> check
        check  -> answer : passed
        check  -> END    : stopped
        answer -> END
    """,
    output="reply",
)


# Run it.
async def main() -> None:
    model = ScriptedModel(["We will write to you."])
    run = await graph.run("Write to ann@example.org, please.", model=model)
    assert model.requests[0].messages[-1].content == "Write to [address], please."
    assert (run.status, run.values["reason"]) == ("completed", "mail address")
