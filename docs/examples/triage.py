"""A model reads a ticket, conditions decide what is urgent, and a person approves urgent replies."""

from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Complete, Confirm, Route


class Ticket(BaseModel):
    team: str
    priority: int
    reply: str


class Mail(BaseModel):
    question: str
    ticket: Ticket | None = None
    reason: str = ""
    reply: str = ""


graph = Graph(
    name="triage",
    state=Mail,
    input="question",
    nodes={
        "read": Complete(
            model="cheap", system="You read tickets. The priority is from 1 to 10.", output=Ticket, result="ticket"
        ),
        "sort": Route(cases={"urgent": "ticket.priority > 7 && ticket.team != 'other'"}, default="routine"),
        "routine": Complete(model="cheap", system="Support. You thank for a ticket."),
        "write": Complete(
            model="clever", system="Support. You answer urgent tickets.", prompt="{question} {ticket} {reason}"
        ),
        "check": Confirm(prompt="Send this reply?", show=("reply",), reason="reason"),
    },
    edges="""
        START -> read -> sort
        sort -> routine : routine
        sort -> write : urgent
        write -> check
        check -> write : denied
        check -> END : approved
        routine -> END
    """,
    output="reply",
)
