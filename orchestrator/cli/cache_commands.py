"""Commands about the results of cached nodes: cache list, clear, prune."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED
from orchestrator.cli.options import seconds
from orchestrator.cli.output import out_json, out_table, warn
from orchestrator.cli.run_lookup import looking
from orchestrator.cli.storage import exists, store_url
from orchestrator.render.terminal.tables import Column
from orchestrator.values import utc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator.executor import Executor

Graph = Annotated[str | None, typer.Argument(metavar="GRAPH", help="The name of a graph.", show_default=False)]
Node = Annotated[str | None, typer.Argument(metavar="NODE", help="The name of its node.", show_default=False)]


def list_(
    graph: Graph = None,
    node: Node = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="The most results.")] = 100,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """List the results that are kept of nodes with cache=.

    Example: orchestrator cache list research
    """

    url = store_url(store)
    found = looking(url, lambda executor: executor.cache.list(graph, node, limit=limit)) if exists(url) else []
    if json:
        out_json([asdict(one) for one in found])
        return COMPLETED
    columns = (
        Column("graph", least=12), Column("node", least=12), Column("key"), Column("bytes", right=True),
        Column("until", optional=True),
    )  # fmt: skip
    rows = [
        (
            one.graph, one.node, one.key, f"{one.size:,}",
            "" if one.expires is None else f"{utc(one.expires):%Y-%m-%d %H:%M:%SZ}",
        )
        for one in found
    ]  # fmt: skip
    if rows:
        out_table(columns, rows)
    return COMPLETED


def clear(graph: Graph = None, node: Node = None, json: options.Json = False, store: options.Store = None) -> int:
    """Remove kept results, so that their steps are made again.

    Example: orchestrator cache clear research search
    """
    return _removed(lambda executor: executor.cache.clear(graph, node), store, json=json)


def prune(
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Also remove results that are older (30d).")
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Remove kept results that have expired.

    Example: orchestrator cache prune --older-than 30d
    """

    age = None if older_than is None else timedelta(seconds=seconds(older_than, "--older-than"))
    return _removed(lambda executor: executor.cache.prune(older_than=age), store, json=json)


def _removed(act: Callable[[Executor], Awaitable[int]], store: str | None, *, json: bool) -> int:

    async def remove(executor: Executor) -> int:
        removed = await act(executor)
        await executor.store.compact()
        return removed

    url = store_url(store)
    removed = looking(url, remove, writes=True) if exists(url) else 0
    if json:
        out_json({"removed": removed})
    else:
        warn(f"{removed} results removed")
    return COMPLETED
