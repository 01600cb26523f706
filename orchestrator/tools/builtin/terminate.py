"""A tool that ends the work of an agent."""

from __future__ import annotations

from typing import Literal

from orchestrator.tools.function import tool


@tool(risk="none", effect="pure", ends=True, group="terminate")
def terminate(status: Literal["success", "failure"] = "success", message: str = "") -> str:
    """End the interaction: call this when the task is done, or when you cannot go on with it.

    Args:
        status: Whether the task was done.
        message: The answer, or what kept you from finding one.
    """
    return message.strip() or ("The task is done." if status == "success" else "The task could not be done.")
