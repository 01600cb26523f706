"""Proof that tool calls which change something are approved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from orchestrator.graph.faults import listed_names
from orchestrator.graph.proofs.paths import ENDS, Move, Paths, Spot, may_run_out
from orchestrator.graph.proofs.places import (
    CHANGING,
    Calls,
    Place,
    Scope,
    approval_of,
    asks_about_calls,
    calls_of,
    has_own_code,
    inner_names,
    inputs_of,
    outputs_of,
    updates_of,
)
from orchestrator.graph.report import Proof, WitnessStep
from orchestrator.graph.topology import DONE, START

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition, Node
    from orchestrator.graph.refs import NodeTool

# -- The approvals on each path to a node, on which the claims about confirmations are based -------------------
# A confirmation without a call approves what comes after it, each node once: a node that runs a second time needs
# another one. A confirmation of a call, `Confirm(tool=, args=)`, approves that call: the approval is valid until the
# call has been made, a node may have written the call's fields, or a join restores `local` ones to their values from
# before the fork. A denial revokes what the same confirmation approved before.


class Parted(NamedTuple):
    """A fork at which a token with an approval of a call separated from others with the same approval."""

    fork: tuple[int, str]
    """The graph's number and the fork."""
    state: int
    """Number for the place of the fork's node together with the approvals there."""
    edge: int
    each: bool
    """True if the token carries a map item."""
    open: bool = True
    """True while the fork is open; False after its branches have joined."""
    alone: bool = True
    """True if the token has met no branch of that fork, so the other branches do not affect it."""


_Confirmation: TypeAlias = tuple[int, Scope, str]
"""The number of a graph, the tools declared around it, and the name of a node."""


class ApprovedCall(NamedTuple):
    """An approved call, identified by the fields that contain it."""

    tool: str
    args: str
    whole: bool
    """True if a person was asked, whatever the tool's risk."""
    parted: frozenset[Parted] = frozenset()
    """Forks after the approval in which a node makes the call."""
    by: _Confirmation | None = None
    """The confirmation that approved it; None where that makes no difference."""

    @property
    def plain(self) -> ApprovedCall:
        """Return the call without its confirmation and the forks."""
        return self._replace(parted=frozenset(), by=None)


class Approved(NamedTuple):
    """The approvals that a token has at its place."""

    next: bool = False
    """True if the next run of the examined node is approved."""
    calls: frozenset[ApprovedCall] = frozenset()

    @property
    def plain(self) -> Approved:
        """Return the approvals without their forks."""
        return Approved(self.next, frozenset(call.plain for call in self.calls))


_State: TypeAlias = tuple[Spot, Approved]


class _Before(NamedTuple):
    """The way to a state: the previous state, the step, and the path inside its subgraph."""

    state: _State
    step: WitnessStep
    inner: _Summary | None = None
    end: _State | None = None
    last: WitnessStep | None = None


@dataclass
class _Summary:
    """The approvals after all paths through one graph."""

    came: dict[_State, _Before | None] = field(default_factory=dict)
    exits: dict[tuple[str, Approved], tuple[_State, WitnessStep]] = field(default_factory=dict)
    """Outcome that leads to END or STOP, and the approvals there -> how they were reached."""
    anywhere: dict[Approved, _State] = field(default_factory=dict)
    hit: tuple[WitnessStep, ...] | None = None
    """A path to the node without an approval."""

    def path_to(self, state: _State) -> tuple[WitnessStep, ...]:
        """Return the steps to a state, without its own step."""
        steps: list[WitnessStep] = []
        at = self.came[state]
        while at is not None:
            steps.append(at.step)
            if at.inner is not None and at.end is not None:
                inside = [*at.inner.path_to(at.end), *([at.last] if at.last is not None else [])]
                steps += [_inside(at.step.node, step) for step in reversed(inside)]
            at = self.came[at.state]
        return tuple(reversed(steps))


def _inside(node: str, step: WitnessStep) -> WitnessStep:
    return replace(step, node=f"{node}/{step.node}")


class ApprovalSearch:
    """Searches a graph and those inside it for a path to one node without an approval."""

    def __init__(
        self, places: Sequence[Place], place: Place, node: str, tools: Sequence[NodeTool] | None, *, strict: bool
    ) -> None:
        graph = place.graph
        self.paths: dict[int, Paths] = {id(place.graph): place.paths for place in places}
        self.graph, self.scope, self.node, self.strict = graph, place.scope, node, strict
        self.done: dict[tuple[int, Scope, Approved], _Summary] = {}
        self._writers: dict[tuple[int, str], frozenset[str] | None] = {}
        target = graph.nodes[node]
        self.target, self.tools = target, tools
        self.others: dict[str, None] = {}
        """Confirmations that may ask about other tools with the names of those that the node calls."""
        self.parts: dict[object, int] = {}
        self.uses: dict[Parted, tuple[str, bool]] = {}
        """Fork -> the node that makes a call with an approval that other branches may have, and True if another
        approval may cover it as well.
        """
        self.at_target: set[Parted] = set()
        self.covering: set[_Confirmation | None] = set()
        """Confirmations whose approvals cover the examined node's calls."""
        self.refused: frozenset[Parted] = frozenset()
        """Forks after which an approval is assumed not to cover the call."""
        self._users: dict[tuple[int, str, ApprovedCall], bool] = {}
        self.call, self.own = target.called_from, has_own_code(target) or target.effect == "irreversible"

    def through(self, graph: GraphDefinition, scope: Scope, given: Approved) -> _Summary:
        """Follow all paths of a graph that is entered with some approvals, in a given scope of tools."""
        known = self.done.get((id(graph), scope, given))
        if known is not None:
            return known
        paths = self.paths[id(graph)]
        first: _State = (paths.start, given)
        summary = self.done[id(graph), scope, given] = _Summary({first: None})
        ahead = [first]
        for state in ahead:
            spot, approved = state
            summary.anywhere.setdefault(approved, state)
            here = self._is_target(graph, scope, spot.vertex) and paths.runs(spot)
            self._note_uses(paths, spot, approved, here=here)
            if here and not self._covers(approved):
                summary.hit = (*summary.path_to(state), WitnessStep(self.node))
                return summary
            for before, target, after in self._following(paths, scope, state):
                if before.inner is not None and before.inner.hit is not None:
                    hit = (_inside(spot.vertex, step) for step in before.inner.hit)
                    summary.hit = (*summary.path_to(state), *hit)
                    return summary
                if target.vertex in ENDS:
                    summary.exits.setdefault((before.step.outcome, after), (state, before.step))
                elif (target, after) not in summary.came:
                    summary.came[target, after] = before
                    ahead.append((target, after))
        return summary

    def _is_target(self, graph: GraphDefinition, scope: Scope, name: str) -> bool:
        return graph is self.graph and name == self.node and scope == self.scope

    def _covers(self, approved: Approved) -> bool:
        if approved.next:
            return True
        return any(self._is_covering(call) and call.parted.isdisjoint(self.refused) for call in approved.calls)

    def _is_covering(self, call: ApprovedCall) -> bool:
        return call.whole if self.own else (call.tool, call.args) == self.call

    def _note_uses(self, paths: Paths, spot: Spot, approved: Approved, *, here: bool) -> None:
        node = paths.graph.nodes.get(spot.vertex)
        if node is None or not paths.runs(spot):
            return
        for call in approved.calls:
            covering = here and self._is_covering(call)
            if covering and not approved.next:
                self.covering.add(call.by)
            if covering or node.called_from == (call.tool, call.args):
                for part in call.parted:
                    self.uses.setdefault(part, (spot.vertex, approved.next))
                if covering and not approved.next:
                    self.at_target |= call.parted

    def shared(self) -> tuple[frozenset[Parted], frozenset[Parted]]:
        """Return the forks after which one approval is used twice, and those for which that is possible."""
        sure: set[Parted] = set()
        unsure: set[Parted] = set()
        for part in self.at_target:
            for use, (_, also) in self.uses.items():
                if use.state == part.state and use.open and (part.each or use.each or use.edge != part.edge):
                    certain = part.open and part.alone and use.alone and not also
                    (sure if certain else unsure).add(part)
        return frozenset(sure), frozenset(unsure)

    def _parted(self, paths: Paths, scope: Scope, state: _State, move: Move, approved: Approved) -> Approved:
        """Return the approvals on one of several ways that are all taken."""
        spot, _ = state
        others = any(move.outcome == one.outcome and move.edge != one.edge for one in paths.moves(spot))
        if not approved.calls or not (move.each or others) or move.target.vertex in ENDS or not move.target.forks:
            return approved
        fork = move.target.forks[-1]
        key = (id(paths.graph), scope, spot, approved.plain, move.outcome)
        number = self.parts.setdefault(key, len(self.parts))
        part = Parted((id(paths.graph), fork), number, move.edge, move.each, alone=not move.firing)
        calls = (
            call._replace(parted=call.parted | {part}) if self._is_used_in(paths, fork, call.plain) else call
            for call in approved.calls
        )
        return approved._replace(calls=frozenset(calls))

    def _is_used_in(self, paths: Paths, fork: str, call: ApprovedCall) -> bool:
        """Return True if a node in a branch of a fork may make an approved call."""
        key = (id(paths.graph), fork, call)
        if key not in self._users:
            nodes = paths.graph.nodes
            inside = {spot.vertex for spot in paths.spots if spot.vertex in nodes and fork in paths.inside(spot)}
            self._users[key] = any(
                (inner_names(nodes[name], call.tool) and inner_names(nodes[name], call.args))
                or nodes[name].called_from == (call.tool, call.args)
                or (paths.graph is self.graph and name == self.node)
                for name in inside
            )
        return self._users[key]

    @staticmethod
    def _met(paths: Paths, forks: Sequence[str], approved: Approved, *, closes: bool) -> Approved:
        """Return the approvals after branches of the first of some forks have met."""
        here = {(id(paths.graph), fork) for fork in forks}
        calls = (
            call._replace(
                parted=frozenset(
                    part._replace(open=part.open and not closes, alone=False) if part.fork in here else part
                    for part in call.parted
                )
            )
            for call in approved.calls
        )
        return approved._replace(calls=frozenset(calls))

    def _following(self, paths: Paths, scope: Scope, state: _State) -> Iterator[tuple[_Before, Spot, Approved]]:
        for before, target, after in self._ways_on(paths, scope, state):
            yield before, target, self._joined(paths, target, after)
        spot, approved = state
        for why, target in paths.jumps_from(spot):
            left = self._restored(paths, paths.inside(spot), approved)
            left = self._met(paths, list(paths.topology.fans), left, closes=True)
            yield _Before(state, WitnessStep(spot.vertex, "", why)), target, left

    def _ways_on(self, paths: Paths, scope: Scope, state: _State) -> Iterator[tuple[_Before, Spot, Approved]]:
        spot, approved = state
        name = spot.vertex
        node = None if name == START else paths.graph.nodes[name]
        inner = None if node is None else node.subgraph
        if node is not None and inner is not None:
            yield from self._around(paths, scope, state, node, inner)
        else:
            for move in paths.moves(spot):
                after = approved if node is None else self._after(paths.graph, scope, name, move.outcome, approved)
                step = WitnessStep(name, move.outcome, move.note)
                yield _Before(state, step), move.target, self._parted(paths, scope, state, move, after)

    def _joined(self, paths: Paths, target: Spot, approved: Approved) -> Approved:
        """Return the approvals where a token arrives: at a join, branches become one."""
        if target.vertex in ENDS or not paths.waits(target):
            return approved
        fork, closes = paths.topology.match[target.vertex], paths.topology.closes[target.vertex]
        if fork is None:
            return approved
        approved = self._met(paths, target.forks[target.forks.index(fork) :], approved, closes=closes)
        return self._restored(paths, (fork,), approved) if closes else approved

    def _restored(self, paths: Paths, forks: Sequence[str], approved: Approved) -> Approved:
        """Return the approvals after forks: `local` fields written by a branch regain their previous values."""
        if not approved.calls or not forks:
            return approved
        fields = paths.graph.schema.fields
        kept = []
        for call in approved.calls:
            names = [name for name in (call.tool, call.args) if name in fields and fields[name].local]
            if not any(self._may_write(paths, fork, name) for fork in forks for name in names):
                kept.append(call)
        return approved._replace(calls=frozenset(kept))

    def _may_write(self, paths: Paths, fork: str, name: str) -> bool:
        """Return True if a branch of a fork may write a field."""
        key = (id(paths.graph), fork)
        if key not in self._writers:
            nodes = paths.graph.nodes
            inside = {spot.vertex for spot in paths.spots if spot.vertex in nodes and fork in paths.inside(spot)}
            written = [self._written(nodes[vertex]) for vertex in inside]
            known = [one for one in written if one is not None]
            self._writers[key] = frozenset().union(*known) if len(known) == len(written) else None
        found = self._writers[key]
        return found is None or name in found

    def _around(
        self, paths: Paths, scope: Scope, state: _State, node: Node, inner: GraphDefinition
    ) -> Iterator[tuple[_Before, Spot, Approved]]:
        spot, approved = state
        name = spot.vertex
        entered = self._enter(node, approved)
        summary = self.through(inner, scope.inside(node), entered)
        if summary.hit is not None:
            yield _Before(state, WitnessStep(name), summary), spot, approved
            return
        cut_short = may_run_out(inner)
        for move in paths.moves(spot):
            step = WitnessStep(name, move.outcome, move.note)
            if move.outcome not in node.outcomes or cut_short:
                for found, end in summary.anywhere.items():
                    after = self._leave(node, approved, entered, found)
                    yield (
                        _Before(state, step, summary, end),
                        move.target,
                        self._parted(paths, scope, state, move, after),
                    )
            if move.outcome in node.outcomes:
                for (label, found), (end, last) in summary.exits.items():
                    if self._may_take(node, inner, move.outcome, label):
                        after = self._leave(node, approved, entered, found)
                        brought = self._brought(paths.graph, node, inner, found)
                        after = after._replace(calls=after.calls | brought)
                        after = self._parted(paths, scope, state, move, after)
                        yield _Before(state, step, summary, end, last), move.target, after

    @staticmethod
    def _may_take(node: Node, inner: GraphDefinition, outcome: str, label: str) -> bool:
        """Return True if a subgraph may take an outcome after a token has entered its END by some label."""
        if inner.topology.fans or node.outcomes == (DONE,):
            return True
        return outcome == (label if label in node.outcomes else DONE)

    def _enter(self, node: Node, approved: Approved) -> Approved:
        calls = {
            call._replace(tool=tool, args=args)
            for call in approved.calls
            for tool in inner_names(node, call.tool)
            for args in inner_names(node, call.args)
        }
        return Approved(approved.next, frozenset(calls))

    def _leave(self, node: Node, approved: Approved, entered: Approved, found: Approved) -> Approved:
        """Return the approvals after a subgraph, without a call that was passed in and used."""
        written = self._written(node)
        left = found.plain.calls
        kept = []
        for call in approved.calls:
            handed = [
                one.plain
                for one in entered.calls
                if one.tool in inner_names(node, call.tool) and one.args in inner_names(node, call.args)
            ]
            touched = written is None or not written.isdisjoint((call.tool, call.args))
            if not touched and all(one in left for one in handed):
                kept.append(call)
        return Approved(found.next, frozenset(kept))

    def _brought(
        self, graph: GraphDefinition, node: Node, inner: GraphDefinition, found: Approved
    ) -> frozenset[ApprovedCall]:
        """Return the approved calls of an inner graph that the outer state's fields contain after it ends."""
        if inner.topology.fans or node.cache is not None:
            return frozenset()
        outputs, inputs = outputs_of(node), inputs_of(node)
        written = [self._written(one) for one in inner.nodes.values()]

        def ours(name: str) -> list[str]:
            names = [outer for outer, theirs in outputs.items() if theirs == name]
            if name in inputs and inputs[name] not in outputs:
                names += [inputs[name]] if all(one is not None and name not in one for one in written) else []
            return [one for one in names if one in graph.schema.fields]

        return frozenset(
            call._replace(tool=tool, args=args)
            for call in found.calls
            for tool in ours(call.tool)
            for args in ours(call.args)
            if not (self.strict and _reduced(graph, (tool, args)))
        )

    def _written(self, node: Node) -> frozenset[str] | None:
        """Return the fields that a step may write; None for any."""
        found = updates_of(node)
        return frozenset() if found is None and not self.strict else found

    def _after(self, graph: GraphDefinition, scope: Scope, name: str, outcome: str, approved: Approved) -> Approved:
        following, calls = approved
        node = graph.nodes[name]
        if self._is_target(graph, scope, name):
            following = False
            if self.own:
                calls = frozenset(call for call in calls if not call.whole)
        made = node.called_from
        if made is not None:
            calls = frozenset(call for call in calls if (call.tool, call.args) != made)
        approval = approval_of(node)
        if approval is None:
            written = self._written(node)
            kept = (c for c in calls if written is not None and written.isdisjoint((c.tool, c.args)))
            return Approved(following, frozenset(kept))
        if approval.call is None:
            return Approved(outcome == approval.outcome, calls)
        calls = frozenset(call for call in calls if (call.tool, call.args) != approval.call)
        if outcome != approval.outcome or (self.strict and _reduced(graph, approval.call)):
            return Approved(following, calls)
        asks = asks_about_calls(node, scope, approval.unasked, self.target, self.scope, self.tools)
        if asks is False or (asks is None and self.strict):
            self.others[name] = None
        else:
            by = (id(graph), scope, name)
            calls |= {ApprovedCall(*approval.call, whole=not approval.unasked, by=by)}
        return Approved(following, calls)


def _reduced(graph: GraphDefinition, call: tuple[str, str]) -> list[str]:
    """Return the fields of a call that have a reducer: their values may differ from what was approved."""
    fields = graph.schema.fields
    return [name for name in call if name in fields and not fields[name].plain]


# -- Every path to a call that changes something passes a confirmation of it -----------------------------------


ONCE = "the call is approved once"
NOTHING = "no node calls a tool of risk write or higher"


def confirmed(places: Sequence[Place], tools: Sequence[NodeTool] | None) -> Iterator[Proof]:
    """Yield a claim for each node that may call a tool that changes something."""
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
        return Proof("confirmed", claim, "proved", _by_policy(places, doubting.covering), tool=place.tool)
    trusting = ApprovalSearch(places, place, name, tools, strict=False)
    certain = trusting.through(root.graph, root.scope, Approved()).hit
    if certain is not None:
        claim = f"every path to {certain[-1].node} passes a confirmation"
    if certain is not None and calls.changing:
        reason = f"without one it may call {listed_names(calls.changing)}"
        if "its effect is irreversible" in calls.changing:
            reason = "its effect is irreversible"
        elif trusting.others:
            reason += f"; {listed_names(trusting.others)} asks about another tool of that name"
        return Proof("confirmed", claim, "refuted", reason, certain, tool=place.tool)
    if certain is not None:
        return Proof("confirmed", claim, "undecided", calls.unknown, certain, tool=place.tool)
    writers = listed_names(dict.fromkeys(step.node for step in strict if _unknown_writer(root.graph, step.node)))
    reason = f"{writers} may write the call that was approved: declare writes="
    if not writers and doubting.others:
        reason = f"{listed_names(doubting.others)} may ask about another tool of the same name: pass --tools"
    elif not writers:
        reason = "the call that is made may differ from the approved one, as its fields are merged: leave reducers off"
    return Proof("confirmed", claim, "undecided", reason, strict, tool=place.tool)


def _made_twice(
    places: Sequence[Place], place: Place, name: str, tools: Sequence[NodeTool] | None, found: ApprovalSearch
) -> tuple[bool, str, tuple[WitnessStep, ...]] | None:
    """Return the reason why two branches make a call with one approval, and the path of one of them; None if none do.

    It follows whether they certainly make the call, or may make it.
    """
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


def _by_policy(places: Sequence[Place], covering: Collection[_Confirmation | None]) -> str:
    """Return a note on the confirmations that permit calls without asking, and on these calls."""
    found = []
    for place in places:
        for name, node in place.graph.nodes.items():
            approval = approval_of(node)
            if approval is not None and (id(place.graph), place.scope, name) in covering:
                risks = [risk for risk in CHANGING if risk in approval.unasked]
                reviewed = [risk for risk in risks if risk in approval.reviewed]
                passed = [risk for risk in risks if risk not in reviewed]
                if passed:
                    found.append(
                        f"{place.named(name)} lets calls of risk {' and '.join(passed)} through without asking"
                    )
                if reviewed:
                    found.append(f"{place.named(name)} lets a model approve calls of risk {' and '.join(reviewed)}")
    return "; ".join(found)
