"""A life of a run: start or resume it, answer its questions and send its events until it ends, or its store stops.

The external calls of a run are counted by idempotency key, and kept when its process is stopped.
`World` counts them for runs in this process. `Diary` is a file for runs in processes of their own: a line for each call
that started, ended or was reused. A process sends its lines through a pipe to the process that started it, which writes
the file: a pipe loses nothing when the process is killed, and still takes lines when the disk is full.

A model is called once per key, like a server that honours the keys: a repeated call gets the same reply.
So the replies of models never differ between the runs that are compared. Tools and functions are really called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from orchestrator.errors import RunUnknown, StoreUnavailable
from orchestrator.executor.calls.effect import Effect, Witness
from orchestrator.executor.command_delivery import say
from orchestrator.executor.commands import PassTime
from orchestrator.executor.executor import Executor
from orchestrator.executor.failures import Lost, Refused, Suspend
from orchestrator.graph_class import Graph
from orchestrator.json import digest
from orchestrator.kernel.question import AnyQuestion, Approve
from orchestrator.kernel.records import EffectClass, EffectKind, EffectSettled, Record
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
    """A store that passes every call on until the `at`th write of records, at which it stops.

    Args:
        inner: the store of the records.
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
        """This object, typed as a store."""
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
        """Count a write. Return whether it is the last one."""
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
        self._alive()  # also for a write that started before the stop and ended after it


RUN = "crash-kit"
"""The run's id, always the same, so that effects have the same keys in all trials."""

_QUESTIONS = 1000
"""Number of questions of one life after which a run counts as endless."""

Answering = Callable[["AnyQuestion"], object]


class Answers:
    """Answers a run's questions: with the test's function, or from the recorded calls.

    Args:
        answer: the test's function; if it is None, or returns None, the kit answers.
        calls: the external calls, by key.
    """

    def __init__(self, answer: Answering | None, calls: Mapping[str, ObservedCall]) -> None:
        self._answer, self._calls = answer, calls
        self.asked = 0
        """Number of questions about the outcome of an effect."""

    def to(self, question: AnyQuestion) -> object:
        """Return the answer to a question.

        Raises:
            ValueError: the question cannot be answered.
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
        ValueError: the run waits for something that is never answered.
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
    """Continue the run after the question or event for which it waits. Timers fire at once."""
    if question.kind == "timer":
        return await say(executor._host, RUN, PassTime(question.id))
    if question.event and question.kind == "event":
        return await executor.send(RUN, question.event, answers.to(question), id=question.id)
    return await executor.answer(RUN, question.id, answers.to(question))


async def journals(store: Store) -> dict[str, list[Record]]:
    """Return the records of every run in a store, by run id."""
    found: dict[str, list[Record]] = {}
    cursor: str | None = None
    while True:
        page = await store.runs(RunQuery(after=cursor, limit=200))
        for info in page.runs:
            found[info.run_id] = await store.read(info.run_id)
        cursor = page.cursor
        if cursor is None:
            return found


T = TypeVar("T")


@dataclass
class World(Witness):
    """Counts effects. Those in progress when a process stops continue here, as external systems would."""

    tasks: TaskGroup
    replies: dict[str, object] = field(default_factory=dict)
    """Replies of models, by key."""
    calls: dict[str, ObservedCall] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Violations found so far."""
    life: StoppingStore | None = None
    """Store of the calling process; once it is stopped, the process no longer receives results."""
    _busy: int = 0
    _quiet: anyio.Event = field(default_factory=anyio.Event)

    async def call(self, effect: Effect[T], key: str) -> T:
        """See `Witness.call`."""
        wanted = wanted_of(effect)
        known = self.calls.setdefault(key, ObservedCall(key, effect.kind, effect.name, effect.effect, wanted))
        if known.wanted != wanted:
            self.faults.append(f"{known} was called with two requests under one key")
        known.begun += 1
        if effect.kind == "model" and key in self.replies:
            known.finished += 1
            return effect.decode(self.replies[key])
        return await self._outside(effect, key, known)

    def reuse(self, effect: Effect[object], settled: EffectSettled) -> None:
        """See `Witness.reuse`."""
        known = self.calls.get(settled.key)
        if known is not None and known.wanted != wanted_of(effect):
            self.faults.append(f"the result of {known} was given to a call of {effect.name} with another request")

    async def settle(self) -> None:
        """Wait until no call is in progress."""
        while self._busy:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    async def _outside(self, effect: Effect[T], key: str, known: ObservedCall) -> T:
        found: list[T] = []
        raised: list[BaseException] = []
        done = anyio.Event()
        scope = anyio.CancelScope()

        async def work() -> None:
            try:
                with scope:
                    value = await effect.run(key)
                    known.result = effect.encode(value)
                    known.finished += 1
                    if effect.kind == "model":
                        self.replies[key] = known.result
                    found.append(value)
            except (Exception, Suspend, Refused, Lost) as error:
                raised.append(error)
            finally:
                self._busy -= 1
                self._quiet.set()
                done.set()

        self._busy += 1
        self.tasks.start_soon(work)
        try:
            await done.wait()
        except BaseException:
            if self.life is None or not self.life.stopped:
                scope.cancel()
                with anyio.CancelScope(shield=True):
                    await done.wait()
            raise
        if raised:
            raise raised[0]
        return found[0]


def wanted_of(effect: Effect[Any]) -> str:
    """Return a digest of the request of an effect, independent of the ledger's own."""
    return digest([effect.kind, effect.name, effect.request])


class Diary:
    """The calls in a file, and those made since.

    Args:
        path: path of the file.
        tell: receives each new line; None: this diary is only read.
    """

    def __init__(self, path: str | Path, tell: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._tell = tell
        self.calls: dict[str, ObservedCall] = {}
        self.replies: dict[str, object] = {}
        """Replies of models, by key."""
        self.faults: list[str] = []
        """Violations found so far."""
        if (file := Path(path)).exists():
            for line in file.read_text().splitlines():
                self._take(json.loads(line))

    def begin(self, key: str, kind: EffectKind, name: str, effect: EffectClass, wanted: str) -> None:
        """Record that a call starts."""
        self._add({"did": "begin", "key": key, "kind": kind, "name": name, "effect": effect, "wanted": wanted})

    def finish(self, key: str, result: object) -> None:
        """Record that a call is done."""
        self._add({"did": "finish", "key": key, "result": result})

    def reuse(self, key: str, wanted: str) -> None:
        """Record that the result of a call was reused for this request."""
        self._add({"did": "reuse", "key": key, "wanted": wanted})

    def _add(self, line: dict[str, object]) -> None:
        if self._tell is not None:
            self._tell(line)
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        key: str = line["key"]
        if line["did"] == "begin":
            known = self.calls.setdefault(
                key, ObservedCall(key, line["kind"], line["name"], line["effect"], line["wanted"])
            )
            known.begun += 1
            if known.wanted != line["wanted"]:
                self.faults.append(f"{known} was called with two requests under one key")
            return
        found = self.calls.get(key)
        if found is None:
            return
        if line["did"] == "reuse":
            if found.wanted != line["wanted"]:
                self.faults.append(f"the result of {found} was given to a call with another request")
            return
        found.finished += 1
        found.result = line["result"]
        if found.kind == "model":
            self.replies[key] = found.result
