"""Measure every workload on the floor, on this library and on each peer that is installed, in turn, several times.

    python -m tests.benchmarks [--rounds 3] [--only loop,durable] [--subjects floor,ours] [--json FILE]

Peers come with `pip install -e ".[bench]"`. Read the ratios: how long anything takes is the machine's.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.subjects import SUBJECTS
from tests.benchmarks.table import WHAT, markdown, rows_of

PACKAGES = (
    "graph-orchestrator", "langgraph", "langgraph-checkpoint-sqlite", "burr", "pydantic-graph",
    "llama-index-workflows", "dbos",
)  # fmt: skip
ROOT = Path(__file__).parents[2]


def once(subject: str, workload: str) -> Mapping[str, float] | None:
    """The figures of one subject's turn; None if it has none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.worker", subject, workload, folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=_environment())
        if done.returncode:
            print(f"{subject}, {workload}: failed\n{done.stderr[-2000:]}", file=sys.stderr)
            return None
        found: Mapping[str, float] | None = json.loads(done.stdout.splitlines()[-1])
        return found


def _environment() -> dict[str, str]:
    """What could make one turn differ from another, or reach outside, is left out."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ORCHESTRATOR_", "LANGCHAIN_"))}
    return {**kept, "LANGSMITH_TRACING": "false", "BURR_TELEMETRY": "false", "DO_NOT_TRACK": "1"}


def machine() -> dict[str, object]:
    """What it was measured on."""
    versions: dict[str, object] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "processors": os.cpu_count(),
        "versions": versions,
    }


def measure(workloads: Sequence[str], subjects: Sequence[str], rounds: int) -> list[dict[str, object]]:
    """Rows of all workloads; a round of one is every subject's turn, one after the other."""
    rows = []
    for workload in workloads:
        found = []
        for _ in range(rounds):
            turns = {subject: once(subject, workload) for subject in subjects}
            found.append({subject: figures for subject, figures in turns.items() if figures is not None})
        new = list(rows_of(workload, found))
        print(markdown(new).split("\n", 2)[2], end="", flush=True)
        rows += new
    return [row.data() for row in rows]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(WHAT))
    parser.add_argument("--subjects", type=lambda text: text.split(","), default=list(SUBJECTS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    unknown = [name for name in (*options.only, *options.subjects) if name not in (*WHAT, *SUBJECTS)]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join((*WHAT, *SUBJECTS))}")
    told = machine()
    print(json.dumps(told), file=sys.stderr)
    print(markdown([]), end="")
    rows = measure(options.only, options.subjects, options.rounds)
    if options.json:
        options.json.write_text(json.dumps({"machine": told, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
