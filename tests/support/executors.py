"""Graphs and helpers that the tests of the executor share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel

from orchestrator import Graph, Limits, Outcome, Update, append, node


class Log(BaseModel):
    """A state that collects what happened."""

    question: str = ""
    items: list[int] = []
    log: Annotated[list[str], append] = []
    n: int = 0
    until: int = 0
    answer: str = ""


def chain(*nodes: Any, name: str = "chain", limits: Limits | None = None) -> Graph:
    """Return a graph of nodes one after the other."""
    named = {f"n{i}": node for i, node in enumerate(nodes)}
    return Graph(
        name=name, state=Log, input="question", nodes=named, edges=f"START -> {' -> '.join(named)} -> END",
        output="log", limits=limits,
    )  # fmt: skip


def single(
    fn: Callable[..., Any], *, name: str = "single", edges: str = "START -> work -> END", limits: Limits | None = None,
    nodes: dict[str, Any] | None = None, takes: str | None = "question", **options: Any,
) -> Graph:  # fmt: skip
    """Return a graph of one node, called `work`."""
    work = node(**options)(fn) if options else node(fn)
    return Graph(
        name=name, state=Log, input=takes, nodes={"work": work, **(nodes or {})}, edges=edges, output="log",
        limits=limits,
    )  # fmt: skip


@node(effect="pure")
async def count(state: Log) -> Outcome[Literal["again", "enough"]]:
    """Count one more, and end at `until`."""
    return Outcome("again" if state.n + 1 < state.until else "enough", n=state.n + 1)


def counting(name: str = "counting", **limits: Any) -> Graph:
    """Return a graph with a loop that counts to `until`."""
    return Graph(
        name=name, state=Log, nodes={"count": count},
        edges="START -> count\ncount -> count : again\ncount -> END : enough",
        output="n", limits=Limits(**{"steps": None, **limits}),
    )  # fmt: skip


def hanging() -> tuple[Any, anyio.Event]:
    """Return a node that hangs the first time it runs, and the event that it sets then."""
    began = anyio.Event()

    @node
    async def slow(state: Log) -> Update:
        if not began.is_set():
            began.set()
            await anyio.sleep_forever()
        return {"log": "done"}

    return slow, began


def says(word: str, wait: Callable[[], Awaitable[object]] | None = None, **options: Any) -> Any:
    """Return a node that logs a word, after waiting."""

    @node(**{"effect": "pure", **options})
    async def say(state: Log) -> Update:
        if wait is not None:
            await wait()
        return {"log": word}

    return say
