from pydantic import BaseModel

from orchestrator import Deny, Executor, Graph
from orchestrator.nodes import Confirm


class Letter(BaseModel):
    text: str
    reason: str = ""


graph = Graph(
    name="letter",
    state=Letter,
    input="text",
    nodes={"check": Confirm(prompt="Send this letter?", show=("text",), reason="reason")},
    edges="""
        START -> check
        check -> END : approved
        check -> END : denied
    """,
    output="reason",
)


# Run it.
async def main() -> None:
    async with Executor() as executor:
        run = await executor.start(graph, "Dear Sir")
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny(reason="too short"))
        assert run.output == "too short"
