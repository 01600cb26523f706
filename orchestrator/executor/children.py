"""Runs that a run begins: graphs as tools. A child is a run of its own; its parent asks its questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.errors import QuestionUnknown, RunConflict, RunEnded, RunUnknown, StaleAnswer

if TYPE_CHECKING:
    from orchestrator.executor.executor import Executor
    from orchestrator.executor.run import Run
    from orchestrator.graph.graph import Graph
    from orchestrator.kernel.question import Answer


def child_id(parent: str, key: str) -> str:
    """The id of the run that a call, with this idempotency key, of a run begins."""
    return f"{parent}.{key}"


class Children:
    """What a graph's tool needs of the executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def start(self, graph: Graph, given: Mapping[str, object], run_id: str, parent: str) -> Run:
        """Run a graph, or go on with the run of this id."""
        return await self._executor.start(graph, given, run_id=run_id, labels={"parent": parent})

    async def answer(self, run: Run, question: str, answer: Answer, parent: str) -> Run:
        """Hand an answer on that was given to the parent, and go on."""
        try:
            return await self._executor.answer(run.run_id, question, answer, by=f"run {parent}")
        except (QuestionUnknown, StaleAnswer):  # somebody answered the child itself, or its deadline has passed
            return await self._go_on(run.run_id)

    async def _go_on(self, run_id: str) -> Run:
        """Let a run take in what was answered and what is overdue; whoever drives it does."""
        while True:
            try:
                return await self._executor.resume(run_id)
            except RunEnded:
                return await self._executor.load(run_id)
            except RunConflict:
                run = await self._executor.wait(run_id)
                if run.status != "interrupted":
                    return run

    async def cancel(self, run_id: str) -> None:
        """End a run whose parent does not want it any more."""
        try:
            await self._executor.cancel(run_id)
        except (RunEnded, RunUnknown):
            return
