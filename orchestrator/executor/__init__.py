"""The only loop that does input and output: it runs what the kernel admits and journals what came of it.

    async with Executor(store="sqlite:///runs.db", graphs=[graph], model=model) as executor:
        run = await executor.start(graph, {"question": "..."})

Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.executor.executor import App, Executor
    from orchestrator.executor.host.batches import Resumed, ResumedRun
    from orchestrator.executor.host.checking import Checked
    from orchestrator.executor.host.observers import RunObserver
    from orchestrator.executor.host.open_questions import RunQuestion, RunQuestions
    from orchestrator.executor.host.pruning import Pruned
    from orchestrator.executor.host.streaming import Stream
    from orchestrator.executor.host.transfer import Imported
    from orchestrator.executor.host.version_check import VersionCheck
    from orchestrator.executor.host.work_queue import Driven
    from orchestrator.executor.sync import run_sync
    from orchestrator.graph.migration import Migration
    from orchestrator.seals import Seal
    from orchestrator.views.events import EVENT_TYPES, Event
    from orchestrator.views.history import Point
    from orchestrator.views.overlay import Overlay
    from orchestrator.views.replay_result import Divergence, Replay
    from orchestrator.views.run import Run
    from orchestrator.views.run_diff import Difference, RunDiff

_HOME = {
    "App": "orchestrator.executor.executor",
    "Checked": "orchestrator.executor.host.checking",
    "Divergence": "orchestrator.views.replay_result",
    "Difference": "orchestrator.views.run_diff",
    "EVENT_TYPES": "orchestrator.views.events",
    "Driven": "orchestrator.executor.host.work_queue",
    "Event": "orchestrator.views.events",
    "Executor": "orchestrator.executor.executor",
    "Imported": "orchestrator.executor.host.transfer",
    "Migration": "orchestrator.graph.migration",
    "Overlay": "orchestrator.views.overlay",
    "Point": "orchestrator.views.history",
    "Pruned": "orchestrator.executor.host.pruning",
    "Run": "orchestrator.views.run",
    "RunObserver": "orchestrator.executor.host.observers",
    "Replay": "orchestrator.views.replay_result",
    "Resumed": "orchestrator.executor.host.batches",
    "ResumedRun": "orchestrator.executor.host.batches",
    "RunQuestion": "orchestrator.executor.host.open_questions",
    "RunQuestions": "orchestrator.executor.host.open_questions",
    "RunDiff": "orchestrator.views.run_diff",
    "Seal": "orchestrator.seals",
    "Stream": "orchestrator.executor.host.streaming",
    "VersionCheck": "orchestrator.executor.host.version_check",
    "run_sync": "orchestrator.executor.sync",
}

__all__ = [
    "EVENT_TYPES",
    "App",
    "Checked",
    "Difference",
    "Divergence",
    "Driven",
    "Event",
    "Executor",
    "Imported",
    "Migration",
    "Overlay",
    "Point",
    "Pruned",
    "Replay",
    "Resumed",
    "ResumedRun",
    "Run",
    "RunDiff",
    "RunObserver",
    "RunQuestion",
    "RunQuestions",
    "Seal",
    "Stream",
    "VersionCheck",
    "run_sync",
]


if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others

    def __getattr__(name: str) -> object:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'orchestrator.executor' has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value
