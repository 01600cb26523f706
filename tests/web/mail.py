"""An agent that sends letters after a person has approved them, with a model that says what a test gives it."""

from __future__ import annotations

from typing import Any

from orchestrator import Graph, Tool, ToolCall, tool
from orchestrator.graph import Usage
from orchestrator.models import Reply
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel

LETTER = "Dear Ms Fischer,\n\nyour parcel left our house on Thursday.\n\nKind regards,\nAnn"
QUESTION = "Where is the parcel of Ms Fischer?"
THOUGHT = "She wrote twice, so I answer her before noon."


class Post:
    """What was sent, and the graph that sends it.

    Args:
        letters: how many runs may ask the model.
    """

    def __init__(self, letters: int = 1) -> None:
        self.sent: list[dict[str, object]] = []
        replies = [self._reply(number) for number in range(letters)]
        self.model = ScriptedModel(lambda request: self._said(request, replies))
        self.graph: Graph = react(tools=[self._send()], name="mail")

    def _send(self) -> Tool:
        @tool(risk="write")
        def send_email(to: str, subject: str, body: str, copies: int = 0, urgent: bool = False) -> str:
            """Send an email.

            Args:
                to: the address.
                subject: one line.
                body: the text.
                copies: how many copies go to the archive.
                urgent: whether it is marked.
            """
            self.sent.append({"to": to, "subject": subject, "body": body, "copies": copies, "urgent": urgent})
            return "sent"

        return send_email

    @staticmethod
    def _reply(number: int) -> Reply:
        args: dict[str, Any] = {"to": "fischer@example.com", "subject": "Your parcel", "body": LETTER}
        call = ToolCall(id=f"call-{number}", name="send_email", arguments={**args, "copies": 1, "urgent": False})
        return Reply(text=THOUGHT, tool_calls=(call,), usage=Usage(input_tokens=900, output_tokens=80, cost=0.004))

    @staticmethod
    def _said(request: Any, replies: list[Reply]) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply(text=f"She is told: {request.messages[-1].content}.", usage=Usage(input_tokens=990))
        return replies.pop(0)
