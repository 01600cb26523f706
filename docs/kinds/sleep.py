from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Sleep


class Reminder(BaseModel):
    text: str
    at: str


graph = Graph(
    name="reminder",
    state=Reminder,
    input=("text", "at"),
    nodes={"rest": Sleep(until="at")},
    edges="START -> rest -> END",
    output="text",
)


# Run it.
async def main() -> None:
    run = await graph.run({"text": "Call Ann.", "at": "2020-01-31T09:00:00+01:00"})  # a time that has passed
    assert run.output == "Call Ann."
