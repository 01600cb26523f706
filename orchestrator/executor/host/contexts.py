"""The context of each run: what its nodes get as `ctx.context`. It is given or made, and never stored."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.containment import contained
from orchestrator.errors import ContextMissing
from orchestrator.kernel.records import Record, RunStarted
from orchestrator.kernel.run_state import RunState
from orchestrator.stores.base import RunInfo

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive

MakeContext: TypeAlias = Callable[[RunInfo], "Awaitable[object] | object"]
"""Makes the context of a run, by its row: its id, graph and labels."""


class Contexts:
    """Finds the contexts of the runs of one executor."""

    def __init__(self, live: Mapping[str, Drive], make: MakeContext | None = None) -> None:
        self.make = make
        """See `Executor(contexts=)`."""
        self._live = live

    async def for_new(self, run_id: str, graph: str, labels: Mapping[str, str], caller: str | None) -> object:
        """The context of a run that begins without a given one; None: it has none."""
        found = self._of_caller(caller)
        if found is None and self.make is not None:
            found = await self._made(RunInfo(run_id, graph, "running", labels))
        return found

    async def for_stored(self, info: RunInfo, run: RunState, given: object) -> object:
        """The context of a run that is taken up.

        Raises:
            ContextMissing: it needs one, and none is given or made.
        """
        found = given
        if found is None:
            found = self._of_caller(None if run.caller is None else run.caller.run_id)
        if found is None and self.make is not None:
            found = await self._made(info)
        if found is None and run.started is not None and run.started.context:
            raise ContextMissing(info.run_id)
        return found

    def check(self, run_id: str, first: Record, given: object) -> None:
        """Refuse a run that goes on in a fork without the context that it needs.

        Raises:
            ContextMissing: it needs one, and none is given or made.
        """
        needs = isinstance(first, RunStarted) and first.context
        if needs and given is None and self.make is None:
            raise ContextMissing(run_id)

    def _of_caller(self, run_id: str | None) -> object:
        caller = None if run_id is None else self._live.get(run_id)
        return None if caller is None else caller.log.context

    async def _made(self, info: RunInfo) -> object:
        with contained():
            made = None if self.make is None else self.make(info)
            return await made if inspect.isawaitable(made) else made
