"""Engines that deliver runs to workers: they redeliver when a worker dies, keep timers and spread the load.

    engine = engine_at("restate://127.0.0.1:8080")
    run_id = await executor.enqueue(graph, input)
    await engine.submit(run_id)

The store has the runs; an engine only carries their ids. A delivery that is lost or repeated does not affect the store:
workers also poll for runs that were never delivered, and a run has one driver at a time. The packages of an engine are
imported when its URL, or its module, is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names
from orchestrator.errors import InvalidValue

if TYPE_CHECKING:
    from orchestrator.engines.base import (
        POLL,
        Delivered,
        Deliveries,
        Engine,
        EngineStatus,
        ServedEngine,
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
        "work",
    ),
}

__all__ = ["POLL", "Delivered", "Deliveries", "Engine", "EngineStatus", "ServedEngine", "engine_at", "work"]

SCHEMES = ("restate", "temporal")
"""The schemes of URLs of engines."""


def engine_at(url: str) -> ServedEngine:
    """Return the engine of a URL, without connecting to it.

    Args:
        url: such as `restate://127.0.0.1:8080`; each engine has its parameters, see docs/engines.md.

    Raises:
        InvalidValue: the URL is not that of an engine, or has an invalid parameter.
        ImportError: the engine's extra is not installed.
    """
    before, sign, _ = url.partition("://")
    scheme = before.lower() if sign else ""
    if scheme == "restate":
        from orchestrator.engines.restate import RestateEngine

        return RestateEngine(url)
    if scheme == "temporal":
        from orchestrator.engines.temporal import TemporalEngine

        return TemporalEngine(url)
    known = ", ".join(f"{one}://HOST:PORT" for one in SCHEMES)
    raise InvalidValue(f"{scheme or 'no scheme'!r} is not the scheme of an engine: use {known}", where="engine")


if not TYPE_CHECKING:  # type checkers use the imports above, and report other names
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
