"""Reading the events of a run while it is driven: new runs, and those that exist."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, overload

from orchestrator.errors import RunExists
from orchestrator.executor.host.host import HasHost
from orchestrator.executor.host.manner import Manner
from orchestrator.executor.host.start import begin
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.limits import Limits
from orchestrator.late import later
from orchestrator.typevars import StateT

if TYPE_CHECKING:
    from orchestrator.executor.host import streaming
    from orchestrator.executor.host.streaming import Stream
else:
    (streaming,) = later("orchestrator.executor.host", "streaming")


class RunStreams(HasHost):
    """Streams of runs."""

    @overload
    def stream(
        self,
        graph: GraphDefinition[StateT] | str,
        input: object = None,
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
    ) -> AbstractAsyncContextManager[Stream[StateT]]: ...
    @overload
    def stream(
        self,
        *,
        run_id: str,
        answers: Mapping[str, object] | None = None,
        by: str = "",
        resume: bool = True,
        after: int | None = None,
        approve: str | None = None,
        accept_changes: bool = False,
        wait: float = 0.0,
        trust_answers: bool = True,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
        retry: bool = False,
        limits: Limits | None = None,
    ) -> AbstractAsyncContextManager[Stream]: ...
    def stream(
        self,
        graph: GraphDefinition | str | None = None,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
        answers: Mapping[str, object] | None = None,
        by: str = "",
        resume: bool = True,
        after: int | None = None,
        accept_changes: bool = False,
        wait: float = 0.0,
        trust_answers: bool = True,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
        retry: bool = False,
    ) -> AbstractAsyncContextManager[Stream[Any]]:
        """Read the events of a run while it is driven, until it ends or pauses.

            async with executor.stream(graph, {"question": "..."}) as live:
                async for event in live:
                    ...
            run = live.run

        With a graph this starts a run, with the arguments and errors of `start`, and leaving the block early
        interrupts the run. With only the `run_id` of an existing run it answers questions and resumes, with the
        arguments and errors of `answer` and `resume`:

            async with executor.stream(run_id=run_id, answers={question_id: Approve()}) as live:

        Leaving the block then interrupts the run only if this call took it up: a run that another task, `submit` or
        another executor drives goes on. A run that has ended is resumed only with `retry`, else its events are read.

        Args:
            graph: a graph, or the name of one of the executor's graphs; None: an existing run.
            answers: answers by the ids of their questions: all are given, or none if one does not fit. The other
                arguments below are also for existing runs only.
            by: who answers.
            resume: whether to continue the run if no executor drives it. False needs no code of the graph.
            after: the number of the last record to leave out; None: all that there are now.
            accept_changes, wait, trust_answers, retry, limits: see `resume`.
            pause_before, pause_after, context: see `start` and `resume`; for both forms.

        Returns:
            The stream of events, for `async with`. After the last event, its `run` is the run. It is `interrupted` if
            another executor drove it and no longer does.

        Raises:
            RunExists: a run has the id, even one of the same graph and input.
            TypeError: neither a graph nor a run is given, or arguments of the one form with the other.
        """
        news = {"input": input, "labels": labels, "refs": refs}
        olds = {
            "answers": answers, "by": by or None, "resume": None if resume else False, "after": after,
            "wait": wait or None, "accept_changes": accept_changes or None,
            "trust_answers": None if trust_answers else False, "retry": retry or None,
        }  # fmt: skip
        manner = Manner(
            approve=approve, accept=accept_changes, wait=wait, trust_answers=trust_answers, retry=retry, limits=limits,
            pause_before=pause_before, pause_after=pause_after, context=context,
        )  # fmt: skip
        wrong = [name for name, value in (news if graph is None else olds).items() if value is not None]
        if wrong:
            whose = "a new run: give its graph" if graph is None else "an existing run: give its run_id alone"
            raise TypeError(f"stream(): {', '.join(wrong)} can be given only for {whose}")

        async def opening() -> Stream:
            if graph is not None:
                live = await begin(self._host, graph, input, run_id, labels, approve, limits, refs, how=manner)
                if isinstance(live, str):
                    raise RunExists(live, "stream(graph) starts a new run, stream(run_id=...) reads an existing one")
                return await streaming.streamed(self._host, live)
            if run_id is None:
                raise TypeError("stream(): give a graph, or the run_id of an existing run")
            return await streaming.existing(
                self._host, run_id, answers=answers or {}, by=by, resume=resume, after=after, manner=manner
            )

        return streaming.StreamBlock(opening)
