"""Models that answer by rules, so that the example runs without a network or a key.

orchestrator run first_two.yaml "A desk" --model cheap=models.py:cheap --model clever=models.py:clever
"""

from orchestrator.models import ModelRequest
from orchestrator.testing import ScriptedModel


def offer(request: ModelRequest) -> str:
    return "100 a piece"  # the same for all, so that it does not matter which two are first


def choose(request: ModelRequest) -> str:
    return f"Buyer: {request.messages[-1].content}"


cheap = ScriptedModel(offer, name="cheap")
clever = ScriptedModel(choose, name="clever")
