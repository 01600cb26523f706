from orchestrator import Graph, tool
from orchestrator.nodes import Compact, Execute, Respond
from orchestrator.testing import ScriptedModel


class Reading(Compact.State, Respond.State):
    """Inherits `question`, `messages`, `context_usage`, `pending` and `answer`."""


graph = Graph(
    name="compact",
    state=Reading,
    input="question",
    nodes={
        "compact": Compact(usage="context_usage", at=0.6, keep=1),
        "respond": Respond(question="question", usage="context_usage"),
        "act": Execute(calls="pending", results="messages", on_failure="observe"),
    },
    edges="""
        START -> compact -> respond
        respond -> act : calls
        respond -> END : answer
        respond -> compact : too_long
        act -> compact
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

    window = 2_000


async def main() -> None:
    calls = [[{"id": f"c{page}", "name": "read", "arguments": {"page": page}}] for page in range(3)]
    summary = "The pages 0 and 1 are long."
    replies = {"respond": [*calls, "All pages are long."], "compact": [summary]}
    run = await graph.run("How long are the pages?", tools=[read], model=Reader(replies))
    assert run.output == "All pages are long."
    assert [message.role for message in run.state.messages] == ["user", "user", "assistant", "tool", "assistant"]
    assert summary in run.state.messages[1].content
