from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Call


class Note(BaseModel):
    text: str
    words: int = 0


def count(text: str) -> int:
    return len(text.split())


graph = Graph(
    name="note",
    state=Note,
    input="text",
    nodes={"count": Call(ref="call:count", args={"text": "text"}, result="words", effect="pure")},  # this file: call.py
    edges="START -> count -> END",
    output="words",
)


# Run it.
async def main() -> None:
    run = await graph.run("It rained all day.")
    assert run.output == 4
