"""Functions of users are run: async ones in the event loop, sync ones in a thread; what they yield is told at once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import anyio.lowlevel
import anyio.to_thread
from anyio import CapacityLimiter

from orchestrator.calls import fenced, pass_fence
from orchestrator.graph.signatures import is_async, is_awaitable
from orchestrator.tools.truncation import Gathered

_OVER = object()
_Around: TypeAlias = Callable[[Callable[[], Any]], Callable[[], Any]]


async def run_function(
    call: Callable[[], object], *, inline: bool = False, limiter: CapacityLimiter | None = None
) -> Any:
    """What a function gives, awaited if it is awaitable.

    A sync function runs in a thread, which goes on by itself if the caller is cancelled. Either way the call passes the
    run's fence immediately before it is made: while it waited for a thread, the run may have been taken over.

    Args:
        inline: a sync function is quick, and runs here.
        limiter: how many threads there may be.
    """
    if inline or is_async(call):
        await pass_fence()
        found = call()
    else:
        run = fenced(call)
        # Inside of something: trio takes no coroutine out of a thread, which a sync function may well return.
        (found,) = await anyio.to_thread.run_sync(lambda: (run(),), abandon_on_cancel=True, limiter=limiter)
    return await found if is_awaitable(found) else found


async def collected(
    found: AsyncGenerator[object, object] | Generator[object, object, object],
    tell: Callable[[str], Awaitable[None]],
    *,
    most: int,
    step: _Around | None = None,
) -> Any:
    """What a generator, sync or async, gives in the end: its texts joined, or the last thing that is not a text.

    Args:
        tell: is told each text as it comes.
        most: characters that are held of the texts, if there are more: beginning and end, see `cut`.
        step: is put around each step of a sync one, which runs in a thread.
    """
    text = Gathered(most)
    result: object = _OVER
    async with _pieces(found, step) as pieces:
        async for piece in pieces:
            if isinstance(piece, str):
                text.add(piece)
                await tell(piece)
            else:
                result = piece
            # One that waits for nothing could not be stopped otherwise, and neither could anything else go on.
            await anyio.lowlevel.checkpoint()
    return text.whole() if result is _OVER else result


@asynccontextmanager
async def _pieces(
    found: AsyncGenerator[object, object] | Generator[object, object, object], step: _Around | None
) -> AsyncIterator[AsyncGenerator[object, object]]:
    if isinstance(found, AsyncGenerator):
        async with aclosing(found):
            yield found
        return
    async with aclosing(_threaded(found, step)) as pieces:
        yield pieces


async def _threaded(found: Generator[object, object, object], step: _Around | None) -> AsyncGenerator[object, object]:
    """A sync generator, each step of it in a thread."""
    go: Callable[[], object] = fenced(partial(next, found, _OVER))  # its first step is what begins it
    try:
        while True:
            piece = await anyio.to_thread.run_sync(go if step is None else step(go), abandon_on_cancel=True)
            if piece is _OVER:
                return
            yield piece
    finally:
        with contextlib.suppress(ValueError):  # the thread that was left behind is still in it
            found.close()
