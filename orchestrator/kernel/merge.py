"""The versions that steps make, and merges: the nearest common version, plus every later update once (R6, R7)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any

from orchestrator.errors import ConflictingUpdate, InvalidUpdate, message_of
from orchestrator.graph.state import StateSchema
from orchestrator.kernel.state import Activation, FrameState
from orchestrator.kernel.version import Version, causes, order_among

_NOTHING: frozenset[str] = frozenset()


def merge(
    schema: StateSchema,
    arrivals: Sequence[Version],
    *,
    key: str = "",
    local: Mapping[str, object] | None = None,
    own: Collection[str] = (),
) -> Version:
    """Merge versions: their nearest common one, plus every later update once.

    Causes are applied before effects, then the lowest branch first.

    Args:
        schema: reduces the updates.
        arrivals: the versions.
        key: key of the merge.
        local: values to restore in fields that are local to a branch. Without them, the fields named in `own` get the
            values of the nearest common version.
        own: names of those fields.

    Raises:
        ConflictingUpdate: two concurrent branches updated one plain field, or one of two updates of a field with a
            reducer replaces its value.
        InvalidUpdate: a reducer raised an error although it accepts each branch's updates separately.
    """
    tips = {id(version): version for version in arrivals}
    if len(tips) == 1 and not local:
        return arrivals[0]
    common, later = _since_common(list(tips.values()))
    if local is None:
        causing = {id(parent) for version in later for parent in version.parents}
        last = [version for version in tips.values() if id(version) not in causing]
        if len(last) == 1:  # this version has all others among its causes: there is nothing to merge
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
    except Exception as error:  # a user's reducer can raise anything, and the fold must still finish
        reducers = ", ".join(f"{name!r}" for name in update if not schema.fields[name].plain)
        raise InvalidUpdate(
            f"the update of {version.node} cannot be merged with those of other branches: a reducer ({reducers}) "
            f"raised {type(error).__name__}: {message_of(error)}"
        ) from error


def _since_common(tips: list[Version]) -> tuple[Version, list[Version]]:
    """Return the nearest version on all lines, and all versions after it, effects before causes."""
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
    """Return version -> fields hidden on every way to the merged versions; versions without any are left out."""
    if all(version.hidden is None for version in newest_first):
        return {}
    found: dict[int, frozenset[str]] = {}
    seen = set(tips)  # these are merged in full, whatever else leads to them
    for version in newest_first:  # all versions that follow it come before it
        below = found.get(id(version), _NOTHING) | (version.hidden or _NOTHING)
        for parent in map(id, version.parents):
            found[parent] = found.get(parent, _NOTHING) & below if parent in seen else below
            seen.add(parent)
    return {version: fields for version, fields in found.items() if fields}


def _in_order(versions: list[Version], order: Callable[[Version], Any]) -> list[Version]:
    """Return the versions with an update: causes before effects; among those that are ready, the lowest branch first.

    A version without an update only passes on the previous one: it never delays its successors. Versions ready from the
    start are sorted once, because branches are nearly sorted; those that become ready later need a heap.
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
    if not children:  # none is a cause of another, as when each branch of a map has one step
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


def check_replacements(
    schema: StateSchema,
    newest_first: Sequence[Version],
    ordered: Sequence[Version],
    local: Collection[str],
    hidden: Mapping[int, Collection[str]],
) -> None:
    """Check for conflicts of `replace(value)`, an update without a reducer, with other updates in a merge.

    If a concurrent branch updated the field too, only the order of branches would decide whether that update is kept.

    Args:
        schema: its fields are checked.
        newest_first: all versions of the merge, effects before causes.
        ordered: those with an update, in the order of R6.
        local: fields that are local to a branch and are not merged.
        hidden: id of a version -> fields whose update in that version is not merged.

    Raises:
        ConflictingUpdate: a branch replaced a field's value, and another branch updated it.
    """
    replaced = {name for version in ordered if version.ops for name in version.ops if _replaces(version, name)}
    for name in schema.fields:
        if name in replaced and name not in local and not schema.fields[name].plain:
            left_out = {one for one, names in hidden.items() if name in names}
            _check(name, newest_first, [version for version in ordered if id(version) not in left_out])


def _replaces(version: Version, name: str) -> bool:
    return version.ops is not None and version.ops.get(name) == "replace"


def _check(name: str, newest_first: Sequence[Version], ordered: Sequence[Version]) -> None:
    """Number the field's replacements along every line. Without a conflict they form one chain 1, 2, 3, ..., and every
    other update that has number n among its causes is itself a cause of number n + 1.
    """
    replacing = {id(version) for version in ordered if _replaces(version, name)}
    number: dict[int, int] = {}
    """Version -> number of replacements among its causes, including itself."""
    for version in reversed(newest_first):
        known = max([number.get(id(parent), 0) for parent in version.parents], default=0)
        number[id(version)] = known + (id(version) in replacing)
    following: dict[int, int] = {}
    """Version -> the lowest number of a replacement that it is a cause of."""
    last = len(newest_first) + 1
    for version in newest_first:
        mine = number[id(version)] if id(version) in replacing else following.get(id(version), last)
        for parent in version.parents:
            following[id(parent)] = min(mine, following.get(id(parent), last))
    chain: dict[int, Version] = {}
    for version in ordered:
        if id(version) in replacing and chain.setdefault(number[id(version)], version) is not version:
            raise _conflict(name, chain[number[id(version)]], version, version)
    for version in ordered:
        if version.update and name in version.update and id(version) not in replacing:
            after = chain.get(number[id(version)] + 1)
            if after is not None and following.get(id(version), last) != number[id(version)] + 1:
                first = ordered.index(version) < ordered.index(after)
                raise _conflict(name, *((version, after) if first else (after, version)), after)


def _conflict(name: str, one: Version, other: Version, replacing: Version) -> ConflictingUpdate:
    return ConflictingUpdate(
        f"{one.node} and {other.node} both wrote {name!r} in concurrent branches, and "
        f"{replacing.node} replaced its whole value; let it take the field's reducer, or replace after the join"
    )


def values_after(
    activation: Activation,
    update: Mapping[str, object],
    ops: Mapping[str, str],
    reduced: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return the values of the state after an update of an activation.

    Args:
        activation: the step.
        update: field -> value, as in its record.
        ops: field -> `replace` or `extend`.
        reduced: values that reducers returned. They are kept, even if the reducers' code has changed since.
    """
    schema, values = activation.frame.plan.schema, activation.version.values
    if not reduced:
        return schema.apply(values, update, ops)
    known = schema.fields
    rest = {name: value for name, value in update.items() if name not in reduced or name not in known}
    return {**schema.apply(values, rest, ops), **schema.decode(reduced)}


def step_version(
    activation: Activation,
    update: Mapping[str, object],
    ops: Mapping[str, str],
    reduced: Mapping[str, object] | None = None,
    *,
    alone: bool = False,
) -> Version:
    """Return the version after an activation: its own, if it neither updates the state nor took events.

    Args:
        activation: the step.
        update: see `values_after`.
        ops: see `values_after`.
        reduced: see `values_after`.
        alone: True if it will never be merged with another version; then its history is left out.
    """
    version, taken = activation.version, activation.taken
    if update or reduced:
        values = values_after(activation, update, ops, reduced)
    elif taken == version.taken:
        return version
    else:
        values = version.values
    if alone:
        return Version(values, key=activation.key, taken=taken)
    return Version(
        values,
        parents=(version,),
        key=activation.key,
        node=activation.node,
        rank=activation.rank,
        update=update,
        ops=ops,
        taken=taken,
    )


def merged(frame: FrameState, versions: Sequence[Version], key: str, fork: Version | None = None) -> Version:
    """Merge versions; local fields get their values at `fork`, or where the branches separated.

    Raises:
        ConflictingUpdate: see `merge`.
        InvalidUpdate: see `merge`.
    """
    plan = frame.plan
    local: dict[str, object] | None = None
    if fork is not None:
        local = {name: fork.values[name] for name in plan.local if name in fork.values}
    return merge(plan.schema, versions, key=key, local=local, own=plan.local)
