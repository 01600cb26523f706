"""The command that looks at a run while it goes on, and asks what it waits for: watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, CONFLICT, INTERRUPTED, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.watcher import Watch
    from orchestrator.executor import Run


def watch(
    run: options.Run,
    no_ask: Annotated[bool, typer.Option("--no-ask", help="Do not ask the run's questions.")] = False,
    by: options.By = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """Watch a run until it ends, whichever process drives it.

    On a terminal it shows a tree that is redrawn while the run continues, and asks the run's questions. If no other
    process drives the run, it continues here. Without a terminal it prints lines of text; with --json, the lines of
    events --follow.

    Example: orchestrator watch 3f2a9c1d
    """
    from orchestrator.cli.environment import on_terminal, user_name
    from orchestrator.cli.output import out, out_line
    from orchestrator.cli.redaction import redacted
    from orchestrator.cli.report import NextCommands, document, tell_status
    from orchestrator.cli.run_lookup import one_run
    from orchestrator.cli.storage import store_url
    from orchestrator.cli.watcher import Watch
    from orchestrator.kernel.status import FINAL
    from orchestrator.render.terminal import texts

    url = store_url(store)
    asks = on_terminal() and not no_ask and not json
    watching = Watch(run, by if by is not None else user_name(), json=json, asks=asks, store=store)
    found = one_run(url, run, watching.until_it_ends_or_can_go_on, writes=asks)
    while found.status not in FINAL:
        if (found.status == "interrupted" or found.queued) and watching.asks:
            code = _go_on(found, url, store, watching)
            if code is not None:
                return code
        found = one_run(url, run, watching.until_it_ends_or_can_go_on, writes=asks)
    if json:
        out_line(document(found, output=False))
        return COMPLETED
    if found.status in ("completed", "exhausted"):
        out(str(redacted(texts.plain(found.output))))
    tell_status(found, NextCommands(store))
    return COMPLETED


def _go_on(run: Run, url: str, store: str | None, watching: Watch) -> int | None:
    """Drive an answered run here; the exit code, or None if it is driven elsewhere, or cannot be driven here."""
    from functools import partial

    from orchestrator.cli.error_texts import error_text
    from orchestrator.cli.output import warn
    from orchestrator.cli.run_session import Manner, TerminalSession, drive
    from orchestrator.cli.stored_run import take
    from orchestrator.errors import GraphUnknown, RunConflict
    from orchestrator.executor import Executor

    try:
        taken = take(run.run_id, options.Continuing(store=store), seen=run)
    except (UsageError, GraphUnknown) as error:
        warn(f"the answer is recorded, and a process with the run's code can continue the run: {error_text(error)}")
        watching.asks = False
        return None

    async def begin(executor: Executor, manner: Manner) -> Run:
        again = partial(executor.resume, run.run_id)
        return await TerminalSession(executor, run.run_id, manner.sink(), seen=watching.seen).go(again, again)

    try:
        code = drive(url, taken.code, run.run_id, begin, taken.manner)
    except RunConflict:  # somebody else was quicker
        return None
    return code if code in (INTERRUPTED, CONFLICT) else COMPLETED
