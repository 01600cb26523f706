"""Sums over runs, in groups: defines the groups and each number, the same in every store."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from orchestrator.errors import InvalidValue
from orchestrator.stores.rows import RunInfo, RunTotals, Total
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
    cache_savings: float = 0.0
    """What providers' caches saved, in the currency of `cost`; a run includes the runs of graphs that it called as
    tools. 0 if no price for cached tokens is known, and in groups by `model`, `tool` or `node`."""

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


@dataclass(frozen=True, slots=True)
class By:
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
            if info.usage is not None and (info.parent is None or info.parent.relation != "call"):
                self.group(tuple(values.get(name) for name in self.by.names)).savings += info.usage.cache_savings
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
        return [self._groups[key].row(dict(zip(self.by.names, key, strict=True))) for key in keys]


class Group:
    """Sums over the runs of one group, or over parts of them. It stores 16 bytes for each."""

    def __init__(self) -> None:
        self._recent: list[Sequence[Any]] = []
        self._statuses: Counter[str] = Counter()
        self._uncounted = 0
        self._sums = [0] * 6
        self._costs, self._seconds = array("d"), array("d")
        self.savings = 0.0

    def add(self, numbers: Sequence[Any]) -> None:
        """Add a run: its status, then its `Numbers`. Further elements are ignored."""
        self._recent.append(numbers)
        if len(self._recent) >= _AT_ONCE:
            self._take()

    def add_uncounted(self, status: str) -> None:
        """Add a run without totals."""
        self._statuses[status] += 1
        self._uncounted += 1

    def add_many(self, status: str, whole: Sequence[int], costs: Sequence[float], seconds: Sequence[float]) -> None:
        """Add runs of one status.

        Args:
            status: their status.
            whole: the first six of `Numbers`, summed over all runs.
            costs: the cost of each.
            seconds: the seconds of each.
        """
        self._statuses[status] += len(seconds)
        self._sums = [so_far + more for so_far, more in zip(self._sums, whole, strict=True)]
        self._costs.extend(costs)
        self._seconds.extend(seconds)

    def row(self, group: Mapping[str, str | None]) -> StatsRow:
        """Return the sums as the row of a group. `group`: its value of each grouping, by name."""
        self._take()
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
            self.savings,
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
        self._costs.extend(cost)
        self._seconds.extend(seconds)


_AT_ONCE = 4096


def percentile(values: Sequence[float], part: int) -> float | None:
    """Return the smallest of some sorted values that at least `part` of 100 do not exceed; None if there are none."""
    return values[max(0, -(-len(values) * part // 100) - 1)] if values else None


def _day(created: object) -> str:
    return utc(created).date().isoformat() if isinstance(created, int | float) else ""
