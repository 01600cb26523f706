"""Several calls at the same time, with results and errors in the order of the calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

T = TypeVar("T")


async def gather(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Await all calls at the same time.

    A call that fails does not stop the others: what they do is not undone by it, and their results are worth
    having. When all have landed, the error of the first one in order is raised, whichever failed first in time. What
    is no `Exception`, such as a call that has to wait for a person, comes before errors: it can still end well.
    """
    if len(calls) == 1:
        return [await calls[0]()]
    stopped = anyio.get_cancelled_exc_class()
    found: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    async def land(index: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            found[index] = await call()
        except (stopped, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            errors[index] = error

    async with anyio.create_task_group() as group:
        for index, call in enumerate(calls):
            group.start_soon(land, index, call)
    if errors:
        raise errors[min(errors, key=lambda index: (isinstance(errors[index], Exception), index))]
    return [found[index] for index in range(len(calls))]
