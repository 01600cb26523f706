"""`python -m tests.benchmarks [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import floor
from tests.benchmarks.workloads import DEFAULT, LOG, PURE, fresh_process, loop, stored_bytes


def measure(rounds: int = 3) -> list[dict[str, object]]:
    """Every figure: what, its value, its unit, and its ratio to the floor where there is one."""
    rows: list[dict[str, object]] = []

    def row(what: str, value: float, unit: str, ratio: float | None = None) -> None:
        rows.append({"what": what, "value": round(value, 3), "unit": unit, "ratio": ratio and round(ratio, 2)})

    loop(PURE, 200)
    row("in-memory loop, async pure nodes", floor.median_of(rounds, lambda: loop(PURE, 2000)) / 2000 * 1e6, "us/step")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pairs = []
        for i in range(rounds):
            bare = floor.durable_commits(place / f"floor{i}.db", 300, b"x" * 240) / 300
            ours = loop(DEFAULT, 300, f"sqlite:///{place}/default{i}.db") / 300
            shared = loop(PURE, 300, f"sqlite:///{place}/pure{i}.db") / 300
            pairs.append((bare, ours, shared))
        bare, ours, shared = (sorted(column)[rounds // 2] for column in zip(*pairs, strict=True))
        row("bare sqlite3 commit (floor)", bare * 1e6, "us/step", 1.0)
        row("durable loop, default nodes", ours * 1e6, "us/step", ours / bare)
        row("durable loop, pure nodes", shared * 1e6, "us/step", shared / bare)
        for steps in (50, 200, 800):
            path = place / f"log{steps}.db"
            bare = floor.durable_commits(place / f"kib{steps}.db", steps, b"x" * 1264) / steps
            seconds = loop(LOG, steps, f"sqlite:///{path}") / steps
            row(f"history of {steps} x 1 KiB", seconds * 1e6, "us/step", seconds / bare)
            row(f"bytes stored, {steps} x 1 KiB", stored_bytes(path), "bytes", stored_bytes(path) / (steps * 1024))
    nothing = fresh_process("-c", "pass")
    row("import orchestrator", fresh_process("-c", "import orchestrator") - nothing, "s")
    row("import its main names", fresh_process("-c", "from orchestrator import Graph, Executor, node") - nothing, "s")
    row("orchestrator --help", fresh_process("-m", "orchestrator", "--help"), "s")
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = measure(options.rounds)
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.platform()}", file=sys.stderr)
    for entry in rows:
        ratio = "" if entry["ratio"] is None else f"{entry['ratio']:>8} x"
        print(f"{entry['what']:<38}{entry['value']:>14} {entry['unit']:<8}{ratio}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
