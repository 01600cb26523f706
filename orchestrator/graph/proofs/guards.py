"""Proof that text from outside reaches no call that changes something without a check.

What an untrusted tool gives (a web page, a mail) may contain instructions, and a model may follow them. So on each path
from such a result to a call that changes something there has to be a guard that looks at it, or a confirmation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union, get_args, get_origin

from orchestrator.graph.faults import listed_names
from orchestrator.graph.model import is_shipped
from orchestrator.graph.proofs.paths import ENDS, Paths, Spot, may_run_out
from orchestrator.graph.proofs.places import (
    CHANGING,
    Place,
    Scope,
    approval_of,
    asks_itself,
    callable_tools,
    has_own_code,
    has_unknown_tools,
    inner_names,
    outer_names,
    outputs_of,
    tool_graph,
    updates_of,
)
from orchestrator.graph.report import Proof, WitnessStep
from orchestrator.graph.topology import START

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition, Node
    from orchestrator.graph.refs import NodeTool

CLAIM = "every path from a result of {sources} to a call of {targets} passes a guard or a confirmation"

MOST_FIELDS = 8
"""Number of fields of a graph that are followed, in alphabetical order: each may double the states of paths."""

KEEPING = ("add", "append", "extend", "union")
"""Reducers that keep the earlier value in the new one."""


class _Cover(NamedTuple):
    """The next call that a confirmation or a guard let pass."""

    risks: frozenset[str]
    """Risks of the tools that it may be of."""
    call: tuple[str, str] | None = None
    """The fields that the call is made from; None for any call."""
    whole: bool = True
    """True if code of the user's may make it: a person was asked, at any risk."""


class _Text(NamedTuple):
    """Text from outside that no guard has checked: the result of one step. Results of several are followed apart."""

    written: frozenset[str] = frozenset()
    """Fields, of those followed, that the step which got the text may have written, or one behind it that got none, and
    that no step which got another text may have overwritten."""
    cover: _Cover | None = None
    entered: bool = False
    """True if the text was there when the graph was entered."""
    called: bool = True
    """False if no call was made since the graph was entered."""


_Taint: TypeAlias = "_Text | None"
"""None: the run has no unchecked text from outside."""


class _State(NamedTuple):
    spot: Spot
    taint: _Taint


@dataclass
class _Summary:
    """The paths through a graph that is entered in one state."""

    came: dict[_State, tuple[_State, tuple[WitnessStep, ...]] | None] = field(default_factory=dict)
    exits: dict[tuple[str, _Taint], tuple[WitnessStep, ...]] = field(default_factory=dict)
    """Outcome that leads to END or STOP, and the state there -> a path to it."""
    anywhere: dict[_Taint, tuple[WitnessStep, ...]] = field(default_factory=dict)
    hit: tuple[WitnessStep, ...] | None = None
    """A path to a call that is not covered."""

    def path_to(self, state: _State) -> tuple[WitnessStep, ...]:
        steps: tuple[WitnessStep, ...] = ()
        at = self.came[state]
        while at is not None:
            steps = (*at[1], *steps)
            at = self.came[at[0]]
        return steps


class _Search:
    """Follows text from outside through a graph and those inside it."""

    def __init__(self, places: Sequence[Place], tools: Sequence[NodeTool] | None, outside: set[int]) -> None:
        self.paths: dict[int, Paths] = {id(place.graph): place.paths for place in places}
        self.tools, self.outside = tools, outside
        self.done: dict[tuple[int, Scope, _Taint], _Summary] = {}
        self.fields = _followed_fields(places)
        self.met: list[NodeTool] = []
        """The tools that the call of the hit may be of."""

    def is_source(self, tool: NodeTool) -> bool:
        """Return True if the tool's results may contain text from outside."""
        return getattr(tool, "untrusted", False) or id(tool_graph(tool)) in self.outside

    def through(self, graph: GraphDefinition, scope: Scope, taint: _Taint) -> _Summary:
        """Follow all paths of a graph that is entered in one state."""
        known = self.done.get((id(graph), scope, taint))
        if known is not None:
            return known
        paths = self.paths[id(graph)]
        first = _State(paths.start, taint)
        summary = self.done[id(graph), scope, taint] = _Summary({first: None})
        ahead = [first]
        for state in ahead:
            summary.anywhere.setdefault(state.taint, summary.path_to(state))
            node = None if state.spot.vertex == START else graph.nodes.get(state.spot.vertex)
            if node is not None and paths.runs(state.spot) and self._is_hit(node, scope, state.taint):
                summary.hit = (*summary.path_to(state), WitnessStep(state.spot.vertex))
                return summary
            for target, after, steps in self._following(paths, scope, state, node):
                if target is None:
                    summary.hit = (*summary.path_to(state), *steps)
                    return summary
                if target.vertex in ENDS:
                    summary.exits.setdefault((steps[0].outcome, after), (*summary.path_to(state), *steps))
                elif _State(target, after) not in summary.came:
                    summary.came[_State(target, after)] = (state, steps)
                    ahead.append(_State(target, after))
        return summary

    def _is_hit(self, node: Node, scope: Scope, taint: _Taint) -> bool:
        if node.subgraph is not None or asks_itself(node):
            return False
        known = callable_tools(node, self.tools, scope)
        if (node.kind == "code" or has_own_code(node)) and any(map(self.is_source, known)):
            taint = _Text()  # one step may call both
        if taint is None:
            return False
        covered = _risks_of(taint.cover, node)
        found = [one for one in known if one.risk in CHANGING and one.risk not in covered]
        self.met = found or self.met
        return bool(found)

    def _following(
        self, paths: Paths, scope: Scope, state: _State, node: Node | None
    ) -> Iterator[tuple[Spot | None, _Taint, tuple[WitnessStep, ...]]]:
        """Yield the next spots with the state there and the steps that lead to them; None where a call is hit."""
        spot, taint = state
        name = spot.vertex
        for why, target in paths.jumps_from(spot):
            yield target, taint, (WitnessStep(name, "", why),)
        if node is None or node.subgraph is None:
            for move in paths.moves(spot):
                step = WitnessStep(name, move.outcome, move.note)
                for after in [taint] if node is None else self._after(paths.graph, node, scope, move.outcome, taint):
                    yield move.target, after, (step,)
            return
        inner = node.subgraph
        summary = self.through(inner, scope.inside(node), None if taint is None else _entering(node, taint))
        if summary.hit is not None:
            yield None, taint, _inside(name, summary.hit)
            return
        for move in paths.moves(spot):
            step = WitnessStep(name, move.outcome, move.note)
            found = dict.fromkeys(after for _, after in summary.exits)
            if move.outcome not in node.outcomes or may_run_out(inner):
                found |= dict.fromkeys(summary.anywhere)
            for after in dict.fromkeys(self._leaving(paths.graph, node, inner, taint, end) for end in found):
                yield move.target, after, (step,)

    def _written(self, graph: GraphDefinition, node: Node) -> frozenset[str]:
        fields = updates_of(node)
        return self.fields[id(graph)] if fields is None else self.fields[id(graph)] & fields

    def _leaving(
        self, graph: GraphDefinition, node: Node, inner: GraphDefinition, taint: _Taint, end: _Taint
    ) -> _Taint:
        """Return the state behind a subgraph that was entered in one state and has ended in another."""
        if end is None:
            return None
        before = taint if taint is not None and end.entered else _Text()
        cover = end.cover if end.cover is None else _outside(graph, node, inner, end.cover)
        handed = _entering(node, before).cover
        if cover is None and before.cover is not None and not end.called and handed in (None, end.cover):
            cover = _after_writing(before.cover, updates_of(node))
        outputs = outputs_of(node)
        written = self.fields[id(graph)] & {outer for outer, theirs in outputs.items() if theirs in end.written}
        written |= before.written - _overwritten(graph, frozenset(outputs))
        return _Text(written, cover, before.entered, before.called or end.called)

    def _after(self, graph: GraphDefinition, node: Node, scope: Scope, outcome: str, taint: _Taint) -> Iterator[_Taint]:
        """Yield the states behind a step: that of the text which it got, and that of the earlier text."""
        found, written = callable_tools(node, self.tools, scope), self._written(graph, node)
        if any(map(self.is_source, found)):
            yield _Text(written)
            if taint is not None:  # what it wrote may be the new text alone
                kept = taint.written - _overwritten(graph, written)
                yield taint._replace(written=kept, cover=None, called=True)
            return
        if taint is None or _is_guard(node):
            yield None if taint is None else _checked(graph, node, outcome, taint)
            return
        cover, approval = taint.cover, approval_of(node)
        if approval is not None:
            asked = frozenset(CHANGING).difference(approval.unasked).union(approval.reviewed)
            new = _Cover(asked, approval.call, not approval.unasked)
            cover = _joined(cover, new) if outcome == approval.outcome else None
        elif found:
            cover = None  # an approval covers one call
        elif cover is not None:
            cover = _after_writing(cover, updates_of(node))
        yield taint._replace(written=taint.written | written, cover=cover, called=taint.called or bool(found))


# -- What a confirmation or a guard covers -----------------------------------------------------------------------


def _risks_of(cover: _Cover | None, node: Node) -> frozenset[str]:
    """Return the risks of the tools whose call by a node is covered."""
    if cover is None:
        return frozenset()
    fits = cover.call is None or (cover.whole if has_own_code(node) else node.called_from == cover.call)
    return cover.risks if fits else frozenset()


def _joined(old: _Cover | None, new: _Cover) -> _Cover:
    """Return what is covered after two checks. Of two calls in different fields, the later one is."""
    if old is None or new.call is None or old.call not in (None, new.call):
        return new
    return old if old.call is None else _Cover(old.risks | new.risks, new.call, old.whole or new.whole)


def _after_writing(cover: _Cover, fields: frozenset[str] | None) -> _Cover | None:
    """Return what is still covered after a step that may write some fields; None for any."""
    if cover.call is None or (fields is not None and fields.isdisjoint(cover.call)):
        return cover
    return None


def _entering(node: Node, taint: _Text) -> _Text:
    """Return the state in which a subgraph is entered: its fields have other names."""
    cover = taint.cover
    if cover is not None and cover.call is not None:
        tool, args = (next(iter(inner_names(node, name)), None) for name in cover.call)
        cover = None if tool is None or args is None else cover._replace(call=(tool, args))
    return _Text(frozenset(), cover, entered=True, called=False)


def _outside(graph: GraphDefinition, node: Node, inner: GraphDefinition, cover: _Cover) -> _Cover | None:
    """Return what is covered behind a subgraph, where the fields have other names."""
    if cover.call is None:
        return cover
    if inner.topology.fans or node.cache is not None:
        return None  # a branch may have written the fields, and a step from the cache has checked nothing
    tool, args = (next(iter(outer_names(graph, node, inner, name)), None) for name in cover.call)
    return None if tool is None or args is None else cover._replace(call=(tool, args))


def _inside(node: str, steps: Sequence[WitnessStep]) -> tuple[WitnessStep, ...]:
    return tuple(replace(step, node=f"{node}/{step.node}") for step in steps)


def _is_guard(node: Node) -> bool:
    return node.kind == "guard" and is_shipped(type(node))


def _guarded_fields(graph: GraphDefinition) -> frozenset[str]:
    """Return the fields that guards look at."""
    found = {getattr(node, "field", None) for node in graph.nodes.values() if _is_guard(node)}
    return frozenset(sorted(name for name in found if name is not None)[:MOST_FIELDS])


def _followed_fields(places: Sequence[Place]) -> dict[int, frozenset[str]]:
    """Return the fields that guards look at, by the ids of graphs; in a subgraph also those that are handed to them."""
    found = {id(place.graph): _guarded_fields(place.graph) for place in places}
    ahead = [place.graph for place in places]
    for graph in ahead:
        for node in graph.nodes.values():
            if (inner := node.subgraph) is not None:
                known = found[id(inner)]
                handed = {theirs for outer, theirs in outputs_of(node).items() if outer in found[id(graph)]}
                if more := sorted(handed - known)[: MOST_FIELDS - len(known)]:
                    found[id(inner)] = known.union(more)
                    ahead.append(inner)
    return found


def _overwritten(graph: GraphDefinition, written: frozenset[str]) -> set[str]:
    """Return the fields whose earlier value may be gone after an update."""
    return {
        name for name in written if name not in graph.schema.fields or graph.schema.field(name).reducer not in KEEPING
    }


def _checked(graph: GraphDefinition, node: Node, outcome: str, taint: _Text) -> _Taint:
    """Return the state behind a guard.

    A guard on a field checks the text if the field was written since the text came. A result that is stopped is
    withheld, so nothing of it goes on. A guard on a call covers that call.
    """
    looks_at: str | None = getattr(node, "field", None)
    if looks_at is None:
        if outcome != "passed":
            return taint
        call = (str(getattr(node, "tool", "")), str(getattr(node, "args", "")))
        new = _Cover(frozenset(CHANGING), call, whole=False)
        return taint._replace(cover=_joined(taint.cover, new))
    if looks_at in taint.written and (outcome == "passed" or (outcome == "stopped" and _is_result(graph, looks_at))):
        return None
    if taint.cover is None:
        return taint
    return taint._replace(cover=_after_writing(taint.cover, updates_of(node)))


def _is_result(graph: GraphDefinition, name: str) -> bool:
    """Return True if a field has only messages with results of tools, which are the ones that a guard withholds."""
    annotation = graph.schema.field(name).annotation if name in graph.schema.fields else None
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if "Message" not in {getattr(one, "__name__", "") for one in kinds}:
        return False
    for node in graph.nodes.values():
        if node.subgraph is not None:
            inner = outputs_of(node).get(name)
            if not is_shipped(type(node)) or (inner is not None and not _is_result(node.subgraph, inner)):
                return False
        elif not (_is_guard(node) and getattr(node, "field", None) == name):
            fields = updates_of(node)
            of_a_call = not has_own_code(node) and node.ports().get("message") == name
            if (fields is None or name in fields) and not of_a_call:
                return False
    return True


# -- Tools that bring text from outside -----------------------------------------------------------------------------


def _graphs_from_outside(places: Sequence[Place], tools: Sequence[NodeTool] | None) -> tuple[set[int], set[int]]:
    """Return the ids of the graphs that may call an untrusted tool, and of those whose tools are not all known.

    What such a graph gives may contain the text of the tool's result, so it is untrusted when the graph is a tool.
    """
    sure, unknown, called = set[int](), set[int](), dict[int, set[int]]()
    for place in places:
        graph = id(_root_of(place).graph)
        for node in place.graph.nodes.values():
            found = callable_tools(node, tools, place.scope)
            if any(getattr(tool, "untrusted", False) for tool in found):
                sure.add(graph)
            if has_unknown_tools(node, tools, place.scope):
                unknown.add(graph)
            called.setdefault(graph, set()).update(id(tool_graph(tool)) for tool in found if tool_graph(tool))
    for known in (sure, unknown):
        while more := {graph for graph, inner in called.items() if inner & known} - known:
            known |= more
    return sure, unknown


def guarded(places: Sequence[Place], tools: Sequence[NodeTool] | None) -> Iterator[Proof]:
    """Yield a claim for each run that may call an untrusted tool, and one that changes something."""
    sure, unknown = _graphs_from_outside(places, tools)
    for root in [place for place in places if place.around is None]:
        mine = [place for place in places if _root_of(place) is root]
        nodes = [(place, node) for place in mine for node in place.graph.nodes.values() if node.subgraph is None]
        offered = {tool.name: tool for place, node in nodes for tool in callable_tools(node, tools, place.scope)}
        search = _Search(mine, tools, sure | unknown)
        sources = [tool.name for tool in offered.values() if search.is_source(tool)]
        targets = [tool.name for tool in offered.values() if tool.risk in CHANGING]
        if not sources or not targets:
            continue
        claim = CLAIM.format(sources=listed_names(sources), targets=listed_names(targets)) + root.where
        hit = search.through(root.graph, root.scope, None).hit
        if hit is None:
            yield Proof("guarded", claim, "proved", tool=root.tool)
            continue
        reason = f"without one it may call {listed_names(f'{tool.name} ({tool.risk})' for tool in search.met)}"
        certain = _Search(mine, tools, sure)
        if certain.through(root.graph, root.scope, None).hit is None:
            graphs = listed_names(name for name in sources if not certain.is_source(offered[name]))
            why = f"the tools of the graph behind {graphs} are not known: name them, tools=[...], or pass --tools"
            yield Proof("guarded", claim, "undecided", f"{reason}: {why}", hit, tool=root.tool)
            continue
        loose = [node for _, node in nodes if has_own_code(node) and node.tools is None and callable_tools(node, tools)]
        if loose:
            yield Proof("guarded", claim, "undecided", f"{reason}: name the tools of functions, tools=[...]", hit)
        else:
            yield Proof("guarded", claim, "refuted", reason, hit, tool=root.tool)


def _root_of(place: Place) -> Place:
    while place.around is not None:
        place = place.around
    return place
