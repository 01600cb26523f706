"""Watching a run that others may drive: its events as they come, its questions when nothing else goes on in it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio

from orchestrator.cli import terminal_questions
from orchestrator.cli.output import out
from orchestrator.cli.progress import JsonLines, Sink, Tree
from orchestrator.cli.shown_questions import note
from orchestrator.cli.storage import store_url
from orchestrator.executor.lease import is_held
from orchestrator.kernel.status import FINAL

if TYPE_CHECKING:
    from orchestrator.executor import Event, Executor, Run
    from orchestrator.kernel.question import Question


class Watch:
    """One run that is looked at.

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

    async def until_it_ends_or_can_go_on(self, executor: Executor) -> Run:
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
        from orchestrator.cli import report

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
