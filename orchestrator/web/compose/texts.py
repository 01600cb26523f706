"""The texts that a server checks: what they may refer to, and how many of them are looked at at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from orchestrator.graph.given_code import GivenCode, given_code
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.graph.refs import NodeTool

T = TypeVar("T")
_THREADS: RunVar[CapacityLimiter] = RunVar("threads that check texts")
AT_ONCE = 2
"""Texts that are looked at at the same time."""
WAITING = 16
"""Texts that wait for that."""


class Texts:
    """The texts of one server.

    Args:
        executor: the executor, as it is when the server begins: its graphs are what texts may refer to.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.given = dict(executor.graphs)
        """The graphs that the server was given, by name."""

    @property
    def code(self) -> GivenCode:
        """What texts may refer to."""
        return self._code if self._executor.tools.ready else given_code(self.given.values())

    @cached_property
    def _code(self) -> GivenCode:
        return given_code(self.given.values(), self.tools or ())

    @property
    def tools(self) -> tuple[NodeTool, ...] | None:
        """The tools of the server; None: they are not known yet."""
        box = self._executor.tools
        return box.tools if box.ready else None

    async def away(self, function: Callable[[], T]) -> T:
        """Call what works on a text in a thread.

        Raises:
            HttpProblem: too many texts wait for that.
        """
        try:
            limiter = _THREADS.get()
        except LookupError:
            _THREADS.set(limiter := CapacityLimiter(AT_ONCE))
        if limiter.statistics().tasks_waiting >= WAITING:
            detail = f"{WAITING} texts of graphs wait to be looked at: send it again"
            raise HttpProblem(503, "texts-full", detail, headers={"Retry-After": "1"})
        return await to_thread.run_sync(function, limiter=limiter)
