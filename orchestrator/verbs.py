"""`Graph`: a graph definition with the methods that run it, draw it, and make a tool of it.

Executor, drawings and tools are loaded when a method needs them, so that importing a graph is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator import render
from orchestrator.errors import InvalidGraph
from orchestrator.graph.checks.all import problems_of, report_of
from orchestrator.graph.definition import GraphDefinition, Names, NodeLike
from orchestrator.graph.edges import EdgesLike
from orchestrator.graph.limits import Limits
from orchestrator.graph.state import StateSchema
from orchestrator.graph.versions import Migration
from orchestrator.typevars import StateT

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.executor.effects.graphs import GraphTool
    from orchestrator.graph.report import CheckReport
    from orchestrator.models import Model
    from orchestrator.stores import Codec
    from orchestrator.tools import ToolsLike
    from orchestrator.tools.result import Risk


class Graph(GraphDefinition[StateT]):
    """A declarative graph of nodes over one state. Building it runs all checks.

    Args:
        name: letters, digits, `_` and `-`.
        state: a pydantic model, or a state as data.
        nodes: name -> node, function, or node as data.
        edges: arrow text, `Edge`s or tuples.
        input: the state field, or fields, that the input of a run sets. One: a mapping with exactly this key, and
            anything else is its value. Several: a mapping of these, or all values in order. None: a mapping of any
            state fields.
        output: the state field (or fields) that form the run's output; None: the whole state.
        limits: the limits of a run.
        pools: name -> how many steps of nodes that name this pool (`pool=`) may run at the same time in a run, with
            the graphs inside it. None: only `Executor(pools=)` limits them.
        version: the version of the graph, for people.
        description: what the graph does, for people and for MCP clients.
        migrations: how runs of earlier versions of the graph continue in it. If a run does not fit the graph as it is,
            it continues by the first of them that it fits.

    Raises:
        InvalidGraph: the checks found problems; the error lists all of them.
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
        pools: Mapping[str, int | None] | None = None,
        version: str | None = None,
        description: str = "",
        migrations: Sequence[Migration] = (),
    ) -> None:
        self._fill(
            name=name, state=state, nodes=nodes, edges=edges, input=input, output=output, limits=limits,
            pools=pools, version=version, description=description, migrations=migrations,
        )  # fmt: skip
        self._refuse_problems()

    def _refuse_problems(self, *, stored: bool = False) -> None:
        problems = problems_of(self, stored=stored)
        if problems:
            raise InvalidGraph(self.name, problems)

    def check(self, *, prove: bool = False, tools: ToolsLike | None = None) -> CheckReport:
        """Check the graph and return what was found.

        Args:
            prove: prove claims about all runs of the graph: each is proved, refuted with a path that breaks it, or
                undecided because something is not declared.
            tools: for proofs, the tools that runs are given, as of `Executor`. None: not known, so nodes that name no
                tools of their own may call any; the same of servers whose toolbox has not been opened.

        Returns:
            Errors, notes, and proofs if requested.

        Raises:
            TypeError: one of the objects cannot be a tool.
            GraphUnknown: a reference does not lead to a tool.
            ValueError: two tools have the same name.
        """
        if tools is None:
            return report_of(self, prove=prove)
        from orchestrator.tools import toolbox_of

        box = toolbox_of(tools)
        return report_of(self, prove=prove, tools=box.tools if box.ready else None)

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
        codec: Codec | None = None,
    ) -> Run[StateT]:
        """Run the graph until it ends or pauses.

        Args:
            input: the value of the graph's `input` field, or a mapping of the fields that `input` names; see `Graph`.
            store: the URL of the store, such as `sqlite:///runs.db`.
            model: the model of nodes that name no model.
            models: named models, by the names that nodes use.
            tools: tools, functions, toolboxes, references such as `arithmetic`, or a list of them.
            deps: the value of `ctx.deps` in nodes. Never journaled.
            run_id: an id for the run; see `Executor.start`.
            labels: labels of the run, to find it by.
            approve: approve calls of tools up to this risk without asking.
            limits: the explicitly set fields replace those of the graph's limits; the others stay.
            check: raise if the run does not complete; see `Run.raise_for_status`.
            codec: encrypts what the store keeps of values; see `Executor`.

        Returns:
            The run, when it ends or pauses.

        Raises:
            InvalidInput: the input does not fit the state.
            RunFailed: the run did not complete, and `check` is true.
            RunExists: another run has the id `run_id`.
        """
        from orchestrator.executor import Executor

        async with Executor(
            store=store, graphs=[self], model=model, models=models or {}, tools=tools, deps=deps, codec=codec
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
        codec: Codec | None = None,
    ) -> Run[StateT]:
        """Run the graph from code without an event loop. The arguments and errors are those of `run`.

        Returns:
            The run, when it ends or pauses.

        Raises:
            RuntimeError: an event loop is running, as in a notebook: await `run` instead.
        """
        import anyio
        import anyio.lowlevel

        with_these = partial(self.run, input, store=store, model=model, models=models, tools=tools, deps=deps)
        with_these = partial(with_these, run_id=run_id, labels=labels, approve=approve, limits=limits)
        token: object = None
        with suppress(RuntimeError):  # no event loop runs here
            token = anyio.lowlevel.current_token()
        if token is not None:
            raise RuntimeError("run_sync() begins an event loop, and one runs here, as in a notebook: await run(...)")
        return anyio.run(partial(with_these, check=check, codec=codec))

    def as_tool(
        self, name: str, description: str, *, risk: Risk = "dangerous", limits: Limits | None = None, depth: int = 10
    ) -> GraphTool:
        """Return a tool that runs the graph: its arguments are the graph's input, its output is the graph's output.

        Each call is a run of its own. Its usage counts for the calling run as well, whose limits on calls, tokens, cost
        and seconds apply to it. A run that spends its own limits returns its output as a failed result.

        Args:
            name: the tool's name.
            description: what the tool does, for the model.
            risk: what a call can do.
            limits: the limits of each run; the explicitly set fields replace those of the graph's limits.
            depth: how many runs may be nested, including the new one. A deeper call fails, so that an agent with
                itself as a tool ends.

        Returns:
            The tool.

        Raises:
            ValueError: `depth` is below 1.
        """
        from orchestrator.executor.effects.graphs import GraphTool

        return GraphTool(self, name, description, risk=risk, limits=limits, depth=depth)

    def to_svg(self, run: Run | None = None) -> str:
        """Return the graph as SVG.

        Args:
            run: a run of the graph to mark in the drawing.

        Returns:
            An SVG document.
        """
        return render.to_svg(self, run)

    def to_mermaid(self, run: Run | None = None) -> str:
        """Return the graph as Mermaid text.

        Args:
            run: a run of the graph to mark in the drawing.

        Returns:
            The text of a Mermaid diagram.
        """
        return render.to_mermaid(self, run)

    def to_dot(self, run: Run | None = None) -> str:
        """Return the graph as DOT text for Graphviz.

        Args:
            run: a run of the graph to mark in the drawing.

        Returns:
            The text of a DOT file.
        """
        return render.to_dot(self, run)

    def to_text(self, run: Run | None = None) -> str:
        """Return the graph as text for a terminal.

        Args:
            run: a run of the graph to mark in the drawing.

        Returns:
            Lines of text without colour.
        """
        return render.to_text(self, run)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For notebooks: as SVG and text. JupyterLab would draw Mermaid text rather than show an SVG."""
        return {"image/svg+xml": render.to_svg(self), "text/plain": render.to_text(self)}
