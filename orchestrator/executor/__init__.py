"""The only loop that does input and output: it runs what the kernel admits and journals the results.

    async with Executor(store="sqlite:///runs.db", graphs=[graph], model=model) as executor:
        run = await executor.start(graph, {"question": "..."})

Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.executor.checking import Checked
    from orchestrator.executor.executor import App, Executor, run_sync
    from orchestrator.executor.namespaces import (
        ExecutorCache,
        ExecutorForks,
        ExecutorGraphs,
        ExecutorMemory,
        ExecutorReplays,
        ExecutorSchedules,
        ExecutorWorkers,
        VersionCheck,
    )
    from orchestrator.executor.notes import ExecutorNotes
    from orchestrator.executor.observers import RunObserver
    from orchestrator.executor.reader import RunQuestion, RunQuestions
    from orchestrator.executor.resume_many import Resumed, ResumedRun
    from orchestrator.executor.retention import Pruned
    from orchestrator.executor.streaming import Stream
    from orchestrator.executor.transfer import Imported
    from orchestrator.executor.worker import Driven
    from orchestrator.executor.worker_health import WorkerHealth
    from orchestrator.graph.versions import Migration
    from orchestrator.kernel.seals import Seal
    from orchestrator.views.events import EVENT_TYPES, Event
    from orchestrator.views.history import Point
    from orchestrator.views.overlay import Overlay
    from orchestrator.views.replay_result import Divergence, Replay
    from orchestrator.views.run import Run
    from orchestrator.views.run_diff import Difference, RunDiff
    from orchestrator.views.transcript import Entry
    from orchestrator.views.worker_info import WorkerInfo

_HOMES = {
    "orchestrator.executor.executor": ("App", "Executor", "run_sync"),
    "orchestrator.executor.resume_many": ("Resumed", "ResumedRun"),
    "orchestrator.executor.checking": ("Checked",),
    "orchestrator.executor.namespaces": (
        "ExecutorCache", "ExecutorForks", "ExecutorGraphs", "ExecutorMemory", "ExecutorReplays", "ExecutorSchedules",
        "ExecutorWorkers", "VersionCheck",
    ),
    "orchestrator.executor.notes": ("ExecutorNotes",),
    "orchestrator.executor.observers": ("RunObserver",),
    "orchestrator.executor.reader": ("RunQuestion", "RunQuestions"),
    "orchestrator.executor.retention": ("Pruned",),
    "orchestrator.executor.streaming": ("Stream",),
    "orchestrator.executor.transfer": ("Imported",),
    "orchestrator.executor.worker": ("Driven",),
    "orchestrator.executor.worker_health": ("WorkerHealth",),
    "orchestrator.graph.versions": ("Migration",),
    "orchestrator.kernel.seals": ("Seal",),
    "orchestrator.views.events": ("EVENT_TYPES", "Event"),
    "orchestrator.views.history": ("Point",),
    "orchestrator.views.overlay": ("Overlay",),
    "orchestrator.views.replay_result": ("Divergence", "Replay"),
    "orchestrator.views.run": ("Run",),
    "orchestrator.views.run_diff": ("Difference", "RunDiff"),
    "orchestrator.views.transcript": ("Entry",),
    "orchestrator.views.worker_info": ("WorkerInfo",),
}  # fmt: skip

__all__ = [
    "EVENT_TYPES",
    "App",
    "Checked",
    "Difference",
    "Divergence",
    "Driven",
    "Entry",
    "Event",
    "Executor",
    "ExecutorCache",
    "ExecutorForks",
    "ExecutorGraphs",
    "ExecutorMemory",
    "ExecutorNotes",
    "ExecutorReplays",
    "ExecutorSchedules",
    "ExecutorWorkers",
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
    "WorkerHealth",
    "WorkerInfo",
    "run_sync",
]

if not TYPE_CHECKING:  # type checkers know these names from the imports above, and report all others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
