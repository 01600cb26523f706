"""One workload of one subject, in a process of its own: `python -m tests.benchmarks.worker SUBJECT WORKLOAD FOLDER`.

With `--prepare` only what has to be there before it is measured. With a subject alone: the names of its workloads, and
of those that are prepared.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from tests.benchmarks.subjects import Preparation, Workload

_BEFORE = {
    "loop": "loop",
    "one_memory": "one_memory",
    "one_sqlite": "one_sqlite",
    "durable": "durable",
    "concurrent": "concurrent",
    "history_": "history_50",
    "beside_": "beside_0",
    "touched_": "touched_5000",
    "depth_": "depth_1",
    "fan_": "fan_100",
    "map_": "map_100",
    "build_": "build_10",
}
"""How the name of a workload begins -> the workload that its process does before: what a process imports and prepares
when it does something for the first time is nobody's cost of a step."""


def module_of(subject: str) -> ModuleType | None:
    """The subject's module; None if its packages are not installed."""
    try:
        return importlib.import_module(f"tests.benchmarks.subjects.{subject}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("tests", "orchestrator")):
            raise
        return None


def said(subject: str, workload: str = "", folder: str = "", *options: str) -> object:
    """The names, or the figures; None for what was prepared, and where the subject has no such workload."""
    module = module_of(subject)
    workloads: dict[str, Workload] = getattr(module, "WORKLOADS", {})
    prepared: dict[str, Preparation] = getattr(module, "PREPARED", {})
    if not workload:
        return {"workloads": list(workloads), "prepared": list(prepared)}
    if options == ("--prepare",):
        prepared[workload](Path(folder))
        return None
    work = workloads[workload]
    for beginning, before in _BEFORE.items():
        if workload.startswith(beginning):
            with tempfile.TemporaryDirectory() as other:
                workloads.get(before, work)(Path(other))
    gc.collect()  # what imports and the first time left is nobody's to clear away while it is measured
    return work(Path(folder))


def main() -> None:
    """Print what was found as JSON."""
    with contextlib.redirect_stdout(sys.stderr):
        found = said(*sys.argv[1:])
    print(json.dumps(found), flush=True)
    os._exit(0)  # whatever threads a peer has left


if __name__ == "__main__":
    main()
