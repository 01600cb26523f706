"""The list of runs, which needs the store only: no code, and no executor."""

from __future__ import annotations

from dataclasses import fields, replace

from orchestrator.executor.run_status import with_status
from orchestrator.graph.names import plain_name
from orchestrator.stores.base import Page, Placing, RunInfo, Store
from orchestrator.stores.requests import RunQuery
from orchestrator.values import check_labels, check_text

_TEXTS = tuple(one.name for one in fields(RunQuery) if one.type == "str | None")
"""The filters that are texts."""


async def run_list(
    store: Store,
    query: RunQuery,
    *,
    q: str | None = None,
    begun_since: float | None = None,
    begun_before: float | None = None,
) -> Page:
    """A page of the runs of a store that match every filter; see `Executor.runs`."""
    for what in (*(getattr(query, name) for name in _TEXTS), q):
        if what is not None:
            check_text(what, "a filter of the list of runs")
    wanted = {query.status} if isinstance(query.status, str) else None if query.status is None else set(query.status)
    for status in wanted or ():
        check_text(status, "a filter of the list of runs")
    graph = plain_name(query.graph) if query.graph else query.graph
    query = replace(query, labels=check_labels(query.labels), graph=graph)

    def begun(info: RunInfo) -> bool:
        since, before = begun_since, begun_before
        return (since is None or info.created >= since) and (before is None or info.created < before)

    async def listed(*, search: str | None, after: str | None, limit: int) -> Page:
        found: list[RunInfo] = []
        if after is None and begun_before is not None and isinstance(store, Placing):
            after = store.cursor_before(begun_before)
        while True:
            page = await store.runs(replace(query, search=search, after=after, limit=limit - len(found)))
            seen = [with_status(info) for info in page.runs]
            found += [info for info in seen if (wanted is None or info.status in wanted) and begun(info)]
            past = begun_since is not None and seen and seen[-1].created < begun_since  # the list is by `created`
            if page.cursor is None or len(found) >= limit or past:
                return Page(tuple(found), None if past else page.cursor)
            after = page.cursor

    if q is None:
        return await listed(search=query.search, after=query.after, limit=query.limit)
    if query.search is not None:
        raise ValueError("`search` and `q` are given; use one of them")
    from orchestrator.executor.run_search import searched

    return await searched(listed, store, q, query.after, query.limit)
