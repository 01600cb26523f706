"""What was measured, as rows: medians, and ratios to the floor and to the best peer of the same round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from tests.benchmarks.subjects import PEERS, SUBJECTS, Figures

Rounds: TypeAlias = Sequence[Mapping[str, Figures]]
"""What each round of one workload gave: subject -> figures."""

WHAT: Mapping[str, str] = {
    "loop": "loop in memory, async pure nodes; a step",
    "one_memory": "run of one step in memory; a run",
    "durable": "durable loop, default nodes; a step",
    "durable_pure": "durable loop, pure nodes; a step",
    "one_sqlite": "durable run of one step; a run",
    "concurrent": "200 durable runs at once; a step",
    "history_50": "history of 50 x 1 KiB; a step",
    "history_200": "history of 200 x 1 KiB; a step",
    "history_800": "history of 800 x 1 KiB; a step",
    "history_5000": "history of 5,000 x 1 KiB; a step",
    "beside_0": "step beside no messages",
    "beside_5000": "step beside 5,000 messages, untouched",
    "touched_5000": "step that reads one of 5,000 messages",
    "depth_1": "step in a graph at the top",
    "depth_48": "step inside of 48 graphs",
    "load_50": "newest state of 50 x 1 KiB",
    "load_200": "newest state of 200 x 1 KiB",
    "load_800": "newest state of 800 x 1 KiB",
    "load_5000": "newest state of 5,000 x 1 KiB",
    "resume": "resume after 10,000 steps",
    "many": "one opened, a page listed, among 100 and 100,000 runs",
    "fan_100": "1 -> 100 -> join; a branch",
    "fan_1000": "1 -> 1,000 -> join; a branch",
    "fan_50000": "1 -> 50,000 -> join; a branch",
    "map_100": "map over 100 dicts; a branch",
    "map_2000": "map over 2,000 dicts; a branch",
    "waiting_1000": "1,000 runs that wait; a run",
    "waiting_10000": "10,000 runs that wait; a run",
    "live_1000": "1,000 runs inside of a node at once; a run",
    "live_4000": "4,000 runs inside of a node at once; a run",
    "talk_30": "journal of an agent with 20 tools, 30 calls; a call",
    "talk_120": "journal of an agent with 20 tools, 120 calls; a call",
    "react_30": "agent, 30 tool calls over HTTP; a call",
    "react": "agent, 100 tool calls over HTTP; a call",
    "react_300": "agent, 300 tool calls over HTTP; a call",
    "import": "import",
    "import_names": "import of the main names",
    "help": "`--help`",
    "cli_runs": "`runs`",
    "cli_show": "`show`",
    "cli_run": "`run tool_user`",
    "build_10": "graph of 10 nodes, built and checked",
    "build_100": "graph of 100 nodes, built and checked",
    "build_2000": "graph of 2,000 nodes, built and checked",
    "draw": "300 nodes drawn",
}
"""Every workload, in the order in which they run."""
LONG = ("history_5000", "load_5000", "resume", "many", "fan_50000", "waiting_10000", "build_2000")
"""What the quick form leaves out."""


@dataclass(frozen=True)
class Row:
    """One figure of one workload."""

    workload: str
    figure: str
    medians: Mapping[str, float]
    """Of each subject's rounds; or the minima."""
    ratio: float | None
    """Ours to the floor: the median of the ratios of each round; or the ratio of the minima."""
    lead: float | None
    """The best peer to ours."""
    best: str | None = None
    """That peer."""


def rows_of(workload: str, rounds: Rounds, of: Callable[[Sequence[float]], float] = median) -> Iterable[Row]:
    """The rows of one workload.

    Args:
        workload: Its name.
        rounds: Its figures.
        of: `min` on a machine that is busy with other things: the least of the rounds was disturbed least.
    """
    names = dict.fromkeys(name for found in rounds for figures in found.values() for name in figures)
    for name in names:
        values = {
            subject: [found[subject][name] for found in rounds if name in found.get(subject, {})]
            for subject in SUBJECTS
        }
        medians = {subject: of(found) for subject, found in values.items() if found}
        peers = {subject: value for subject, value in medians.items() if subject in PEERS}
        best = min(peers, key=peers.__getitem__) if peers and medians.get("ours") else None
        lead = None if best is None else peers[best] / medians["ours"]
        if of is median:
            to_floor = ratio(rounds, ("ours", name), ("floor", name))
        else:
            to_floor = medians["ours"] / medians["floor"] if medians.get("floor") and "ours" in medians else None
        yield Row(workload, name, medians, to_floor, lead, best)


def ratio(rounds: Rounds, one: tuple[str, str], other: tuple[str, str], less: Rounds | None = None) -> float | None:
    """The median of the ratios of each round, of one (subject, figure) to another.

    Args:
        rounds: Of the first, and of the second, too, unless `less` is given.
        one: What is divided.
        other: What it is divided by.
        less: Rounds of the second, if it is of another workload.
    """
    pairs = [
        before[one[0]][one[1]] / after[other[0]][other[1]]
        for before, after in zip(rounds, less or rounds, strict=False)
        if one[1] in before.get(one[0], {}) and after.get(other[0], {}).get(other[1])
    ]
    return median(pairs) if pairs else None


def markdown(rows: Iterable[Row], subjects: Sequence[str] = SUBJECTS) -> str:
    """The rows as a table."""
    head = ["workload", "figure", *(s.replace("_", " ") for s in subjects), "ours / floor", "best peer / ours"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [number(row.medians.get(subject)) for subject in subjects]
        ends = ["" if x is None else f"{x:.2f} x" for x in (row.ratio, row.lead)]
        lines.append("| " + " | ".join([WHAT[row.workload], row.figure, *cells, *ends]) + " |")
    return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
