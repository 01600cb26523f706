"""A life of a run: start or resume it, answer its questions and send its events until it ends, or its store stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from orchestrator.errors import RunUnknown, StoreUnavailable
from orchestrator.executor.commands import PassTime
from orchestrator.executor.delivery import say
from orchestrator.executor.executor import Executor
from orchestrator.graph_class import Graph
from orchestrator.kernel.question import AnyQuestion, Approve
from orchestrator.kernel.records import Record
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.testing.crash.facts import ObservedCall
from orchestrator.views.run import Run

Side = Literal["before", "after"]
"""Side of a write on which the process stops: the write is lost, or stored and not acknowledged."""


class Stopped(StoreUnavailable):
    """Raised at every use of the store after the process was stopped."""


class StoppingStore:
    """Hands everything on to a store until a write of records, the `at`th, at which it stops.

    Args:
        inner: where the records are kept.
        at: the number of the write, from 1; None never stops.
        side: see `Side`.
    """

    def __init__(self, inner: Store, at: int | None = None, side: Side = "before") -> None:
        self.inner, self.at, self.side = inner, at, side
        self.writes = 0
        self.stopped = False

    def __getattr__(self, name: str) -> object:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def handed_on(*args: object, **options: object) -> Any:
            self._alive()
            return found(*args, **options)

        return handed_on

    @property
    def store(self) -> Store:
        """Itself, as a store."""
        return cast("Store", self)

    async def create(self, new: NewRun) -> None:
        """See `Store.create`."""
        last = self._begins()
        await self.inner.create(new)
        self._ended(last)

    async def append(self, append: Append) -> int:
        """See `Store.append`."""
        last = self._begins()
        head = await self.inner.append(append)
        self._ended(last)
        return head

    def _alive(self) -> None:
        if self.stopped:
            raise Stopped(f"the process was stopped at write {self.at}")

    def _begins(self) -> bool:
        """Count a write. Whether it is the last one."""
        self._alive()
        self.writes += 1
        last = self.writes == self.at
        if last and self.side == "before":
            self.stopped = True
            self._alive()
        return last

    def _ended(self, last: bool) -> None:
        if last:
            self.stopped = True
        self._alive()  # also of a write that began before and ended after


RUN = "crash-kit"
"""The run's id, always the same, so that effects have the same keys in all trials."""

_QUESTIONS = 1000
"""Questions of one life after which a run counts as one that never ends."""

Answering = Callable[["AnyQuestion"], object]


class Answers:
    """Answers a run's questions: with the test's function, else from the recorded calls.

    Args:
        answer: of the test; None, or what gives None, leaves it to the kit.
        calls: what was done outside, by key.
    """

    def __init__(self, answer: Answering | None, calls: Mapping[str, ObservedCall]) -> None:
        self._answer, self._calls = answer, calls
        self.asked = 0
        """Number of questions about the outcome of an effect."""

    def to(self, question: AnyQuestion) -> object:
        """Return the answer to a question.

        Raises:
            ValueError: there is no answer.
        """
        self.asked += question.kind == "unknown_outcome"
        found = None if self._answer is None else self._answer(question)
        if found is not None:
            return found
        if question.kind == "unknown_outcome":
            call = self._calls.get(question.payload["key"])
            return {"choice": "happened", "result": call.result} if call is not None and call.finished else "retry"
        if question.kind == "approval":
            return Approve()
        if question.kind == "event" and question.event:
            return dict(question.match)
        raise ValueError(f"{question.node} asks {question.prompt or question.kind!r}: say what to answer, answer=...")


async def live(executor: Executor, graph: Graph, given: object, answers: Answers) -> Run:
    """Start or resume the run, and drive it to its end.

    Raises:
        ValueError: it waits for something that is never answered.
    """
    try:
        run = await executor.load(RUN)
    except RunUnknown:
        run = await executor.start(graph, given, run_id=RUN)
    else:
        if run.status not in FINAL:
            run = await executor.resume(RUN)
    for _ in range(_QUESTIONS):
        if run.status in FINAL:
            return run
        if not run.waiting:
            raise ValueError(f"graph {graph.name!r} is {run.status} and waits for nothing that can be answered")
        question = run.waiting[0]
        run = await _go_on(executor, question, answers)
    raise ValueError(f"graph {graph.name!r} has asked {_QUESTIONS} times in one life, and does not end")


async def _go_on(executor: Executor, question: AnyQuestion, answers: Answers) -> Run:
    """Continue the run after something that it waits for. Timers fire at once."""
    if question.kind == "timer":
        return await say(executor._host, RUN, PassTime(question.id))
    if question.event and question.kind == "event":
        return await executor.send(RUN, question.event, answers.to(question), id=question.id)
    return await executor.answer(RUN, question.id, answers.to(question))


async def journals(store: Store) -> dict[str, list[Record]]:
    """The records of every run in a store, by run id."""
    found: dict[str, list[Record]] = {}
    cursor: str | None = None
    while True:
        page = await store.runs(RunQuery(after=cursor, limit=200))
        for info in page.runs:
            found[info.run_id] = await store.read(info.run_id)
        cursor = page.cursor
        if cursor is None:
            return found
