"""A report on several topics, which a person approves: with LangGraph."""

import operator
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt


class State(TypedDict):
    topics: list[str]
    notes: Annotated[list[str], operator.add]
    approved: bool
    report: str


def each_topic(state: State) -> list[Send]:
    return [Send("research", {"topic": topic}) for topic in state["topics"]]


def research(state: dict[str, str]) -> dict[str, list[str]]:
    return {"notes": [f"{state['topic']}: found"]}


def approve(state: State) -> dict[str, bool]:
    return {"approved": interrupt({"notes": state["notes"]})}


def next_node(state: State) -> str:
    return "write" if state["approved"] else END


def write(state: State) -> dict[str, str]:
    return {"report": "; ".join(state["notes"])}


builder = StateGraph(State)
builder.add_node("research", research)
builder.add_node("approve", approve)
builder.add_node("write", write)
builder.add_conditional_edges(START, each_topic, ["research"])
builder.add_edge("research", "approve")
builder.add_conditional_edges("approve", next_node, ["write", END])
builder.add_edge("write", END)
graph = builder.compile(checkpointer=InMemorySaver())

thread = {"configurable": {"thread_id": "1"}}
found = graph.invoke({"topics": ["tea", "bread"], "notes": []}, thread)
print("waits:", *found["__interrupt__"][0].value["notes"])
print("report:", graph.invoke(Command(resume=True), thread)["report"])
