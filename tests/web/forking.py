"""What tests of forks share: a shop whose model looks something up, and pays after a person has approved it."""

from __future__ import annotations

from typing import Any

from orchestrator import Graph, Tool, ToolCall, tool
from orchestrator.graph import Usage
from orchestrator.models import Reply
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from tests.web.api import Api

AMOUNT = 12345678901234567890
"""JavaScript would round it."""


class Shop:
    """What was paid, and the graph that pays."""

    def __init__(self) -> None:
        self.paid: list[dict[str, object]] = []
        self.model = ScriptedModel(self._said)
        self.graph: Graph = react(tools=[self._search(), self._pay()], name="shop")

    def _search(self) -> Tool:
        @tool(risk="none", effect="read")
        def search(query: str) -> str:
            """Search.

            Args:
                query: words.
            """
            return f"The invoice of {query} is open."

        return search

    def _pay(self) -> Tool:
        @tool(risk="write")
        def pay(amount: int, to: str) -> str:
            """Pay. It cannot be undone.

            Args:
                amount: how much.
                to: whom.
            """
            self.paid.append({"amount": amount, "to": to})
            return f"{to} has {amount}"

        return pay

    @staticmethod
    def _said(request: Any) -> Reply:
        """Look up what is asked, pay if an invoice is open, and say what became of it."""
        used, last = Usage(input_tokens=900, output_tokens=80, cost=0.004), request.messages[-1]
        if last.role != "tool":
            call = ToolCall(id="look", name="search", arguments={"query": str(last.content)})
            return Reply(text="I look it up.", tool_calls=(call,), usage=used)
        if "is open" in str(last.content):
            call = ToolCall(id="pay", name="pay", arguments={"amount": AMOUNT, "to": "acme"})
            return Reply(text="So I pay it.", tool_calls=(call,), usage=used)
        return Reply(text=f"Done: {last.content}", usage=used)


def pay(found: Api, run_id: str, *, approve: bool = True, asked: str = "Pay acme") -> dict[str, int]:
    """Run the shop, and answer its question.

    Returns:
        The records by which the tests know where they are: `looked`, `asked`, `answered`, `paid`.
    """
    found.post("runs", 201, graph="shop", input=asked, run_id=run_id, wait=True, labels={"team": "a"})
    answer(found, run_id, **({"approve": True} if approve else {"deny": {"reason": "too much"}}))
    records = found.get(f"runs/{run_id}/records")["records"]
    names = {one["key"]: one["name"] for one in records if one["type"] == "effect_intended"}
    places = {names[one["key"]]: one["seq"] for one in records if one["type"] == "effect_settled"}
    seqs = {one["type"]: one["seq"] for one in records}
    return {
        "looked": places["search"],
        "asked": seqs["asked"],
        "answered": seqs["answered"],
        "paid": places.get("pay", 0),
    }


def answer(found: Api, run_id: str, **said: Any) -> Any:
    """Answer the open question of a run, and wait for what comes of it."""
    (question,) = found.get(f"runs/{run_id}")["waiting"]
    found.post(f"runs/{run_id}/answer", question=question["id"], digest=question["digest"], **said)
    return found.settled(run_id)
