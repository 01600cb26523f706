"""Conflicts of `replace(value)`: it counts as an update without a reducer (R7).

If a concurrent branch updated the field too, only the order of branches would decide whether that update is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orchestrator.errors import ConflictingUpdate
from orchestrator.graph.state import StateSchema
from orchestrator.kernel.version import Version


def check_replacements(
    schema: StateSchema,
    newest_first: Sequence[Version],
    ordered: Sequence[Version],
    local: Collection[str],
    hidden: Mapping[int, Collection[str]],
) -> None:
    """Check the updates that meet in a merge.

    Args:
        schema: its fields are checked.
        newest_first: all versions of the merge, effects before causes.
        ordered: those with an update, in the order of R6.
        local: fields that each branch has to itself and that are not merged.
        hidden: id of a version -> fields whose update in it is not merged.

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
    other update that has number n among its causes is itself a cause of number n + 1."""
    replacing = {id(version) for version in ordered if _replaces(version, name)}
    number: dict[int, int] = {}
    """Version -> number of replacements among its causes, its own included."""
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
