"""Models that answer by rules, so that the examples run without a network or a key.

orchestrator run router.yaml "I was charged twice." --model cheap=models.py:cheap --model clever=models.py:clever
"""

import json
from typing import Any

from orchestrator import ToolCall
from orchestrator.models.base import ModelRequest
from orchestrator.testing import ScriptedModel

WORKERS = ("research", "write", "review")


def team_of(text: str) -> str:
    return "billing" if "charged" in text else "bugs" if "crash" in text else "other"


def words(request: ModelRequest) -> str:
    """What a model without tools says: who it is, and what it was asked."""
    role = request.messages[0].content.split(".")[0]
    asked = next(message.content for message in request.messages if message.role == "user")
    return f"{role}: {asked}"


def be_cheap(request: ModelRequest) -> Any:
    text = request.messages[-1].content
    if request.task == "classify":
        return json.dumps({"choice": team_of(str((request.messages[-1].data or {})["text"]))})
    if request.output is not None:
        urgent = 9 if "now" in text else 2
        return json.dumps({"team": team_of(text), "priority": urgent, "reply": "We will look into it."})
    if request.messages[0].content.startswith("Supplier."):
        return "100 a piece"  # the same for all, so that it does not matter which two are first
    if request.tools:
        return [ToolCall(id="t", name=f"transfer_to_{team_of(text)}", arguments={"message": "Please help."})]
    return words(request)


def be_clever(request: ModelRequest) -> Any:
    facts = request.messages[-1].data or {}
    if request.output is not None:
        done = len(facts["notes"])
        return json.dumps({"next": [*WORKERS, "finish"][done], "task": f"step {done + 1}"})
    results = [message for message in request.messages if message.role == "tool"]
    if request.tools and len(results) < len(WORKERS):
        name = WORKERS[len(results)]
        return [ToolCall(id=name, name=name, arguments={"question": f"step {len(results) + 1}"})]
    return f"Done: {results[-1].content}" if request.tools else words(request)


cheap = ScriptedModel(be_cheap, name="cheap")
clever = ScriptedModel(be_clever, name="clever")
