"""Every path to a call that changes something passes a confirmation of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.graph.checks.words import listed
from orchestrator.graph.proofs.approval_search import ApprovalSearch, Approved
from orchestrator.graph.proofs.calls import (
    CHANGING,
    Calls,
    approval_of,
    calls_of,
    updates_of,
)
from orchestrator.graph.proofs.places import Place
from orchestrator.graph.report import Proof, WitnessStep

if TYPE_CHECKING:
    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.graph.node import Node
    from orchestrator.graph.node_tools import NodeTool

ONCE = "the call is approved once"
NOTHING = "no node calls a tool of risk write or higher"


def confirmed(places: Sequence[Place], tools: Sequence[NodeTool] | None) -> Iterator[Proof]:
    """A claim for each node that may call a tool that changes something."""
    some = False
    for place in places:
        for name, node in place.graph.nodes.items():
            calls = calls_of(node, tools, place.scope)
            if calls.any:
                some = True
                yield _proof(places, place, name, calls, tools)
    if not some:
        yield Proof("confirmed", NOTHING, "proved")


def _proof(places: Sequence[Place], place: Place, name: str, calls: Calls, tools: Sequence[NodeTool] | None) -> Proof:
    node = place.graph.nodes[name]
    claim = f"every path to {place.named(name)} passes a confirmation"
    root = place
    while root.around is not None:
        root = root.around
    doubting = ApprovalSearch(places, place, name, tools, strict=True)
    strict = doubting.through(root.graph, root.scope, Approved()).hit
    if strict is None:
        twice = _made_twice(places, place, name, tools, doubting)
        if twice is not None:
            sure, reason, strict = twice
            claim = f"every path to {strict[-1].node} passes a confirmation"
            if not calls.changing:
                sure, reason = False, calls.unknown
            return Proof("confirmed", claim, "refuted" if sure else "undecided", reason, strict, tool=place.tool)
        return Proof("confirmed", claim, "proved", _by_policy(place, node), tool=place.tool)
    trusting = ApprovalSearch(places, place, name, tools, strict=False)
    certain = trusting.through(root.graph, root.scope, Approved()).hit
    if certain is not None:
        claim = f"every path to {certain[-1].node} passes a confirmation"
    if certain is not None and calls.changing:
        reason = f"without one it may call {listed(calls.changing)}"
        if "its effect is irreversible" in calls.changing:
            reason = "its effect is irreversible"
        elif trusting.others:
            reason += f"; {listed(trusting.others)} asks about another tool of that name"
        return Proof("confirmed", claim, "refuted", reason, certain, tool=place.tool)
    if certain is not None:
        return Proof("confirmed", claim, "undecided", calls.unknown, certain, tool=place.tool)
    writers = listed(dict.fromkeys(step.node for step in strict if _unknown_writer(root.graph, step.node)))
    reason = f"{writers} may write the call that was approved: declare writes="
    if not writers and doubting.others:
        reason = f"{listed(doubting.others)} may ask about another tool of the same name: pass --tools"
    elif not writers:
        reason = "the call that is made may differ from the approved one, as its fields are merged: leave reducers off"
    return Proof("confirmed", claim, "undecided", reason, strict, tool=place.tool)


def _made_twice(
    places: Sequence[Place], place: Place, name: str, tools: Sequence[NodeTool] | None, found: ApprovalSearch
) -> tuple[bool, str, tuple[WitnessStep, ...]] | None:
    """Whether two branches make a call with one approval, the reason, and the path of one of them."""
    root = place
    while root.around is not None:
        root = root.around
    for certain, parts in zip((True, False), found.shared(), strict=True):
        if parts:
            again = ApprovalSearch(places, place, name, tools, strict=True)
            again.refused, again.parts = parts, found.parts
            hit = again.through(root.graph, root.scope, Approved()).hit
            if hit is not None:
                how = "makes" if certain else "may make"
                return certain, f"{ONCE}, and another branch {how} it, too", hit
    return None


def _unknown_writer(graph: GraphDefinition, path: str) -> bool:
    first, _, rest = path.partition("/")
    node = graph.nodes.get(first)
    if node is None:
        return False
    if rest and node.subgraph is not None:
        return _unknown_writer(node.subgraph, rest)
    return updates_of(node) is None


def _by_policy(place: Place, node: Node) -> str:
    """The confirmations that let calls of a node through without asking, and which calls."""
    found = []
    for name, other in place.graph.nodes.items():
        approval = approval_of(other)
        if approval is not None and approval.call is not None and approval.call == node.called_from:
            risks = [risk for risk in CHANGING if risk in approval.unasked]
            if risks:
                found.append(f"{place.named(name)} lets calls of risk {' and '.join(risks)} through without asking")
    return "; ".join(found)
