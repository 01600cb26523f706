"""The page of what was measured: `python -m tests.benchmarks.report` writes docs/performance.md and its charts.

All of it comes from `figures.json` beside this file, which `python -m tests.benchmarks --json FILE` writes. On the
page, what lies between `<!-- figures: NAME -->` and `<!-- end of figures -->` is made here. The rest is written by
hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from tests.benchmarks.chart import NAMES, Points, Unit, bars, lines, said
from tests.benchmarks.subjects import SUBJECTS, sizes
from tests.benchmarks.table import WHAT, Row, number, rows_of

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("figures.json")
PAGE = ROOT / "docs" / "performance.md"
PICTURES = ROOT / "docs" / "pictures"

Kept: TypeAlias = Mapping[str, Any]
"""What `figures.json` holds: `machine`, and `rounds`: workload -> rounds, each subject -> figure -> value."""

GROUPS: Mapping[str, Sequence[str]] = {
    "Steps": ("loop", "one_memory", "durable", "durable_pure", "one_sqlite", "concurrent"),
    "States that grow, and large ones": (
        *(f"history_{steps}" for steps in sizes.HISTORIES), "beside_0", "beside_5000", "touched_5000",
        "depth_1", "depth_48",
    ),
    "Loading, resuming, listing": (*(f"load_{steps}" for steps in sizes.HISTORIES), "resume", "many"),
    "Branches": ("fan_100", "fan_1000", "fan_50000", "map_100", "map_2000"),
    "Waiting, live runs, and an agent": (
        "waiting_1000", "waiting_10000", "live_1000", "live_4000", "talk_30", "talk_120", "react_30", "react",
        "react_300",
    ),
    "Starting, building, drawing": (
        "import", "import_names", "help", "cli_runs", "cli_show", "cli_run", "build_10", "build_100", "build_2000",
        "draw",
    ),
}  # fmt: skip
"""The tables of the page."""
FIGURES: Mapping[str, str] = {
    "us": "µs",
    "ms": "ms, first",
    "warm_ms": "ms, again",
    "s": "s",
    "bytes": "bytes",
    "kib": "KiB",
    "mean_us": "µs, mean",
    "worst_us": "µs, worst",
    "cpu_percent": "% of a processor",
    "open_few_ms": "ms, one of 100",
    "list_few_ms": "ms, page of 100",
    "open_many_ms": "ms, one of 100,000",
    "list_many_ms": "ms, page of 100,000",
    "svg_ms": "ms, SVG",
    "svg_again_ms": "ms, SVG again",
    "mermaid_ms": "ms, Mermaid",
}
"""Figure -> what it is called in a table."""


@dataclass(frozen=True)
class Place:
    """One figure of one subject in one workload."""

    subject: str
    workload: str
    figure: str = "us"


@dataclass(frozen=True)
class Target:
    """A bound for a ratio of two figures of one run, or for one figure."""

    what: str
    bound: float
    one: Place
    other: Place | None = None
    less: Place | None = None
    """Taken away from the first, for what comes on top of something."""
    unit: Unit | None = None
    """Of a bound that is no ratio."""
    produced: float = 1.0
    """The first is divided by it."""


def ours(workload: str, figure: str = "us") -> Place:
    """A figure of this library."""
    return Place("ours", workload, figure)


def pair(one: str, other: str, figure: str = "us") -> tuple[Place, Place]:
    """A figure of this library in two workloads."""
    return ours(one, figure), ours(other, figure)


SIZED = Place("floor_sized", "durable")
TARGETS = (
    Target("loop in memory, of Burr's", 0.2, ours("loop"), Place("burr", "loop")),
    Target("durable loop, of the bare floor", 1.3, ours("durable"), Place("floor", "durable")),
    Target("durable step, more than the floor with a sized log", 130, ours("durable"), less=SIZED, unit="us"),
    Target("history of 800 x 1 KiB, of the floor", 1.3, ours("history_800"), Place("floor", "history_800")),
    Target("history of 5,000 x 1 KiB, of the floor", 1.3, ours("history_5000"), Place("floor", "history_5000")),
    Target("bytes of 800 x 1 KiB, of what was produced", 1.3, ours("history_800", "bytes"), produced=1024),
    Target("bytes of 5,000 x 1 KiB, of what was produced", 1.3, ours("history_5000", "bytes"), produced=1024),
    Target("100 branches, of LangGraph's", 0.22, ours("fan_100"), Place("langgraph", "fan_100")),
    Target("a branch of 50,000, of one of 100", 1.3, ours("fan_50000"), ours("fan_100")),
    Target("step beside 5,000 messages, of one beside none", 1.1, ours("beside_5000"), ours("beside_0")),
    Target("step that reads 5,000 messages", 3000, ours("touched_5000"), unit="us"),
    Target("step inside of 48 graphs, of one at the top, mean", 1.1, *pair("depth_48", "depth_1", "mean_us")),
    Target("one of 4,000 live runs, of one of 1,000", 1.1, *pair("live_4000", "live_1000")),
    Target("bytes of a model's call, 20 tools, 120 calls", 3000, ours("talk_120", "bytes"), unit="bytes"),
    Target("the same at 120 calls, of 30", 1.05, *pair("talk_120", "talk_30", "bytes")),
    Target("map over 2,000 dicts, a branch, of one of 100", 1.3, ours("map_2000"), ours("map_100")),
    Target("200 runs at once, of the floor", 0.7, ours("concurrent"), Place("floor", "concurrent")),
    Target("load 800 x 1 KiB, of Burr's", 1.0, ours("load_800", "ms"), Place("burr", "load_800", "ms")),
    Target("load 50 x 1 KiB, of Burr's", 2.0, ours("load_50", "ms"), Place("burr", "load_50", "ms")),
    Target("`run tool_user`, of `import pydantic`", 4.0, ours("cli_run", "s"), Place("floor", "cli_run", "s")),
    Target("`runs`, of `import pydantic`", 3.0, ours("cli_runs", "s"), Place("floor", "cli_runs", "s")),
)  # fmt: skip


def values(kept: Kept, place: Place) -> list[float | None]:
    """A figure in each round; None where it is missing."""
    rounds = kept["rounds"].get(place.workload, [])
    return [found.get(place.subject, {}).get(place.figure) for found in rounds]


def typical(kept: Kept, place: Place) -> float | None:
    """Its median."""
    found = [value for value in values(kept, place) if value is not None]
    return median(found) if found else None


def reached(kept: Kept, target: Target) -> float | None:
    """What a target came to: the median of the rounds; None if it was not measured."""
    ones = values(kept, target.one)
    others = values(kept, target.other) if target.other else [target.produced] * len(ones)
    lesses = values(kept, target.less) if target.less else [0.0] * len(ones)
    found = [
        (one - less) / other
        for one, other, less in zip(ones, others, lesses, strict=False)
        if one is not None and other and less is not None
    ]
    return median(found) if found else None


def rows(kept: Kept, workloads: Sequence[str]) -> Iterator[Row]:
    """The rows of some workloads."""
    for workload in workloads:
        yield from rows_of(workload, kept["rounds"].get(workload, []))


# -- what the page has -------------------------------------------------------------------------------------------------


def machine(kept: Kept) -> str:
    """On what, when, and which versions."""
    found = kept["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    counts = sorted({len(rounds) for rounds in kept["rounds"].values()})
    times = " to ".join(dict.fromkeys(map(str, (counts[0], counts[-1]))))
    return (
        f"Measured on {found['day']}, medians of {times} round{'' if times == '1' else 's'}: Python {found['python']}, "
        f"SQLite {found['sqlite']}, {found['system']}, {found['processors']} processors; {versions}.\n"
    )


def targets(kept: Kept) -> str:
    """Which were met."""
    lines = ["| | target | measured | |", "|---|--:|--:|---|"]
    for target in TARGETS:
        value = reached(kept, target)
        measured = "" if value is None else said(value, target.unit) if target.unit else f"{value:.2f}"
        bound = said(target.bound, target.unit) if target.unit else f"{target.bound:g}"
        verdict = "not measured" if value is None else "met" if value <= target.bound else "missed"
        lines.append(f"| {target.what} | {bound} | {measured} | {verdict} |")
    return "\n".join(lines) + "\n"


def tables(kept: Kept) -> str:
    """All figures: wall time, and time of processors in brackets."""
    return "\n".join(f"### {name}\n\n{table(kept, workloads)}" for name, workloads in GROUPS.items())


def table(kept: Kept, workloads: Sequence[str]) -> str:
    """Those of one group, with a column for each subject that has a figure in it."""
    found = list(rows(kept, workloads))
    cpu = {(row.workload, row.figure.removeprefix("cpu_")): row for row in found if row.figure.startswith("cpu_")}
    subjects = [subject for subject in SUBJECTS if any(subject in row.medians for row in found)]
    head = ["", "", *(NAMES[subject].replace("agent-graph-orchestrator", "ours") for subject in subjects)]
    lines = [
        f"| {' | '.join([*head, 'ours / floor', 'best peer / ours'])} |",
        f"|---|---|{'--:|' * (len(subjects) + 2)}",
    ]
    for row in found:
        if row.figure not in FIGURES:
            continue
        beside = cpu.get((row.workload, row.figure))
        cells = [_cell(row.medians.get(one), beside and beside.medians.get(one)) for one in subjects]
        ends = ["" if x is None or row.figure == "cpu_percent" else f"{x:.2f}" for x in (row.ratio, row.lead)]
        lines.append(f"| {' | '.join([WHAT[row.workload], FIGURES[row.figure], *cells, *ends])} |")
    return "\n".join(lines) + "\n"


def _cell(wall: float | None, cpu: float | None) -> str:
    return number(wall) if cpu is None else f"{number(wall)} ({number(cpu)})"


def faster(kept: Kept) -> str:
    """What a peer does in less time, or with less, than this library: more than 5 % of difference."""
    found = [
        f"- {WHAT[row.workload]} ({FIGURES[row.figure]}): {NAMES[row.best or '']}, {row.lead:.2f} of ours"
        for row in rows(kept, list(WHAT))
        if row.figure in FIGURES and row.figure != "cpu_percent" and row.lead is not None and row.lead < 0.95
    ]
    return "\n".join(found or ["- Nothing that was measured."]) + "\n"


PARTS: Mapping[str, Callable[[Kept], str]] = {
    "machine": machine, "targets": targets, "tables": tables, "faster": faster,
}  # fmt: skip


def series(kept: Kept, workload: str, figure: str, subjects: Sequence[str]) -> dict[str, Points]:
    """Subject -> (length, value)."""
    found: dict[str, Points] = {}
    for subject in subjects:
        points = [(steps, typical(kept, Place(subject, f"{workload}_{steps}", figure))) for steps in sizes.HISTORIES]
        if some := [(float(x), y) for x, y in points if y]:
            found[subject] = some
    return found


STORING = ("floor", "ours", "langgraph", "langgraph_delta", "burr", "dbos")


def pictures(kept: Kept) -> dict[str, str]:
    """Name of a file -> chart."""
    across = "steps, each of which adds 1 KiB to the state"
    drawn = {
        "steps": ("A durable step, by the length of its run", "history", "us"),
        "bytes": ("Bytes stored for a step, by the length of its run", "history", "bytes"),
        "load": ("The newest state, loaded in a new process", "load", "ms"),
    }
    charts = {
        f"performance_{name}": lines(title, found, across, figure)  # type: ignore[arg-type]
        for name, (title, workload, figure) in drawn.items()
        if (found := series(kept, workload, figure, STORING))
    }
    loops = {one: value for one in SUBJECTS if one != "floor" and (value := typical(kept, Place(one, "loop")))}
    return {**charts, **({"performance_loop": bars("A step of a loop in memory", loops, "us")} if loops else {})}


def page(text: str, kept: Kept) -> str:
    """The page with all parts as the figures give them."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- figures: {found[1]} -->\n\n{PARTS[found[1]](kept)}\n<!-- end of figures -->"

    return re.sub(r"<!-- figures: (\w+) -->\n.*?<!-- end of figures -->", made, text, flags=re.DOTALL)


def read() -> Kept:
    """What was kept."""
    kept: Kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def main() -> None:
    """Write the page and its charts."""
    kept = read()
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), kept), encoding="utf-8")
    for name, svg in pictures(kept).items():
        (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
