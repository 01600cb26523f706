"""Engines that deliver runs to workers: they redeliver when a worker dies, keep timers and spread the load.

    engine = engine_at("restate://127.0.0.1:8080")
    run_id = await executor.enqueue(graph, input)
    await engine.submit(run_id)

The store keeps the runs; an engine carries their ids only. What is lost or delivered twice at the engine is neither in
the store: workers also look for runs that were never delivered, and a run has one driver at a time. The packages of an
engine are imported when its URL, or its module, is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.engines.base import (
        POLL,
        Delivered,
        Deliveries,
        Engine,
        EngineStatus,
        ServedEngine,
        engine_at,
        work,
    )

_HOMES = {
    "orchestrator.engines.base": (
        "Deliveries",
        "Delivered",
        "Engine",
        "EngineStatus",
        "POLL",
        "ServedEngine",
        "engine_at",
        "work",
    ),
}

__all__ = ["POLL", "Delivered", "Deliveries", "Engine", "EngineStatus", "ServedEngine", "engine_at", "work"]

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
