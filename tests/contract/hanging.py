"""Graphs whose last step hangs, for programs that are stopped there."""

from __future__ import annotations

from typing import Any

import anyio

from orchestrator import Context, Update, node
from tests.contract.sample import State, logs, single


@node(effect="pure")
async def hang(state: State) -> None:
    """Say that it is here, and stay."""
    print("here", flush=True)
    await anyio.sleep(60)


@node
async def hang_once(ctx: Context[Any]) -> Update:
    """Go on where the executor has `deps`."""
    if ctx.deps is None:
        print("at b", flush=True)
        await anyio.sleep(60)
    return {"log": "went on"}


hangs = single(logs("work"), "START -> work -> hang -> END", hang=hang)
goes_on = single(node(lambda: {"log": "a"}), "START -> work -> b -> END", b=hang_once)
