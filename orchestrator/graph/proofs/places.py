"""Places of a graph and of the graphs inside it, and the tool calls that their nodes can make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.graph.faults import listed_names
from orchestrator.graph.model import GraphDefinition, Node, is_shipped
from orchestrator.graph.proofs.paths import Paths, Spot
from orchestrator.graph.report import WitnessStep

if TYPE_CHECKING:
    from orchestrator.graph.limits import Limits
    from orchestrator.graph.model import Approval, Node
    from orchestrator.graph.refs import NodeTool

# -- The calls that a node may make, as far as declared --------------------------------------------------------


HARMLESS = ("none", "read")
"""Risks of tools that change nothing."""
CHANGING = ("write", "dangerous")
"""Risks of tools that need a confirmation."""
_DECLARING = frozenset(
    (
        "approves",
        "asks_before_calls",
        "asks_model",
        "called_from",
        "calls_tools",
        "does",
        "outcomes",
        "ports",
        "port_types",
        "problems_in",
        "sees_tools",
        "takes_tools",
        "updates",
    )
)
"""Methods that only describe a kind and do none of its work."""


Toolset: TypeAlias = "tuple[str | NodeTool, ...] | None"
"""The tools that a node may call; None: all tools of the run."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The tools that the subgraph nodes around a graph declare."""

    names: tuple[str, ...] | None = None
    """The only tools for nodes that name none; None for all tools of the run."""
    own: tuple[OwnTool, ...] = ()
    """Tools that belong to these nodes, the innermost first."""

    def inside(self, node: Node) -> Scope:
        """Return the scope for the graph inside a node."""
        if node.toolset is None:
            return self
        own = tuple(OwnTool(one.name, one) for one in node.toolset if not isinstance(one, str))
        return Scope(node.tools, (*own, *(one for one in self.own if one not in own)))

    def toolset(self, node: Node) -> Toolset:
        """Return the only tools that a node may use; None for all tools of the run."""
        here = self.inside(node)
        if here.names is None:
            return None
        own = {one.name: one.tool for one in reversed(here.own)}
        return tuple(own.get(name, name) for name in here.names)


class OwnTool:
    """A tool that belongs to a node. Two are equal if they are the same tool under the same name."""

    __slots__ = ("name", "tool")

    def __init__(self, name: str, tool: NodeTool) -> None:
        self.name, self.tool = name, tool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnTool) and self.name == other.name and self.tool is other.tool

    def __hash__(self) -> int:
        return hash((self.name, id(self.tool)))


EVERYWHERE = Scope()
"""The scope of a run: there is no node around it."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a node that require a confirmation before it."""

    changing: tuple[str, ...] = ()
    """Tools that change something, with their risks."""
    unknown: str = ""
    """The reason why its tools are not all known; empty if they are."""

    @property
    def any(self) -> bool:
        """True if any call needs a confirmation."""
        return bool(self.changing or self.unknown)


def calls_of(node: Node, tools: Sequence[NodeTool] | None, scope: Scope = EVERYWHERE) -> Calls:
    """Return the calls of a node itself, without those of a graph inside it.

    Args:
        node: the node.
        tools: the tools of nodes that name none of their own; None if not known.
        scope: the tools declared by the nodes around its graph.
    """
    if node.subgraph is not None:
        return Calls()
    irreversible = ("its effect is irreversible",) if node.effect == "irreversible" else ()
    own = has_own_code(node)
    if not (calls_tools(node) or (own and node.tools is None and may_call(node))) or asks_itself(node):
        return Calls(irreversible)
    given = {tool.name: tool for tool in tools or ()}
    toolset = scope.toolset(node)
    if toolset is None:
        found, missing = list(given.values()), ""
        changing = [tool for tool in found if tool.risk not in HARMLESS]
        if tools is None:
            missing = "it may call any tool: name its tools, tools=[...], or pass --tools"
        elif own and changing:
            missing = f"its code may call {_names(changing)}: name its tools, tools=[...]"
            found = []
    else:
        absent = [one for one in toolset if isinstance(one, str) and one not in given]
        found = [given[one] if isinstance(one, str) else one for one in toolset if one not in absent]
        missing = f"tool {listed_names(map(str, absent))} is not declared: pass --tools" if absent else ""
        changing = [tool for tool in found if tool.risk not in HARMLESS]
        if own and node.tools is None and changing:
            missing = f"its code may call {_names(changing)}: name its tools, tools=[...]"
            found = []
    changing = [tool for tool in found if tool.risk not in HARMLESS]
    return Calls((*irreversible, *(f"{tool.name} ({tool.risk})" for tool in changing)), missing)


def callable_tools(node: Node, tools: Sequence[NodeTool] | None, scope: Scope = EVERYWHERE) -> list[NodeTool]:
    """Return the known tools that a node itself may call, without those of a graph inside it.

    Args:
        node: the node.
        tools: the tools of nodes that name none of their own; None if not known.
        scope: the tools declared by the nodes around its graph.
    """
    if node.subgraph is not None or not (calls_tools(node) or (has_own_code(node) and may_call(node))):
        return []
    given = {tool.name: tool for tool in tools or ()}
    toolset = scope.toolset(node)
    named = (
        list(given.values())
        if toolset is None
        else [given.get(one) if isinstance(one, str) else one for one in toolset]
    )
    return [tool for tool in named if tool is not None]


def has_unknown_tools(node: Node, tools: Sequence[NodeTool] | None, scope: Scope = EVERYWHERE) -> bool:
    """Return True if a node itself may call a tool that is not known.

    Args:
        node: the node.
        tools: the tools of nodes that name none of their own; None if not known.
        scope: the tools declared by the nodes around its graph.
    """
    if node.subgraph is not None or not (calls_tools(node) or (has_own_code(node) and may_call(node))):
        return False
    toolset, given = scope.toolset(node), {tool.name for tool in tools or ()}
    return tools is None if toolset is None else any(isinstance(one, str) and one not in given for one in toolset)


def asks_about_calls(
    confirm: Node, asking: Scope, unasked: Sequence[str], node: Node, calling: Scope, tools: Sequence[NodeTool] | None
) -> bool | None:
    """Return True if a confirmation asks about the tools that a node calls, not about others with the same names.

    Args:
        confirm: the confirmation, which judges a call by the tools in its own scope.
        asking: the tools declared by the nodes around the confirmation's graph.
        unasked: the risks that it permits without asking.
        node: the node that makes the call.
        calling: the tools declared by the nodes around the calling node's graph.
        tools: the tools of nodes that name none of their own; None if not known.

    Returns:
        False if it permits a call because another tool with the same name has such a risk; None if that depends on
        tools that are not known.
    """
    seen, called = _by_name(asking.toolset(confirm), tools), _by_name(calling.toolset(node), tools)
    answer: bool | None = True
    if seen is None and called is None:
        return True
    for name in (called if called is not None else seen) or ():
        judged = name if seen is None else seen.get(name)
        made = name if called is None else called[name]
        if judged is None or judged is made or judged == made:
            continue  # the confirmation fails for such a call, or sees the same tool
        asked = not isinstance(judged, str) and judged.risk not in unasked
        harmless = not isinstance(made, str) and (made.risk in HARMLESS or made.risk in unasked)
        if not unasked or asked or harmless:
            continue
        if not isinstance(judged, str) and not isinstance(made, str):
            return False
        answer = None
    return answer


def _by_name(toolset: Toolset, tools: Sequence[NodeTool] | None) -> dict[str, str | NodeTool] | None:
    """Return the tools of a node by name, unknown ones as their names; None for any tool of the run."""
    given = {tool.name: tool for tool in tools or ()}
    if toolset is None:
        return None if tools is None else dict(given)
    return {
        one if isinstance(one, str) else one.name: given.get(one, one) if isinstance(one, str) else one
        for one in toolset
    }


def has_own_code(node: Node) -> bool:
    """Return True if the node's work is a function or a method of the user."""
    return node.subgraph is None and (node.kind in ("function", "unresolved") or not is_shipped(type(node)))


def may_call(node: Node) -> bool:
    """Return True if the node's code can access tools, and await their results."""
    return sees_tools(node) and getattr(node, "awaits", True)


def sees_tools(node: Node) -> bool:
    """Return True if the node's work can access tools."""
    return node.sees_tools or not _answers_for(type(node), "sees_tools")


def calls_tools(node: Node) -> bool:
    """Return True if the node itself calls tools."""
    return node.calls_tools or (not _answers_for(type(node), "calls_tools") and sees_tools(node) and bool(node.tools))


def asks_itself(node: Node) -> bool:
    """Return True if the node asks before each of its calls that changes something."""
    return node.asks_before_calls and _answers_for(type(node), "asks_before_calls")


def approval_of(node: Node) -> Approval | None:
    """Return the calls that a person approves in the node; None if none are known."""
    return node.approves if _answers_for(type(node), "approves") else None


def asks_model_before(node: Node, outcome: str) -> bool:
    """Return True if an outcome of the node always follows a model call. A step from the cache made no call."""
    return node.cache is None and outcome in node.after_model and _answers_for(type(node), "after_model")


def inputs_of(node: Node) -> dict[str, str]:
    """Return the inner graph's fields that the outer state's fields set; none if a user's class makes the input."""
    return getattr(node, "inputs", None) or {} if _answers_for(type(node), "inputs") else {}


def outputs_of(node: Node) -> dict[str, str]:
    """Return the outer state's fields that the inner graph's fields set; none if a user's class makes the update."""
    return getattr(node, "outputs", None) or {} if _answers_for(type(node), "outputs") else {}


def inner_names(node: Node, outer: str) -> list[str]:
    """Return the fields of the inner graph that an outer field sets."""
    return [inner for inner, ours in inputs_of(node).items() if ours == outer]


def outer_names(graph: GraphDefinition, node: Node, inner: GraphDefinition, name: str) -> list[str]:
    """Return the outer state's fields that have the value of an inner field after the inner graph has ended."""
    outputs, inputs = outputs_of(node), inputs_of(node)
    names = [outer for outer, theirs in outputs.items() if theirs == name]
    if name in inputs and inputs[name] not in outputs:
        written = [updates_of(one) for one in inner.nodes.values()]
        names += [inputs[name]] if all(one is not None and name not in one for one in written) else []
    return [one for one in names if one in graph.schema.fields]


def updates_of(node: Node) -> frozenset[str] | None:
    """Return the state fields that a step may update, if they are declared and enforced; None if not known."""
    own = _answers_for(type(node), "updates") or _answers_for(type(node), "fills")
    return node.updates if own or node.writes is not None else None


def _answers_for(kind: type[Node], name: str) -> bool:
    """Return True if an attribute of a kind describes the work that the kind really does.

    A user's class that overrides a method of one of the library's kinds does other work: then only its own declarations
    count.
    """
    for place, cls in enumerate(kind.__mro__):
        if name in vars(cls) or is_shipped(cls):
            return True
        above = kind.__mro__[place + 1 :]
        if any(_is_work(key, value) and any(key in vars(base) for base in above) for key, value in vars(cls).items()):
            return False
    return True


def _is_work(name: str, value: object) -> bool:
    if name.startswith(("__", "model_")) or name in _DECLARING or isinstance(value, type):
        return False
    return callable(value) or hasattr(type(value), "__get__")


def _names(tools: Sequence[NodeTool]) -> str:
    return listed_names(f"{tool.name} ({tool.risk})" for tool in tools)


# -- All graphs that run as part of a graph: those inside its nodes, and those that its tools run --------------


@dataclass(eq=False)
class Place:
    """A graph and the place where it runs."""

    graph: GraphDefinition
    paths: Paths
    limits: Limits
    around: Place | None = None
    """The place of the subgraph's node; None for a separate run."""
    node: str = ""
    """The name of the subgraph's node."""
    tool: str = ""
    """The tool that runs it or the graph around it."""
    callers: tuple[Limits, ...] = ()
    """The limits of the runs that call it as a tool."""
    scope: Scope = EVERYWHERE
    """The tools that the nodes around it declare."""

    @property
    def path(self) -> str:
        """The names of the nodes around it, joined by `/`."""
        if self.around is None:
            return ""
        return f"{self.around.path}/{self.node}" if self.around.path else self.node

    def named(self, node: str) -> str:
        """Return a node's name after the names of the nodes around it."""
        return f"{self.path}/{node}" if self.path else node

    @property
    def where(self) -> str:
        """The text that follows a claim about the graph; empty for the graph that is checked."""
        tool = f" in the graph of tool {self.tool}" if self.tool else ""
        return f" in {self.path}{tool}" if self.path else tool

    @property
    def line(self) -> tuple[Limits, ...]:
        """The limits of this graph and of those around it."""
        return (self.limits, *(() if self.around is None else self.around.line))

    def way_to(self, spot: Spot) -> tuple[WitnessStep, ...]:
        """Return a path from START of the run to a spot, without the spot itself."""
        steps: list[WitnessStep] = []
        at = spot
        while (before := self.paths.spots[at]) is not None:
            at, outcome, note = before
            steps.append(WitnessStep(self.named(at.vertex), outcome, note))
        return (*self.lead, *reversed(steps))

    @property
    def lead(self) -> tuple[WitnessStep, ...]:
        """Return a path to the node that contains the graph."""
        if self.around is None:
            return ()
        spot = next((spot for spot in self.around.paths.spots if spot.vertex == self.node), None)
        return () if spot is None else self.around.way_to(spot)


def places_of(graph: GraphDefinition, tools: Sequence[NodeTool] | None = None) -> list[Place]:
    """Return the places of all graphs of the run, and of the runs of graphs called as tools.

    A graph in several nodes with different tools has a place for each of them.

    Args:
        graph: the graph that is checked.
        tools: the tools of nodes that name none of their own; None if not known.
    """
    found: list[Place] = []
    runs: dict[int, Place] = {id(graph): Place(graph, Paths(graph), graph.limits)}
    ahead = list(runs.values())
    for run in ahead:
        places: dict[tuple[int, Scope], Place] = {}
        _add(places, run)
        found += places.values()
        for place in places.values():
            for node in place.graph.nodes.values():
                for tool in graph_tools(node, tools, place.scope):
                    called = tool_graph(tool)
                    if called is not None and id(called) not in runs:
                        limits = called.limits.changed(getattr(tool, "limits", None))
                        callers = (*place.line, *place.callers)
                        runs[id(called)] = Place(called, Paths(called), limits, tool=tool.name, callers=callers)
                        ahead.append(runs[id(called)])
    return found


def _add(found: dict[tuple[int, Scope], Place], place: Place) -> None:
    found[id(place.graph), place.scope] = place
    for name, node in place.graph.nodes.items():
        inner = node.subgraph
        scope = place.scope.inside(node)
        if inner is not None and (id(inner), scope) not in found:
            paths = Paths(inner, inside=True)
            _add(found, Place(inner, paths, inner.limits, place, name, place.tool, place.callers, scope))


def graph_tools(node: Node, tools: Sequence[NodeTool] | None, scope: Scope = EVERYWHERE) -> Iterator[NodeTool]:
    """Yield the tools that run a graph, among those that a node may call."""
    if not sees_tools(node) or node.subgraph is not None:
        return
    given = {tool.name: tool for tool in tools or ()}
    toolset = scope.toolset(node)
    for tool in given.values() if toolset is None else toolset:
        known = given.get(tool) if isinstance(tool, str) else tool
        if known is not None and tool_graph(known) is not None:
            yield known


def tool_graph(tool: NodeTool) -> GraphDefinition | None:
    """Return the graph that a tool runs; None if it runs none."""
    found = getattr(tool, "graph", None)
    return found if isinstance(found, GraphDefinition) else None
