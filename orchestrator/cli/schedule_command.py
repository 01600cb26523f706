"""The command that begins runs at times: schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UNKNOWN, UsageError
from orchestrator.cli.launch import Given
from orchestrator.cli.options import input_of
from orchestrator.cli.output import out_json, out_table, warn
from orchestrator.cli.run_lookup import looking
from orchestrator.cli.storage import exists, shown_url, store_url
from orchestrator.errors import InvalidValue
from orchestrator.render.terminal.tables import Cell, Column
from orchestrator.values import utc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orchestrator.executor import Executor
    from orchestrator.stores import Schedule


def schedule(
    graph: Annotated[
        str | None,
        typer.Argument(
            metavar="GRAPH",
            help="A shipped name, module:attr, module, file.py:attr, or a YAML or JSON file.",
            show_default=False,
        ),
    ] = None,
    cron: Annotated[
        str | None,
        typer.Argument(metavar="CRON", help="Minute, hour, day of month, month, day of week.", show_default=False),
    ] = None,
    question: options.QuestionText = None,
    input: options.Input = None,  # noqa: A002  the name of the option
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The schedule's name. Default: the graph's name.")
    ] = None,
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="TZ", help="The time zone of CRON, such as Europe/Vienna.")
    ] = "UTC",
    catch_up: Annotated[
        str,
        typer.Option(
            "--catch-up", metavar="skip|one|all", help="Which missed times fire when a worker is there again."
        ),
    ] = "skip",
    label: options.Labels = None,
    approve: options.Approve = None,
    trust: options.Trust = None,
    list_: Annotated[bool, typer.Option("--list", help="List the schedules of the store.")] = False,
    remove: Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Remove a schedule.")] = None,
    pause: Annotated[str | None, typer.Option("--pause", metavar="NAME", help="Begin no runs of a schedule.")] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="NAME", help="Begin runs of a paused schedule again.")
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Begin runs of a graph at times, by workers.

    The schedule is a row of the store. `orchestrator worker` begins its runs; a time never fires twice.

    Example: orchestrator schedule reports.py:daily "30 6 * * 1-5" --timezone Europe/Vienna
    """

    url = store_url(store)
    named = [
        (act, name) for act, name in ((_removed, remove), (_paused, pause), (_resumed, resume)) if name is not None
    ]
    if list_ or named:
        if graph is not None or len(named) + list_ > 1:
            raise UsageError("--list, --remove, --pause and --resume take no GRAPH, and go alone")
        if named:
            ((act, known),) = named
            return _done(url, act, known)
        found = looking(url, lambda executor: executor.schedules.list()) if exists(url) else []
        if json:
            out_json([_row(one) for one in found])
        elif found:
            _show(found)
        return COMPLETED
    if graph is None or cron is None:
        raise UsageError(
            "name a GRAPH and a CRON expression, or use --list, --remove NAME, --pause NAME or --resume NAME"
        )
    made = _made(url, graph, cron, question, input, name, timezone, catch_up, label, approve, trust)
    if json:
        out_json(_row(made))
    else:
        _show([made])
    return COMPLETED


def _made(
    url: str,
    graph: str,
    cron: str,
    question: str | None,
    given: str | None,
    name: str | None,
    timezone: str,
    catch_up: str,
    label: list[str] | None,
    approve: str | None,
    trust: list[str] | None,
) -> Schedule:

    risk, labels = options.risk(approve), options.pairs(label)
    found = Given.of(graph, None, None, trust).new().quiet().load().graph
    values = input_of(found, question, given)

    async def put(executor: Executor) -> Schedule:
        try:
            return await executor.schedules.put(
                found, cron, values, name=name, timezone=timezone, catch_up=catch_up, labels=labels, approve=risk
            )
        except (InvalidValue, ImportError) as error:
            raise UsageError(str(error)) from None

    return looking(url, put, writes=True)


def _done(url: str, act: Callable[[Executor, str], Awaitable[object]], name: str) -> int:

    async def work(executor: Executor) -> object:
        try:
            return await act(executor, name)
        except ImportError as error:
            raise UsageError(str(error)) from None

    if not exists(url) or not looking(url, work, writes=True):
        warn(f"error: there is no schedule {name!r} in {shown_url(url)}")
        return UNKNOWN
    return COMPLETED


def _removed(executor: Executor, name: str) -> Awaitable[object]:
    return executor.schedules.delete(name)


def _paused(executor: Executor, name: str) -> Awaitable[object]:
    return executor.schedules.pause(name)


def _resumed(executor: Executor, name: str) -> Awaitable[object]:
    return executor.schedules.resume(name)


def _row(one: Schedule) -> dict[str, object]:
    return {
        "name": one.name, "graph": one.graph, "cron": one.cron, "timezone": one.timezone, "catch_up": one.catch_up,
        "next_at": one.next_at, "labels": dict(one.labels), "values": dict(one.values), "approve": one.approve,
        "paused": one.paused,
    }  # fmt: skip


_TIME = "%Y-%m-%d %H:%M:%SZ"


def _show(schedules: Sequence[Schedule]) -> None:
    columns = (
        Column("schedule"), Column("graph", least=12), Column("cron"), Column("timezone", least=12), Column("next"),
    )  # fmt: skip
    rows = [
        (
            one.name, one.graph, one.cron, one.timezone,
            Cell("paused", "yellow") if one.paused else f"{utc(one.next_at):{_TIME}}",
        )
        for one in schedules
    ]  # fmt: skip
    out_table(columns, rows)
