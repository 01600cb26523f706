"""Branches that a join did not wait for and let run: they end when they reach it (R8)."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.kernel.state import Activation, FrameState, OpenFork
from orchestrator.kernel.version import Version


def plain_fields(frame: FrameState, versions: Iterable[Version], since: Version) -> frozenset[str]:
    """The fields without a reducer that were updated, and those whose whole value was replaced.

    Args:
        frame: the graph.
        versions: the versions that are merged.
        since: the version that all of them come from; what led to it does not count.
    """
    fields = frame.plan.schema.fields
    found: set[str] = set()
    known = {id(since)}
    ahead = list(versions)
    while ahead:
        version = ahead.pop()
        if id(version) in known:
            continue
        known.add(id(version))
        ops = version.ops or {}
        found.update(name for name in version.update or () if fields[name].plain or ops.get(name) == "replace")
        ahead.extend(version.parents)
    return frozenset(found)


def absorb(frame: FrameState, token: Activation, entry: OpenFork) -> None:
    """End a token at a join that fired without it. What it updated is merged when the graph ends, as at END.

    The fields that the join merged are as if the branch had not updated them.

    Args:
        frame: the graph.
        token: the token; it is not one of the live ones yet.
        entry: the open fork that the join belongs to.
    """
    version, hidden = token.version, entry.passed[token.node]
    if hidden:
        before = entry.version.values
        values = {**version.values, **{name: before[name] for name in hidden if name in before}}
        version = Version(values, parents=(version,), key=token.key, hidden=hidden)
    frame.ended_versions.append(version)
    for one in token.forks:
        one.left = True
    for item in token.map_items:
        # Items that need it go on as they would if it waited: they see what it updated.
        (item.late if entry in item.ordered_map.forks else item.ended).append(token.version)
        frame.touched_items[id(item)] = item
