"""Reading runs: without code, without a lease and without changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.away import away
from orchestrator.errors import InvalidValue
from orchestrator.executor.host import Host
from orchestrator.kernel.records.coded import check_readable
from orchestrator.stores.base import RunInfo, StatsRow, Store
from orchestrator.stores.requests import StatsQuery
from orchestrator.stores.shared import forks_of
from orchestrator.values import check_labels, check_position, check_text

if TYPE_CHECKING:
    from orchestrator.views.history import Point
    from orchestrator.views.run_diff import RunDiff


async def history(host: Host, run_id: str, at: int | None, after: int, limit: int | None) -> list[Point]:
    """See `Executor.history`."""
    from orchestrator.views.history import points

    check_text(run_id, "run_id")
    check_position(at)
    check_position(after, "after")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidValue(f"limit={limit!r}: the number of steps is expected, 0 or more, or None", where="limit")
    if after or limit is not None:
        return await host.histories.page(run_id, at, after or 0, limit)
    info = await host.store.info(run_id)
    records = await host.store.read(run_id, upto=at)
    check_readable(records[:1])  # now, not when the first point is read
    return points(await host.loader.plan_of(info, records), records)


async def diff(host: Host, run_a: str, run_b: str) -> RunDiff:
    """See `Executor.diff`."""
    from orchestrator.views.diff import diff_of

    check_text(run_a, "run_a")
    check_text(run_b, "run_b")
    one, other = await host.loader.load(run_a), await host.loader.load(run_b)
    records, others = await host.store.read(run_a, upto=one.seq), await host.store.read(run_b, upto=other.seq)
    return await away(lambda: diff_of(one, records, other, others))


async def forks(host: Host, run_id: str) -> list[RunInfo]:
    """See `ExecutorForks.list`."""
    check_text(run_id, "run_id")
    return await forks_of(host.store, run_id)


async def stats(
    store: Store,
    by: Sequence[str] | str,
    *,
    since: float | None,
    until: float | None,
    graph: str | None,
    labels: Mapping[str, str] | None,
) -> list[StatsRow]:
    """See `Executor.stats`."""
    names = (by,) if isinstance(by, str) else tuple(by)
    for what in (*names, *(() if graph is None else (graph,))):
        check_text(what, "a filter of statistics")
    return await store.stats(
        StatsQuery(by=names, since=since, until=until, graph=graph, labels=check_labels(labels or {}))
    )
