"""Which edges lead on and which lead back: a layout lets the former go down the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orchestrator.graph.topology import reached
from orchestrator.render.drawing import EdgeMark, Level


def backward(level: Level) -> frozenset[str]:
    """Keys of the edges that close a circle, seen from START."""
    return ordered(level.keys, level.edges)[1]


def ordered(keys: Iterable[str], edges: Iterable[EdgeMark]) -> tuple[list[str], frozenset[str]]:
    """The nodes so that all edges lead on but those that close a circle, and the latter's keys.

    Depth first from the first node on, in the order of the edges.
    """
    following: dict[str, list[EdgeMark]] = {key: [] for key in keys}
    for edge in edges:
        following[edge.source].append(edge)
    finished: list[str] = []
    back: set[str] = set()
    done: dict[str, bool] = {}  # False while it is on the way that is walked
    for root in following:
        if root not in done:
            _walk(root, following, done, finished, back)
    return finished[::-1], frozenset(back)


def ranks(level: Level) -> dict[str, int]:
    """How far down each node is at least: the longest way to it, circles left open."""
    in_order, back = ordered(level.keys, level.edges)
    found = dict.fromkeys(in_order, 0)
    following: dict[str, list[str]] = {key: [] for key in in_order}
    for edge in level.edges:
        if edge.key not in back:
            following[edge.source].append(edge.target)
    for key in in_order:
        for target in following[key]:
            found[target] = max(found[target], found[key] + 1)
    return found


def _walk(
    root: str, following: Mapping[str, list[EdgeMark]], done: dict[str, bool], finished: list[str], back: set[str]
) -> None:
    done[root] = False
    stack = [(root, iter(following[root]))]
    while stack:
        key, rest = stack[-1]
        for edge in rest:
            if edge.target not in done:
                done[edge.target] = False
                stack.append((edge.target, iter(following[edge.target])))
                break
            if not done[edge.target]:
                back.add(edge.key)
        else:
            done[key] = True
            finished.append(key)
            stack.pop()


def dominators(keys: Iterable[str], edges: Iterable[EdgeMark]) -> dict[str, str | None]:
    """The nodes in order, each with the nearest one that every way from its root to it passes; None for roots.

    A root is the first node, and then each one that no earlier root leads to. Cooper, Harvey and Kennedy, "A
    Simple, Fast Dominance Algorithm" (2001).
    """
    keys, edges = list(keys), list(edges)
    owner = _owners(keys, edges)
    inner = [edge for edge in edges if owner[edge.source] == owner[edge.target]]
    rank = {key: number for number, key in enumerate(ordered(keys, inner)[0])}
    before: dict[str, list[str]] = {key: [] for key in keys}
    for edge in inner:
        before[edge.target].append(edge.source)
    found: dict[str, str | None] = {key: key if owner[key] == key else None for key in rank}
    changed = True
    while changed:
        changed = False
        for key in rank:
            if owner[key] == key:
                continue
            known = [source for source in before[key] if found[source] is not None]
            nearest = known[0]
            for other in known[1:]:
                nearest = _meet(nearest, other, found, rank)
            if found[key] != nearest:
                found[key], changed = nearest, True
    return {key: None if owner[key] == key else found[key] for key in rank}


def _owners(keys: list[str], edges: list[EdgeMark]) -> dict[str, str]:
    """Node -> the root that leads to it first."""
    following: dict[str, list[str]] = {key: [] for key in keys}
    for edge in edges:
        following[edge.source].append(edge.target)
    owner: dict[str, str] = {}
    for root in keys:
        if root not in owner:
            owner.update(dict.fromkeys(reached(following, [root], owner), root))
    return owner


def _meet(one: str, other: str, found: Mapping[str, str | None], rank: Mapping[str, int]) -> str:
    while one != other:
        while rank[one] > rank[other]:
            one = found[one] or one
        while rank[other] > rank[one]:
            other = found[other] or other
    return one
