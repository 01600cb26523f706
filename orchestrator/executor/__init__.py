"""The only loop that does input and output: it runs what the kernel admits and journals what came of it.

    async with Executor(store="sqlite:///runs.db", graphs=[graph], model=model) as executor:
        run = await executor.start(graph, {"question": "..."})

Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.executor.events import EVENT_TYPES, Event
    from orchestrator.executor.executor import Executor
    from orchestrator.executor.history import Point
    from orchestrator.executor.overlay import Overlay
    from orchestrator.executor.run import Run
    from orchestrator.executor.sealing import Seal
    from orchestrator.executor.streaming import Stream
    from orchestrator.executor.sync import run_sync

_HOME = {
    "EVENT_TYPES": "events",
    "Event": "events",
    "Executor": "executor",
    "Overlay": "overlay",
    "Point": "history",
    "Run": "run",
    "Seal": "sealing",
    "Stream": "streaming",
    "run_sync": "sync",
}

__all__ = ["EVENT_TYPES", "Event", "Executor", "Overlay", "Point", "Run", "Seal", "Stream", "run_sync"]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'orchestrator.executor' has no attribute {name!r}")
    value: object = getattr(import_module(f"orchestrator.executor.{home}"), name)
    globals()[name] = value
    return value
