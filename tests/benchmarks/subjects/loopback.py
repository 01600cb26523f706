"""An agent of many tool calls against a server of others on 127.0.0.1, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from tests.benchmarks.subjects import Figures, sizes

_SERVER = """
import sys
from llmock.scenarios import Reply, ToolCall
from llmock.testing import LLMockServer
with LLMockServer(host="127.0.0.1") as server:
    calls = [Reply(tool_calls=(ToolCall("add", {"a": n, "b": 1}),)) for n in range(int(sys.argv[1]))]
    server.state.scenarios.add(*calls, Reply(text="done"))
    print(server.base_url(), flush=True)
    sys.stdin.read()
"""


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server that has as many calls made, and then ends."""
    command = [sys.executable, "-c", _SERVER, str(sizes.CALLS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.communicate("")


def floor() -> Figures:
    """The bare client in a loop."""
    from openai import AsyncOpenAI

    add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}

    async def run(url: str) -> float:
        async with AsyncOpenAI(base_url=url, api_key="none") as client:
            messages: list[dict[str, object]] = [{"role": "user", "content": "Add."}]
            started = time.perf_counter()
            while True:
                reply = await client.chat.completions.create(model="m", messages=messages, tools=[add])
                said = reply.choices[0].message
                messages.append(said.model_dump(exclude_none=True))
                if not said.tool_calls:
                    return time.perf_counter() - started
                for call in said.tool_calls:
                    args = json.loads(call.function.arguments)
                    content = str(args["a"] + args["b"])
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    with serving() as url:
        return {"us": anyio.run(run, url) / sizes.CALLS * 1e6}


def ours(store: str) -> Figures:
    """The react strategy, durable."""
    from orchestrator import Executor, OpenAIModel
    from orchestrator.strategies.react import react
    from orchestrator.tools import tools_from_ref

    graph = react(max_steps=sizes.CALLS + 1, thought="optional")

    async def run(url: str) -> float:
        async with (
            OpenAIModel("m", url, "none") as model,
            Executor(store, model=model, tools=tools_from_ref("arithmetic")) as executor,
        ):
            started = time.perf_counter()
            run = await executor.start(graph, "Add.")
            assert run.status == "completed", (run.status, run.error)
            assert run.usage.calls > 2 * sizes.CALLS
            return time.perf_counter() - started

    with serving() as url:
        return {"us": anyio.run(run, url) / sizes.CALLS * 1e6}
