"""Merges of versions: their nearest common one, plus every later update once (R6, R7)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any

from orchestrator.errors import ConflictingUpdate, InvalidUpdate, message_of
from orchestrator.graph.state import StateSchema
from orchestrator.kernel.rank import order_among
from orchestrator.kernel.replacements import check_replacements
from orchestrator.kernel.version import Version, causes

_NOTHING: frozenset[str] = frozenset()


def merge(
    schema: StateSchema,
    arrivals: Sequence[Version],
    *,
    key: str = "",
    local: Mapping[str, object] | None = None,
    own: Collection[str] = (),
) -> Version:
    """The merge of versions: their nearest common one, plus every later update once.

    Causes are applied before effects, then the lowest branch first.

    Args:
        schema: reduces the updates.
        arrivals: the versions.
        key: of the merge.
        local: values to restore in the fields that each branch has to itself. Without it the fields named in `own`
            get the values of the nearest common version.
        own: names of those fields.

    Raises:
        ConflictingUpdate: two concurrent updates of one plain field, or two of a field with a reducer of which one
            replaces its value.
        InvalidUpdate: a reducer raised an error though it takes each branch's updates alone.
    """
    tips = {id(version): version for version in arrivals}
    if len(tips) == 1 and not local:
        return arrivals[0]
    common, later = _since_common(list(tips.values()))
    if local is None:
        causing = {id(parent) for version in later for parent in version.parents}
        last = [version for version in tips.values() if id(version) not in causing]
        if len(last) == 1:  # it has the others among its causes: nothing to merge
            return last[0]
        parted = common if len(last) == len(tips) else _since_common(last)[0]
        local = {name: parted.values[name] for name in own if name in parted.values}
    values = dict(common.values)
    writers: dict[str, Version] = {}
    fields = schema.fields
    hidden = _hidden(later, tips)
    ordered = _in_order(later, order_among(later))
    check_replacements(schema, later, ordered, local or (), hidden)
    for version in ordered:
        update = version.update or {}
        left_out = hidden.get(id(version))
        if local or left_out:
            update = {k: v for k, v in update.items() if k not in (local or ()) and k not in (left_out or ())}
        for name in update:
            if fields[name].plain:
                before = writers.get(name)
                if before is not None and not causes(before, version):
                    raise ConflictingUpdate(
                        f"{before.node} and {version.node} both wrote {name!r} in concurrent branches; "
                        f"give {name!r} a reducer, or let one of them write another field"
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
    except Exception as error:  # a user's reducer can raise anything, and the fold must still come to an end
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


def _hidden(newest_first: list[Version], tips: Collection[int]) -> dict[int, frozenset[str]]:
    """Version -> the fields that every way from it to what is merged hides; versions without any are left out."""
    if all(version.hidden is None for version in newest_first):
        return {}
    found: dict[int, frozenset[str]] = {}
    seen = set(tips)  # they are merged in full, whatever else leads to them
    for version in newest_first:  # all that follow it come before it
        below = found.get(id(version), _NOTHING) | (version.hidden or _NOTHING)
        for parent in map(id, version.parents):
            found[parent] = found.get(parent, _NOTHING) & below if parent in seen else below
            seen.add(parent)
    return {version: fields for version, fields in found.items() if fields}


def _in_order(versions: list[Version], order: Callable[[Version], Any]) -> list[Version]:
    """The versions with an update: causes before effects, and of those that are ready the lowest branch first.

    A version without an update only passes on the one before it: it never delays what comes after it.
    Versions ready from the start are sorted once, as branches nearly are; those that become ready later need a heap.
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
    ready.sort(key=order, reverse=True)
    if not children:  # none is a cause of another one, as where the branches of a map have one step each
        return ready[::-1]
    later: list[tuple[Any, int, Version]] = []
    tie = count()
    ordered: list[Version] = []
    while silent or ready or later:
        if silent:
            version = silent.pop()
        elif later and not (ready and order(ready[-1]) < later[0][0]):
            version = heapq.heappop(later)[2]
        else:
            version = ready.pop()
        if version.update:
            ordered.append(version)
        for child in children.get(id(version), ()):
            missing[id(child)] -= 1
            if missing[id(child)]:
                continue
            if child.update:
                heapq.heappush(later, (order(child), next(tie), child))
            else:
                silent.append(child)
    return ordered
