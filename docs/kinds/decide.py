from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.models import Reply
from orchestrator.nodes import Ask, Decide
from orchestrator.testing import ScriptedModel


class Mail(BaseModel):
    question: str
    urgent: bool = False
    sure: float | None = None
    reply: str = ""


graph = Graph(
    name="triage",
    state=Mail,
    input="question",
    nodes={
        "look": Decide(
            criteria="Has this mail to be answered today?",
            yes_no=True,
            threshold=0.9,
            result="urgent",
            probability="sure",
        ),
        "ask": Ask(prompt="Has it to be answered today?", choices=("yes", "no")),
    },
    edges="""
        START -> look
        look -> END
        look -> ask : unsure
        ask  -> END
    """,
    output="urgent",
)


# Run it.
async def main() -> None:
    tokens = [['{"choice": "', 0, {}], ["yes", -0.05, {"no": -3}], ['"}', 0, {}]]  # as servers give them
    reply = Reply(text='{"choice": "yes"}', details={"logprobs": tokens})
    run = await graph.run("The server is down!", model=ScriptedModel([reply]))
    assert (run.output, run.values["sure"]) == (True, 0.9512)
