"""What the runs in `data/stopped.db` need to go on: they are those of every strategy, left where they stood.

They were written by the code before a step told what came of its calls. Of each strategy with tools there is one that
waits for a person to allow a call, and one whose process went away in the middle of a call.
"""

from __future__ import annotations

from orchestrator.tools import tool

QUESTION = "What is 12 * 7 + 3?"
ANSWER = "87"


@tool(risk="write", effect="idempotent")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    return a * b


@tool(risk="write", effect="idempotent")
def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The number to add to it.
    """
    return a + b
