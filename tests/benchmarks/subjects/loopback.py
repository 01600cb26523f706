"""An agent of many tool calls against a server on 127.0.0.1, in a process of its own.

The server answers with prepared bytes, so that what is measured is the client's side: request, reply, tool, and what is
stored of them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

import anyio

from tests.benchmarks.subjects import Figures, sizes
from tests.benchmarks.subjects.stopwatch import Stopwatch

_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _reply(number: int, calls: int) -> bytes:
    """The server's answer to the request of this number: a call of the tool, and at the end a text."""
    call = {"id": f"call_{number}", "type": "function"}
    call["function"] = {"name": "add", "arguments": json.dumps({"a": number, "b": 1})}  # type: ignore[assignment]
    done = number >= calls
    message = {"role": "assistant", "content": "done" if done else None, **({} if done else {"tool_calls": [call]})}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if done else "tool_calls", "logprobs": None}
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1_700_000_000, "model": "m"}
    body = json.dumps({**head, "choices": [choice], "usage": _USAGE}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def _serve(calls: int) -> None:
    replies = [_reply(number, calls) for number in range(calls + 1)]
    asked = iter(range(len(replies)))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            )
            await reader.readexactly(length)
            writer.write(replies[next(asked)])
            await writer.drain()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**24)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def serving(calls: int = sizes.CALLS) -> Iterator[str]:
    """The address of a server that has as many calls made, and then ends."""
    command = [sys.executable, "-m", "tests.benchmarks.subjects.loopback", str(calls)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()


def figures(took: Stopwatch, calls: int = sizes.CALLS) -> Figures:
    """Of each call."""
    return took.figures("us", calls)


def _again(run: Callable[[str, int, str], Coroutine[None, None, Stopwatch]], calls: int) -> Stopwatch:
    """What a run takes in a process that has made a short one, in memory, before."""
    for length, store in ((3, "memory://"), (calls, "")):
        with serving(length) as url:
            took = anyio.run(run, url, length, store)
    return took


def bare(calls: int = sizes.CALLS) -> Figures:
    """The bare client in a loop."""
    from openai import AsyncOpenAI

    number = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    add = {"type": "function", "function": {"name": "add", "parameters": schema}}

    async def run(url: str, calls: int, _: str) -> Stopwatch:
        async with AsyncOpenAI(base_url=url, api_key="none") as client:
            messages: list[dict[str, object]] = [{"role": "user", "content": "Add."}]
            with Stopwatch() as took:
                while True:
                    reply = await client.chat.completions.create(model="m", messages=messages, tools=[add])
                    said = reply.choices[0].message
                    messages.append(said.model_dump(exclude_none=True))
                    if not said.tool_calls:
                        break
                    for call in said.tool_calls:
                        args = json.loads(call.function.arguments)
                        content = str(args["a"] + args["b"])
                        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
            assert len(messages) == 2 * calls + 2
        return took

    return figures(_again(run, calls), calls)


def ours(store: str, calls: int = sizes.CALLS) -> Figures:
    """The react strategy, durable."""
    from orchestrator import Executor, OpenAIModel
    from orchestrator.strategies.react import react
    from orchestrator.tools import tools_from_ref

    async def run(url: str, calls: int, other: str) -> Stopwatch:
        graph = react(max_steps=calls + 1, thought="optional")
        async with (
            OpenAIModel("m", url, "none") as model,
            Executor(other or store, model=model, tools=tools_from_ref("arithmetic")) as executor,
        ):
            with Stopwatch() as took:
                run = await executor.start(graph, "Add.")
            assert run.status == "completed", (run.status, run.error)
            assert run.usage.calls > 2 * calls
        return took

    return figures(_again(run, calls), calls)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
