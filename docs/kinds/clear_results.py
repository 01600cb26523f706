from orchestrator import Graph, tool
from orchestrator.nodes import ClearResults, Execute, Respond
from orchestrator.testing import ScriptedModel


class Reading(ClearResults.State, Respond.State):
    """Inherits `question`, `messages`, `context_usage`, `pending` and `answer`."""


graph = Graph(
    name="clear_results",
    state=Reading,
    input="question",
    nodes={
        "clear": ClearResults(usage="context_usage", keep=1, over=200),
        "respond": Respond(question="question", usage="context_usage"),
        "act": Execute(calls="pending", results="messages", on_failure="observe"),
    },
    edges="""
        START -> clear -> respond
        respond -> act : calls
        respond -> END : answer
        respond -> clear : too_long
        act -> clear
    """,
    output="answer",
)


# Run it.
@tool(risk="read", effect="read")
def read(page: int) -> str:
    """Read a page."""
    return f"Page {page} is long. " * 100


class Reader(ScriptedModel):
    """A model with a small window, which reads three pages."""

    window = 1_000


async def main() -> None:
    calls = [[{"id": f"c{page}", "name": "read", "arguments": {"page": page}}] for page in range(3)]
    run = await graph.run("How long are the pages?", tools=[read], model=Reader([*calls, "All pages are long."]))
    results = [message.content[:36] for message in run.state.messages if message.role == "tool"]
    assert results[:2] == ["[The result of read, 1,600 character"] * 2
    assert results[2].startswith("Page 2 is long.")
