"""Runs that a run begins: graphs as tools. A child is a run of its own; its parent asks its questions."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

from orchestrator.kernel.records import Caller

if TYPE_CHECKING:
    from orchestrator.executor.host.host import Host
    from orchestrator.executor.run_log import RunLog
    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.graph.limits import Limits
    from orchestrator.kernel.machine import Machine
    from orchestrator.kernel.question import Answer
    from orchestrator.views.run import Run


def child_id(parent: str, key: str) -> str:
    """The id of the run that a call, with this idempotency key, of a run begins: 24 hexadecimal digits."""
    return blake2b(f"{parent}\0{key}".encode(), digest_size=12).hexdigest()


def old_child_id(parent: str, key: str) -> str:
    """The id that it had in earlier versions, longer by 17 characters than that of the run around it."""
    return f"{parent}.{key}"


def caller_of(machine: Machine) -> Caller | None:
    """The call that began a run; None if a person or a program did."""
    started = machine.started
    if started is None or started.caller is not None:
        return None if started is None else started.caller
    parent, _, key = started.run_id.rpartition(".")
    if parent and started.labels.get("parent") == parent:  # begun by an earlier version
        return Caller(run_id=parent, key=key, depth=parent.count(".") + 1)
    return None


def depth_of(machine: Machine) -> int:
    """How many runs are around a run, each of which waits for the next."""
    caller = caller_of(machine)
    return 0 if caller is None else caller.depth


class Children(Protocol):
    """What the call of a graph as a tool needs of the executor."""

    @property
    def host(self) -> Host:
        """Who drives the runs."""
        ...

    def live(self, run_id: str) -> RunLog | None:
        """A run that this executor drives; None also if it is about to end."""
        ...

    async def id_of(self, parent: str, key: str, *, again: bool) -> str:
        """The id of the run that a call begins, or began. `again`: the call was made before."""
        ...

    async def start(
        self, graph: GraphDefinition, given: Mapping[str, object], run_id: str, caller: Caller, limits: Limits | None
    ) -> Run:
        """Run a graph, or go on with the run of this id."""
        ...

    async def answer(self, run: Run, question: str, answer: Answer, parent: str) -> Run:
        """Hand an answer on that was given to the parent, and go on."""
        ...

    async def cancel(self, run_id: str) -> Run | None:
        """End a run whose parent does not want it any more; gives it as it is then, None if it never began."""
        ...
