"""Five suppliers are asked for an offer, the first two are compared, and the others still answer."""

from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph, append
from orchestrator.nodes import ITEM, Complete, Subgraph


class Request(BaseModel):
    question: str
    supplier: str
    reply: str = ""


class Purchase(BaseModel):
    question: str
    suppliers: list[str] = ["Ash", "Birch", "Cedar", "Elm", "Fir"]
    offers: Annotated[list[str], append] = []
    choice: str = ""


supplier = Graph(
    name="supplier",
    state=Request,
    nodes={
        "say": Complete(model="cheap", system="Supplier. You make an offer.", prompt="For {supplier}: {question}"),
    },
    edges="START -> say -> END",
)
graph = Graph(
    name="first_two",
    state=Purchase,
    input="question",
    nodes={
        "ask": Subgraph(supplier, inputs={"question": "question", "supplier": ITEM}, outputs={"offers": "reply"}),
        "compare": Complete(
            model="clever",
            system="Buyer. You choose an offer.",
            prompt="{question}\nOffers: {offers}",
            result="choice",
            join=2,
            rest="run",
        ),
    },
    edges="""
        START -> ask : each suppliers
        ask -> compare -> END
    """,
    output=("choice", "offers"),
)
