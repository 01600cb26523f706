"""A first agent that hands the conversation over to one of three others."""

from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph, Message, ToolCall, append, handoff
from orchestrator.nodes import Execute, Respond

TRANSFERS = (
    handoff("billing", "Questions about money."),
    handoff("bugs", "Questions about what does not work."),
    handoff("other", "All other questions."),
)


class Talk(BaseModel):
    question: str
    messages: Annotated[list[Message], append] = []
    pending: list[ToolCall] = []
    answer: str = ""


graph = Graph(
    name="supervisor_handoff",
    state=Talk,
    input="question",
    nodes={
        "hello": Respond(model="cheap", system="You transfer users.", question="question", tools=TRANSFERS),
        "transfer": Execute(
            calls="pending", results="messages", outcomes=("billing", "bugs", "other"), tools=TRANSFERS
        ),
        "billing": Respond(model="clever", system="Billing. You answer.", tools_offered=False),
        "bugs": Respond(model="clever", system="Engineering. You answer.", tools_offered=False),
        "other": Respond(model="cheap", system="Reception. You answer.", tools_offered=False),
    },
    edges="""
        START -> hello
        hello -> transfer : calls
        hello -> END : answer
        transfer -> billing : billing
        transfer -> bugs : bugs
        transfer -> other : other
        transfer -> hello
        billing, bugs, other -> END
    """,
    output="answer",
)
