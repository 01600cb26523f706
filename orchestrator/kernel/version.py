"""State as versions: a step commits one, a fork copies the pointer, a join merges (R6, R7).

Versions are immutable. Those that no token and no other version points to are simply forgotten.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.errors import ConflictingUpdate, InvalidUpdate, message_of
from orchestrator.kernel.rank import FIRST, Rank, compare
from orchestrator.kernel.replacing import refuse_replaced

if TYPE_CHECKING:
    from orchestrator.graph.state import StateSchema


class Version:
    """A state, and the update that made it from its parents' (None for a fork's start or a merge)."""

    __slots__ = ("generation", "key", "node", "ops", "parents", "rank", "update", "values")

    def __init__(
        self,
        values: dict[str, object],
        *,
        parents: tuple[Version, ...] = (),
        key: str = "",
        node: str = "",
        rank: Rank = FIRST,
        update: Mapping[str, object] | None = None,
        ops: Mapping[str, str] | None = None,
    ) -> None:
        self.values, self.parents = values, parents
        self.key, self.node, self.rank = key, node, rank
        self.update, self.ops = update, ops
        self.generation: int = 1 + max([parent.generation for parent in parents]) if parents else 0

    def __deepcopy__(self, memo: object) -> Version:
        return self

    def __lt__(self, other: Version) -> bool:
        return self.rank < other.rank


class KeyedVersion(Version):
    """A version in a run that follows rules 1: between equal paths the key decides, which depends on the run's id."""

    __slots__ = ()

    def __lt__(self, other: Version) -> bool:
        order = compare(self.rank.path, other.rank.path)
        return order < 0 or (order == 0 and self.key < other.key)


def causes(one: Version, other: Version) -> bool:
    """Whether `one` is `other` or one of its ancestors."""
    if one is other:
        return True
    floor = one.generation
    seen: set[int] = set()
    stack = [other]
    while stack:
        for parent in stack.pop().parents:
            if parent is one:
                return True
            if parent.generation > floor and id(parent) not in seen:
                seen.add(id(parent))
                stack.append(parent)
    return False


def merge(
    schema: StateSchema,
    arrivals: Sequence[Version],
    *,
    key: str = "",
    local: Mapping[str, object] | None = None,
    own: Collection[str] = (),
    replaces_conflict: bool = True,
) -> Version:
    """The merge of versions: their nearest common one, plus every later update once.

    Causes come before effects, then the lowest branch first. `local` holds the values to give back to the
    fields that are a branch's own; without it those that are named in `own` get what the nearest common version has.
    `replaces_conflict` is false under rules 1, where only updates of plain fields can be in conflict.

    Raises:
        ConflictingUpdate: two updates of one plain field know nothing of each other, or two updates of a field with a
            reducer of which one replaces its value.
        InvalidUpdate: a reducer does not take what it takes in each branch alone.
    """
    tips = {id(version): version for version in arrivals}
    if len(tips) == 1 and not local:
        return arrivals[0]
    common, later = _since_common(list(tips.values()))
    if local is None:
        causing = {id(parent) for version in later for parent in version.parents}
        last = [version for version in tips.values() if id(version) not in causing]
        if len(last) == 1:  # the others are among its causes: there is nothing to merge
            return last[0]
        parted = common if len(last) == len(tips) else _since_common(last)[0]
        local = {name: parted.values[name] for name in own if name in parted.values}
    values = dict(common.values)
    writers: dict[str, Version] = {}
    fields = schema.fields
    ordered = _in_order(later)
    if replaces_conflict:
        refuse_replaced(schema, later, ordered, local or ())
    for version in ordered:
        update = version.update or {}
        if local:
            update = {name: value for name, value in update.items() if name not in local}
        for name in update:
            if fields[name].plain:
                before = writers.get(name)
                if before is not None and not causes(before, version):
                    raise ConflictingUpdate(
                        f"{before.node} and {version.node} both wrote {name!r} in branches that know nothing "
                        f"of each other; give {name!r} a reducer, or let one of them write another field"
                    )
                writers[name] = version
        values = _applied(schema, values, update, version)
    if local:
        values.update(local)
    return Version(values, parents=tuple(tips.values()), key=key)


def _applied(
    schema: StateSchema, values: Mapping[str, object], update: Mapping[str, object], version: Version
) -> dict[str, object]:
    try:
        return schema.apply(values, update, version.ops or {})
    except Exception as error:  # of a reducer of the user's: a fold has to come to an end all the same
        reducers = ", ".join(f"{name!r}" for name in update if not schema.fields[name].plain)
        raise InvalidUpdate(
            f"the update of {version.node} cannot be merged with those of other branches: a reducer ({reducers}) "
            f"raised {type(error).__name__}: {message_of(error)}"
        ) from error


def _since_common(tips: list[Version]) -> tuple[Version, list[Version]]:
    """The nearest version that all lines pass through, and all that came after it, effects before causes."""
    heap = [(-version.generation, id(version), version) for version in tips]
    heapq.heapify(heap)
    known = {id(version) for version in tips}
    later: list[Version] = []
    while len(heap) > 1:
        version = heapq.heappop(heap)[2]
        later.append(version)
        for parent in version.parents:
            if id(parent) not in known:
                known.add(id(parent))
                heapq.heappush(heap, (-parent.generation, id(parent), parent))
    return heap[0][2], later


def _in_order(versions: list[Version]) -> list[Version]:
    """Those that update: causes before effects; among those that are ready, the lowest branch first.

    A version that updates nothing only hands on what it follows: it never holds up what comes after it.
    What is ready from the start is sorted once, as branches nearly are; only what becomes ready later needs a heap.
    """
    inside = {id(version) for version in versions}
    missing: dict[int, int] = {}
    children: dict[int, list[Version]] = {}
    ready: list[Version] = []
    silent: list[Version] = []
    for version in versions:
        parents = {id(parent) for parent in version.parents} & inside
        missing[id(version)] = len(parents)
        for parent in parents:
            children.setdefault(parent, []).append(version)
        if not parents:
            (ready if version.update else silent).append(version)
    ready.sort(reverse=True)
    later: list[Version] = []
    ordered: list[Version] = []
    while silent or ready or later:
        if silent:
            version = silent.pop()
        elif later and not (ready and ready[-1] < later[0]):
            version = heapq.heappop(later)
        else:
            version = ready.pop()
        if version.update:
            ordered.append(version)
        for child in children.get(id(version), ()):
            missing[id(child)] -= 1
            if missing[id(child)]:
                continue
            if child.update:
                heapq.heappush(later, child)
            else:
                silent.append(child)
    return ordered
