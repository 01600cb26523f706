"""Which calls a node may make, as far as is declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.graph.checks.words import listed
from orchestrator.graph.node import Node, is_shipped

if TYPE_CHECKING:
    from orchestrator.graph.node import Approval
    from orchestrator.graph.node_tools import NodeTool

HARMLESS = ("none", "read")
"""Risks of tools that change nothing."""
CHANGING = ("write", "dangerous")
"""Risks of tools that a confirmation is wanted for."""
_DECLARING = frozenset(
    ("approves", "asks_model", "called_from", "calls_tools", "does", "outcomes", "ports", "port_types", "problems_in",
     "sees_tools", "takes_tools", "updates")
)  # fmt: skip
"""Methods that declare what a kind does, and do none of it."""


Toolset: TypeAlias = "tuple[str | NodeTool, ...] | None"
"""What a node may call; None: whatever the run has."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the subgraph nodes around a graph say of tools."""

    names: tuple[str, ...] | None = None
    """The only tools that nodes get which name none; None: all of the run's."""
    own: tuple[OwnTool, ...] = ()
    """Tools of these nodes' own, the nearest first."""

    def inside(self, node: Node) -> Scope:
        """The same for the graph inside a node."""
        if node.toolset is None:
            return self
        own = tuple(OwnTool(one.name, one) for one in node.toolset if not isinstance(one, str))
        return Scope(node.tools, (*own, *(one for one in self.own if one not in own)))

    def toolset(self, node: Node) -> Toolset:
        """The only tools that a node gets; None: all of the run's."""
        here = self.inside(node)
        if here.names is None:
            return None
        own = {one.name: one.tool for one in reversed(here.own)}
        return tuple(own.get(name, name) for name in here.names)


class OwnTool:
    """A tool of a node's own. Two are equal if they are one tool of one name."""

    __slots__ = ("name", "tool")

    def __init__(self, name: str, tool: NodeTool) -> None:
        self.name, self.tool = name, tool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnTool) and self.name == other.name and self.tool is other.tool

    def __hash__(self) -> int:
        return hash((self.name, id(self.tool)))


EVERYWHERE = Scope()
"""That of a run: no node is around it."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What a node may do that wants a confirmation before it."""

    changing: tuple[str, ...] = ()
    """Tools that change something, with their risks."""
    unknown: str = ""
    """Why not all of its tools are known; empty: they are."""

    @property
    def any(self) -> bool:
        """Whether there is anything to confirm."""
        return bool(self.changing or self.unknown)


def calls_of(node: Node, tools: Sequence[NodeTool] | None, scope: Scope = EVERYWHERE) -> Calls:
    """The calls of a node itself, without those of a graph inside it.

    Args:
        node: the node.
        tools: the tools of nodes that name none of their own; None: not known.
        scope: what the nodes around its graph say of tools.
    """
    if node.subgraph is not None:
        return Calls()
    irreversible = ("its effect is irreversible",) if node.effect == "irreversible" else ()
    own = has_own_code(node)
    if not (calls_tools(node) or (own and node.tools is None and may_call(node))):
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
        missing = f"tool {listed(map(str, absent))} is not declared: pass --tools" if absent else ""
        changing = [tool for tool in found if tool.risk not in HARMLESS]
        if own and node.tools is None and changing:
            missing = f"its code may call {_names(changing)}: name its tools, tools=[...]"
            found = []
    changing = [tool for tool in found if tool.risk not in HARMLESS]
    return Calls((*irreversible, *(f"{tool.name} ({tool.risk})" for tool in changing)), missing)


def asks_about_calls(
    confirm: Node, asking: Scope, unasked: Sequence[str], node: Node, calling: Scope, tools: Sequence[NodeTool] | None
) -> bool | None:
    """Whether a confirmation asks about the tools that a node calls, and not about others of the same names.

    Args:
        confirm: the confirmation, which judges a call by the tool that it sees itself.
        asking: what the nodes around its graph say of tools.
        unasked: the risks that it does not ask about.
        node: the node that makes the call.
        calling: what the nodes around that one's graph say of tools.
        tools: the tools of nodes that name none of their own; None: not known.

    Returns:
        False if it lets a call of some tool through because another one of its name has such a risk; None if that
        depends on tools that are not known.
    """
    seen, called = _by_name(asking.toolset(confirm), tools), _by_name(calling.toolset(node), tools)
    answer: bool | None = True
    if seen is None and called is None:
        return True
    for name in (called if called is not None else seen) or ():
        judged = name if seen is None else seen.get(name)
        made = name if called is None else called[name]
        if judged is None or judged is made or judged == made:
            continue  # it fails for such a call, or means the same tool
        asked = not isinstance(judged, str) and judged.risk not in unasked
        harmless = not isinstance(made, str) and (made.risk in HARMLESS or made.risk in unasked)
        if not unasked or asked or harmless:
            continue
        if not isinstance(judged, str) and not isinstance(made, str):
            return False
        answer = None
    return answer


def _by_name(toolset: Toolset, tools: Sequence[NodeTool] | None) -> dict[str, str | NodeTool] | None:
    """The tools of a node by their names, those that are not known as names; None: any tool of the run."""
    given = {tool.name: tool for tool in tools or ()}
    if toolset is None:
        return None if tools is None else dict(given)
    return {
        one if isinstance(one, str) else one.name: given.get(one, one) if isinstance(one, str) else one
        for one in toolset
    }


def has_own_code(node: Node) -> bool:
    """Whether the node's work is a function, or a method, of the user's."""
    return node.subgraph is None and (node.kind in ("function", "unresolved") or not is_shipped(type(node)))


def may_call(node: Node) -> bool:
    """Whether the node's code gets at tools, and can await what they give."""
    return sees_tools(node) and getattr(node, "awaits", True)


def sees_tools(node: Node) -> bool:
    """Whether the node's work gets at tools."""
    return node.sees_tools or not _answers_for(type(node), "sees_tools")


def calls_tools(node: Node) -> bool:
    """Whether the node itself calls tools."""
    return node.calls_tools or (not _answers_for(type(node), "calls_tools") and sees_tools(node) and bool(node.tools))


def approval_of(node: Node) -> Approval | None:
    """What the node has a person approve; None: nothing, as far as is known."""
    return node.approves if _answers_for(type(node), "approves") else None


def asks_model_before(node: Node, outcome: str) -> bool:
    """Whether a step of the node only takes an outcome after a call of a model. A step from the cache made none."""
    return node.cache is None and outcome in node.after_model and _answers_for(type(node), "after_model")


def inputs_of(node: Node) -> dict[str, str]:
    """The fields of the graph inside that the state's fields fill; none where a user's class makes the input."""
    return getattr(node, "inputs", None) or {} if _answers_for(type(node), "inputs") else {}


def outputs_of(node: Node) -> dict[str, str]:
    """The state's fields that fields of the graph inside fill; none where a user's class makes the update."""
    return getattr(node, "outputs", None) or {} if _answers_for(type(node), "outputs") else {}


def updates_of(node: Node) -> frozenset[str] | None:
    """The state fields that a step may update, as far as is declared, and a run keeps to it; None: not known."""
    own = _answers_for(type(node), "updates") or _answers_for(type(node), "fills")
    return node.updates if own or node.writes is not None else None


def _answers_for(kind: type[Node], name: str) -> bool:
    """Whether what a kind declares by an attribute is about the work that it does.

    A class of the user's that replaces a method of a kind of the library's does other work: then only what it declares
    itself counts.
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
    return listed(f"{tool.name} ({tool.risk})" for tool in tools)
