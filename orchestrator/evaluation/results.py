"""Results of an evaluation: figures of each variant, paired differences, and the rows that are wrong.

While an evaluation runs, a `Tally` keeps a few numbers for each case, in arrays, and texts
of the first wrong ones only.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from orchestrator.evaluation.statistics import bootstrap, kappa, mcnemar, quantile, wilson
from orchestrator.views.safe_text import cut

if TYPE_CHECKING:
    from orchestrator.comparison import Compared
    from orchestrator.evaluation.scorers import Verdict

MAX_WRONG = 500
"""Wrong cases of which texts are kept."""
MAX_SHOWN = 300
"""Characters of a text of a wrong case."""
MAX_OUTAGE = 5
"""Cases of a variant in a row that a model may interrupt before an evaluation stops."""
_PAIRS = 45
"""Pairs of variants that are compared: those of ten variants."""
_ABSENT = float("nan")
COLUMNS = ("variant", "accuracy", "95 %", "model calls", "rounds", "tokens", "tool calls", "cost", "median s", "p95 s")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an evaluation is."""

    done: int
    cases: int
    taken: int
    """Cases that were settled before."""
    seconds: float
    """Seconds since it began or was continued."""
    cost: float
    budget: float | None

    @property
    def rate(self) -> float:
        """Cases settled in a second, without those that were settled before."""
        return (self.done - self.taken) / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that the rest takes at this rate; None if it is not known yet."""
        return (self.cases - self.done) / self.rate if self.rate > 0 else None


@dataclass(frozen=True)
class VariantResult:
    """The figures of one graph with one model."""

    name: str
    graph: str
    model: str
    rows: int
    """Rows with a result."""
    accuracy: float
    """Share of rows that are right; with repeats the mean of the shares of each row. Failed rows are wrong."""
    low: float
    """Lower end of the 95 % interval of the accuracy, by Wilson, over rows."""
    high: float
    scores: Mapping[str, float]
    """Scorer -> mean score."""
    statuses: Mapping[str, int]
    """Status -> number of runs."""
    model_calls: int
    tool_calls: int
    tokens: int
    cost: float
    """Cost of all its runs, without judges."""
    rounds: float
    """Mean number of model calls, one after the other, of a run."""
    median_seconds: float
    p95_seconds: float
    priced: bool = True
    """False if the price of its model is unknown: then `cost` lacks its calls."""

    @property
    def runs(self) -> int:
        """Number of runs with a result."""
        return sum(self.statuses.values())

    @property
    def cost_per_run(self) -> float:
        """Mean cost of a run."""
        return self.cost / self.runs if self.runs else 0.0

    def cells(self) -> tuple[str, ...]:
        """Return the figures as a row of a table with the columns `COLUMNS`."""
        runs = self.runs or 1
        return (
            self.name,
            f"{self.accuracy:.1%}",
            f"{self.low:.1%} to {self.high:.1%}",
            f"{self.model_calls / runs:.1f}",
            f"{self.rounds:.1f}",
            f"{self.tokens / runs:,.0f}",
            f"{self.tool_calls / runs:.1f}",
            f"{self.cost:.4f}" if self.priced else "-",
            f"{self.median_seconds:.2f}",
            f"{self.p95_seconds:.2f}",
        )


@dataclass(frozen=True)
class Difference:
    """The paired difference of two variants, over the rows that both have."""

    first: str
    second: str
    rows: int
    only_first: int
    """Rows that only the first variant has right."""
    only_second: int
    p: float
    """Two-sided p-value of McNemar's exact test."""
    difference: float
    """Mean score of the first variant minus that of the second."""
    low: float
    """Lower end of its 95 % interval, by bootstrap over rows."""
    high: float

    def __str__(self) -> str:
        says = "differ" if self.p < 0.05 else "do not differ significantly"
        return (
            f"{self.first} and {self.second} {says}: {self.only_first} rows only the first has right, "
            f"{self.only_second} only the second (McNemar p = {self.p:.3g}); difference {self.difference:+.1%} "
            f"({self.low:+.1%} to {self.high:+.1%})"
        )


@dataclass(frozen=True)
class Agreement:
    """How far a scorer agrees with the scores that people wrote on the same runs."""

    cases: int
    agreed: int
    kappa: float | None
    """Cohen's kappa; None if it is not defined."""

    def __str__(self) -> str:
        measured = "not defined, as both gave all cases the same" if self.kappa is None else f"{self.kappa:.2f}"
        return f"agrees with people on {self.agreed} of {self.cases} runs, kappa {measured}"


@dataclass(frozen=True, order=True)
class WrongCase:
    """A case that is wrong. Texts are cut."""

    index: int
    """Number of the row, from 0."""
    variant: str
    repeat: int
    row: str
    line: int
    run_id: str
    status: str
    answer: str
    expected: str
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return the case as plain JSON."""
        return {name: value for name, value in asdict(self).items() if name != "index"}


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    name: str
    data: str
    scorers: tuple[str, ...]
    """The first one decides whether a row is right."""
    variants: tuple[VariantResult, ...]
    differences: tuple[Difference, ...]
    wrong: tuple[WrongCase, ...]
    """The first wrong cases, in the order of rows and variants."""
    wrong_count: int
    rows: int
    cases: int
    """Rows, times variants, times repeats."""
    done: int
    """Cases with a result."""
    taken: int
    """Cases that an earlier part of the evaluation had settled: nothing was paid for them again."""
    cost: float
    """What the evaluation cost until now, judges included."""
    interrupted: int = 0
    """Cases without a result because a model could not be reached; they count as wrong."""
    stopped: str = ""
    """Why it stopped before its end; empty if it did not."""
    outage: bool = False
    """True if it stopped because a model could not be reached several times in a row."""
    changed: tuple[str, ...] = ()
    """Rows that differ from an earlier part of the evaluation."""
    remarks: tuple[str, ...] = ()
    """What a reader should know about the data."""
    agreement: Agreement | None = None
    """Agreement with people's scores; None if there are none."""
    simulated: bool = False
    """True if a model was simulated: figures then say nothing about a real one."""
    updated: float = 0.0
    """Unix seconds."""
    verdicts: Tally | None = field(default=None, compare=False, repr=False)
    """Results of each case; None if the evaluation was read from a store."""

    def below(self, required: Mapping[str, float]) -> list[str]:
        """Return what does not reach a required accuracy, as text; empty if all do.

        Args:
            required: variant -> accuracy; `""`: each variant.
        """
        found = []
        for one in self.variants:
            need = required.get(one.name, required.get(""))
            if need is not None and (one.accuracy < need or self.done < self.cases):
                reason = f"{one.accuracy:.1%} is below {need:.1%}" if one.accuracy < need else "not all rows are done"
                found.append(f"{one.name}: {reason}")
        unknown = [name for name in required if name and name not in {one.name for one in self.variants}]
        return found + [f"{name}: there is no such variant" for name in unknown]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "scorers": list(self.scorers),
            "changed": list(self.changed),
            "remarks": list(self.remarks),
            "agreement": None if self.agreement is None else asdict(self.agreement),
            "variants": [{**asdict(one), "runs": one.runs} for one in self.variants],
            "differences": [asdict(one) for one in self.differences],
            "wrong": [one.to_json() for one in self.wrong],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Return a result from its JSON.

        Raises:
            ValueError, TypeError, KeyError: it is not the JSON of a result.
        """
        agreement = data["agreement"]
        return cls(
            **{name: data[name] for name in _PLAIN},
            scorers=tuple(data["scorers"]),
            changed=tuple(data["changed"]),
            remarks=tuple(data["remarks"]),
            agreement=None if agreement is None else Agreement(**agreement),
            variants=tuple(VariantResult(**{k: v for k, v in one.items() if k != "runs"}) for one in data["variants"]),
            differences=tuple(Difference(**one) for one in data["differences"]),
            wrong=tuple(WrongCase(index=place, **one) for place, one in enumerate(data["wrong"])),
        )

    def notes(self) -> list[str]:
        """Return what a reader of the table should know, a line each."""
        lines = [f"{self.done:,} of {self.cases:,} cases of data {self.data!r}, scorer {', '.join(self.scorers)}"]
        if self.taken:
            lines[0] += f"; {self.taken:,} were settled before"
        if self.interrupted:
            lines.append(f"cases that a model interrupted: {self.interrupted:,}; the next part tries them again")
        if self.stopped:
            lines.append(f"stopped: {self.stopped}")
        if self.simulated:
            lines.append("simulated: a model with a stated error rate answered, no real one")
        if self.agreement is not None:
            lines.append(f"{self.scorers[0]} {self.agreement}")
        return [*lines, *map(str, self.differences), *self.remarks, *self.changed]

    def to_text(self) -> str:
        """Return the result as a table of text, with notes below it."""
        lines = [COLUMNS, *(one.cells() for one in self.variants)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
        table = [
            "  ".join(
                f"{cell:{'>' if at else '<'}{wide}}" for at, (cell, wide) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        return "\n".join([*(line.rstrip() for line in table), "", *self.notes()])


_PLAIN = (
    "name", "data", "wrong_count", "rows", "cases", "done", "taken", "cost", "interrupted", "stopped", "outage",
    "simulated", "updated",
)  # fmt: skip


@dataclass
class _Numbers:
    """Numbers of the cases of one variant, by the index of the row times the number of repeats."""

    passed: array[float]
    seconds: array[float]
    scores: dict[str, float] = field(default_factory=dict)
    """Scorer -> sum of scores."""
    first: array[float] = field(default_factory=lambda: array("d"))
    """Score of the first scorer."""
    statuses: Counter[str] = field(default_factory=Counter)
    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    rounds: int = 0


class Tally:
    """Results of the cases of an evaluation that is running. Its size depends on the number of cases alone."""

    def __init__(self, variants: Sequence[str], rows: int, repeats: int) -> None:
        self.rows, self.repeats = rows, repeats
        self.done = self.wrong_count = self.interrupted = 0
        self.keys: list[str] = [""] * rows
        self.people: list[tuple[bool, bool]] = []
        """The verdict of the first scorer, and that of people, for each run with scores of people."""
        self.outage = ""
        """Why no further case is begun: a model could not be reached several times in a row."""
        self._outages = dict.fromkeys(variants, 0)
        empty = [_ABSENT] * (rows * repeats)
        self._numbers = {
            name: _Numbers(array("d", empty), array("d", empty), first=array("d", empty)) for name in variants
        }
        self._places = {name: place for place, name in enumerate(variants)}
        self._wrong: list[tuple[tuple[int, int, int], WrongCase]] = []
        """A heap of the first wrong cases, the last one on top: its keys are negative."""

    def copy(self) -> Tally:
        """Return the results as they are now, for a thread that reads them while further ones are added."""
        copied = copy(self)
        copied._numbers, copied._wrong, copied.people = deepcopy(self._numbers), self._wrong[:], self.people[:]
        return copied

    def add(self, wrong: WrongCase, made: Compared, verdicts: Mapping[str, Verdict]) -> None:
        """Add the result of a case.

        Args:
            wrong: the case as it is kept if it is wrong.
            made: what its run spent.
            verdicts: scorer -> verdict, the first scorer first.
        """
        found, at = self._numbers[wrong.variant], wrong.index * self.repeats + wrong.repeat - 1
        verdict = next(iter(verdicts.values()))
        self.done += 1
        self.keys[wrong.index] = wrong.row
        found.passed[at], found.first[at] = float(verdict.passed), verdict.score
        found.seconds[at] = made.run.seconds
        for name, one in verdicts.items():
            found.scores[name] = found.scores.get(name, 0.0) + one.score
        found.statuses[wrong.status] += 1
        found.model_calls += made.model_calls
        found.tool_calls += made.tool_calls
        found.tokens += made.usage.tokens
        found.cost += made.usage.cost
        found.rounds += made.rounds
        if verdict.passed:
            return
        self.wrong_count += 1
        order = (-wrong.index, -self._places[wrong.variant], -wrong.repeat)
        push = heapq.heappush if len(self._wrong) < MAX_WRONG else heapq.heappushpop
        push(self._wrong, (order, wrong))

    def count_outage(self, variant: str, outage: str) -> None:
        """Count a case as interrupted by a model, for a reason; an empty one: the model answered."""
        self.interrupted += bool(outage)
        self._outages[variant] = self._outages[variant] + 1 if outage else 0
        if self._outages[variant] >= MAX_OUTAGE:
            self.outage = f"{MAX_OUTAGE} cases in a row were interrupted, the last one by this: {shown(outage)}"

    def wrong(self) -> tuple[WrongCase, ...]:
        """Return the first wrong cases in the order of rows, variants and repeats."""
        return tuple(one for _, one in sorted(self._wrong, key=lambda found: found[0], reverse=True))

    def cases(self, variant: str) -> list[tuple[int, int, bool, float]]:
        """Return row, repeat, whether it is right, and seconds of each case of a variant that has a result."""
        found = self._numbers[variant]
        return [
            (at // self.repeats, at % self.repeats + 1, bool(passed), found.seconds[at])
            for at, passed in enumerate(found.passed)
            if passed == passed  # not absent
        ]

    def result(self, variant: str, graph: str, model: str, *, priced: bool) -> VariantResult:
        """Return the figures of a variant."""
        found = self._numbers[variant]
        shares = self._means(found.passed)
        right, runs = sum(shares.values()), sum(found.statuses.values())
        low, high = wilson(right, len(shares))
        seconds = sorted(one for one in found.seconds if one == one)
        return VariantResult(
            variant,
            graph,
            model,
            rows=len(shares),
            accuracy=right / len(shares) if shares else 0.0,
            low=low,
            high=high,
            scores={name: total / runs for name, total in found.scores.items()},
            statuses=dict(sorted(found.statuses.items())),
            model_calls=found.model_calls,
            tool_calls=found.tool_calls,
            tokens=found.tokens,
            cost=found.cost,
            rounds=found.rounds / runs if runs else 0.0,
            median_seconds=quantile(seconds, 0.5),
            p95_seconds=quantile(seconds, 0.95),
            priced=priced,
        )

    def differences(self, seed: int) -> tuple[Difference, ...]:
        """Return the paired differences of all variants; none if there are more than ten."""
        pairs = list(combinations(self._numbers, 2))[:_PAIRS] if len(self._numbers) <= 10 else []
        return tuple(self._difference(first, second, seed) for first, second in pairs)

    def agreement(self) -> Agreement | None:
        """Return the agreement of the first scorer with people; None without scores of people."""
        if not self.people:
            return None
        return Agreement(len(self.people), sum(one == other for one, other in self.people), kappa(self.people))

    def _difference(self, first: str, second: str, seed: int) -> Difference:
        one, two = (self._means(self._numbers[name].passed) for name in (first, second))
        both = [row for row in one if row in two]
        only_first = sum(one[row] >= 0.5 > two[row] for row in both)
        only_second = sum(two[row] >= 0.5 > one[row] for row in both)
        scores = [self._means(self._numbers[name].first) for name in (first, second)]
        apart = [scores[0][row] - scores[1][row] for row in both]
        low, high = bootstrap(apart, seed)
        mean = sum(apart) / len(apart) if apart else 0.0
        p = mcnemar(only_first, only_second)
        return Difference(first, second, len(both), only_first, only_second, p, mean, low, high)

    def _means(self, values: array[float]) -> dict[int, float]:
        """Return the mean of the repeats of each row that has a result."""
        found = {}
        for row in range(self.rows):
            known = [one for one in values[row * self.repeats : (row + 1) * self.repeats] if one == one]
            if known:
                found[row] = sum(known) / len(known)
        return found


def shown(value: str) -> str:
    """Return a text of a wrong case, cut."""
    return cut(value, MAX_SHOWN)
