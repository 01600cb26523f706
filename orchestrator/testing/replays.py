"""Recorded runs as regression tests: they are replayed in the current graph, without calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio

from orchestrator.executor import Executor
from orchestrator.executor.executor import run_sync
from orchestrator.stores import open_store
from orchestrator.views.replay_result import table

if TYPE_CHECKING:
    from orchestrator.executor import Replay, Run
    from orchestrator.executor.replay.running import Live
    from orchestrator.graph_class import Graph
    from orchestrator.models.base import Model
    from orchestrator.stores import Store
    from orchestrator.tools import ToolsLike

_MOST = 5
"""Maximum number of differences that a failure shows."""


async def assert_replays(
    store: str | Store,
    graph: Graph,
    runs: Sequence[str | Run] | None = None,
    *,
    status: str | None = None,
    labels: Mapping[str, str] | None = None,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    tools: ToolsLike = (),
    deps: object = None,
    live: Live = "never",
    answers_only: bool = False,
) -> list[Replay]:
    """Replay recorded runs in a graph, and fail if one of them behaves differently.

    Args:
        store: the store of the runs, or its URL. The replays are stored in it, too.
        graph: the current graph.
        runs: the runs, or their ids. None: all ended runs of a graph with this name, except replays.
        status: with `runs=None` only runs with this status.
        labels: with `runs=None` only runs with these labels.
        model: the model for live calls of nodes that name no model. With `live="never"` none is needed.
        models: named models for live calls.
        tools: the tools that nodes may call, as for `Executor`.
        deps: the value of `ctx.deps` in nodes.
        live: see `Executor.replay`.
        answers_only: accept replays that differ in between, but have the same status and output at their end.

    Returns:
        The replays, in the order of the runs.

    Raises:
        AssertionError: a replay differs, or there are no runs. The message has a table and the first differences.
    """
    kept = open_store(store) if isinstance(store, str) else store
    try:
        async with Executor(kept, graphs=[graph], model=model, models=models or {}, tools=tools, deps=deps) as executor:
            if runs is None:
                wanted = await _recorded(executor, graph.name, status, labels)
            else:
                wanted = [one if isinstance(one, str) else one.run_id for one in runs]
            if not wanted:
                raise AssertionError(f"store {kept.url} has no such runs of graph {graph.name!r} to replay")
            replays = [await executor.replay(run_id, graph, live=live) for run_id in wanted]
    finally:
        if isinstance(store, str):
            with anyio.CancelScope(shield=True):
                await kept.close()
    failed = [one for one in replays if (one.answer_changed if answers_only else not one.same)]
    if failed:
        raise AssertionError(_summary(replays, failed))
    return replays


def assert_replays_sync(
    store: str | Store,
    graph: Graph,
    runs: Sequence[str | Run] | None = None,
    *,
    status: str | None = None,
    labels: Mapping[str, str] | None = None,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    tools: ToolsLike = (),
    deps: object = None,
    live: Live = "never",
    answers_only: bool = False,
) -> list[Replay]:
    """Like `assert_replays`, for code without an event loop, with the same arguments and errors."""
    return run_sync(
        partial(
            assert_replays,
            store,
            graph,
            runs,
            status=status,
            labels=labels,
            model=model,
            models=models,
            tools=tools,
            deps=deps,
            live=live,
            answers_only=answers_only,
        )
    )


async def _recorded(executor: Executor, graph: str, status: str | None, labels: Mapping[str, str] | None) -> list[str]:
    """Return the ids of ended runs, oldest first, without replays and runs that another run called."""
    found: list[str] = []
    cursor: str | None = None
    statuses = ("completed", "failed", "cancelled", "exhausted") if status is None else status
    while True:
        page = await executor.runs(status=statuses, graph=graph, labels=labels, after=cursor, limit=200)
        found += [one.run_id for one in page.runs if one.parent is None or one.parent.relation == "fork"]
        cursor = page.cursor
        if cursor is None:
            return found[::-1]


def _summary(replays: Sequence[Replay], failed: Sequence[Replay]) -> str:
    lines = [f"{len(failed)} of {len(replays)} runs do something else when they are replayed:", "", table(replays)]
    for one in failed[:_MOST]:
        first = one.diff.first
        if first is not None:
            lines += ["", f"{one.parent.run_id}: {first.line}", *(f"    {line}" for line in first.lines)]
    if len(failed) > _MOST:
        lines += ["", f"… and {len(failed) - _MOST} more"]
    return "\n".join(lines)
