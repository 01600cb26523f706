"""Measure every workload on the floor, on this library and on each peer that is installed, in turn, several times.

    python -m tests.benchmarks [--rounds 3] [--quick] [--only loop,durable] [--subjects floor,ours] [--minima]
        [--json FILE]

Peers come with `pip install -e ".[bench]"`. Read the ratios: how long anything takes is the machine's. With
`--json tests/benchmarks/figures.json`, `python -m tests.benchmarks.report` then writes the page and its charts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.subjects import SUBJECTS, Figures
from tests.benchmarks.table import LONG, WHAT, markdown, rows_of

PACKAGES = (
    "agent-graph-orchestrator", "langgraph", "langgraph-checkpoint-sqlite", "langchain", "burr", "pydantic-graph",
    "pydantic-ai-slim", "llama-index-workflows", "dbos", "openai",
)  # fmt: skip
ROOT = Path(__file__).parents[2]
PATIENCE = 200
"""Seconds for one turn, or what it prepares; what takes longer is left out and said so."""


def worker(subject: str, *words: str) -> Any:
    """What one process of one subject says; None if it failed or took too long."""
    command = [sys.executable, "-m", "tests.benchmarks.worker", subject, *words]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, env=_environment(), timeout=PATIENCE
        )
    except subprocess.CalledProcessError as error:
        print(f"{subject}, {words}: failed\n{error.stderr[-2000:]}", file=sys.stderr)
        return None
    except subprocess.TimeoutExpired:
        print(f"{subject}, {words}: took more than {PATIENCE} s", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def _environment() -> dict[str, str]:
    """What could make one turn differ from another, or reach outside, is left out."""
    prefixes = (
        "PYTHON",
        "OPENAI_",
        "ORCHESTRATOR_",
        "LANGCHAIN_",
        "LANGSMITH_",
        "LANGGRAPH_",
        "DBOS_",
        "LOGFIRE_",
        "OTEL_",
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
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
        "day": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "processors": os.cpu_count(),
        "versions": versions,
    }


def measure(
    workload: str, subjects: Mapping[str, Mapping[str, Sequence[str]]], rounds: int
) -> list[dict[str, Figures]]:
    """The rounds of one workload; a round is every subject's turn, one after the other."""
    taking_part = [name for name, has in subjects.items() if workload in has["workloads"]]
    found = []
    with tempfile.TemporaryDirectory(prefix="bench") as kept:
        for subject in taking_part:
            folder = Path(kept, subject)
            folder.mkdir()
            if workload in subjects[subject]["prepared"]:
                worker(subject, workload, str(folder), "--prepare")
        for _ in range(rounds):
            turns = {subject: _turn(subject, workload, Path(kept, subject)) for subject in taking_part}
            found.append({subject: figures for subject, figures in turns.items() if figures is not None})
            taking_part = list(found[-1])  # who failed is not asked again
    return found


def _turn(subject: str, workload: str, prepared: Path) -> Figures | None:
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
        found: Figures | None = worker(subject, workload, folder)
        return found


def _used() -> float:
    """Seconds of processors that all turns took."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def rounded(rounds: Sequence[Mapping[str, Figures]]) -> list[dict[str, dict[str, float]]]:
    """To four digits that count: what is kept is small."""
    return [
        {
            subject: {name: float(f"{value:.4g}") for name, value in figures.items()}
            for subject, figures in found.items()
        }
        for found in rounds
    ]


def written(about: object, kept: Mapping[str, object]) -> str:
    """As JSON, with a line for each workload."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rounds)}" for name, rounds in kept.items())
    return f'{{"machine": {json.dumps(about)},\n"rounds": {{\n{lines}\n}}}}\n'


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="how often each is measured; by default 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="without the long workloads")
    parser.add_argument("--minima", action="store_true", help="minima instead of medians, for a machine that is busy")
    parser.add_argument("--only", type=lambda text: text.split(","), help="workloads")
    parser.add_argument("--subjects", type=lambda text: text.split(","), default=list(SUBJECTS))
    parser.add_argument("--json", type=Path, help="a file for the figures; it is written after each workload")
    options = parser.parse_args()
    workloads = options.only or [name for name in WHAT if not (options.quick and name in LONG)]
    unknown = [name for name in (*workloads, *options.subjects) if name not in (*WHAT, *SUBJECTS)]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join((*WHAT, *SUBJECTS))}")
    subjects = {subject: worker(subject) or {"workloads": [], "prepared": []} for subject in options.subjects}
    about, kept = machine(), dict[str, list[dict[str, dict[str, float]]]]()
    print(json.dumps(about), file=sys.stderr)
    print(markdown([]), end="")
    for workload in workloads:
        started, used = time.monotonic(), _used()
        kept[workload] = rounded(measure(workload, subjects, options.rounds or (1 if options.quick else 3)))
        print(
            markdown(rows_of(workload, kept[workload], min if options.minima else median)).split("\n", 2)[2],
            end="",
            flush=True,
        )
        took = f"{time.monotonic() - started:.0f} s, {_used() - used:.0f} s of processors"
        print(f"{workload}: {took}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(written(about, kept))


if __name__ == "__main__":
    main()
