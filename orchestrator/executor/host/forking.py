"""Making runs from moments of other runs: fork."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from orchestrator.executor.host.control import RunControl
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.migration import Migration
from orchestrator.late import later
from orchestrator.values import check_position
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.host import forks
    from orchestrator.executor.host.fork_choices import ForkChoices
    from orchestrator.executor.host.fork_preview import ForkPreview
else:
    (forks,) = later("orchestrator.executor.host", "forks")


class RunForking(RunControl):
    """Makes new runs from moments of others, which are not changed."""

    async def fork(
        self,
        parent: str,
        /,
        at: int | None = None,
        *,
        update: Mapping[str, object] | None = None,
        branch: str | None = None,
        answer: object = None,
        answers: Mapping[str, object] | None = None,
        result: object = None,
        graph: GraphDefinition | str | None = None,
        migrate: Migration | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        by: str = "",
        digests: Collection[str] | None = None,
        start: bool = True,
        context: object = None,
    ) -> Run:
        """Make a new run that begins with the first records of another one, and goes on from there by itself.

        Nothing that is settled in these records is done again. Calls without a result count as not made. Before a call
        that cannot be undone, the fork asks, and says whether the runs that it is related to have made it; no policy
        (`approve`) answers that. The parent may be running; only what is in the store is read.

        Args:
            parent: the id of the run to fork.
            at: the number of the last record that the fork contains. None: the last one before the run's end; of a
                completed run it must be given. Where the run had failed, was cancelled or exhausted, the fork goes on
                as `resume(retry=True)` does. Only the last record before the end of an exhausted run, if it is named
                and the run ended behind an exhausted edge, gives a fork with the run's result.
            update: fields of the state and the values to set them to; no reducer is applied.
            branch: the path of the branch that `update` is for, one of `run.branches`. It must be given where the
                run is inside a fork or a map.
            answer: an answer in place of the one in record `at`.
            answers: answers to questions that are open at record `at`, by the questions' ids.
            result: a result in place of the one that the call in record `at` had: a value, a `ToolResult`, or a
                model's text or `Reply`.
            graph: another version of the run's graph to go on in, or its name (its newest version). Changes ahead of
                the fork are accepted.
            migrate: how the fork moves to this version, if it does not fit it; without `graph`, to the newest one. The
                changes above are made first, in the version that the run has.
            run_id: an id for the fork. The same id and the same fork mean the same run.
            labels: labels that the fork has beside those of its parent.
            by: who makes it and gives its answers, for the journal.
            digests: those of the questions that were looked at before they were answered; None: any.
            start: whether to go on until the fork ends or pauses. False needs no code of the graph; the fork is paused,
                and nothing happens in it until `resume`, or until its questions are answered.
            context: the fork's `ctx.context`, see `start`.

        Returns:
            The fork, when it ends or pauses; with `start=False` as it was made.

        Raises:
            RunUnknown: the store has no such run.
            InvalidValue: there is no such record or branch, or `result` does not fit the record.
            InvalidUpdate: a field or a value of `update` does not fit the state.
            InvalidAnswer, QuestionUnknown: an answer does not fit its question.
            StaleAnswer: a question that is answered has none of `digests`.
            RunExists: another run has the id.
            GraphUnknown: the run's graph, or a model or tool of it, is missing.
            ContextMissing: the run was begun with a context, and none is given or made.
            GraphChanged: the fork cannot go on in the graph without `migrate`.
            InvalidMigration: the migration does not fit the run at record `at`, or the version.
            ToolsChanged: tools that it may still call are missing, or take other arguments. After each of these errors
                there is no fork.
            StoreError, RunConflict: the journal cannot be written; the fork can be resumed.
        """
        order = forks.Order(
            parent, at=at, update=update, branch=branch, answer=answer, answers=answers, result=result, graph=graph,
            migrate=migrate, run_id=run_id, labels=labels, by=by, digests=digests,
        )  # fmt: skip
        return await forks.fork(self._host, order, start=start, context=context)

    async def preview_fork(
        self,
        parent: str,
        /,
        at: int | None = None,
        *,
        update: Mapping[str, object] | None = None,
        branch: str | None = None,
        answer: object = None,
        answers: Mapping[str, object] | None = None,
        result: object = None,
        graph: GraphDefinition | str | None = None,
        migrate: Migration | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        digests: Collection[str] | None = None,
        start: bool = True,
    ) -> ForkPreview:
        """Tell what a fork would reuse, make again and ask about. No run is made.

        Args:
            parent: the id of the run to fork. This argument and the others are those of `fork`.

        Returns:
            What the fork would be, as the store is now.

        Raises:
            RunUnknown, InvalidValue, InvalidUpdate, InvalidAnswer, QuestionUnknown, StaleAnswer, GraphUnknown,
            GraphChanged, InvalidMigration, ToolsChanged: `fork` would raise it, too.
        """
        order = forks.Order(
            parent, at=at, update=update, branch=branch, answer=answer, answers=answers, result=result, graph=graph,
            migrate=migrate, run_id=run_id, labels=labels, digests=digests,
        )  # fmt: skip
        from orchestrator.executor.host.fork_preview import preview  # late: few processes need it

        return await preview(self._host, order, start=start)

    async def fork_choices(self, parent: str, /, at: int | None = None) -> ForkChoices:
        """Tell what a fork of a run at a record can change: values, the result or the answer in that record.

        Args:
            parent: the id of the run.
            at: the number of the record; None: the last one before the run's end.

        Returns:
            The branches with their values and the JSON Schemas of their states; the result, if the record is that of
            a call; the answer, if it is one.

        Raises:
            RunUnknown: the store has no such run.
            InvalidValue: there is no such record, or nothing can follow it.
        """
        from orchestrator.executor.host.fork_choices import choices  # late: few processes need it

        check_position(at)
        return await choices(self._host, await self._host.store.info(parent), at)
