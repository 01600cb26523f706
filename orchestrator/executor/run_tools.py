"""The tools of a run: whether all that it needs exist, and how they changed since it was last driven.

A run starts only if every node that needs a tool has one. Its first record contains the digest of the schema of each
tool that one of its nodes may call. To continue the run, an executor needs these tools unchanged, if nodes that the run
may still reach can call them: conversations of models and approved calls depend on them. New tools harm no run; they
are journaled as a change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from orchestrator.errors import GraphUnknown, ToolsChanged
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.run_state import RunState
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox

_MOST = 20
"""Maximum number of arguments of a changed tool that an error names."""


class Reach(Struct):
    """The tools that nodes may call."""

    all: bool = False
    """True if one of them may call any tool of the executor."""
    names: set[str] = set()
    """Names of the executor's tools that they declare."""
    own: dict[str, Tool] = {}
    """`node/name` -> a tool declared by a node itself."""

    def note(
        self, graph: GraphDefinition, only: Collection[str] | None = None, path: str = "", around: Scope | None = None
    ) -> None:
        """Add the tools that the nodes of a graph may call. `only`: of these nodes; None: of all."""
        outer = around or Scope()
        for name, node in graph.nodes.items():
            if only is not None and name not in only:
                continue
            own = [one for one in node.toolset or () if isinstance(one, Tool)]
            scope = outer.inside(node.tools, {one.name for one in own})
            self.own |= {f"{path}{name}/{one.name}": one for one in own}
            if node.subgraph is not None:
                self.note(node.subgraph, None, f"{path}{name}/", scope)
            elif not node.sees_tools:
                continue
            elif scope.names is None:
                self.all = True
            else:
                self.names |= scope.names - scope.own


class Scope(Struct, frozen=True):
    """Declarations about tools by a node and by its enclosing subgraph nodes."""

    names: frozenset[str] | None = None
    own: frozenset[str] = frozenset()

    def inside(self, names: Sequence[str] | None, own: Collection[str]) -> Scope:
        """Return the declarations for a node inside this scope that declares `names` and `own`."""
        return Scope(self.names if names is None else frozenset(names), self.own | frozenset(own))


def offered(graph: GraphDefinition, tools: Toolbox) -> dict[str, str]:
    """Return name -> digest of the schema of every tool that a run may call; `node/name` for a node's own."""
    return _digests(_reach(graph), tools.current())


def own_tool(graph: GraphDefinition | None, node: str, name: str) -> Tool | None:
    """Return the tool that a node of a graph, or of a graph inside it, declares itself; None if it does not."""
    own = {} if graph is None else _reach(graph).own
    return next((tool for key, tool in own.items() if f"/{key}".endswith(f"/{node}/{name}")), None)


def _reach(graph: GraphDefinition) -> Reach:
    """Return the tools that all nodes of a graph may call; computed once per graph object."""
    known = vars(graph).get("_reach")
    if isinstance(known, Reach):
        return known
    found = Reach()
    found.note(graph)
    vars(graph)["_reach"] = found
    return found


def _digests(found: Reach, tools: Mapping[str, Tool]) -> dict[str, str]:
    given = {name: tool for name, tool in tools.items() if found.all or name in found.names}
    return {name: tool.schema_digest for name, tool in {**given, **found.own}.items()}


def compare_offered(
    machine: RunState, graph: GraphDefinition, tools: Toolbox, *, strict: bool, accept: bool
) -> tuple[str, ...]:
    """Return the changes of the tools that a run may still call, one a line.

    Args:
        machine: the run.
        graph: its graph.
        tools: the current tools.
        accept: refuse nothing.
        strict: also refuse new tools.

    Raises:
        ToolsChanged: some are missing, or take other arguments.
    """
    before = machine.tools
    ahead = Reach()
    ahead.note(graph, _ahead(machine, graph)[1])
    there = tools.current()
    now = _digests(ahead, there)
    needed = {name: one for name, one in before.items() if name in now or ahead.all or name in ahead.names}
    grave = list(_grave(needed, now, ahead.own, there))
    new = [f"tool {name!r} is new" for name in now if name not in before and name not in ahead.own]
    if not accept and (grave or (strict and new)):
        lines = "\n".join(f"  - {line}" for line in (*grave, *(new if strict else ())))
        raise ToolsChanged(
            f"run {machine.run_id!r}: its tools changed since it was last driven:\n{lines}",
            run_id=machine.run_id,
            options=("--accept-changes",),
            call="accept_changes=True",
        )
    return (*grave, *new)


def irreversible_ahead(machine: RunState, graph: GraphDefinition, tools: Toolbox) -> tuple[str, ...]:
    """Return the names of the irreversible tools that a run may still call, sorted.

    Args:
        machine: the run.
        graph: its graph.
        tools: the current tools.
    """
    ahead = Reach()
    ahead.note(graph, _ahead(machine, graph)[1])
    given = {name: tool for name, tool in tools.current().items() if ahead.all or name in ahead.names}
    return tuple(sorted({one.name for one in (*given.values(), *ahead.own.values()) if one.effect == "irreversible"}))


def _grave(
    before: Mapping[str, str], now: Mapping[str, str], own: Mapping[str, Tool], tools: Mapping[str, Tool]
) -> Iterator[str]:
    for name, digest in before.items():
        node, _, short = name.rpartition("/")
        what = f"tool {short!r} of node {node!r}" if node else f"tool {name!r}"
        if name not in now:
            if not node:  # a node that no longer has such a tool is a change of the graph, and reported as one
                yield f"{what} is missing; there are: {', '.join(tools) or 'none'}"
        elif now[name] != digest:
            properties = (own.get(name) or tools[name]).parameters.get("properties")
            takes = ", ".join(list(properties)[:_MOST]) if isinstance(properties, Mapping) and properties else "none"
            yield f"{what} takes other arguments; now: {takes} (schema {now[name][:8]}, it was {digest[:8]})"


def _ahead(machine: RunState, graph: GraphDefinition) -> tuple[list[str], set[str]]:
    """Return the nodes that a run is at; and all that can be reached from them, including themselves."""
    at = sorted({token.node for token in machine.root.live.values()}) if machine.root is not None else []
    found = graph.topology.reachable(at)
    if graph.topology.exhausted_target is not None:
        found |= graph.topology.reachable([graph.topology.exhausted_target])
    return at, found


def check_tools(graph: GraphDefinition, tools: Toolbox) -> None:
    """Refuse a graph with nodes that fail because they have no tool.

    Args:
        graph: the graph of a new run.
        tools: the executor's tools; a run whose tools are not known yet is not refused.

    Raises:
        GraphUnknown: names the nodes.
    """
    found = list(dict.fromkeys(_without(graph, tools.current(), [graph]))) if tools.ready else []
    if found:
        nodes = f"node {found[0]}" if len(found) == 1 else f"nodes {', '.join(found)}"
        words = f"graph {graph.name!r}: {nodes}: there is no tool to use; give the node its own, tools=[...], or add "
        raise GraphUnknown(f"{words}tools to Executor(tools=[...])").on_command_line(f"{words}tools with --tools")


def _without(
    graph: GraphDefinition,
    there: Mapping[str, Tool],
    seen: list[GraphDefinition],
    path: str = "",
    around: Sequence[str] | None = None,
) -> Iterator[str]:
    """Yield the paths of the nodes that need a tool and have none.

    Args:
        graph: the graph to search.
        there: the tools of the executor.
        seen: the graphs already searched; updated.
        path: path of the graph.
        around: the tools that its enclosing nodes declare.
    """
    for name, node in graph.nodes.items():
        names = around if node.tools is None else node.tools
        if node.subgraph is not None:
            yield from _without(node.subgraph, there, seen, f"{path}{name}/", names)
        elif node.needs_tools and not (there if names is None else names):
            yield f"'{path}{name}'"
        own = [one for one in node.toolset or () if isinstance(one, Tool)]
        named = there.values() if names is None else [there[one] for one in names if one in there]
        for tool in [*own, *(named if node.sees_tools else ())]:
            inner = getattr(tool, "graph", None)
            if isinstance(inner, GraphDefinition) and not any(inner is one for one in seen):
                seen.append(inner)
                of_tool = "" if inner.name == tool.name else f" (of graph {inner.name!r})"
                yield from (f"{one} of tool {tool.name!r}{of_tool}" for one in _without(inner, there, seen))
