"""The version of its graph that a fork continues in: the one that its parent had, or one that it is moved to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from orchestrator.errors import GraphChanged, InvalidMigration, InvalidValue, ToolsChanged
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.loader import Fit
from orchestrator.executor.host.offered_tools import compare_offered
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.versions import Migration
from orchestrator.kernel.run_state import RunState
from orchestrator.stores.base import RunInfo


class Wanted(Protocol):
    """Which version is wanted; see `Executor.fork`."""

    @property
    def parent(self) -> str: ...
    @property
    def at(self) -> int | None: ...
    @property
    def graph(self) -> GraphDefinition | str | None: ...
    @property
    def migrate(self) -> Migration | None: ...
    @property
    def replay(self) -> Mapping[str, Any] | None: ...


async def version_of(
    host: Host, wanted: Wanted, info: RunInfo, machine: RunState, *, start: bool
) -> tuple[GraphDefinition | None, Fit]:
    """Another version of the graph that was asked for (None: there is none), and how the fork continues.

    Args:
        host: has the code.
        wanted: the fork.
        info: the parent's row.
        machine: the parent at the last record that is copied; if it was over there, reopened.
        start: whether the fork is to go on at once, so that its code must be there.

    Raises:
        GraphUnknown: its code, a model or a tool is missing.
        GraphChanged: the fork cannot go on in it.
    """
    given, resources = wanted.graph, host.resources
    moves = given is not None or wanted.migrate is not None
    if not moves and not start:
        return None, Fit()
    if isinstance(given, GraphDefinition):
        graph = given
    elif moves:
        graph = resources.graph(given or info.graph, info.run_id)
    else:
        known = resources.version(info.graph, machine.structure, machine.content)
        graph = known or resources.graph(info.graph, info.run_id)
    if graph.name != info.graph:
        raise InvalidValue(
            f"run {info.run_id!r} is of graph {info.graph!r}: a fork continues in a version of it, "
            f"not in {graph.name!r}",
            where="graph",
        )
    resources.check(graph, models=wanted.replay is None)
    resources.begun[graph.content] = graph
    fit = await fitting(host, wanted, info, graph, machine, moves=moves)
    moved = machine if fit.migrated is None else fit.migrated.trial
    try:
        compare_offered(moved, graph, resources.tools, strict=host.strict, accept=not start)
    except ToolsChanged as error:
        raise _tools_changed(wanted, error) from None
    return (graph if moves else None), fit


async def fitting(
    host: Host, wanted: Wanted, info: RunInfo, graph: GraphDefinition, machine: RunState, *, moves: bool = True
) -> Fit:
    """How the fork continues in a version.

    Args:
        moves: whether the version was asked for, so that changes ahead of the run are accepted.

    Raises:
        GraphChanged: it cannot.
    """
    strict = host.strict and not moves
    try:
        return await host.loader.fitting(info, graph, machine, strict=strict, accept=moves, migrate=wanted.migrate)
    except InvalidMigration:
        raise
    except GraphChanged as error:
        raise _graph_changed(wanted, graph, error) from None


def _graph_changed(wanted: Wanted, graph: GraphDefinition, error: GraphChanged) -> GraphChanged:
    """The refusal, with what makes the fork in place of what resumes a run: naming a graph accepts its changes."""
    if wanted.replay is not None:
        hint = "A replay from a record continues in a graph that the run fits there; without at= it starts over."
        return GraphChanged(f"{error.fault}\n{hint}")
    options = None
    if error.options is not None:
        options = (*_at(wanted)[0], *(one for one in error.options if one != "--accept-changes"))
    call = error.call.removesuffix("accept_changes=True").removesuffix(", ")
    return GraphChanged(
        error.fault, run_id=wanted.parent, options=options,
        call=", ".join(filter(None, (_at(wanted)[1], f"graph={graph.name!r}", call))), guesses=error.guesses,
        undecided=error.undecided, verb="fork",
    )  # fmt: skip


def _tools_changed(wanted: Wanted, error: ToolsChanged) -> ToolsChanged:
    """The refusal: a fork that is not begun asks about its tools when it is resumed."""
    if wanted.replay is not None:
        return ToolsChanged(error.fault)
    options, call = _at(wanted)
    return ToolsChanged(
        error.fault, run_id=wanted.parent, options=(*options, "--no-start"),
        call=", ".join(filter(None, (call, "start=False"))), verb="fork",
    )  # fmt: skip


def _at(wanted: Wanted) -> tuple[tuple[str, ...], str]:
    return ((), "") if wanted.at is None else (("--at", str(wanted.at)), f"at={wanted.at}")
