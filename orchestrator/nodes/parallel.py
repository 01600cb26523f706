"""Several calls at the same time, with results and errors in the order of the calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeVar

import anyio

from orchestrator.calls import stopped_by

T = TypeVar("T")


async def gather(
    calls: Sequence[Callable[[], Awaitable[T]]], *, most: int | None = None, lanes: Sequence[Hashable] = ()
) -> list[T]:
    """Await all calls, many at the same time; they begin in their order.

    A call that fails does not stop the others: what they do is not undone by it, and their results are worth
    having. When all have landed, the error of the first one in order is raised, whichever failed first in time. What
    is no `Exception`, such as a call that has to wait for a person, comes before errors: it can still end well.

    Args:
        most: how many may be under way at the same time; None: all.
        lanes: of each call what it needs for itself, None if nothing: calls with the same are made one after the
            other, and none of them behind one that failed.
    """
    if len(calls) == 1:
        return [await calls[0]()]
    found: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    async def land(index: int) -> bool:
        try:
            found[index] = await calls[index]()
        except BaseException as error:
            if stopped_by(error):
                raise
            errors[index] = error
            return False
        return True

    rows: dict[Hashable, list[int]] = {}
    for index in range(len(calls)):
        lane = lanes[index] if lanes else None
        rows.setdefault(("alone", index) if lane is None else ("together", lane), []).append(index)
    waiting = iter(rows.values())

    async def work() -> None:
        for row in waiting:
            for index in row:
                if not await land(index):
                    break

    async with anyio.create_task_group() as group:
        for _ in range(min(most or len(rows), len(rows))):
            group.start_soon(work)
    if errors:
        raise errors[min(errors, key=lambda index: (isinstance(errors[index], Exception), index))]
    return [found[index] for index in range(len(calls))]
