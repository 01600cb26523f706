"""A tool that ends the work of an agent.

Without a message its output is empty, and the strategies take the text that comes with the call, else the last result.
"""

from __future__ import annotations

from typing import Literal

from orchestrator.tools.function import tool


@tool(risk="none", effect="pure", ends=True, group="terminate")
def terminate(status: Literal["success", "failure"] = "success", message: str = "") -> str:
    """Finish the work: call this as soon as you have the answer, or if you cannot find one.

    Args:
        status: "success" if you have the answer, "failure" if you do not.
        message: The answer, or the reason why there is none.
    """
    return message.strip()
