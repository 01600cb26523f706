"""What a graph can do: run, be drawn, be a tool; and tools that a node has for itself.

These verbs live above `graph` (in `executor`, `render` and `tools`), and `graph` knows nothing of them. They are on
the graph because that is where people look for them. This module is the one upward reference, and follows it only
when a verb is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, cast

from pydantic import BaseModel

from orchestrator.graph.limits import Limits
from orchestrator.typevars import StateT

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.executor.effects.graph_tools import GraphTool
    from orchestrator.graph.graph import Graph
    from orchestrator.models import Model
    from orchestrator.tools import Tool, ToolsLike
    from orchestrator.tools.result import Risk


def tools_of_a_node(things: Any) -> dict[str, tuple[object, Tool] | None]:
    """What a node was given as `tools=`, by name: what each of its own tools was given as, and the tool.

    Raises:
        ValueError: two have one name.
        TypeError: something can be no tool, or comes from a server, to which a node cannot connect.
    """
    from orchestrator.tools import Tool, Toolbox

    def each(thing: Any) -> Iterator[Any]:
        if isinstance(thing, Iterable) and not isinstance(thing, str | Tool | Toolbox | BaseModel):
            for one in thing:
                yield from each(one)
        else:
            yield thing

    found: dict[str, tuple[object, Tool] | None] = {}
    for thing in each(things):
        if isinstance(thing, str):
            if found.setdefault(thing, None) is not None:
                raise ValueError(f"two tools are named {thing!r}: one is the node's own, so leave out the name")
            continue
        box = thing if isinstance(thing, Toolbox) else Toolbox(thing)
        if box.connections:
            raise TypeError("tools of a server cannot be a node's own: give them to the executor, and the node names")
        for tool in box:
            if tool.name in found:
                raise ValueError(f"two tools are named {tool.name!r}: rename one with tool(it, name=...)")
            found[tool.name] = (tool if thing is box else thing, tool)
    return found


def tools_in(thing: object) -> tuple[Tool, ...] | None:
    """The tool, or those of a toolbox; None for whatever is neither."""
    from orchestrator.tools import Tool, Toolbox

    if isinstance(thing, Tool):
        return (thing,)
    return tuple(thing) if isinstance(thing, Toolbox) else None


class Verbs(Generic[StateT]):
    """Mixed into `Graph`."""

    async def run(
        self,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        store: str = "memory://",
        model: Model | None = None,
        models: Mapping[str, Model] | None = None,
        tools: ToolsLike = (),
        deps: object = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        check: bool = False,
    ) -> Run[StateT]:
        """Run the graph until it ends or pauses.

        Args:
            input: a mapping of state fields; anything else fills the graph's `input` field.
            store: URL of the store that keeps the run, such as `sqlite:///runs.db`.
            tools: what nodes may call: tools, functions, toolboxes, references such as `arithmetic`, or a list of them.
            approve: questions about tools of at most this risk are approved at once.
            limits: their explicitly set fields replace those of the graph's own limits, the others stay.
            check: raise if the run does not complete; see `Run.raise_for_status`.

        Raises:
            InvalidInput: the input does not fit the state.
            RunFailed: the run did not complete, and `check` is true.
            RunExists: `run_id` is taken by another run.
        """
        from orchestrator.executor import Executor

        async with Executor(
            store=store, graphs=[cast("Graph[StateT]", self)], model=model, models=models or {}, tools=tools, deps=deps
        ) as executor:
            run = await executor.start(
                cast("Graph[StateT]", self), input, run_id=run_id, labels=labels, approve=approve, limits=limits
            )
        return run.raise_for_status() if check else run

    def run_sync(
        self,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        store: str = "memory://",
        model: Model | None = None,
        models: Mapping[str, Model] | None = None,
        tools: ToolsLike = (),
        deps: object = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        check: bool = False,
    ) -> Run[StateT]:
        """`run` for callers without an event loop."""
        from functools import partial

        import anyio

        return anyio.run(
            partial(
                self.run,
                input,
                store=store,
                model=model,
                models=models,
                tools=tools,
                deps=deps,
                run_id=run_id,
                labels=labels,
                approve=approve,
                limits=limits,
                check=check,
            )
        )

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        risk: Risk = "dangerous",
        limits: Limits | None = None,
        depth: int = 10,
    ) -> GraphTool:
        """A tool that runs the graph: its arguments are the graph's input, its output the graph's.

        Each call is a run of its own. What it spends counts for the run that calls it as well, whose limits on calls,
        tokens, cost and seconds hold for it. A run that spends its own limits gives its output as a failed result.

        Args:
            risk: what its calls can do to the world.
            limits: of each of its runs: the fields set here replace those of the graph's own limits.
            depth: how many runs may be inside each other where this tool is called, its own among them. A call that
                would go deeper fails, so an agent that is offered itself ends.

        Raises:
            ValueError: `depth` is below 1.
        """
        from orchestrator.executor.effects.graph_tools import graph_tool

        return graph_tool(cast("Graph[StateT]", self), name, description, risk=risk, limits=limits, depth=depth)

    def to_svg(self, run: Run | None = None) -> str:
        """The graph as SVG, with what a run did if one is given."""
        from orchestrator import render

        return render.to_svg(cast("Graph[StateT]", self), run)

    def to_mermaid(self, run: Run | None = None) -> str:
        """The graph as Mermaid text."""
        from orchestrator import render

        return render.to_mermaid(cast("Graph[StateT]", self), run)

    def to_dot(self, run: Run | None = None) -> str:
        """The graph as text for Graphviz."""
        from orchestrator import render

        return render.to_dot(cast("Graph[StateT]", self), run)

    def to_text(self, run: Run | None = None) -> str:
        """The graph as text for a terminal."""
        from orchestrator import render

        return render.to_text(cast("Graph[StateT]", self), run)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """For notebooks."""
        from orchestrator import render

        graph = cast("Graph[StateT]", self)
        return {
            "image/svg+xml": render.to_svg(graph),
            "text/vnd.mermaid": render.to_mermaid(graph),
            "text/plain": render.to_text(graph),
        }
