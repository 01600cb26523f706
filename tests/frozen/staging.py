"""Runs a graph through the executor, and writes down all that can be seen of the run."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import anyio

from orchestrator import Approve, Executor, Graph, Question, Run
from orchestrator.errors import OrchestratorError
from orchestrator.kernel.records import Record
from tests.frozen.blanking import compact, line_of

Play: TypeAlias = Callable[[Executor, "Piece"], Awaitable[Run]]
Answers: TypeAlias = Callable[[Question], object]
MOST = 60
"""Answers after which a run is left as it is."""


def agree(question: Question) -> object:
    """Approve what can be approved, and say yes to the rest."""
    if question.kind == "approval":
        return Approve()
    return "retry" if question.kind == "unknown_outcome" else "yes"


async def to_the_end(executor: Executor, piece: Piece) -> Run:
    """Start the run, and answer what it asks."""
    run = await executor.start(piece.graph, piece.input, run_id=piece.name, **piece.start)
    return await answered(executor, piece, run)


async def answered(executor: Executor, piece: Piece, run: Run) -> Run:
    """Answer what a run asks until it asks nothing more."""
    for _ in range(MOST):
        if not run.waiting:
            break
        question = run.waiting[0]
        run = await executor.answer(run.run_id, question.id, piece.answer(question), by="ann")
    return run


@dataclass
class Piece:
    """A graph, and how its run goes."""

    name: str
    """The run's id."""
    graph: Graph
    input: object = None
    answer: Answers = agree
    play: Play = to_the_end
    start: dict[str, Any] = field(default_factory=dict)
    """More arguments of `Executor.start`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of `Executor`: model, tools, deps."""
    store: str = "memory://"
    """A URL, or `sqlite` for a new file."""
    brief: bool = False
    """Whether only the journal and the result are written down."""


_turns: list[anyio.Lock] = []


def alone() -> None:
    """Forget the turns of the run before, and the event loop that they were taken in."""
    _turns[:] = [anyio.Lock()]


@asynccontextmanager
async def turn() -> AsyncIterator[None]:
    """Let nodes of parallel branches run one after the other, in the order in which they begin.

    Their records then come in one order, however often the executor gives the event loop its turn.
    """
    async with _turns[0]:
        yield


@contextmanager
def still() -> Iterator[None]:
    """Let time stand still for whoever asks `time.monotonic` whether a while has passed, except for the event loop."""
    real = time.monotonic
    began = real()

    def monotonic() -> float:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return real() if asks.startswith(("asyncio", "anyio")) else began

    log = logging.getLogger("orchestrator")
    level = log.level
    vars(time)["monotonic"] = monotonic
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        vars(time)["monotonic"] = real
        log.setLevel(level)


async def staged(piece: Piece) -> tuple[Run, list[Record], str]:
    """The run, its records, and the text of what it did."""
    alone()
    options = {"graphs": [piece.graph], **piece.options}
    async with AsyncExitStack() as stack:
        store = piece.store
        if store == "sqlite":
            store = f"sqlite:///{stack.enter_context(TemporaryDirectory())}/runs.db"
        executor = await stack.enter_async_context(Executor(store, **options))
        raised = []
        try:
            run = await piece.play(executor, piece)
        except OrchestratorError as error:
            raised = [f"raised {type(error).__name__}: {error}"]
            run = await executor.load(piece.name)
        records = await executor.store.read(piece.name)
        parts = [*journal(records), *raised, *result(run)]
        if not piece.brief:
            parts += await seen(executor, piece.name)
        for info in sorted((await executor.runs(labels={"parent": piece.name})).runs, key=lambda one: one.run_id):
            parts += ["-- inner run", *journal(await executor.store.read(info.run_id))]
            parts += result(await executor.load(info.run_id))
    return run, records, renamed("\n".join(parts), records)


def journal(records: Sequence[Record]) -> list[str]:
    """A journal, one record a line."""
    return [line_of(record) for record in records]


def result(run: Run) -> list[str]:
    """The result document and the state of a run."""
    branches = [[one.path, one.node, one.phase, dict(one.values)] for one in run.branches]
    return [
        f"result {compact(run.to_json())}",
        f"values {compact(run.values)}",
        *([f"branches {compact(branches)}"] if len(branches) > 1 else []),
    ]


async def seen(executor: Executor, run_id: str) -> list[str]:
    """What an executor tells of a run besides: events in both styles, and the steps of its history."""
    parts = [f"event {compact(event.to_json())}" async for event in executor.events(run_id)]
    parts += [f"embedia {compact(event.to_json())}" async for event in executor.events(run_id, style="embedia")]
    for point in await executor.history(run_id):
        more = [point.attempt, point.failed, point.error and point.error.model_dump(mode="json")]
        parts.append(f"point {compact([point.to_json(), *more, point.values])}")
    return parts


def renamed(text: str, records: Sequence[Record]) -> str:
    """The text with digests of contents, which tell of the code of nodes, named in the order in which they come."""
    found = dict.fromkeys(re.findall(r'"content":"([0-9a-f]{16,64})"', text))
    for number, digest in enumerate(found, 1):
        text = text.replace(digest, f"content {number}")
    return text


def stage(pieces: Sequence[Piece]) -> dict[str, str]:
    """The texts of several runs, by name."""

    async def all_of() -> dict[str, str]:
        return {piece.name: (await staged(piece))[2] for piece in pieces}

    with still():
        return anyio.run(all_of)
