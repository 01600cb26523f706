"""Commands to runs that exist: answer, send, resume, recover, pause, cancel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal, overload

from orchestrator.executor.answers import as_answer
from orchestrator.executor.commands import Stop
from orchestrator.executor.host.manner import Manner
from orchestrator.executor.host.reader import RunReader
from orchestrator.graph.limits import Limits
from orchestrator.graph.migration import Migration
from orchestrator.late import later
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.host import batches, delivery, recovery, sending
else:
    batches, delivery, recovery, sending = later("orchestrator.executor.host", "batches delivery recovery sending")


class RunControl(RunReader):
    """Reads runs, and commands those that exist, whichever executor drives them."""

    async def answer(
        self,
        run_id: str,
        question: str,
        answer: object,
        *,
        by: str = "",
        digest: str | None = None,
        resume: bool = True,
        background: bool = False,
        context: object = None,
    ) -> Run:
        """Answer a question of a run, once. The executor that drives the run continues it, else this one does.

        Args:
            run_id: the run's id.
            question: the question's id.
            answer: `Approve`, `Deny`, or any plain JSON value, such as `{"choice": "happened", "result": ...}`.
            by: who answers.
            digest: the digest of the question that was shown; if the question has changed, the answer is refused.
            resume: whether to continue until the run ends or pauses again. False needs no code of the graph.
            background: continue in the background, as `submit` does: return when the answer is durable. Cancelling
                this call then does not interrupt the run.
            context: the run's `ctx.context`, see `start`.

        Returns:
            The run when it ends or pauses again; with `background`, or without `resume`, after the answer.

        Raises:
            QuestionUnknown: the run has no such question.
            StaleAnswer: the question is answered or withdrawn, or has changed.
            InvalidAnswer: the answer does not fit. After each of these three errors the run is unchanged.
        """
        from orchestrator.away import away

        given = await away(lambda: as_answer(answer), answer)
        return await delivery.answer(
            self._host, run_id, question, given, by=by, digest=digest, background=background,
            resume=Manner(context=context) if resume else None,
        )  # fmt: skip

    @overload
    async def send(
        self,
        run_id: str | None = ...,
        event: str = ...,
        data: object = ...,
        *,
        id: str | None = ...,
        labels: Mapping[str, str] | None = ...,
        all: Literal[False] = ...,
        by: str = ...,
        resume: bool = ...,
        background: bool = ...,
        context: object = ...,
    ) -> Run: ...
    @overload
    async def send(
        self,
        run_id: None = ...,
        event: str = ...,
        data: object = ...,
        *,
        id: str | None = ...,
        labels: Mapping[str, str],
        all: Literal[True],
        by: str = ...,
        resume: bool = ...,
        background: bool = ...,
        context: object = ...,
    ) -> list[Run]: ...
    async def send(
        self,
        run_id: str | None = None,
        event: str = "",
        data: object = None,
        *,
        id: str | None = None,  # noqa: A002  the argument's name in the documentation
        labels: Mapping[str, str] | None = None,
        all: bool = False,  # noqa: A002  the argument's name in the documentation
        by: str = "",
        resume: bool = True,
        background: bool = False,
        context: object = None,
    ) -> Run | list[Run]:
        """Send an event to a run, whichever executor drives it. It is durable when this call returns.

        The run keeps the event until a step takes it: a `Wait` node of this name, now or later. An event with the name
        of an `Ask` node is a message for this node, see `Ask.on_busy`.

        Args:
            run_id: the run's id; None: `labels` say which run.
            event: the event's name.
            data: its data: plain JSON, or pydantic models, of at most 1 MiB.
            id: names this event: sent again under the same id, it is the same event and changes nothing.
            labels: send to the one unfinished run that has these labels.
            all: send to every unfinished run that has these labels.
            by: who sends it, for the journal.
            resume: whether to continue until the run ends or pauses again. False needs no code of the graph.
            background: return as soon as the event is durable; the run continues in the background.
            context: the `ctx.context` of the run, or with `all` of every run, see `start`.

        Returns:
            The run when it ends or pauses again; with `background`, or without `resume`, after the event. With `all` a
            list of runs.

        Raises:
            Ambiguous: no unfinished run has these labels, or several have.
            RunUnknown: the store has no such run.
            RunEnded: the run has ended.
            RunBusy: the event is a message for a node that takes none now, or the run keeps too many events.
            InvalidAnswer: the event is a message for a node that waits for one, and does not fit its question.
            InvalidValue: the data has no JSON form, or is too deep or too large.
            ContextMissing: the run was begun with a context, and none is given or made. After each of these errors the
                run is unchanged.
        """
        from orchestrator.away import away

        message = await away(lambda: sending.event_of(event, data, id, by), event, data)
        if (run_id is None) == (labels is None) or (all and labels is None):
            raise TypeError("give either the id of a run, or labels=; all=True goes with labels")
        how = Manner(context=context) if resume else None
        if all and labels is not None:
            return await sending.send_to_all(self._host, labels, message, how, background=background)
        one = run_id if labels is None else await sending.the_one(self._host, labels)
        assert one is not None
        return await sending.send(self._host, one, message, how, background=background)

    async def resume(
        self,
        run_id: str,
        *,
        retry: bool = False,
        limits: Limits | None = None,
        approve: str | None = None,
        accept_changes: bool = False,
        wait: float = 0.0,
        trust_answers: bool = True,
        migrate: Migration | None = None,
        background: bool = False,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
        by: str = "",
    ) -> Run:
        """Continue an interrupted or paused run, or with `retry` also one that has ended, until it ends or pauses.

        Args:
            run_id: the run's id.
            retry: also continue a run that failed, was cancelled or spent a limit, where it was: a step that failed
                begins a new attempt, steps that were stopped go on, and finished ones stay finished. See
                docs/resuming.md.
            limits: the explicitly set fields replace those of the run's limits. A run that spent a limit needs a higher
                one.
            approve: a new policy for calls of tools, see `start`.
            accept_changes: continue although tools changed, although the structure of the graph changed ahead of the
                run, or although anything changed and the executor is `strict`. See docs/versions.md.
            wait: seconds to wait for another executor that holds the run.
            trust_answers: False if the journal may come from elsewhere: its approvals and its policy are asked for
                again, unless the calls that they allow are already done.
            migrate: how the run moves to the newest version of its graph, if a node that it is at, a value that it has
                or a join that it waits for changed. It is checked whole before it is journaled.
            background: continue in the background, as `submit` does: return when the run is taken up. Cancelling this
                call then does not interrupt the run.
            pause_before, pause_after: nodes at which the run pauses from now on, see `start`; None: those that it has.
            context: the run's `ctx.context`, see `start`.
            by: who resumes it, for the journal.

        Returns:
            The run when it ends or pauses; with `background`, as it is when it was taken up.

        Raises:
            RunUnknown: the store has no such run.
            RunEnded: the run has completed; or it has ended and `retry` is False; or the limit that it spent is not
                raised.
            RunConflict: another executor drives the run.
            GraphUnknown: the run's graph, or a model or tool of it, is missing.
            ContextMissing: the run was begun with a context, and none is given or made.
            InvalidValue: the graph has no node of that name.
            GraphChanged: the graph changed so that the run needs `accept_changes` or `migrate`; the message has every
                difference with its grade, and the call and the command that continue the run.
            InvalidMigration: the migration does not fit the run, or the new version of its graph.
            ToolsChanged: tools that the run may still call are missing, or take other arguments.
            ReplayMismatch: changed code would leave a settled irreversible effect behind.
        """
        manner = Manner(
            approve=approve, accept=accept_changes, wait=wait, trust_answers=trust_answers, retry=retry, limits=limits,
            migrate=migrate, pause_before=pause_before, pause_after=pause_after, context=context,
            by=by,
        )  # fmt: skip
        return await recovery.resume(self._host, run_id, manner, background=background)

    async def resume_all(
        self,
        status: Collection[str] | str = "failed",
        *,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        only: Collection[str] | None = None,
        retry: bool = False,
        limits: Limits | None = None,
        approve: str | None = None,
        accept_changes: bool = False,
        migrate: Migration | None = None,
        wait: float = 0.0,
        concurrency: int = 20,
        on_progress: batches.OnProgress | None = None,
    ) -> batches.Resumed:
        """Resume all runs that match, each until it ends or pauses. A run that cannot be resumed is reported.

        Replays are left out, and runs that graph tools started: these continue with the runs that called them.

        Args:
            status: a status or several: `failed`, `exhausted`, `cancelled` (these three with `retry`), `interrupted` or
                `paused`.
            graph: the name of a graph.
            labels: labels that a run must have, with their values.
            only: ids of the runs to resume, if they match; None: all.
            retry, limits, approve, accept_changes, migrate, wait: see `resume`.
            concurrency: how many runs are driven at the same time.
            on_progress: called for each run with its result, the number of runs that are over, and the number of all.

        Returns:
            The runs with their status before and now, and the reasons of those that could not be resumed.

        Raises:
            ValueError: runs of such a status cannot be resumed, or need `retry`; or `concurrency` is below 1.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency={concurrency}: use 1 or more")
        wanted = batches.check_statuses(status, retry=retry)
        found = await batches.find(self._host.store, self.runs, wanted, graph, labels, only)
        manner = Manner(approve=approve, accept=accept_changes, wait=wait, retry=retry, limits=limits, migrate=migrate)
        return await batches.resume_all(self._host, found, manner, concurrency, on_progress)

    async def recover(self, *, only: Collection[str] | None = None) -> list[Run]:
        """Resume every run of the executor's graphs that was interrupted or answered, or is overdue.

        Args:
            only: ids of the runs to resume; None: all.

        Returns:
            The resumed runs, when all have ended or paused. A run that cannot be resumed is logged and left out.
        """
        return await recovery.recover(self._host, only)

    async def recoverable(self) -> list[str]:
        """Return the ids of the runs, of any graph, that `recover` would resume if it had their code."""
        return await recovery.lost(self._host, None)

    async def pause(self, run_id: str, *, by: str = "", reason: str = "") -> Run:
        """Pause a run, whichever executor drives it: running steps end, and no new step starts until `resume`.

        Args:
            run_id: the run's id.
            by: who pauses it, for the journal.
            reason: why, for the journal.

        Returns:
            The run as it then is.

        Raises:
            RunUnknown: the store has no such run.
            RunEnded: the run has ended.
        """
        return await delivery.stop(self._host, run_id, Stop("pause", by, reason))

    async def cancel(self, run_id: str, *, by: str = "", reason: str = "") -> Run:
        """Cancel a run, whichever executor drives it. Finished steps stay in its journal.

        Args:
            run_id: the run's id.
            by: who cancels it, for the journal.
            reason: why, for the journal.

        Returns:
            The run as it then is.

        Raises:
            RunUnknown: the store has no such run.
            RunEnded: the run has ended.
        """
        return await delivery.stop(self._host, run_id, Stop("cancel", by, reason))
