"""What was measured, as rows: medians, and ratios to the floor and to the best peer of the same round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from tests.benchmarks.subjects import SUBJECTS

WHAT: Mapping[str, str] = {
    "loop": "loop in memory, async pure nodes; us a step",
    "durable": "durable loop, default nodes; us a step",
    "durable_pure": "durable loop, pure nodes; us a step",
    "history_50": "history of 50 x 1 KiB; us a step",
    "history_200": "history of 200 x 1 KiB; us a step",
    "history_800": "history of 800 x 1 KiB; us a step",
    "history_5000": "history of 5,000 x 1 KiB; us a step",
    "fan_100": "1 -> 100 -> join; us a branch",
    "fan_1000": "1 -> 1,000 -> join; us a branch",
    "concurrent": "200 durable runs at once; us a step",
    "resume": "resume of a run of 10,000 steps; ms",
    "many": "open one, list a page, among 100 and 100,000 runs; ms",
    "waiting": "10,000 runs that wait; KiB a run, CPU while idle",
    "react": "agent, 100 tool calls over HTTP; us a call",
    "import": "import; s",
    "import_names": "import of the main names; s",
    "help": "--help; s",
    "build_10": "graph of 10 nodes, built and checked; ms",
    "build_100": "of 100 nodes; ms",
    "build_2000": "of 2,000 nodes; ms",
    "draw": "300 nodes drawn, and once more; ms",
}
"""Every workload, in the order in which they run."""


@dataclass(frozen=True)
class Row:
    """One figure of one workload: the median of each subject's rounds."""

    workload: str
    figure: str
    medians: Mapping[str, float]
    ratio: float | None
    """Ours to the floor: the median of the ratios of each round."""
    lead: float | None
    """The best peer to ours."""

    def data(self) -> dict[str, object]:
        """As plain JSON."""
        return {**asdict(self), "what": WHAT[self.workload]}


def rows_of(workload: str, rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> Iterable[Row]:
    """The rows of one workload from its rounds: subject -> figures."""
    names = dict.fromkeys(name for found in rounds for figures in found.values() for name in figures)
    for name in names:
        values = {
            subject: [found[subject][name] for found in rounds if name in found.get(subject, {})]
            for subject in SUBJECTS
        }
        medians = {subject: median(found) for subject, found in values.items() if found}
        pairs = [
            found["ours"][name] / found["floor"][name]
            for found in rounds
            if name in found.get("ours", {}) and found.get("floor", {}).get(name)
        ]
        peers = [value for subject, value in medians.items() if subject not in ("floor", "ours")]
        lead = min(peers) / medians["ours"] if peers and medians.get("ours") else None
        yield Row(workload, name, medians, median(pairs) if pairs else None, lead)


def markdown(rows: Iterable[Row]) -> str:
    """The rows as a table."""
    head = ["workload", "figure", *(s.replace("_", " ") for s in SUBJECTS), "ours / floor", "best peer / ours"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [_number(row.medians.get(subject)) for subject in SUBJECTS]
        ends = ["" if x is None else f"{x:.2f} x" for x in (row.ratio, row.lead)]
        lines.append("| " + " | ".join([WHAT[row.workload], row.figure, *cells, *ends]) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
