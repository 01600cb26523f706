"""The fence that a call passes immediately before it is made.

A call may wait between the decision to make it and the call itself: for a worker thread, an instance of a pool, a rate
limit, a connection. Meanwhile the process may have been stopped for an hour, and another process may have taken the run
over. So whatever makes the call passes the fence of its run first, in the task or thread that makes it, as the last
thing that it does before.

The executor sets the fence of each effect; tools and models pass it. Outside of a run there is none, and nothing to
pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

import anyio.from_thread

from orchestrator.containment import call_in_thread


class Fence(Protocol):
    """Lets a call pass for as long as this process holds the call's run."""

    key: str
    """The idempotency key of the call."""
    entered: bool | None
    """Whether the call was made; False: it still waits, None: not known."""

    @property
    def held(self) -> bool:
        """Whether the run is held, as far as the clocks tell. Any thread may read it."""
        ...

    async def ensure_held(self) -> None:
        """Ask the store whether the run is held.

        Raises:
            BaseException: it is not, or the store cannot tell: the call is not to be made.
        """


current_fence: ContextVar[Fence | None] = ContextVar("current_fence", default=None)
"""The fence of the call that this task, or thread, works on."""


def waits_at_fence(key: str | None) -> None:
    """Note that the call of this key is about to wait for its turn, so that a call which never got one is known."""
    fence = current_fence.get()
    if fence is not None and fence.entered is None and fence.key == key:
        fence.entered = False


async def pass_fence() -> None:
    """Return when the call may be made. Make it next, without waiting for anything else.

    Raises:
        BaseException: another process has taken the run over, or may have.
    """
    fence = current_fence.get()
    if fence is not None:
        while not fence.held:
            await fence.ensure_held()
        fence.entered = True


def pass_fence_in_thread(fence: Fence | None = None) -> None:
    """As `pass_fence`, in a worker thread of anyio. A call that was cancelled while it waited does not pass either.

    Args:
        fence: None: the current one.
    """
    fence = current_fence.get() if fence is None else fence
    if fence is None:
        return
    anyio.from_thread.check_cancelled()
    while not fence.held:
        fault = anyio.from_thread.run(_fault_of, fence)
        if fault is not None:
            raise fault
        anyio.from_thread.check_cancelled()
    fence.entered = True


def fenced(call: Callable[[], object]) -> Callable[[], Any]:
    """A sync function that passes the fence in its thread before it does anything."""

    def run() -> Any:
        pass_fence_in_thread()
        return call_in_thread(call)

    return run


async def _fault_of(fence: Fence) -> BaseException | None:
    """Why a call may not be made. Returned, since event loops give exceptions out of threads meanings of their own."""
    try:
        await fence.ensure_held()
    except BaseException as error:
        if isinstance(error, anyio.get_cancelled_exc_class()):
            raise
        return error
    return None
