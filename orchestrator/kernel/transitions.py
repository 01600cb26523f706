"""Sends tokens along the edges of an outcome, and opens forks and maps, also ordered ones (R1, R3, R9 to R12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.errors import StepError
from orchestrator.graph.isolation import listed
from orchestrator.graph.topology import END, STOP, Route
from orchestrator.kernel import endings, tokens
from orchestrator.kernel.merge import merged
from orchestrator.kernel.records import EndStatus, Failure
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameResult, FrameState, MapItem, OpenFork, OrderedMap, Phase, hash_id
from orchestrator.kernel.version import Rank, Version

_ENDS = frozenset({END, STOP})


def send(run: RunState, source: Activation, version: Version, outcome: str, error: Failure | None) -> None:
    """Send tokens along all edges that an outcome takes.

    Args:
        run: the run.
        source: the activation that ended.
        version: the state after it.
        outcome: the outcome that it took.
        error: the failure behind a reserved outcome.
    """
    frame, node, rank, forks = source.frame, source.node, source.rank, source.forks
    topology = frame.plan.topology
    for observer in run.observers:
        observer.sending(source, version, outcome, error)
    routes = topology.routes(node, outcome)
    if node in topology.fans:
        forks = _open_fork(frame, node, source.key, rank, version, forks)
    several = len(routes) > 1
    for number, route in enumerate(routes):
        target = route.target
        if several:
            rank = source.rank.branch(node, number)
        take_edge(run, frame, route.index)
        if target in _ENDS:
            _note_entry(frame, target, outcome)
        if route.each is not None:
            _open_map(run, source, version, route, rank, forks)
        else:
            key = hash_id(source.key, target, str(number))
            token = Activation(frame, key, target, version, rank, forks, source.stack, source.map_items)
            if error is not None:
                token.error = error
            _arrive(run, token)
    for observer in run.observers:
        observer.done()


def _note_entry(frame: FrameState, end: str, outcome: str) -> None:
    """Record the outcome by which an inner graph's end is entered: the node around it may take that outcome."""
    if frame.parent is not None and frame.result is None:
        if end == STOP:
            frame.entered.clear()  # nothing from the other branches counts (R9)
        frame.entered.add(outcome)


def take_edge(run: RunState, frame: FrameState, index: int) -> None:
    """Count an edge that is taken."""
    frame.counters.taken[index] += 1
    for observer in run.observers:
        observer.edge_taken(frame, index)


def _open_fork(
    frame: FrameState, vertex: str, key: str, rank: Rank, version: Version, forks: tuple[OpenFork, ...]
) -> tuple[OpenFork, ...]:
    """Return the open forks after a fork. An open fork is reused: a branch that loops back stays inside (R3)."""
    if any(entry.fork == vertex for entry in forks):
        return forks
    scope = frame.plan.topology.scope(vertex, frozenset(entry.fork for entry in forks))
    return (*forks, OpenFork(scope, hash_id(key, vertex), rank, version))


def _open_map(
    run: RunState, source: Activation, version: Version, route: Route, rank: Rank, forks: tuple[OpenFork, ...]
) -> None:
    frame, vertex, origin = source.frame, source.node, source.key
    if route.map_vertex is not None:
        # A map is a fork of its own: its items need keys that differ from those of other edges and items.
        vertex, origin = route.map_vertex, hash_id(source.key, route.map_vertex)
        forks = _open_fork(frame, vertex, origin, rank, version, forks)
    assert route.each is not None
    found = listed(version.values.get(route.each))
    items = list(found) if isinstance(found, (list, tuple)) else []
    entry = next(entry for entry in forks if entry.fork == vertex)
    outer = frozenset(e.fork for e in forks if e is not entry)
    if not items:
        target = _empty_target(frame, vertex, route.target, outer) or END
        key = hash_id(origin, route.target, "empty")
        _arrive(run, Activation(frame, key, target, version, rank, forks, source.stack, source.map_items))
        return
    stack = tuple(binding for binding in source.stack if binding[0] != vertex)
    ordered_map: OrderedMap | None = None
    if has_needs(items):
        ordered_map = OrderedMap(_empty_target(frame, vertex, route.target, outer), forks)
    needs = needed_indexes(items) if ordered_map is not None else ()
    branches: list[Activation] = []
    for index, item in enumerate(items):
        key = hash_id(origin, route.target, str(index))
        branch = rank.branch(source.node, index)
        full = (*stack, (vertex, item, route.each))
        members = source.map_items
        if ordered_map is not None:
            members = (*members, MapItem(ordered_map, index, needs[index], entry))
        branches.append(Activation(frame, key, route.target, version, branch, forks, full, members))
    if ordered_map is not None:
        for token in branches:
            _add_pending(run, token.map_items[-1], token)
        for member in ordered_map.items:
            if not member.missing:
                start_item(run, frame, member)
    elif route.target in _ENDS or route.target in frame.plan.topology.match:
        for token in branches:
            _arrive(run, token)
    elif frame.result is None:
        tokens.enqueue_all(run, branches)


def _add_pending(run: RunState, item: MapItem, token: Activation) -> None:
    ordered_map = item.ordered_map
    ordered_map.items.append(item)
    for need in item.needs:
        ordered_map.dependents.setdefault(need, []).append(item.index)
    token.phase = Phase.PENDING
    ordered_map.pending[item.index] = token
    tokens.add(run, token)


def _empty_target(frame: FrameState, fork: str, mapped: str, outer: frozenset[str]) -> str | None:
    return frame.plan.topology.empty_target(fork, mapped, outer)


def _arrive(run: RunState, token: Activation) -> None:
    """Move a token to its node, END or STOP."""
    frame = token.frame
    if frame.result is not None:
        return
    if token.node == END:
        frame.ended_versions.append(token.version)
        for entry in token.forks:
            entry.left = True
        for item in token.map_items:
            item.ended.append(token.version)
            frame.touched_items[id(item)] = item
    elif token.node == STOP:
        status: EndStatus = "exhausted" if frame.after_limit else "completed"
        endings.finish(run, frame, FrameResult(status, token.values, frame.spent_limit, taken=token.version.taken))
    else:
        tokens.place(run, token)


def settle_item(run: RunState, frame: FrameState, item: MapItem) -> None:
    """If the item is done, record it and start the items that were waiting only for this one."""
    if item.done or item.open or not item.started:
        return
    item.done = True
    item.versions = [token.version for token in tokens.in_order(frame, item.waiting.values())] + item.late
    ordered_map = item.ordered_map
    for index in ordered_map.dependents.get(item.index, ()):
        dependent = ordered_map.items[index]
        dependent.missing -= 1
        if not dependent.missing:
            start_item(run, frame, dependent)


def start_item(run: RunState, frame: FrameState, item: MapItem) -> None:
    """Start an item, or skip it because an item that it needs ended."""
    for observer in run.observers:
        observer.item_ready(item)
    ordered_map = item.ordered_map
    token = ordered_map.pending.pop(item.index, None)
    if token is None:
        return
    needed = [ordered_map.items[index] for index in item.needs]
    item.started = True
    tokens.remove(token)
    if ordered_map.target is not None and any(not other.versions for other in needed):
        frame.touched_items[id(item)] = item
        return
    if needed:
        try:
            token.version = _needed_version(frame, item, needed)
        except StepError as error:
            token.fault = Failure(type=type(error).__name__, message=str(error), node=token.node)
    if token.fault is not None:
        tokens.enqueue(run, token)
    else:
        tokens.place(run, token)


def _needed_version(frame: FrameState, item: MapItem, needed: Sequence[MapItem]) -> Version:
    ordered_map = item.ordered_map
    known = ordered_map.merged.get(item.needs)
    if known is None:
        # Without the fork's own version: all of these come from it, and R15 may have dropped it from their history.
        versions = [version for other in needed for version in other.versions or other.ended]
        versions = versions or [item.fork.version]
        key = hash_id(item.fork.key, *(str(index) for index in item.needs))
        known = ordered_map.merged[item.needs] = merged(frame, versions, key, item.fork.version)
    return known


_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types whose values have neither `id` nor `needs`."""


def _get(item: object, name: str) -> object:
    if isinstance(item, Mapping):
        return item.get(name)
    return getattr(item, name, None)


def _has(item: object, name: str) -> bool:
    return name in item if type(item) is dict or isinstance(item, Mapping) else hasattr(item, name)


def has_needs(items: Sequence[object]) -> bool:
    """Return True if the items have `id` and `needs`."""
    if _PLAIN.issuperset(map(type, items)):
        return False
    return any(_has(item, "needs") and _has(item, "id") for item in items)


def needed_indexes(items: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """Return the sorted indexes of the items that each item needs. `needs_error` must have found no error in them."""
    index = {_get(item, "id"): i for i, item in enumerate(items)}
    return tuple(tuple(sorted({index[need] for need in _needs(item) if need in index})) for item in items)


def _needs(item: object) -> Sequence[object]:
    found = _get(item, "needs")
    if found is None:
        return ()
    return tuple(found) if isinstance(found, (list, tuple, set, frozenset)) else (found,)


def needs_error(items: Sequence[object]) -> str | None:
    """Return the error in the items' ids and needs, if any: an unknown id, a duplicate id, a circle."""
    ids: dict[object, int] = {}
    for i, item in enumerate(items):
        name = _get(item, "id")
        try:
            if name in ids:
                return f"items {ids[name]} and {i} have the same id {name!r}"
            ids[name] = i
        except TypeError:
            return f"item {i} has an invalid id: {name!r}"
    for item in items:
        for need in _needs(item):
            try:
                known = need in ids
            except TypeError:
                known = False
            if not known:
                return f"item {_get(item, 'id')!r} needs {need!r}, and no item has that id"
    needs = needed_indexes(items)
    missing = [len(wanted) for wanted in needs]
    users: dict[int, list[int]] = {}
    for i, wanted in enumerate(needs):
        for need in wanted:
            users.setdefault(need, []).append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    done = 0
    while ready:
        done += 1
        for user in users.get(ready.pop(), ()):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if done == len(items):
        return None
    circle = [_get(items[i], "id") for i, count in enumerate(missing) if count]
    return f"items {', '.join(repr(name) for name in circle)} depend on each other in a circle"
