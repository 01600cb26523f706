"""State as versions: a step commits one, a fork copies the pointer, a join merges (R6).

Versions are immutable. Those without a token or version that points to them are garbage.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.kernel.rank import FIRST, Rank


class Version:
    """A state, and the update that made it from its parent's (None for a first state or a merge)."""

    __slots__ = ("generation", "hidden", "key", "node", "ops", "parents", "rank", "taken", "update", "values")

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
        taken: int = 0,
        hidden: frozenset[str] | None = None,
    ) -> None:
        self.values, self.parents = values, parents
        self.key, self.node, self.rank = key, node, rank
        self.update, self.ops = update, ops
        self.hidden = hidden
        """Fields whose updates a merge takes from its causes only where another way leads to them (R8)."""
        generation = 0
        for parent in parents:
            taken |= parent.taken
            if parent.generation >= generation:
                generation = parent.generation + 1
        self.taken: int = taken
        """The events that the step that made it, or its causes, took: bit n stands for event number n of the run."""
        self.generation: int = generation

    def __deepcopy__(self, memo: object) -> Version:
        return self


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
