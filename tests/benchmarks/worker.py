"""One workload of one subject, in a process of its own: `python -m tests.benchmarks.worker SUBJECT WORKLOAD FOLDER`."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path

_WARMED = ("loop", "fan_")
"""What takes few milliseconds, of which the imports of a first time would be most: done twice, the second counts."""


def main() -> None:
    """Print the figures as JSON; null where the subject has no such workload or is not installed."""
    subject, workload, folder = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        try:
            module = importlib.import_module(f"tests.benchmarks.subjects.{subject}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith(("tests", "orchestrator")):
                raise
            work = None
        else:
            work = module.WORKLOADS.get(workload)
        if work is not None and workload.startswith(_WARMED):
            work(Path(folder))
        figures = None if work is None else work(Path(folder))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
