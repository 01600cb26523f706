"""The list of runs, which needs the store only: no code, and no executor."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator.executor.run_status import with_status
from orchestrator.graph.names import plain_name
from orchestrator.stores.base import Page, Placing, Relation, RunInfo, Store
from orchestrator.stores.requests import RunQuery
from orchestrator.values import check_labels, check_text


async def run_list(
    store: Store,
    *,
    status: Collection[str] | str | None = None,
    graph: str | None = None,
    labels: Mapping[str, str] | None = None,
    parent: str | None = None,
    relation: Relation | None = None,
    search: str | None = None,
    q: str | None = None,
    since: float | None = None,
    begun_since: float | None = None,
    begun_before: float | None = None,
    waiting: bool | None = None,
    failed_tool: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Page:
    """A page of the runs of a store that match every filter; see `Executor.runs`."""
    labels, graph = check_labels(labels or {}), plain_name(graph) if graph else graph
    for what in (
        graph,
        after,
        parent,
        search,
        q,
        failed_tool,
        *((status,) if isinstance(status, str) else status or ()),
    ):
        if what is not None:
            check_text(what, "a filter of the list of runs")
    wanted = {status} if isinstance(status, str) else None if status is None else set(status)

    def begun(info: RunInfo) -> bool:
        since, before = begun_since, begun_before
        return (since is None or info.created >= since) and (before is None or info.created < before)

    async def listed(*, search: str | None, after: str | None, limit: int) -> Page:
        found: list[RunInfo] = []
        if after is None and begun_before is not None and isinstance(store, Placing):
            after = store.cursor_before(begun_before)
        while True:
            page = await store.runs(RunQuery(
                status=wanted, graph=graph, labels=labels, parent=parent, relation=relation, search=search,
                since=since, waiting=waiting, failed_tool=failed_tool, after=after, limit=limit - len(found),
            ))  # fmt: skip
            seen = [with_status(info) for info in page.runs]
            found += [info for info in seen if (wanted is None or info.status in wanted) and begun(info)]
            past = begun_since is not None and seen and seen[-1].created < begun_since  # the list is by `created`
            if page.cursor is None or len(found) >= limit or past:
                return Page(tuple(found), None if past else page.cursor)
            after = page.cursor

    if q is None:
        return await listed(search=search, after=after, limit=limit)
    if search is not None:
        raise ValueError("`search` and `q` are given; use one of them")
    from orchestrator.executor.run_search import searched

    return await searched(listed, store, q, after, limit)
