"""The command `watch`: the events of a run that another process may drive, and the questions that it asks."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from orchestrator.cli import options, report, terminal_questions
from orchestrator.cli.environment import on_terminal, user_name
from orchestrator.cli.exits import COMPLETED, CONFLICT, INTERRUPTED, UsageError
from orchestrator.cli.output import out, out_line, redacted, warn
from orchestrator.cli.report import JsonLines, NextCommands, Sink, Tree, document, tell_status
from orchestrator.cli.run_lookup import one_run
from orchestrator.cli.run_session import Display, TerminalSession, drive, prepare
from orchestrator.cli.storage import store_url
from orchestrator.cli.trust import note
from orchestrator.cli.words import error_text
from orchestrator.errors import GraphUnknown, RunConflict
from orchestrator.executor.lease import is_held
from orchestrator.kernel.status import FINAL
from orchestrator.render.terminal import texts

if TYPE_CHECKING:
    from orchestrator.executor import Event, Executor, Run
    from orchestrator.kernel.question import Question


class Watch:
    """A run that is watched.

    Args:
        by: who answers what is asked here.
        asks: whether anything is asked here.
        store: as given by `--store`, for the commands that are named.
    """

    def __init__(self, run_id: str, by: str, *, json: bool, asks: bool, store: str | None = None) -> None:
        self.asks, self.seen = asks, 0
        self._store = store
        self._run_id, self._by = run_id, by
        self._sink: Sink = JsonLines() if json else Tree(out, sys.stdout)
        self._asker = terminal_questions.Asker()
        self._left = ""
        """Said already of how the run stands still."""

    async def until_it_ends_or_can_continue(self, executor: Executor) -> Run:
        """Show what happens until the run is over, or was answered here and is driven by nobody."""
        await self._sink.meet(executor, self._run_id, self.seen)
        events = executor.events(self._run_id, after=self.seen, follow=True)
        try:
            while True:
                event: Event | None = None
                with anyio.move_on_after(terminal_questions.QUIET):
                    event = await anext(events, None)
                    if event is None:
                        break
                if event is not None:
                    self.seen = event.seq or self.seen
                    self._sink.show(event)
                elif await self._stands_still(executor):
                    break
        finally:
            self._sink.hold()
        return await executor.load(self._run_id)

    async def _stands_still(self, executor: Executor) -> bool:
        """Nothing happens. Whether that is because the run was answered here, and nobody goes on with it."""
        info = await executor.store.info(self._run_id)
        if info.status in FINAL or info.head > self.seen:
            return False  # what is left of its events is there already
        if info.status == "running" and is_held(await executor.store.lease(self._run_id)):
            return False
        run = await executor.load(self._run_id)
        if run.status == "paused":
            questions = terminal_questions.askable(run.waiting) if self.asks else []
            if questions:
                return await self._ask(executor, questions)
        self._say(run)
        return False

    def _say(self, run: Run) -> None:

        said = f"{run.status} {run.seq}"
        if said != self._left and (run.status in ("paused", "interrupted") or run.queued):
            self._left = said
            self._sink.hold()
            note(run, store_url(self._store))
            report.tell_status(run, report.NextCommands(self._store))

    # -- asking --------------------------------------------------------------------------------------------------

    async def _ask(self, executor: Executor, questions: list[Question]) -> bool:
        """Put the questions; whether any was answered, and nobody else goes on with the run."""
        self._sink.hold()
        answered = False
        try:
            for question in questions:
                put = terminal_questions.put(executor, self._run_id, question, self._asker.ask, self._by)
                answered = await put or answered
        except terminal_questions.NoAnswer:
            self.asks = False  # from here on the person only looks
            return answered
        return answered and not is_held(await executor.store.lease(self._run_id))


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

    url = store_url(store)
    asks = on_terminal() and not no_ask and not json
    watching = Watch(run, by if by is not None else user_name(), json=json, asks=asks, store=store)
    found = one_run(url, run, watching.until_it_ends_or_can_continue, writes=asks)
    while found.status not in FINAL:
        if (found.status == "interrupted" or found.queued) and watching.asks:
            code = _continue(found, url, store, watching)
            if code is not None:
                return code
        found = one_run(url, run, watching.until_it_ends_or_can_continue, writes=asks)
    if json:
        out_line(document(found, output=False))
        return COMPLETED
    if found.status in ("completed", "exhausted"):
        out(str(redacted(texts.plain(found.output))))
    tell_status(found, NextCommands(store))
    return COMPLETED


def _continue(run: Run, url: str, store: str | None, watching: Watch) -> int | None:
    """Drive an answered run here; the exit code, or None if it is driven elsewhere, or cannot be driven here."""

    try:
        prepared = prepare(run.run_id, options.Continuing(store=store), seen=run)
    except (UsageError, GraphUnknown) as error:
        warn(f"the answer is recorded, and a process with the run's code can continue the run: {error_text(error)}")
        watching.asks = False
        return None

    async def begin(executor: Executor, display: Display) -> Run:
        again = partial(executor.resume, run.run_id)
        return await TerminalSession(executor, run.run_id, display.sink(), seen=watching.seen).go(again, again)

    try:
        code = drive(url, prepared.code, run.run_id, begin, prepared.display)
    except RunConflict:  # somebody else was quicker
        return None
    return code if code in (INTERRUPTED, CONFLICT) else COMPLETED
