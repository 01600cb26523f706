"""`Graph`: a graph definition with its verbs, which run it, draw it, and make a tool of it.

Executor, drawings and tools are loaded when a verb is used, so that a graph costs little to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InvalidGraph
from orchestrator.graph.arrows import EdgesLike
from orchestrator.graph.checks.all import problems_of, report_of
from orchestrator.graph.definition import GraphDefinition, Names, NodeLike
from orchestrator.graph.limits import Limits
from orchestrator.graph.state import StateSchema
from orchestrator.typevars import StateT

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.executor.effects.graph_tools import GraphTool
    from orchestrator.graph.report import CheckReport
    from orchestrator.models import Model
    from orchestrator.tools import ToolsLike
    from orchestrator.tools.result import Risk


class Graph(GraphDefinition[StateT]):
    """A declarative graph of nodes over one state. Building it runs all checks.

    Args:
        name: letters, digits, `_` and `-`.
        state: a pydantic model, or a state as data.
        nodes: name -> node, function, or node as data.
        edges: arrow text, `Edge`s or tuples.
        input: the state field (or fields) that a bare input fills.
        output: the state field (or fields) that is the run's output; None: the whole state.
        limits: what a run may spend.
        version: of the graph, for people.

    Raises:
        InvalidGraph: the checks found problems; all of them are in one report.
        ArrowSyntaxError: a statement of the arrow text cannot be read.
        SecretInState: a field of the state is a secret.
        pydantic.ValidationError: an argument is of the wrong type.
    """

    def __init__(
        self,
        *,
        name: str,
        state: type[StateT] | StateSchema | Mapping[str, Any],
        nodes: Mapping[str, NodeLike],
        edges: EdgesLike,
        input: Names = None,  # noqa: A002  the argument's name in the documentation
        output: Names = None,
        limits: Limits | Mapping[str, Any] | None = None,
        version: str | None = None,
        description: str = "",
    ) -> None:
        self._fill(
            name=name, state=state, nodes=nodes, edges=edges, input=input, output=output, limits=limits,
            version=version, description=description,
        )  # fmt: skip
        self._refuse_problems()

    def _refuse_problems(self, *, stored: bool = False) -> None:
        problems = problems_of(self, stored=stored)
        if problems:
            raise InvalidGraph(self.name, problems)

    def check(self, *, prove: bool = False) -> CheckReport:
        """The checks as data; `prove` adds what the shape alone proves, each with a witness where it fails."""
        return report_of(self, prove=prove)

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
            store=store, graphs=[self], model=model, models=models or {}, tools=tools, deps=deps
        ) as executor:
            run = await executor.start(self, input, run_id=run_id, labels=labels, approve=approve, limits=limits)
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

        return graph_tool(self, name, description, risk=risk, limits=limits, depth=depth)

    def to_svg(self, run: Run | None = None) -> str:
        """The graph as SVG, with what a run did if one is given."""
        from orchestrator import render

        return render.to_svg(self, run)

    def to_mermaid(self, run: Run | None = None) -> str:
        """The graph as Mermaid text."""
        from orchestrator import render

        return render.to_mermaid(self, run)

    def to_dot(self, run: Run | None = None) -> str:
        """The graph as text for Graphviz."""
        from orchestrator import render

        return render.to_dot(self, run)

    def to_text(self, run: Run | None = None) -> str:
        """The graph as text for a terminal."""
        from orchestrator import render

        return render.to_text(self, run)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For notebooks."""
        from orchestrator import render

        return {
            "image/svg+xml": render.to_svg(self),
            "text/vnd.mermaid": render.to_mermaid(self),
            "text/plain": render.to_text(self),
        }
