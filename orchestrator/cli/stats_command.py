"""The command that shows what runs spent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError
from orchestrator.cli.options import moment
from orchestrator.cli.output import out_json, out_made, warn
from orchestrator.cli.run_lookup import looking
from orchestrator.cli.storage import exists, shown_url, store_url
from orchestrator.errors import InvalidValue
from orchestrator.render.terminal.tables import stats_table

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.stores import StatsRow


def stats(
    by: Annotated[
        str,
        typer.Option("--by", metavar="NAMES", help="Groups, by commas: day, graph, model, tool, node, label:KEY."),
    ] = "day,graph",
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="Only runs begun since: an age (2h, 3d) or a date.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="AGE", help="Only runs begun before: an age or a date.")
    ] = None,
    graph: Annotated[str | None, typer.Option("--graph", metavar="G", help="Only runs of this graph, by name.")] = None,
    label: options.Labels = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Show what runs spent, in groups.

    Shows runs, failures, calls, tokens, cost and times. Days are in UTC.

    Example: orchestrator stats --by model --since 7d
    """

    names = tuple(name.strip() for name in by.split(",") if name.strip())
    times = {
        name: None if text is None else moment(text, f"--{name}").timestamp()
        for name, text in (("since", since), ("until", until))
    }
    labels, url = options.pairs(label), store_url(store)

    async def found(executor: Executor) -> list[StatsRow]:
        try:
            return await executor.stats(names, graph=graph, labels=labels, **times)
        except InvalidValue as error:
            raise UsageError(f"--by {by}: {error}") from None

    rows = looking(url, found) if exists(url) else []
    if json:
        out_json([_data(row) for row in rows])
    elif rows:
        out_made(partial(stats_table, names, rows))
    else:
        every = not (labels or graph or since or until)
        warn(f"no runs in {shown_url(url)}" if every else f"no such runs in {shown_url(url)}")
    uncounted = sum(row.uncounted for row in rows)
    if uncounted and not json:
        warn(
            f"{uncounted} runs were last written by an earlier version and are in no sum; `store check --repair` counts"
        )
    return COMPLETED


def _data(row: StatsRow) -> dict[str, object]:
    return {
        "group": dict(row.group),
        "runs": row.runs,
        "statuses": dict(row.statuses),
        "failed_rate": row.failed_rate,
        "uncounted": row.uncounted,
        "calls": row.calls,
        "failed_calls": row.failed_calls,
        "tool_calls": row.tool_calls,
        "failed_tool_calls": row.failed_tool_calls,
        "failed_tool_rate": row.failed_tool_rate,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost": row.cost,
        "seconds": row.seconds,
        "p50": row.p50,
        "p95": row.p95,
    }
