"""The command that sends an event to a run, and goes on with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.run_session import Manner
    from orchestrator.engines import ServedEngine
    from orchestrator.executor import Executor, Run


def send(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[RUN] EVENT [JSON]", help="The run, unless --label names it; the event; its data."),
    ],
    *,
    name: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Names the event: sent again under the same ID, it counts once."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="Send to the unfinished run with this label. Repeatable."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Send to every unfinished run with the labels.")] = False,
    by: options.By = None,
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="Record the event without continuing the run.")
    ] = False,
    engine: options.Engine = None,
    then: options.Continuing,
) -> int:
    """Send an event to a run, and continue the run.

    A run keeps the event until a step waits for it.

    Example: orchestrator send 3f2a9c1d paid '{"order": 7}' --id evt-1
    """
    from orchestrator.cli.engines import engine_of, submit
    from orchestrator.cli.environment import user_name
    from orchestrator.cli.storage import store_url

    if engine is not None and not no_resume:
        raise UsageError("--engine has a worker continue the run: add --no-resume, so that this command does not")
    labels = options.pairs(label)
    run_id, event, data = _parts(words, labelled=bool(labels))
    if every and not labels:
        raise UsageError("--all goes with --label K=V")
    url, who = store_url(then.store), user_name() if by is None else by
    delivers = engine_of(engine) if no_resume else None

    async def tell(executor: Executor, *, to: str, resume: bool) -> Run:
        told = await executor.send(to, event, data, id=name, by=who, resume=resume)
        if not resume:
            await submit(delivers, to)
        return told

    codes = [
        _kept(url, one, partial(tell, to=one, resume=False), then, delivers)
        if no_resume
        else _driven(url, one, partial(tell, to=one, resume=True), then)
        for one in ([run_id] if run_id is not None else _labelled(url, labels, every=every))
    ]
    return next((code for code in codes if code != COMPLETED), COMPLETED)


def _kept(
    url: str,
    run_id: str,
    tell: Callable[[Executor], Awaitable[Run]],
    then: options.Continuing,
    engine: ServedEngine | None,
) -> int:
    """Record the event, and say how the run goes on."""
    from orchestrator.cli.engines import going_on
    from orchestrator.cli.output import warn
    from orchestrator.cli.run_lookup import one_run
    from orchestrator.cli.run_session import conclude
    from orchestrator.cli.stored_run import manner_of

    told = one_run(url, run_id, tell, writes=True)
    manner = replace(manner_of(told, url, then.store, json=then.json), shows=False)
    if (told.queued or told.status == "interrupted") and not then.json:
        warn(f"{run_id} has the event; {going_on(engine, manner.next_commands.resume(run_id))}")
    else:
        conclude(told, manner)
    return COMPLETED


def _driven(url: str, run_id: str, tell: Callable[[Executor], Awaitable[Run]], then: options.Continuing) -> int:
    """Send the event, and show how the run goes on."""
    from orchestrator.cli.run_session import TerminalSession, drive
    from orchestrator.cli.stored_run import take

    taken = take(run_id, then)

    async def begin(executor: Executor, manner: Manner) -> Run:
        session = TerminalSession(executor, run_id, manner.sink(), seen=taken.run.seq)
        return await session.go(partial(tell, executor), partial(executor.resume, run_id))

    return drive(url, taken.code, run_id, begin, replace(taken.manner, shows=False))


def _parts(words: list[str], *, labelled: bool) -> tuple[str | None, str, object]:
    """The run, the event and its data.

    Raises:
        UsageError: there are too few or too many words, or the data is no JSON.
    """
    rest = list(words)
    run_id = None if labelled else rest.pop(0)
    if not 1 <= len(rest) <= 2:
        wanted = "EVENT [JSON] with --label" if labelled else "RUN EVENT [JSON], or --label K=V instead of RUN"
        raise UsageError(f"give {wanted}")
    return run_id, rest[0], options.parse_json(rest[1], "the data") if len(rest) == 2 else None


def _labelled(url: str, labels: dict[str, str], *, every: bool) -> list[str]:
    """The ids of the runs that the event is for.

    Raises:
        Ambiguous: none has the labels, or several where one is meant.
    """
    from orchestrator.cli.run_lookup import looking
    from orchestrator.cli.storage import exists
    from orchestrator.errors import Ambiguous

    async def look(executor: Executor) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await executor.runs(
                status=("running", "interrupted", "paused"), labels=labels, after=cursor, limit=200
            )
            found += [info.run_id for info in page.runs]
            cursor = page.cursor
            if cursor is None:
                return found

    found = looking(url, look) if exists(url) else []
    if not every and len(found) != 1:
        raise Ambiguous(labels, found)
    return found
