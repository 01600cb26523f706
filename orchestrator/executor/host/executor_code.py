"""The code that an executor was given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Self, cast

from anyio.abc import TaskStatus

from orchestrator.executor.host.host import HasHost
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.given_code import with_inner
from orchestrator.models.base import Model
from orchestrator.stores.base import Store
from orchestrator.tools.result import Risk
from orchestrator.tools.toolbox import Toolbox


class ExecutorCode(HasHost):
    """The graphs, tools and models of an executor."""

    @property
    def graphs(self) -> Mapping[str, GraphDefinition]:
        """The graphs that the executor has, by name: of several versions the newest."""
        return MappingProxyType(self._host.resources.graphs)

    @property
    def tools(self) -> Toolbox:
        """The tools that nodes may call; those of servers are known while the executor is open."""
        return self._host.resources.tools

    @property
    def model(self) -> Model | None:
        """The model of nodes that name no model."""
        return self._host.resources.model

    @property
    def models(self) -> Mapping[str, Model]:
        """The models by the names that nodes use."""
        return MappingProxyType(dict(self._host.resources.models))

    def add_graph(self, graph: GraphDefinition, *, ask_from: Risk | None = None) -> None:
        """Add a graph, or a newer version of one, whose runs can then be started and resumed here.

        Args:
            graph: the graph.
            ask_from: for a graph that comes from elsewhere: before a call of a tool of this risk or higher, and before
                an irreversible one, its runs ask a person, unless a step asked about just this call. None: its own
                confirms are relied on.
        """
        resources = self._host.resources
        versions = resources.versions.get(graph.name, ())
        others = (one for one in versions if (one.content, one.structure) != (graph.content, graph.structure))
        if ask_from is not None:
            own = {id(one) for known in resources.versions.values() for one in known}
            resources.asked.update({one.content: ask_from for one in with_inner([graph]) if id(one) not in own})
        resources.versions[graph.name] = (graph, *others)
        resources.graphs[graph.name] = graph

    def remove_graph(self, graph: GraphDefinition) -> None:
        """Forget a version of a graph. Runs of it that are not driven cannot be resumed here any more.

        Args:
            graph: the graph.
        """
        resources = self._host.resources
        kept = tuple(one for one in resources.versions.pop(graph.name, ()) if one.content != graph.content)
        if kept:
            resources.versions[graph.name] = kept
        known = resources.graphs.get(graph.name)
        if known is not None and known.content == graph.content:
            del resources.graphs[graph.name]
            if kept:
                resources.graphs[graph.name] = kept[0]
        resources.begun.pop(graph.content, None)
        resources.passed.forget(graph.content)
        left = {one.content for one in with_inner(one for known in resources.versions.values() for one in known)}
        for one in with_inner([graph]):
            if one.content not in left:  # another graph may have the same one inside
                resources.asked.pop(one.content, None)

    def beside(self, store: Store, *, model: Model | None, models: Mapping[str, Model]) -> Self:
        """Make another executor with the same tools, dependencies and contexts, and no graphs. It is not opened.

        Args:
            store: its store.
            model: the model of nodes that name no model.
            models: named models.
        """
        held = self._host.resources
        made = cast("Any", type(self))(
            store, model=model, models=models, tools=held.tools, deps=held.deps, streams="always",
            pools={name: int(pool.total_tokens) for name, pool in held.pools.items()}, memory=held.memory,
            contexts=self._host.contexts.make, clock=held.clock,
        )  # fmt: skip
        return cast("Self", made)

    async def in_background(self, work: Callable[[TaskStatus[None]], Awaitable[None]]) -> None:
        """Run a function in the background, and wait until it says that it has begun; closing cancels it.

        Args:
            work: the function, which calls `started()` of what it is given.

        Raises:
            RuntimeError: the executor is not open.
        """

        async def run(*, task_status: TaskStatus[None]) -> None:
            self._host.mark_task()
            await work(task_status)

        await self._host.background().start(run)
