"""Temporal (https://temporal.io) as the engine: a workflow for each run, whose activity drives it.

    async with worker(executor, client):  # in a process of one's own; `orchestrator worker --engine` does it, too
        ...

Needs the extra `temporal`, whose client works on asyncio only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.engines.temporal.engine import TemporalEngine, worker
    from orchestrator.engines.temporal.workflow import RunWorkflow

_HOMES = {
    "orchestrator.engines.temporal.engine": ("TemporalEngine", "worker"),
    "orchestrator.engines.temporal.workflow": ("RunWorkflow",),
}

__all__ = ["RunWorkflow", "TemporalEngine", "worker"]

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
