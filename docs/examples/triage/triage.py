"""Support triage: a model sorts mails and drafts replies, small refunds are paid at once, a person decides the rest.

python triage.py tickets.csv     # works on the tickets until Ctrl-C
orchestrator serve --open        # the page, with the inbox of questions
"""

from __future__ import annotations

import csv
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import anyio
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Outcome, Retry, ToolResult, node, tool
from orchestrator.models import Model, ModelRequest, model_from_ref
from orchestrator.nodes import Ask, Classify, Complete, Confirm, Execute, Guard, Rule
from orchestrator.testing import ScriptedModel
from orchestrator.tools import IdempotencyKey

STORE = "sqlite:///.orchestrator/runs.db"  # the store that the command line uses by default
LEDGER, CLAIMS = Path("refunds.csv"), Path("claims")
ORDERS = {"A17": ("Ann", 12.6), "B20": ("Bob", 150.0), "C34": ("Cem", 18.0)}
POLICY = (Rule(name="more than 20 euros", when="value.args.amount > 20.0", then="ask"),)


class Ticket(BaseModel):
    """What is known about a mail."""

    mail: str
    order: str = ""
    earlier: str = "none"
    """The ticket that asked for the money of this order before."""
    tool: str = "refund"
    args: dict[str, Any] = {}
    result: ToolResult | None = None
    reason: str = ""
    """Why a refund was not confirmed, or what is wrong with the last draft."""
    reply: str = ""


def was_paid(key: str) -> ToolResult | None:
    """Find out after a crash if a refund was paid, without asking a person: each line begins with its key."""
    lines = LEDGER.read_text(encoding="utf-8").splitlines() if LEDGER.exists() else []
    line = next((line for line in lines if line.startswith(f"{key},")), None)
    return ToolResult(output=f"paid {line.split(',')[3]} euros to {line.split(',')[2]}") if line else None


@tool(risk="dangerous", effect="irreversible", reconcile=was_paid)
def refund(order: str, customer: str, amount: float, key: IdempotencyKey) -> str:
    """Pay the price of an order back."""
    with LEDGER.open("a", encoding="utf-8") as ledger:  # a real shop calls its bank here, with the key
        ledger.write(f"{key},{order},{customer},{amount}\n")
    return f"paid {amount} euros to {customer}"


def claimed(order: str, ticket: str) -> str:
    """Return the first ticket that asked for the money of an order: this one, if there was none. Others may run now."""
    CLAIMS.mkdir(exist_ok=True)  # a real shop has a table with a unique key
    with suppress(FileExistsError), (CLAIMS / order).open("x", encoding="utf-8") as claim:
        claim.write(ticket)
    return (CLAIMS / order).read_text(encoding="utf-8")


@node(tools=[])
def find(state: Ticket, ctx: Context) -> Outcome[Literal["found", "again", "unknown"]]:
    """Find the order in the answer of a colleague, or in the mail, and prepare the refund."""
    for number in re.findall(r"\b[A-Z]\d\d\b", f"{state.order} {state.mail}"):
        if number in ORDERS:
            customer, price = ORDERS[number]
            args = {"order": number, "customer": customer, "amount": price}
            first = claimed(number, ctx.run_id)
            if first == ctx.run_id:
                return Outcome("found", order=number, args=args)
            return Outcome("again", order=number, args=args, earlier=f"ticket {first}")
    return Outcome("unknown")


graph = Graph(
    name="triage",
    state=Ticket,
    input="mail",
    nodes={
        "sort": Classify(
            text="mail",
            choices={"refund": "wants to be paid back", "question": "asks or tells something else"},
            retry=Retry(),
        ),
        "find": find,
        "which": Ask(prompt="Which order is this about?\n{mail}", show=("mail",), answer="order"),
        "policy": Guard(tool="tool", args="args", rules=POLICY),
        "confirm": Confirm(tool="tool", args="args", show=("mail", "earlier"), reason="reason"),
        "pay": Execute(),
        "draft": Complete(
            system="You answer mails to a shop in two friendly sentences. You promise nothing.",
            prompt="Mail: {mail}\nRefund: {result}\nRemark of a colleague: {reason}\nWrite the reply.",
            retry=Retry(),
        ),
        "check": Confirm(prompt="Send this reply?\n{reply}", show=("mail", "reply"), reason="reason"),
    },
    edges="""
        START   -> sort
        sort    -> find    : refund
        sort    -> draft   : question
        find    -> policy  : found
        find    -> confirm : again
        find    -> which   : unknown
        which   -> find
        policy  -> pay     : passed
        policy  -> confirm : ask
        confirm -> pay     : approved
        confirm -> draft   : denied
        pay     -> draft -> check
        check   -> draft   : denied
        check   -> END     : approved
    """,
    output="reply",
).with_tools([refund])


def sort_by_rule(request: ModelRequest) -> str:
    return "refund" if "money" in request.messages[-1].content else "question"


def draft_by_rule(request: ModelRequest) -> str:
    paid = re.search(r"paid [^\"]+", request.messages[-1].content)
    return f"Thank you for your mail. {f'We {paid[0]}.' if paid else 'We will look into it.'}"


def chosen_model() -> Model:
    """Return the model that ORCHESTRATOR_MODEL names, such as `openai:gpt-5-mini`; else rules that need no key."""
    name = os.environ.get("ORCHESTRATOR_MODEL")
    return model_from_ref(name) if name else ScriptedModel({"sort": sort_by_rule, "draft": draft_by_rule}, name="rules")


async def main(tickets: list[dict[str, str]]) -> None:
    """Add a run for each ticket and work on them until Ctrl-C. The ticket's number is the run's id: none runs twice."""
    async with Executor(STORE, graphs=[graph], model=chosen_model()) as executor:
        for ticket in tickets:
            await executor.enqueue(graph, ticket["mail"], run_id=ticket["ticket"])
        print("working on the tickets; Ctrl-C ends this", flush=True)
        await executor.work()


if __name__ == "__main__":
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file, suppress(KeyboardInterrupt):
        anyio.run(main, list(csv.DictReader(file)))
