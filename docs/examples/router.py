"""A small model sorts the question, a large one answers it."""

from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Classify, Complete


class Question(BaseModel):
    question: str
    reply: str = ""


graph = Graph(
    name="router",
    state=Question,
    input="question",
    nodes={
        "sort": Classify(
            model="cheap",
            choices={
                "billing": "about invoices, prices and refunds",
                "bugs": "about what does not work",
                "other": "everything else",
            },
        ),
        "billing": Complete(model="clever", system="Billing. You answer questions about money."),
        "bugs": Complete(model="clever", system="Engineering. You help with what does not work."),
        "other": Complete(model="cheap", system="Reception. You answer in one sentence."),
    },
    edges="""
        START -> sort
        sort -> billing : billing
        sort -> bugs : bugs
        sort -> other : other
        billing, bugs, other -> END
    """,
    output="reply",
)
