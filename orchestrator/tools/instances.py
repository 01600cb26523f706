"""What a pool holds: made by a factory, made as new again, closed. Sync parts run in threads."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from orchestrator.calls import call_in_thread, contained
from orchestrator.graph.signatures import is_async
from orchestrator.tasks import OwnTask

T = TypeVar("T")
Factory: TypeAlias = Callable[[], Any]
"""Gives an instance, or a context manager around one; sync or async."""

CLOSING = 5.0
"""Seconds that making an instance as new again, or closing it, may take."""

log = logging.getLogger("orchestrator")


class Instance(Generic[T]):
    """One instance, and how it is closed."""

    __slots__ = ("_leave", "value")

    def __init__(self, value: T, leave: Callable[[], object] | None) -> None:
        self.value = value
        self._leave = leave

    @classmethod
    async def made(cls, factory: Factory) -> Instance[T]:
        """Make one, and enter it if it is a context manager.

        A thread that is at it is waited for, also by who is cancelled: what it makes would never be closed.
        """
        made = await whole(factory)
        kind = type(made)
        if hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__"):
            task: OwnTask[Any] = OwnTask(lambda: made, f"an instance of {kind.__name__}")
            return cls(await task.open(), task.close)
        if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):
            return cls(await whole(made.__enter__), partial(made.__exit__, None, None, None))
        return cls(made, getattr(made, "aclose", None) or getattr(made, "close", None))

    async def renewed(self, reset: Callable[[T], Awaitable[object] | object]) -> bool:
        """Whether it could be made as new again."""
        try:
            with contained(), anyio.fail_after(CLOSING, shield=True):
                await whole(partial(reset, self.value), abandon=True)
        except Exception as error:
            log.warning("an instance of %s is closed: it could not be reset: %s", type(self.value).__name__, error)
            return False
        return True

    async def close(self) -> None:
        """Close it; what goes wrong there is logged."""
        if self._leave is None:
            return
        try:
            with contained(), anyio.fail_after(CLOSING, shield=True):
                await whole(self._leave, abandon=True)
        except Exception as error:
            log.warning("closing an instance of %s failed: %s", type(self.value).__name__, error)

    @property
    def closes_anywhere(self) -> bool:
        """Whether it takes no event loop to close it."""
        return self._leave is None or not is_async(self._leave)

    def close_here(self) -> None:
        """Close it in this thread, if that takes no event loop; what goes wrong there is logged."""
        try:
            if not self.closes_anywhere:
                raise RuntimeError("its event loop has ended")
            if self._leave is not None:
                self._leave()
        except Exception as error:
            log.warning("closing an instance of %s failed: %s", type(self.value).__name__, error)


async def whole(call: Callable[[], object], *, abandon: bool = False) -> Any:
    """What a function gives, awaited if it is awaitable; a sync one runs in a thread.

    Args:
        abandon: the thread is left behind by who is cancelled; else it is waited for.
    """
    if is_async(call):
        found = call()
    else:
        (found,) = await anyio.to_thread.run_sync(lambda: (call_in_thread(call),), abandon_on_cancel=abandon)
    return await found if inspect.isawaitable(found) else found
