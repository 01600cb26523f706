"""A process that runs a graph whose model streams, and says so at each token. Words: URL, store, event loop."""

from __future__ import annotations

import sys

import anyio

from orchestrator import Executor
from tests.executor.test_model_calls import graph, model_at


async def main(url: str, store: str) -> None:
    async with (
        model_at(url) as model,
        Executor(store, model=model) as executor,
        executor.stream(graph(), {}, run_id="r") as live,
    ):
        async for event in live:
            if event.type == "token":
                print("token", flush=True)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:3], backend=sys.argv[3])
