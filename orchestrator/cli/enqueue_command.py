"""The command `enqueue`, which hands a run over to workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError


def enqueue(
    graph: options.Graph,
    question: options.QuestionText = None,
    input: options.Input = None,  # noqa: A002  the name of the option
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="When it begins: ISO 8601, UTC by default, or Unix seconds."),
    ] = None,
    tools: options.Tools = None,
    model: options.Model = None,
    trust: options.Trust = None,
    run_id: options.RunId = None,
    label: options.Labels = None,
    approve: options.Approve = None,
    engine: options.Engine = None,
    store: options.Store = None,
) -> int:
    """Add a run that a worker, or `recover`, begins. Prints its id.

    Example: orchestrator enqueue tool_user "What is 20+(2*4)?" --at 2027-01-01T09:00
    """
    from orchestrator.cli.engines import engine_of, submit
    from orchestrator.cli.environment import new_run_id
    from orchestrator.cli.interrupts import run_async
    from orchestrator.cli.launch import Given
    from orchestrator.cli.output import out
    from orchestrator.cli.run_session import opened
    from orchestrator.cli.storage import store_url
    from orchestrator.cli.trust import seal as sealed
    from orchestrator.cli.values import input_of

    risk, labels, url = options.risk(approve), options.pairs(label), store_url(store)
    due, by = _time(at), engine_of(engine)
    launch = Given.of(graph, tools, model, trust).new().quiet()  # this command asks no model
    code = launch.load()
    given = input_of(code.graph, question, input)
    name = new_run_id(run_id)
    refs = launch.refs()
    seal = sealed(name, refs, url)

    async def put() -> str:
        async with opened(url, code) as executor:
            added = await executor.enqueue(
                code.graph, given, run_id=name, labels=labels, approve=risk, at=due,
                refs={**refs, "seal": seal} if seal else refs,
            )  # fmt: skip
            await submit(by, added, due)
            return added

    out(run_async(put))
    return COMPLETED


def _time(text: str | None) -> float | None:
    """Unix seconds.

    Raises:
        UsageError: it is no time.
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--at {text}: use a date and time as ISO 8601, or Unix seconds") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
