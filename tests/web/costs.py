"""Runs of other days, graphs and models as a store has them, for tests of what shows their costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from orchestrator.graph.limits import Usage
from orchestrator.stores.base import Parent
from orchestrator.stores.requests import NewRun
from orchestrator.stores.rows import ReplayFacts, RunInfo, RunTotals, Total
from orchestrator.testing.store_conformance.helpers import started
from tests.web.api import Api


def at(day: str) -> float:
    """Noon of a day in UTC, Unix seconds."""
    return datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC).timestamp()


def used(model: str, tokens: int, cost: float, *, node: str = "think", seconds: float = 1.0) -> Total:
    """What calls of a model spent in a node."""
    return Total(node, "model", model, 1, 0, tokens, 0, cost, seconds)


def called(tool: str, calls: int, failed: int = 0, *, node: str = "act") -> Total:
    """Calls of a tool in a node."""
    return Total(node, "tool", tool, calls, failed, seconds=0.2)


def spent(
    found: Api,
    run_id: str,
    day: str,
    *totals: Total,
    graph: str = "plain",
    status: str = "completed",
    labels: Mapping[str, str] | None = None,
    seconds: float = 2.0,
    saved: float = 0.0,
    replay: ReplayFacts | None = None,
    error: str = "",
) -> None:
    """A run that was created at noon of a day and spent this.

    Args:
        found: the server.
        run_id: the run's id.
        day: the day in UTC, ISO 8601.
        totals: what it spent; with one that is `NOT_COUNTED`, it has no totals.
        graph: the name of its graph.
        status: its status.
        labels: its labels.
        seconds: its time alive.
        saved: what the provider's cache saved.
        replay: what lists show of it, if it is a replay.
        error: its error.
    """
    cost = sum(one.cost for one in totals)
    usage = Usage(cache_savings=saved, seconds=seconds, cost=cost, input_tokens=sum(one.input_tokens for one in totals))
    given = (totals, graph, status, dict(labels or {}), seconds, usage, replay, error)
    found.portal.call(partial(_spent, found, run_id, day, *given))


NOT_COUNTED = Total("", "", "")
"""For runs that an earlier version wrote."""


async def _spent(
    found: Api, run_id: str, day: str, totals: Sequence[Total], graph: str, status: str, labels: dict[str, str],
    seconds: float, usage: Usage, replay: ReplayFacts | None, error: str,
) -> None:  # fmt: skip
    counted = None if NOT_COUNTED in totals else RunTotals(tuple(sorted(totals, key=lambda one: one.node)), seconds)
    parent = None if replay is None else Parent("one", 1, "replay")
    info = RunInfo(run_id, graph, status, labels, at(day), at(day) + seconds, 1, "s", "c", input=run_id, totals=counted)
    await found.executor.store.create(
        NewRun(replace(info, usage=usage, replay=replay, parent=parent, error=error), [started(info)])
    )
