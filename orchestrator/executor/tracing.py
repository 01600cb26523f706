"""The interface between an executor and what traces its runs. `orchestrator.otel` implements it.

An executor without traces runs no code of this: whether runs are traced is decided once for each drive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from orchestrator.models.base import Model
from orchestrator.stores.base import Store
from orchestrator.tools.tool import Tool

if TYPE_CHECKING:
    from orchestrator.executor.run_log import RunLog
    from orchestrator.kernel.records import Record
    from orchestrator.kernel.state import Activation

TRACE_LABELS = ("traceparent", "tracestate")
"""Labels of a run that hold the context of its trace, in the form of https://www.w3.org/TR/trace-context/."""


class NewTrace(NamedTuple):
    """The trace of a run that is about to be stored."""

    labels: Mapping[str, str]
    """Labels of the run, with the context of its trace: processes that continue the run continue the trace."""
    created: Callable[[], None]
    """Called once the run is stored. Not called if a run with its id exists."""


class Callees(Protocol):
    """The models and tools that the steps of a run call."""

    model: Model | None
    models: Mapping[str, Model]

    @property
    def tool_map(self) -> Mapping[str, Tool]:
        """Return the current tools by name."""
        ...


class Tracing(Protocol):
    """Traces the runs of an executor. Its methods raise nothing of their own."""

    def received(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a block for the work on a request, which belongs to the trace that its headers name.

        Args:
            headers: `traceparent` and `tracestate` of the request, as far as it has them. They may say anything.
        """
        ...

    def begin(
        self, verb: str, run_id: str, graph: str, labels: Mapping[str, str], origin: Mapping[str, str] | None = None
    ) -> NewTrace:
        """Begin the trace of a new run.

        Args:
            verb: how it comes about: `start`, `enqueue`, `fork` or `replay`.
            run_id: its id.
            graph: the name of its graph.
            labels: its labels. If they have the context of a trace, the run is part of that trace.
            origin: the labels of the run that it forks or replays, to whose trace its own is linked.
        """
        ...

    async def drive(self, log: RunLog, called: Callees, run: Callable[[], Awaitable[None]]) -> None:
        """Await `run()`, which drives the run of this log until it ends or pauses.

        Args:
            log: the log of the run.
            called: what its steps call.
            run: drives it.
        """
        ...

    async def step(
        self, log: RunLog, run: Callable[[Activation], Awaitable[Record | None]], activation: Activation
    ) -> Record | None:
        """Await `run(activation)`, which runs an attempt of a step, and return its record."""
        ...


async def new_trace(tracing: Tracing | None, store: Store, verb: str, run_id: str, parent: str) -> NewTrace:
    """Begin the trace of a fork or a replay. It has no labels if runs are not traced.

    Args:
        tracing: traces the runs of the executor.
        store: has the parent.
        verb: `fork` or `replay`.
        run_id: id of the new run.
        parent: id of the run that it forks or replays.

    Raises:
        RunUnknown: there is no such parent.
    """
    if tracing is None:
        return NewTrace({}, lambda: None)
    info = await store.info(parent)
    return tracing.begin(verb, run_id, info.graph, {}, info.labels)
