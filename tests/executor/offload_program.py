"""A run whose tool returns a long result, of which its model reads parts.

`python -m tests.executor.offload_program URL`: the run `r`; its process is killed when the model is asked again.
"""

from __future__ import annotations

import os
import signal
import sys

import anyio
from pydantic import JsonValue

from orchestrator import Executor, Graph, tool
from orchestrator.models import ModelRequest, Reply, ToolCall
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.testing import ScriptedModel
from orchestrator.tools.stored_results import id_of

TEXT = "".join(f"line {number}: {number * number}\n" for number in range(6_000))
ID = id_of(TEXT)
READS: list[dict[str, JsonValue]] = [{"offset": 40_000, "limit": 30}, {"pattern": "LINE 5000: 25"}]
graph: Graph = function_call_agent(max_steps=9)
doomed = False


@tool(risk="read", effect="read")
def report() -> str:
    """Return a long report."""
    return TEXT


def reply(request: ModelRequest) -> Reply | str:
    """Call the tool, read parts of its result, then answer."""
    made = sum(message.role == "tool" for message in request.messages)
    if made == 0:
        return Reply(tool_calls=(ToolCall(id="c0", name="report", arguments={}),))
    if doomed:
        os.kill(os.getpid(), signal.SIGKILL)
    if made <= len(READS):
        arguments: dict[str, JsonValue] = {"id": ID, **READS[made - 1]}
        return Reply(tool_calls=(ToolCall(id=f"c{made}", name="read_result", arguments=arguments),))
    return "done"


async def main(url: str) -> None:
    """Start the run."""
    async with Executor(url, model=ScriptedModel(reply), tools=[report]) as executor:
        await executor.start(graph, "What does it say?", run_id="r")


if __name__ == "__main__":
    doomed = True
    anyio.run(main, sys.argv[1])
