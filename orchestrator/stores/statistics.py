"""Sums over runs, in groups: defines the groups and each number, the same in every store."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import add, not_
from typing import Any, TypeAlias

from msgspec import Struct

from orchestrator.errors import InvalidValue
from orchestrator.stores.rows import ReplayFacts, RunInfo, RunTotals, Total
from orchestrator.values import utc

GROUPS = ("day", "graph", "model", "tool", "node")
"""Valid names of groups, besides `label:KEY`."""

Numbers: TypeAlias = tuple[int, int, int, int, int, int, float, float]
"""Calls of models, failed ones, calls of tools, failed ones, input tokens, output tokens, cost, seconds."""

ANY_TOOL = ("", "*")
"""Value of `Store.runs(failed_tool=)` that matches any tool."""

_ENDED = ("completed", "failed", "cancelled", "exhausted")


@dataclass(frozen=True, slots=True)
class StatsRow:
    """The usage of the runs of one group. The sums do not include what a fork inherited.

    In groups by `model`, `tool` or `node` the numbers are those of this model, tool or node alone, and a run counts if
    it used it. Runs of graphs that are called as tools are counted as runs of their own.
    """

    group: Mapping[str, str | None] = field(default_factory=dict)
    """Name of the group -> its value. None: for a label, the runs without it; for a model, tool or node, the runs
    without totals."""
    runs: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Status in the journal -> number of runs. A run that was interrupted is `running`."""
    uncounted: int = 0
    """Runs without totals, which earlier versions wrote: they are not in the numbers below."""
    calls: int = 0
    """Calls of models."""
    failed_calls: int = 0
    tool_calls: int = 0
    failed_tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """In the currency of the price table."""
    seconds: float = 0.0
    """Active seconds of all runs; by model or tool the duration of calls, by node that of steps."""
    p50: float | None = None
    """Median of the seconds of the runs; None if no run has totals."""
    p95: float | None = None
    """95th percentile of the seconds of the runs."""
    cache_savings: float | None = 0.0
    """What providers' caches saved, in the currency of `cost`; a run includes the runs of graphs that it called as
    tools. 0 if no price for cached tokens is known. None in groups by `model`, `tool` or `node`: it is known for whole
    runs."""
    unpriced: int = 0
    """Runs that used tokens and have no cost: no price of their models is known, or they are free. In groups by
    `model`, `tool` or `node`, those of this part of the run."""
    replay_savings: float | None = 0.0
    """What the calls had cost whose results replays took from the replayed runs; 0 and None as for `cache_savings`."""
    replayed_calls: int | None = 0
    """Number of these calls of models and tools; None as for `cache_savings`."""

    @property
    def failed_rate(self) -> float | None:
        """Fraction of the ended runs that failed; None if none ended."""
        ended = sum(self.statuses.get(status, 0) for status in _ENDED)
        return self.statuses.get("failed", 0) / ended if ended else None

    @property
    def failed_tool_rate(self) -> float | None:
        """Fraction of the calls of tools that failed; None if there was none."""
        return self.failed_tool_calls / self.tool_calls if self.tool_calls else None

    @property
    def tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    def cost_text(self, amount: str) -> str:
        """Return the cost as text: `amount`, at least `amount`, or that no price is known.

        Args:
            amount: the cost as text.
        """
        if not self.unpriced:
            return amount
        return f"≥ {amount}" if self.cost else "no price known"


class By(Struct, frozen=True):
    """The definition of groups."""

    names: tuple[str, ...]

    @staticmethod
    def of(by: Sequence[str]) -> By:
        """Return the grouping that `Store.stats(by=)` describes.

        Raises:
            InvalidValue: an entry cannot make a group.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        for name in names:
            if name not in GROUPS and not (name.startswith("label:") and len(name) > len("label:")):
                raise InvalidValue(f"by {name!r}: use {', '.join(GROUPS)} or label:KEY")
        for name in names:
            if names.count(name) > 1:
                raise InvalidValue(f"by {name!r} twice; name it once")
        if "model" in names and "tool" in names:
            raise InvalidValue("by 'model' and by 'tool': a call has only one of them; ask once for each")
        return By(names)

    @property
    def within(self) -> tuple[str, ...]:
        """The parts of the grouping that are within runs."""
        return tuple(name for name in self.names if name in ("model", "tool", "node"))

    @property
    def kind(self) -> str | None:
        """The kind of the totals that count; None: all kinds."""
        return "model" if "model" in self.names else "tool" if "tool" in self.names else None

    @property
    def seconds_of(self) -> str:
        """The kind of the totals whose seconds count."""
        return self.kind or "step"

    def run_part(self, graph: str, created: object, labels: Mapping[str, str]) -> dict[str, str | None]:
        """Return the values of a run by which it is grouped, without those that differ within the run."""
        return {
            name: graph if name == "graph" else _day(created) if name == "day" else labels.get(name[len("label:") :])
            for name in self.names
            if name not in ("model", "tool", "node")
        }


def failed_in(totals: RunTotals | None, tool: str) -> bool:
    """Return True if a call of a tool failed, as `Store.runs(failed_tool=)` defines it."""
    rows = () if totals is None else totals.rows
    return any(row.kind == "tool" and row.failed and (tool in ANY_TOOL or row.name == tool) for row in rows)


def used_in(totals: RunTotals | None, kind: str, name: str) -> bool:
    """Return True if a run called a model or a tool of this name, or ran a step of a node (`kind`)."""
    rows = () if totals is None else totals.rows
    return any(row.node == name if kind == "node" else (row.kind, row.name) == (kind, name) for row in rows)


def numbers_of(totals: RunTotals) -> Numbers:
    """Return the numbers of a whole run."""
    return _numbers(totals.rows, totals.seconds)


def parts_by(by: By, names: Sequence[tuple[str, str, str]]) -> dict[tuple[str, ...], list[int]]:
    """Return the rows of a run's totals that count, by the values of `By.within`, from their nodes, kinds and names."""
    found: dict[tuple[str, ...], list[int]] = {}
    for at, (node, kind, name) in enumerate(names):
        if by.kind is None or kind == by.kind:
            found.setdefault(tuple(node if part == "node" else name for part in by.within), []).append(at)
    return found


def parts_of(by: By, totals: RunTotals) -> dict[tuple[str, ...], Numbers]:
    """Return the numbers of the parts of a run, by the values of `By.within`."""
    found: dict[tuple[str, ...], Numbers] = {}
    for key, places in parts_by(by, [(row.node, row.kind, row.name) for row in totals.rows]).items():
        rows = [totals.rows[at] for at in places]
        seconds = 0.0
        for row in rows:
            seconds += row.seconds if row.kind == by.seconds_of else 0.0
        found[key] = _numbers(rows, seconds)
    return found


def _numbers(rows: Iterable[Total], seconds: float) -> Numbers:
    calls = failed = tools = failed_tools = tokens_in = tokens_out = 0
    cost = 0.0
    for row in rows:
        if row.kind == "model":
            calls, failed = calls + row.calls, failed + row.failed
        elif row.kind == "tool":
            tools, failed_tools = tools + row.calls, failed_tools + row.failed
        tokens_in, tokens_out, cost = tokens_in + row.input_tokens, tokens_out + row.output_tokens, cost + row.cost
    return calls, failed, tools, failed_tools, tokens_in, tokens_out, cost, seconds


class Groups:
    """Collects runs, and parts of runs, in their groups."""

    def __init__(self, by: By) -> None:
        self.by = by
        self._groups: dict[tuple[str | None, ...], Group] = {}

    def add_run(self, info: RunInfo, totals: RunTotals | None) -> None:
        """Add a run with its totals."""
        values = self.by.run_part(info.graph, info.created, info.labels)
        if totals is None:
            self.add(values, info.status, None)
        elif not self.by.within:
            self.add(values, info.status, numbers_of(totals))
            if info.parent is None or info.parent.relation != "call":
                cache, replay = 0.0 if info.usage is None else info.usage.cache_savings, info.replay or ReplayFacts()
                group = self.group(tuple(values.get(name) for name in self.by.names))
                group.add_savings(cache, replay.cost, replay.calls)
        else:
            for key, numbers in parts_of(self.by, totals).items():
                self.add({**values, **dict(zip(self.by.within, key, strict=True))}, info.status, numbers)

    def add(self, values: Mapping[str, str | None], status: str, numbers: Numbers | None) -> None:
        """Add a run, or a part of one.

        Args:
            values: the values of its group; missing ones are None.
            status: the run's status.
            numbers: its usage; None: unknown.
        """
        self.add_to(tuple(values.get(name) for name in self.by.names), status, numbers)

    def add_to(self, key: tuple[str | None, ...], status: str, numbers: Numbers | None) -> None:
        """Like `add`, with the values of the group given in the order of `By.names`."""
        group = self.group(key)
        if numbers is None:
            group.add_uncounted(status)
        else:
            group.add((status, *numbers))

    def group(self, key: tuple[str | None, ...]) -> Group:
        """Return the group for these values, given in the order of `By.names`. Create it if it is missing."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group()
        return group

    def rows(self) -> list[StatsRow]:
        """Return the sums of all groups, sorted by the values of the groups."""
        keys = sorted(self._groups, key=lambda key: [(value is not None, value or "") for value in key])
        whole = not self.by.within
        return [self._groups[key].row(dict(zip(self.by.names, key, strict=True)), whole=whole) for key in keys]


class Group:
    """Sums over the runs of one group, or over parts of them. It stores 16 bytes for each."""

    def __init__(self) -> None:
        self._recent: list[Sequence[Any]] = []
        self._statuses: Counter[str] = Counter()
        self._uncounted = self._unpriced = 0
        self._sums = [0] * 6
        self._costs, self._seconds = array("d"), array("d")
        self._savings = (0.0, 0.0, 0)

    def add(self, numbers: Sequence[Any]) -> None:
        """Add a run: its status, then its `Numbers`. Further elements are ignored."""
        self._recent.append(numbers)
        if len(self._recent) >= _AT_ONCE:
            self._take()

    def add_uncounted(self, status: str) -> None:
        """Add a run without totals."""
        self._statuses[status] += 1
        self._uncounted += 1

    def add_savings(self, cache: float, replay: float, calls: int) -> None:
        """Add what a run saved.

        Args:
            cache: by providers' caches, as a cost.
            replay: by results from a replayed run, as a cost.
            calls: number of calls whose results came from there.
        """
        so_far = self._savings
        self._savings = so_far[0] + cache, so_far[1] + replay, so_far[2] + calls

    def add_many(
        self, status: str, whole: Sequence[int], costs: Sequence[float], seconds: Sequence[float], unpriced: int
    ) -> None:
        """Add runs of one status.

        Args:
            status: their status.
            whole: the first six of `Numbers`, summed over all runs.
            costs: the cost of each.
            seconds: the seconds of each.
            unpriced: number of those that used tokens and have no cost.
        """
        self._statuses[status] += len(seconds)
        self._sums = [so_far + more for so_far, more in zip(self._sums, whole, strict=True)]
        self._unpriced += unpriced
        self._costs.extend(costs)
        self._seconds.extend(seconds)

    def row(self, group: Mapping[str, str | None], *, whole: bool) -> StatsRow:
        """Return the sums as the row of a group.

        Args:
            group: its value of each grouping, by name.
            whole: whether it has whole runs, of which is known what they saved.
        """
        self._take()
        cache, replay, replayed = self._savings if whole else (None, None, None)
        seconds = sorted(self._seconds)
        calls, failed, tools, failed_tools, tokens_in, tokens_out = self._sums
        return StatsRow(
            group,
            sum(self._statuses.values()),
            dict(sorted(self._statuses.items())),
            self._uncounted,
            calls,
            failed,
            tools,
            failed_tools,
            tokens_in,
            tokens_out,
            math.fsum(self._costs),
            math.fsum(seconds),
            percentile(seconds, 50),
            percentile(seconds, 95),
            cache,
            self._unpriced,
            replay,
            replayed,
        )

    def _take(self) -> None:
        """Add up the columns of the latest rows, all at once: there may be a million rows."""
        if not self._recent:
            return
        status, calls, failed, tools, failed_tools, tokens_in, tokens_out, cost, seconds, *_ = zip(
            *self._recent, strict=True
        )
        self._recent.clear()
        self._statuses.update(status)
        whole = (calls, failed, tools, failed_tools, tokens_in, tokens_out)
        self._sums = [so_far + sum(column) for so_far, column in zip(self._sums, whole, strict=True)]
        self._unpriced += unpriced_in(map(add, tokens_in, tokens_out), cost)
        self._costs.extend(cost)
        self._seconds.extend(seconds)


def unpriced_in(tokens: Iterable[int], costs: Iterable[float]) -> int:
    """Count the runs that used tokens and have no cost."""
    return sum(map(bool, compress(tokens, map(not_, costs))))


_AT_ONCE = 4096


def percentile(values: Sequence[float], part: int) -> float | None:
    """Return the smallest of some sorted values that at least `part` of 100 do not exceed; None if there are none."""
    return values[max(0, -(-len(values) * part // 100) - 1)] if values else None


def _day(created: object) -> str:
    return utc(created).date().isoformat() if isinstance(created, int | float) else ""
