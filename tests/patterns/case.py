"""A run of a graph whose tasks are done by hand: they wait until the test says that they have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from orchestrator import Approve, Deny, Executor, Graph, Run, Value
from orchestrator.nodes import Ask, Subgraph
from tests.patterns.page import patterns


def by_hand(graph: Graph, *names: str) -> Graph:
    """The graph with these tasks done by hand; `s/a` is in the subgraph s."""
    for name in names:
        node, _, inner = name.partition("/")
        old = graph.nodes[node]
        if inner:
            assert isinstance(old, Subgraph)
            inside: Any = old.graph
            new: Any = old.with_(graph=by_hand(inside, inner))
        else:
            new = Ask(prompt=node, answer="done", join=old.join, rest=old.rest, pool=old.pool)
        graph = graph.replace({node: new})
    return graph


class Play:
    """One run, paused whenever all of its tasks wait for a hand."""

    def __init__(self, executor: Executor, graph: Graph, run: Run) -> None:
        self.executor, self.graph, self.run = executor, graph, run

    async def done(self) -> list[str]:
        """The nodes whose steps have ended, in order."""
        return [record.node for record in await self.executor.store.read(self.run.run_id) if record.type == "step_done"]

    async def count(self, node: str) -> int:
        """How many steps of a node have ended."""
        return (await self.done()).count(node)

    @property
    def open(self) -> Counter[str]:
        """The tasks that are open, each with how many there are of it."""
        return Counter(question.node for question in self.run.waiting)

    @property
    def status(self) -> str:
        return self.run.status

    async def end(self, task: str, which: int = 0) -> None:
        """A task that is done by hand ends; `which` of several instances, in their order. Its name is its result."""
        question = [one for one in self.run.waiting if one.node == task][which]
        self.run = await self.executor.answer(self.run.run_id, question.id, Value(value=task))

    async def send(self, event: str, data: object = None) -> None:
        """An event comes from outside."""
        self.run = await self.executor.send(self.run.run_id, event, event if data is None else data)

    async def say(self, yes: bool) -> None:
        """A person approves, or denies."""
        question = next(one for one in self.run.waiting if one.kind == "approval")
        self.run = await self.executor.answer(self.run.run_id, question.id, Approve() if yes else Deny())

    async def cancel(self) -> None:
        self.run = await self.executor.cancel(self.run.run_id)


@asynccontextmanager
async def play(number: int, *tasks: str, tools: Any = (), **values: object) -> AsyncIterator[Play]:
    """A run of the graph of a pattern, begun with these values; `tasks` are done by hand."""
    graph = by_hand(patterns()[number].graph, *tasks)
    async with Executor(graphs=[graph], tools=tools) as executor:
        yield Play(executor, graph, await executor.start(graph, values))
